"""A simulated vLLM on a simulated clock, and searches that tune it: what `benchmarks/search.py` runs.

All numbers are made up, plausible and never measured. Everything but the machine is real: autotune's own loop
with its sampler, lessons and gate, and Optuna for the rivals.
"""
