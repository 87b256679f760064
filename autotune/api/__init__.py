"""A study in Python: trials, points, requests, failures and lessons as pandas frames, figures, the verdict.

    import autotune
    study = autotune.open("studies/qwen3-8b.db")

Nothing is ever written: the study may be running. Every frame's columns are in docs/api.md.
"""

import warnings

try:
    import pandas as _pandas
except ModuleNotFoundError as error:
    if error.name != "pandas":
        raise
    raise ModuleNotFoundError(
        "autotune.open needs pandas; install it with: pip install 'vllm-autotune[notebook]'", name="pandas"
    ) from None

with warnings.catch_warnings():
    # Optuna brings tqdm, which asks every notebook for a progress bar's widgets. Nothing here has one.
    warnings.filterwarnings("ignore", message="IProgress not found")
    from autotune.api.answers import Best, Fitting
    from autotune.api.study import Study, open  # noqa: A004 - reads as `autotune.open`, its public name

__all__ = ["Best", "Fitting", "Study", "open"]

del _pandas
