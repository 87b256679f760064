"""A file is replaced as a whole, or stays."""

from pathlib import Path

import pytest

from autotune.errors import EnvironmentFault
from autotune.files.replace import replace_text


def test_it_is_replaced_and_nothing_else_is_left(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    replace_text(path, "old")
    with path.open(encoding="utf-8") as reader:
        replace_text(path, "n\u00e9w\n")
        assert reader.read() == "old"
    assert path.read_text(encoding="utf-8") == "n\u00e9w\n"
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]
    assert path.stat().st_mode & 0o777 == 0o644


def test_where_it_cannot_be_written_the_reason_is_told(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFault, match=r"nowhere/report\.html: cannot be written: No such file"):
        replace_text(tmp_path / "nowhere" / "report.html", "text")
    (tmp_path / "folder").mkdir()
    with pytest.raises(EnvironmentFault, match="folder: cannot be written"):
        replace_text(tmp_path / "folder", "text")
    assert [file.name for file in tmp_path.iterdir()] == ["folder"]
