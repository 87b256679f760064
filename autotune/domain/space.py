"""The search space: parameters with their domains, conditions, constraints and fixed settings.

A `Configuration` holds the values of the *active* parameters only; a parameter whose `when` is false is
absent, and vLLM's own default then applies. The empty configuration is vLLM as it comes.
"""

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

from autotune.domain.expression import Expression

Value = bool | int | float | str
"""What one parameter can be set to."""

Json = Value | None | list["Json"] | dict[str, "Json"]
"""What a fixed flag can be set to: a scalar, a list (several words after the flag) or a JSON object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IntDomain:
    """Whole numbers from `low` to `high`, both included, in steps of `step` (never with `log`)."""

    low: int
    high: int
    step: int = 1
    log: bool = False

    def __post_init__(self) -> None:
        _check_range(self.low, self.high, self.step, self.log)

    def __contains__(self, value: object) -> bool:
        if not isinstance(value, int) or isinstance(value, bool):
            return False
        return self.low <= value <= self.high and (value - self.low) % self.step == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FloatDomain:
    """Real numbers from `low` to `high`, both included; in steps of `step` where one is given."""

    low: float
    high: float
    step: float | None = None
    log: bool = False

    def __post_init__(self) -> None:
        _check_range(self.low, self.high, self.step, self.log)

    def __contains__(self, value: object) -> bool:
        if not isinstance(value, int | float) or isinstance(value, bool):
            return False
        return self.low <= value <= self.high and (
            self.step is None or _whole_steps(value - self.low, self.step)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CategoricalDomain:
    """One of the listed values, in no order; a bool parameter is one with the choices False and True."""

    choices: tuple[Value, ...]

    def __post_init__(self) -> None:
        if not self.choices:
            raise ValueError("`choices` must name at least one value")
        # 1, 1.0 and true are one value to Optuna, which looks a choice up by equality.
        if len(set(self.choices)) != len(self.choices):
            raise ValueError(f"`choices` names a value twice: {list(self.choices)}")

    def __contains__(self, value: object) -> bool:
        return any(type(c) is type(value) and c == value for c in self.choices)


Domain = IntDomain | FloatDomain | CategoricalDomain


def _check_range(low: float, high: float, step: float | None, log: bool) -> None:
    """Hold the rules Optuna has for a numeric distribution, so that a bad one is refused with the file."""
    if not all(math.isfinite(bound) for bound in (low, high, step or 1)):
        raise ValueError(f"`low`, `high` and `step` must be finite, but are {low}, {high} and {step}")
    if low > high:
        raise ValueError(f"`low` <= `high` must hold, but low = {low} and high = {high}")
    if step is not None and step <= 0:
        raise ValueError(f"`step` must be above 0, but is {step}")
    if log and low <= 0:
        raise ValueError(f"`low` must be above 0 with `log = true`, but is {low}")
    if log and step not in (None, 1):
        raise ValueError("`step` and `log = true` cannot be combined")
    if step is not None and not _whole_steps(high - low, step):
        raise ValueError(f"`high` must be whole steps of {step} above `low` = {low}, and {high} is not")


def _whole_steps(distance: float, step: float) -> bool:
    """Whether `distance` is a multiple of `step`, with Optuna's allowance for the rounding of decimals."""
    return abs(distance / step - round(distance / step)) < 1e-8


class TargetKind(StrEnum):
    """Where a setting goes when the server is launched."""

    FLAG = "flag"
    """A command-line flag, `--max-num-seqs 8`."""
    ENV = "env"
    """An environment variable of the server, `OMP_NUM_THREADS=8`."""
    JSON = "json"
    """A key inside a flag that takes a JSON object, `--speculative-config '{"method": "ngram"}'`."""


_FLAG_NAME = re.compile(r"--(?!no-)[a-z0-9]+(-[a-z0-9]+)*")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """`name` is the flag with its dashes or the variable; `keys` leads into the JSON object, else empty."""

    kind: TargetKind
    name: str
    keys: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        # Anything else could end up as another word of the command line.
        if self.kind is TargetKind.ENV:
            if not _ENV_NAME.fullmatch(self.name):
                raise ValueError(f"{self.name!r} is no name of an environment variable")
        elif not _FLAG_NAME.fullmatch(self.name):
            raise ValueError(
                f"{self.name!r} is no flag: it is written in its long form, `--max-num-seqs`, without `no-`"
            )
        if bool(self.keys) != (self.kind is TargetKind.JSON) or not all(self.keys):
            raise ValueError(f"{self}: keys lead into a JSON object, and into nothing else")

    def __str__(self) -> str:
        return ".".join((self.name, *self.keys))


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One thing the search may change. A value listed in `omit` puts nothing on the command line."""

    name: str
    domain: Domain
    target: Target
    when: Expression | None = None
    omit: tuple[Value, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraint:
    """A condition every launched configuration fulfils, and the reason for it in plain words."""

    require: Expression
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixed:
    """A setting that is the same in every trial, the baseline included."""

    target: Target
    value: Json


@dataclass(frozen=True, kw_only=True)  # without slots, so that the digest, asked for all the time, is kept
class Configuration:
    """The values of the active parameters of one trial; equal ones have equal digests."""

    values: Mapping[str, Value] = field(default_factory=dict)

    @cached_property
    def digest(self) -> str:
        """12 hexadecimal digits that do not depend on the order of the parameters."""
        return _digest({name: self.values[name] for name in sorted(self.values)})


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnStart:
    """A configuration that the author of the space wants tried first, and perhaps why.

    It may say less than a configuration does: what it leaves out is as usual.
    """

    name: str
    configuration: Configuration
    why: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSpace:
    """All of it. `parameters` are in the file's order; a `when` names earlier parameters only."""

    name: str
    parameters: tuple[Parameter, ...]
    constraints: tuple[Constraint, ...] = ()
    fixed: tuple[Fixed, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Parameters that can have no effect on this machine, each with the reason; for the user to read."""
    starts: tuple[OwnStart, ...] = ()
    """Tried first, in this order."""

    def parameter(self, name: str) -> Parameter:
        """The parameter called `name`; KeyError where there is none."""
        for parameter in self.parameters:
            if parameter.name == name:
                return parameter
        raise KeyError(name)

    def is_active(self, parameter: Parameter, values: Mapping[str, Value]) -> bool:
        """Whether `parameter` takes part, given the values chosen for the parameters before it."""
        return parameter.when is None or parameter.when.holds(values, absent=False)

    def violated(self, configuration: Configuration) -> Constraint | None:
        """The first constraint that `configuration` breaks; one on an absent parameter is not broken."""
        for constraint in self.constraints:
            if not constraint.require.holds(configuration.values, absent=True):
                return constraint
        return None

    @property
    def digest(self) -> str:
        """12 hexadecimal digits; in two spaces with the same digest the same is searched in the same way.

        The order of parameters and choices counts, since the sampler goes by it; names, reasons and the order
        of fixed settings do not. Nor do start points: they change nothing of what can be tried or how it is
        measured, and a study goes on with one more of them, which is how "try this as well" is said.
        """
        return _digest(
            {
                "parameters": [repr(parameter) for parameter in self.parameters],
                "constraints": [constraint.require.source for constraint in self.constraints],
                "fixed": {f"{fixed.target.kind} {fixed.target}": fixed.value for fixed in self.fixed},
            }
        )


def _digest(content: object) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]
