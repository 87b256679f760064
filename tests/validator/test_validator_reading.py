"""What is read of a configuration tells any two apart that differ."""

import enum
from dataclasses import dataclass
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from autotune.host.in_vllm.reading import Reading, folded

Tree = Any  # what vLLM's own objects are to whoever reads them

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False)
    | st.text(max_size=5)
)
NAMES = st.text("ab_", min_size=1, max_size=3)
TREES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=12,
)


class Mode(enum.IntEnum):
    FAST = 1


@dataclass
class Part:
    size: int
    other: object = None


def flat(tree: object) -> dict[str, object]:
    return dict(folded(Reading().read({"x": tree}).values.items()))


def exactly(tree: Tree) -> Tree:
    """What has to be told apart: 1, 1.0 and True are three things."""
    match tree:
        case dict():
            return {name: exactly(part) for name, part in tree.items()}
        case list():
            return [exactly(part) for part in tree]
    return repr(tree)


@given(TREES, TREES)
def test_equal_readings_are_of_equal_trees(one: Tree, other: Tree) -> None:
    assert (exactly(flat(one)) == exactly(flat(other))) == (exactly(one) == exactly(other))


@given(st.lists(SCALARS, min_size=1, max_size=4), st.data())
def test_one_scalar_that_differs_is_enough(scalars: list[object], data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(scalars) - 1))
    changed = [*scalars]
    changed[place] = data.draw(SCALARS.filter(lambda new: repr(new) != repr(scalars[place])))
    assert exactly(flat({"deep": {"list": scalars}})) != exactly(flat({"deep": {"list": changed}}))


def test_objects_are_read_by_their_attributes_and_told_by_their_type() -> None:
    told = flat(Part(3, {"mode": Mode.FAST, "kinds": {"b", "a"}}))
    assert told["x"] == "Part"
    assert told["x.size"] == 3
    assert told["x.other"] == 'dict {"kinds": "set", "kinds.0": "a", "kinds.1": "b", "mode": "Mode.FAST"}'


def test_what_is_long_is_a_digest_that_still_differs() -> None:
    one, other = flat({"y": list(range(500))}), flat({"y": [*range(499), 0]})
    assert str(one["x.y"]).startswith("sha256:")
    assert one != other


def test_what_is_met_again_is_told_by_where_it_was() -> None:
    part = Part(1)
    part.other = part
    assert flat({"a": part, "b": part})["x.b"] == "@x.a"


def test_what_cannot_be_read_is_named() -> None:
    reading = Reading().read({"a": {"b": object(), "c": 1}, "f": lambda: reading})
    assert reading.opaque == [("a", "b"), ("f",)]
    assert reading.values[("a", "c")] == 1


def test_a_secret_is_told_by_its_digest_alone() -> None:
    told = str(flat({"api_key": ["geheim"], "hf_token": "geheim", "max_tokens": "offen"}))
    assert "geheim" not in told
    assert "offen" in told
