"""Ask a question that is never answered, for a test that kills this process, or interrupts it.

python own_a_validator.py TROUBLE    prints the pid of the validator's process, then what came of it
"""

import signal
import sys
import time

import psutil
from vllm_package import install

from autotune.domain.interrupt import Interrupt
from autotune.domain.launch import ServerArgs
from autotune.domain.trial import Interruption
from autotune.host.validator import VllmValidator

interrupt = Interrupt(time.monotonic, time.monotonic() + 60)
signal.signal(signal.SIGINT, lambda *_: interrupt.request(Interruption.USER))
with VllmValidator(install(), "tiny", interrupt=None if "keep" in sys.argv else interrupt) as validator:
    (child,) = psutil.Process().children()
    print(child.pid, flush=True)
    if sys.argv[1] != "import":
        validator.validate(ServerArgs())
    print("asking", flush=True)
    print(type(validator.validate(ServerArgs(flags=("--trouble", sys.argv[1])))).__name__, flush=True)
    if "keep" in sys.argv:
        sys.stdin.readline()
        print(type(validator.validate(ServerArgs(flags=("--max-num-seqs", "2")))).__name__, flush=True)
