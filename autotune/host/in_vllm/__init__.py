"""Run by vLLM's own Python, where autotune is not installed: vLLM's check of configurations without a launch.

Standard library only, and every Python that vLLM has supported (3.8).
"""
