"""vLLM's own check of a search space's configurations, without launching any."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

from autotune.decide.space.sampling import sample
from autotune.domain.interrupt import Interrupt
from autotune.domain.launch import ServerArgs, server_args
from autotune.domain.machine import VllmInstall
from autotune.domain.space import Configuration, SearchSpace
from autotune.domain.validation import NotKnown, Refused
from autotune.host.validator import VllmValidator


def validator_of(
    vllm: VllmInstall, model: str, space: SearchSpace, interrupt: Interrupt | None = None
) -> VllmValidator:
    """The check for configurations of `space`. Its process is started, and has to be closed."""
    shared = server_args(space, Configuration()).env
    return VllmValidator(vllm, model, env=shared, interrupt=interrupt)


@dataclass(frozen=True, slots=True, kw_only=True)
class Draws:
    """What vLLM said of `asked` random configurations."""

    asked: int
    refused: Mapping[str, Sequence[ServerArgs]]
    """By its words, where those that differ in numbers alone are the same; the most frequent first."""
    not_known: Mapping[str, int]
    """Why it could not tell, and of how many."""


def draw_and_ask(space: SearchSpace, vllm: VllmInstall, model: str, draws: int) -> Draws:
    """Put random configurations that keep the constraints to vLLM; the same for the same space.

    Takes as long as an import of vLLM and 0.2 s for each. Raises ExpressionError as `sample` does.
    """
    rng = Random(0)  # noqa: S311 - reproducible on purpose
    drawn = [configuration for _ in range(draws) if (configuration := sample(space, rng)) is not None]
    refused: dict[str, dict[str, list[ServerArgs]]] = {}
    not_known: dict[str, int] = {}
    with validator_of(vllm, model, space) as validator:
        for args in [server_args(space, configuration) for configuration in drawn]:
            match validator.validate(args):
                case Refused(text=text):
                    message = text.splitlines()[-1]
                    alike = refused.setdefault(re.sub(r"\d+", "0", message), {})
                    alike.setdefault(message, []).append(args)
                case NotKnown(why=why):
                    not_known[why] = not_known.get(why, 0) + 1
                case _:
                    pass
    groups = [(next(iter(alike)), [a for said in alike.values() for a in said]) for alike in refused.values()]
    return Draws(
        asked=len(drawn),
        refused=dict(sorted(groups, key=lambda group: len(group[1]), reverse=True)),
        not_known=not_known,
    )
