"""A line of a log is read the same whatever carries it, in every form vLLM's prefix has had."""

import pytest

from autotune.decide.failures.logline import MAX_CHARS, LogLine, parse

MESSAGE = "ValueError: no"


def one(raw: str) -> LogLine:
    (line,) = parse(raw)
    return line


@pytest.mark.parametrize(
    ("raw", "process", "pid", "level", "origin"),
    [
        (
            "(APIServer pid=1) ERROR 11-30 16:55:41 [api.py:347] ValueError: no",
            "APIServer",
            "1",
            "ERROR",
            "api.py:347",
        ),
        (
            "(Worker_PP0_TP1 pid=9) INFO 11-30 16:55:41 [w.py:1] ValueError: no",
            "Worker_PP0_TP1",
            "9",
            "INFO",
            "w.py:1",
        ),
        (
            "(VllmWorker-0 pid=9) WARNING 11-30 16:55:41 [w.py:1] ValueError: no",
            "VllmWorker-0",
            "9",
            "WARNING",
            "w.py:1",
        ),
        (
            "(VllmWorker rank=1 pid=9) ERROR 07-29 14:45:45 [m.py:557] ValueError: no",
            "VllmWorker",
            "9",
            "ERROR",
            "m.py:557",
        ),
        (
            "(VllmWorker TP0 pid=9) ERROR 07-29 14:45:45 [m.py:557] ValueError: no",
            "VllmWorker",
            "9",
            "ERROR",
            "m.py:557",
        ),
        (
            "(EngineCore_DP0 pid=3) (RayWorkerWrapper pid=9, ip=10.0.0.2) ValueError: no",
            "RayWorkerWrapper",
            "9",
            "",
            "",
        ),
        ("(EngineCore pid=837) ValueError: no", "EngineCore", "837", "", ""),
        ("ERROR 05-07 02:14:18 [core.py:396] ValueError: no", "", "", "ERROR", "core.py:396"),
        ("ERROR 02-22 00:01:41 engine.py:400] ValueError: no", "", "", "ERROR", "engine.py:400"),
        (
            "ERROR 02-22 00:01:41 [v1/engine/core.py:40] ValueError: no",
            "",
            "",
            "ERROR",
            "v1/engine/core.py:40",
        ),
        ("INFO:     ValueError: no", "", "", "INFO", ""),
        ("[rank0]: ValueError: no", "", "", "", ""),
        ("2025-05-06 01:02:03,456 - INFO - ValueError: no", "", "", "INFO", ""),
        ("ValueError: no", "", "", "", ""),
    ],
)
def test_every_prefix_is_taken_apart(raw: str, process: str, pid: str, level: str, origin: str) -> None:
    assert one(raw) == LogLine(process, pid, level, origin, MESSAGE)


@pytest.mark.parametrize(
    "carrier",
    [
        "{}\r\n",
        "{}   ",
        "vllm-serve-1  | {}",
        "2026-05-01T10:11:12.123456789Z {}",
        "2026-05-01T10:11:12Z stderr F {}",
        "vllm-1  | 2026-05-01T10:11:12.123456789Z {}",
        "May 01 10:11:12 gpu01 vllm[4417]: {}",
        "May  1 10:11:12.000123 gpu01 bash[4417]: {}",
        "2026-05-01T10:11:12+0200 gpu01 python3[41]: {}",
        "[pod/vllm-0/vllm] {}",
        "\x1b[36m(APIServer pid=1)\x1b[0m \x1b[31mERROR\x1b[0m 11-30 16:55:41 [api.py:347] ValueError: no",
        "[1;36m(APIServer pid=1)[0;0m ERROR 11-30 16:55:41 [api.py:347] ValueError: no",
        "{}^M",
        "\u2502 {}           \u2502",
        "\ufffd[1;36m(APIServer pid=1)\ufffd[0;0m ERROR 11-30 16:55:41 [api.py:347] ValueError: no",
        "#033[1;36m(APIServer pid=1)#033[0;0m ERROR 11-30 16:55:41 [api.py:347] ValueError: no",
        '{{"log": "{}\\n", "stream": "stderr"}}',
        '{{"message": "{}", "level": "error"}}',
    ],
)
def test_what_carries_a_line_is_taken_off(carrier: str) -> None:
    line = "(APIServer pid=1) ERROR 11-30 16:55:41 [api.py:347] ValueError: no"
    read = one(carrier.replace("{}", line).replace("{{", "{").replace("}}", "}"))
    assert (read.process, read.pid, read.level, read.body) == ("APIServer", "1", "ERROR", MESSAGE)


@pytest.mark.parametrize("body", ["  File", "    raise x", "  Value error, y", "a | b", "    [--a | --b]"])
def test_indentation_and_bars_of_the_message_stay(body: str) -> None:
    assert one(body).body == body
    assert one(f"(EngineCore pid=2) ERROR 11-30 17:22:52 [core.py:1510] {body}").body == body


def test_a_line_drawn_over_itself_is_several_lines() -> None:
    bodies = [line.body for line in parse("Loading:  0%\rLoading: 50%\rLoading: 100%\r\n")]
    assert bodies == ["Loading:  0%", "Loading: 50%", "Loading: 100%"]


def test_a_traceback_in_one_json_value_is_several_lines() -> None:
    bodies = [line.body for line in parse('{"message": "Traceback:\\n  File x\\nValueError: no"}')]
    assert bodies == ["Traceback:", "  File x", "ValueError: no"]


def test_what_only_looks_like_json_is_text() -> None:
    assert one('{"message": "cut off').body == '{"message": "cut off'
    assert one('{"other": 1}').body == '{"other": 1}'


def test_a_very_long_line_is_cut() -> None:
    assert len(one("x" * 10 * MAX_CHARS).body) == MAX_CHARS
