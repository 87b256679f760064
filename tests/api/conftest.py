"""A study with everything in it: failures, lessons, controls, finals."""

from pathlib import Path

import pytest
from studies_made import StudyMaker


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file; nothing may write to it."""
    return StudyMaker(path=tmp_path_factory.mktemp("made") / "made.db", trials=24, requests=12).write()
