"""The search space used where the user names none: what is worth trying on this machine, for this model.

No range cuts into what the workload needs, and a setting that can have no effect here is left out and named
with the reason.
"""

from dataclasses import replace

from autotune.decide.space.effects import no_effect
from autotune.decide.space.offers import OFFERS, Offer
from autotune.decide.space.site import GIB, Site
from autotune.domain.expression import Expression
from autotune.domain.machine import Machine, Model, VllmInstall
from autotune.domain.space import (
    CategoricalDomain,
    Constraint,
    Fixed,
    Parameter,
    SearchSpace,
    Target,
    TargetKind,
)
from autotune.domain.workload import Workload

_CONSTRAINTS = (
    Constraint(
        require=Expression.parse("max_num_batched_tokens >= max_num_seqs"),
        why="vLLM refuses a step that cannot hold one token of every running sequence",
    ),
)


MIN_CONTEXT_TOKENS = 8192
"""The context a server keeps unless the user asks for another. A shorter one costs memory nowhere but in the
largest request that is admitted, so that the search would happily cut it down to what the workload sends."""


def default_space(
    machine: Machine,
    vllm: VllmInstall,
    model: Model | None,
    workload: Workload,
    context_tokens: int = MIN_CONTEXT_TOKENS,
) -> SearchSpace:
    """The space for `model` under `workload`; `model` is None where nothing is known of it.

    No configuration limits the context to less than `context_tokens`, or than the model's if that is less.

    Holds for this vLLM's flags where they are known; `left_out` names every parameter that is not offered.
    """
    site = Site(machine=machine, vllm=vllm, model=model, workload=workload, context_tokens=context_tokens)
    parameters: list[Parameter] = []
    left_out: dict[str, str] = {}
    for name, offer in OFFERS.items():
        offered = _known_to(vllm, offer(site, name))
        if isinstance(offered, Parameter):
            parameters.append(offered)
        else:
            left_out[name] = offered
    names = {parameter.name for parameter in parameters}
    return SearchSpace(
        name=f"default-{vllm.device}",
        parameters=tuple(parameters),
        constraints=tuple(c for c in _CONSTRAINTS if c.require.names <= names),
        fixed=_fixed(site),
        left_out=left_out,
    )


def _known_to(vllm: VllmInstall, offer: Offer) -> Offer:
    """`offer` with the choices that this vLLM takes, or why there is nothing left to choose."""
    if isinstance(offer, str):
        return offer
    target = offer.target
    reason = no_effect(target.name, vllm.device)
    if reason is not None:
        return f"{target.name}: {reason}"
    if vllm.flags is None or target.kind is TargetKind.ENV:
        return offer
    fact = vllm.flags.get(target.name)
    if fact is None:
        return f"vLLM {vllm.version} has no {target.name}"
    if fact.choices is None or not isinstance(offer.domain, CategoricalDomain):
        return offer
    choices = tuple(choice for choice in offer.domain.choices if str(choice) in fact.choices)
    if len(choices) < 2:
        return f"vLLM {vllm.version} takes only {', '.join(fact.choices)} for {target.name}"
    return replace(offer, domain=CategoricalDomain(choices=choices))


def _fixed(site: Site) -> tuple[Fixed, ...]:
    """What a server needs to come up at all here: on a CPU, a KV cache of a stated size.

    Left to itself, vLLM takes 92 % of *all* host memory there, and ends at once where less than that is free.
    A stated size skips that check. More cache than the workload fills makes nothing faster, so that it is not
    searched either.
    """
    if not site.on_cpu:
        return ()
    # 3 GiB: the three processes of a server took 2.5 GiB with a tiny model. Half of the rest: the machine
    # has other work too. 32 GiB is more than a workload on a CPU fills; 1/4 GiB does for the tiniest.
    rest = site.machine.memory_bytes - (site.weight_bytes or 0) - 3 * GIB
    quarter = GIB // 4
    size = max(quarter, min(rest // 2, 32 * GIB) // quarter * quarter)
    flag = Target(kind=TargetKind.FLAG, name="--kv-cache-memory-bytes")
    if site.vllm.flags is None or flag.name in site.vllm.flags:
        return (Fixed(target=flag, value=size),)
    # Older versions know this variable only, in whole GiB.
    variable = Target(kind=TargetKind.ENV, name="VLLM_CPU_KVCACHE_SPACE")
    return (Fixed(target=variable, value=max(1, size // GIB)),)
