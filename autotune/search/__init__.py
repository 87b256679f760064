"""The Optuna study: which configuration comes next, and what came of the ones before."""
