"""Between autotune's domains and Optuna's distributions."""

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from autotune.domain.space import (
    CategoricalDomain,
    Configuration,
    Domain,
    FloatDomain,
    IntDomain,
    SearchSpace,
)


def distribution(domain: Domain) -> BaseDistribution:
    """The Optuna distribution with the same values."""
    match domain:
        case IntDomain(low=low, high=high, step=step, log=log):
            return IntDistribution(low=low, high=high, step=step, log=log)
        case FloatDomain(low=low, high=high, step=step, log=log):
            return FloatDistribution(low=low, high=high, step=step, log=log)
        case CategoricalDomain(choices=choices):
            return CategoricalDistribution(choices)


def distributions(space: SearchSpace, configuration: Configuration) -> dict[str, BaseDistribution]:
    """Those of the parameters that `configuration` sets."""
    return {name: distribution(space.parameter(name).domain) for name in configuration.values}
