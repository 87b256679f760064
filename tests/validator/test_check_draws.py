"""What a search space's author is told: what share of it vLLM refuses, and why."""

from vllm_package import VllmPackage, install

from autotune.domain.space import (
    CategoricalDomain,
    Fixed,
    IntDomain,
    Parameter,
    SearchSpace,
    Target,
    TargetKind,
)
from autotune.wiring.check import draw_and_ask

SPACE = SearchSpace(
    name="troubled",
    parameters=(
        Parameter(
            name="max_num_seqs",
            domain=IntDomain(low=1, high=1000),
            target=Target(kind=TargetKind.FLAG, name="--max-num-seqs"),
        ),
        Parameter(
            name="trouble",
            domain=CategoricalDomain(choices=("none", "value", "todo", "os")),
            target=Target(kind=TargetKind.FLAG, name="--trouble"),
        ),
    ),
    # Read while vLLM is imported: known from the start, or nothing could be said.
    fixed=(Fixed(target=Target(kind=TargetKind.ENV, name="VLLM_EARLY"), value=1),),
)


def test_refusals_are_grouped_by_their_reason_and_the_rest_is_counted(package: VllmPackage) -> None:
    package.write(
        "vllm/trouble.py",
        """
        def meet(kind, seqs):
            if kind == "value": raise ValueError(f"{seqs} is not the right number")
            if kind == "todo": raise NotImplementedError("not with this model")
            if kind == "os": raise OSError("no network")
        """,
    )
    engine = package.folder / "vllm/engine/arg_utils.py"
    text = engine.read_text().replace("meet(self.trouble, self.model", "meet(self.trouble, self.max_num_seqs")
    engine.write_text(text)
    said = draw_and_ask(SPACE, install(), "tiny", 24)
    assert said.asked == 24
    (todo, model), (wrong, value) = sorted(said.refused.items(), key=lambda group: group[0])
    assert todo == "NotImplementedError: not with this model"
    assert wrong.endswith("is not the right number")
    assert len({args.flags for args in value}) > 1, "numbers do not make another reason"
    assert all("todo" in args.flags and args.env == {"VLLM_EARLY": "1"} for args in model)
    assert said.not_known.keys() == {"OSError: no network"}
    assert 24 > len(value) + len(model) + said.not_known["OSError: no network"] > 3
    assert said == draw_and_ask(SPACE, install(), "tiny", 24)
