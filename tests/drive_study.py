"""Run a study on the fake vLLM in FOLDER and print each step, for a test that kills this process.

python drive_study.py FOLDER
"""

import sys
import time
from pathlib import Path

from bed import Bed, Watch

from autotune.domain.interrupt import Interrupt
from autotune.domain.trial import Step

FAKE = (sys.executable, "-S", "-I", str(Path(__file__).parent / "fakes" / "fake_vllm.py"))


def say(number: int, step: Step) -> None:
    print(number, step.value, flush=True)


bed = Bed(folder=Path(sys.argv[1]), command=FAKE, watch=Watch(at_step=say))
bed.loop(Interrupt(time.monotonic, time.monotonic() + 60)).run()
