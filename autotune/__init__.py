"""autotune finds the fastest vLLM server configuration that really works, within a wall-clock budget."""

__version__ = "0.1.0"
