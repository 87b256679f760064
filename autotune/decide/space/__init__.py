"""Search spaces: derived from machine and model, checked against a vLLM, and drawn from."""
