"""The benchmarks are scripts beside the package: their folder has to be on the path to be imported."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
