"""Says of one configuration after the other whether this vLLM takes it and what it makes of it, without
launching a server. One JSON object a line: {"ready": null}, or why vLLM cannot be asked; and then

    {"argv": ["MODEL", "--max-num-seqs", "8"], "env": {"NAME": "value", "TAKEN_AWAY": null}}     on stdin
    {"accepted": {"scheduler_config.max_num_seqs": 8, ...}}, {"refused": "text"} or {"not_known": "why"}

vLLM is imported once, and each question is put to two forks of that process, which must agree. So nothing
that vLLM caches or sets reaches the next answer, a crash costs one answer, and what is drawn anew each time
(`instance_id`) is told from what is configured. vLLM forks its own workers like that. GPUs are not touched:
vLLM 0.32 asks NVML alone when it builds a configuration (`platforms/cuda.py`), and CUDA is barred in case
that another version does not.

It has to be the first of its process group: it ends all of that group as soon as its stdin is closed.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
from typing import TYPE_CHECKING

from autotune.host.in_vllm.building import Vllm
from autotune.host.in_vllm.reading import folded

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TextIO

    from autotune.host.in_vllm.building import Pairs, Said
    from autotune.host.in_vllm.reading import Names, Scalar


def main() -> None:
    """Answer for as long as somebody asks."""
    questions, answers = _own_stdio()
    _end_with(questions, answers)
    try:
        vllm = Vllm()
    except BaseException as error:  # noqa: BLE001 (importing vLLM may raise anything, SystemExit too)
        _say(answers, {"ready": f"{type(error).__name__}: {error}"})
        return
    _say(answers, {"ready": None})
    for line in questions:
        question = json.loads(line)
        _say(answers, _ask(vllm, question["argv"], question["env"]))


def _own_stdio() -> tuple[TextIO, TextIO]:
    """stdin and stdout for this module alone: vLLM and what it imports print as they like."""
    questions = os.fdopen(os.dup(0), encoding="utf-8")
    # Half a character, of an argument that is no UTF-8, would be no JSON to whoever reads it.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8", errors="replace")
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    os.close(nothing)
    return questions, answers


def _end_with(questions: TextIO, answers: TextIO) -> None:
    """A process beside this one kills both when whoever asks is gone, whatever vLLM is doing just then."""
    if os.fork() == 0:
        try:
            answers.close()
            hung_up = select.poll()
            hung_up.register(questions, 0)
            hung_up.poll()
            os.killpg(0, signal.SIGKILL)
        finally:
            os._exit(1)


def _say(answers: TextIO, answer: Mapping[str, object]) -> None:
    print(json.dumps(answer, ensure_ascii=False), file=answers, flush=True)


def _ask(vllm: Vllm, argv: list[str], env: Mapping[str, str | None]) -> Mapping[str, object]:
    """What two forks agree on."""
    first = _fork(vllm, argv, env)
    # To have here what the fork had to import makes the next one several times as fast (0.5 s to 0.08 s).
    vllm.bring_in(first.get("modules", []))
    second = first if "not_known" in first else _fork(vllm, argv, env)
    if "not_known" in second:
        return {"not_known": second["not_known"]}
    if "made" in first and "made" in second:
        return {"accepted": _effective(first, second)}
    if first.get("refused") != second.get("refused"):
        return {"not_known": f"vLLM said: {first.get('refused')}, and then: {second.get('refused')}"}
    if second["late"]:
        return {"not_known": f"vLLM may look at {', '.join(second['late'])} before the check can set it"}
    return {"refused": first["refused"]}


def _fork(vllm: Vllm, argv: list[str], env: Mapping[str, str | None]) -> Said:
    """The answer of a new process that ends with it."""
    gc.collect()
    gc.freeze()  # else a collection in the fork would copy every page that has an object
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reading)
            with os.fdopen(writing, "w") as file:
                json.dump(vllm.answer(argv, env), file)
            os._exit(0)
        finally:
            os._exit(1)
    os.close(writing)
    with os.fdopen(reading) as file:
        said = file.read()
    status = os.waitpid(pid, 0)[1]
    if status == 0:
        answer: Said = json.loads(said)
        return answer
    how = f"signal {status & 127}" if status & 127 else f"exit status {status >> 8}"
    return {"not_known": f"vLLM ended with {how} when it was asked"}


def _effective(first: Said, second: Said) -> dict[str, Scalar]:
    """All that can tell two configurations apart; nothing where that is not sure to be all.

    What vLLM made of the settings counts, not what was asked for, except where nothing of that name was made
    of it: `--disable-log-stats` does not reach vLLM's configuration, nor does the API server's part.
    """
    if first["asked"] != second["asked"] or not first["readable"] or second["late"]:
        return {}
    made = _agreed(first["made"], second["made"])
    made_of = {names[-1] for names in made if len(names) <= 2}.intersection(first["engine"])
    asked = {("asked", *names): value for names, value in first["asked"] if names[0] not in made_of}
    env = {("env", *names): value for names, value in _agreed(first["env"], second["env"]).items()}
    return folded({**made, **asked, **env}.items())


def _agreed(first: Pairs, second: Pairs) -> dict[Names, Scalar]:
    """What is the same in both."""
    others = {tuple(names): value for names, value in second}
    return {tuple(names): value for names, value in first if others.get(tuple(names)) == value}
