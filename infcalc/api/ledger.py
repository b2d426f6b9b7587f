"""What fills each GPU, and what will the engine print about it?"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from infcalc.api.deployment import Deployment
from infcalc.api.sizing import deployment_budgets, page_settings
from infcalc.memory.blocks import plan
from infcalc.memory.ledger import Basis, ledger, longest_that_fits
from infcalc.spec.layers import RecurrentMixer

if TYPE_CHECKING:
    from infcalc.engines.evidence import Evidence
    from infcalc.engines.rules import Band, EngineRules
    from infcalc.memory.budget import Budget
    from infcalc.memory.ledger import Ledger
    from infcalc.spec.kv import KvFormat

_FEW_SEQUENCES = 16
_UNSTATED_FRACTIONS = {
    "total_gpu_memory": 0.004,
    "version": 0.008,
    "gpu": 0.008,
    "memory_fraction": 0.005,
    "draft": 0.015,
}
"""How much of the card the pool may differ for an input that a report leaves open."""
_UNSTATED_STEP_FRACTION = 0.25
"""How much of the activation more, or less, an unstated step size may mean."""
_FEW_GAIN_SHARE = 0.7
"""Of what few sequences would leave more, where their number is not stated."""


def deployment_ledger(
    deployment: Deployment, form: KvFormat, *, context_tokens: int, unstated: tuple[str, ...] = ()
) -> Ledger:
    """Return the ledger of a deployment's governing GPU at one KV precision.

    ``unstated`` names inputs that a report of somebody else's engine leaves open: the band grows by what they may be.
    """
    stages = deployment_budgets(deployment)
    if unstated:
        stages = tuple(_widened(deployment, stage, unstated) for stage in stages)
    basis = Basis.MEASURED if deployment.additions.weights_bytes is not None else Basis.EXACT
    return ledger(
        deployment.model,
        deployment.gpu,
        form,
        deployment.parallelism,
        deployment.rules,
        stages=stages,
        settings=page_settings(deployment),
        context_tokens=context_tokens,
        weights_basis=basis,
    )


def most_sequences(rules: EngineRules, book: Ledger) -> int:
    """Return the largest ``max_num_seqs`` with which the engine starts: each takes a block of every recurrent layer."""
    if not rules.refuses_more_states or not book.num_recurrent_groups:
        return sys.maxsize
    return max(1, book.kv_blocks)


def admitted_sequences(deployment: Deployment, form: KvFormat, context_tokens: int) -> int | None:
    """Return the most ``max_num_seqs`` with which the engine starts; None where it starts with what is asked.

    With fewer sequences the profiling run takes less, and leaves more blocks.
    """
    if not any(isinstance(run.layer.mixer, RecurrentMixer) for run in deployment.model.layers):
        return None

    def most(sequences: int) -> int:
        of = replace(deployment, max_num_seqs=sequences)
        return most_sequences(deployment.rules, deployment_ledger(of, form, context_tokens=context_tokens))

    high = deployment.max_num_seqs
    low = most(high)
    if high <= low:
        return None
    while low + 1 < high:
        middle = (low + high) // 2
        if middle <= most(middle):
            low = middle
        else:
            high = middle
    return low


def with_admitted_sequences(
    deployment: Deployment, form: KvFormat, context_tokens: int
) -> tuple[Deployment, list[str]]:
    """Return the deployment with as many sequences as the engine starts with, and a warning where those are fewer."""
    most = admitted_sequences(deployment, form, context_tokens)
    if most is None:
        return deployment, []
    blocks = deployment_ledger(deployment, form, context_tokens=context_tokens).kv_blocks
    said = (
        f"{deployment.model.name}: each running sequence takes a block of the recurrent layers' cache, of which there "
        f"are {blocks:,}; {deployment.rules.engine} refuses to start with max_num_seqs {deployment.max_num_seqs:,}: "
        f"--max-num-seqs {most} assumed here"
    )
    return replace(deployment, max_num_seqs=most), [said]


def longest_for(deployment: Deployment, form: KvFormat) -> int:
    """Return the largest ``max_model_len`` of which one sequence fits on every stage; 0 where none does."""
    settings = page_settings(deployment)
    lengths = []
    for stage in deployment_budgets(deployment):
        cut = plan(deployment.model, form, deployment.parallelism, deployment.rules, settings, stage=stage.stage)
        lengths.append(longest_that_fits(stage.least_pool_bytes, cut, deployment.rules, settings))
    return min(lengths)


def _widened(deployment: Deployment, stage: Budget, unstated: tuple[str, ...]) -> Budget:
    """Return a budget whose band also spans what the unstated inputs may be."""
    more_low = more_high = 0.0
    activation: Band = stage.activation
    if "max_num_seqs" in unstated:
        # Somebody may well have asked for few sequences at once.
        few = deployment_budgets(replace(deployment, max_num_seqs=min(deployment.max_num_seqs, _FEW_SEQUENCES)))
        gain = _FEW_GAIN_SHARE * max(0, few[stage.stage].kv_pool_bytes - stage.kv_pool_bytes)
        more_high = (more_high**2 + gain**2) ** 0.5
        activation = replace(activation, low_bytes=max(0, activation.low_bytes - round(gain)))
    shares = [
        deployment.gpu.cuda_total_bytes * fraction for name, fraction in _UNSTATED_FRACTIONS.items() if name in unstated
    ]
    if "max_num_batched_tokens" in unstated:
        shares.append(stage.activation.value_bytes * _UNSTATED_STEP_FRACTION)
    for share in shares:
        more_low, more_high = (more_low**2 + share**2) ** 0.5, (more_high**2 + share**2) ** 0.5
    below = stage.kv_pool_bytes - stage.kv_pool_low_bytes
    above = stage.kv_pool_high_bytes - stage.kv_pool_bytes
    return replace(
        stage,
        activation=activation,
        kv_pool_low_bytes=max(0, round(stage.kv_pool_bytes - (below**2 + more_low**2) ** 0.5)),
        kv_pool_high_bytes=round(stage.kv_pool_bytes + (above**2 + more_high**2) ** 0.5),
    )


def evidence() -> tuple[Evidence, ...]:
    """Return what each of these rules rests on."""
    from infcalc.engines.evidence import Evidence  # noqa: PLC0415 - only for the page on accuracy

    return (
        Evidence(
            rule="bands of unstated inputs",
            figures=(
                ", ".join(f"{name} {share:.1%} of the card" for name, share in _UNSTATED_FRACTIONS.items())
                + f"; step {_UNSTATED_STEP_FRACTION:.0%} of the activation; {_FEW_GAIN_SHARE:.0%} of what "
                f"{_FEW_SEQUENCES} sequences leave more; so that 72 to 92 % of the pools lie within (45 logs)"
            ),
            mechanism="an input that is not stated may be any in use",
            by_hand=True,
            about=("_UNSTATED_FRACTIONS", "_UNSTATED_STEP_FRACTION", "_FEW_GAIN_SHARE", "_FEW_SEQUENCES"),
        ),
    )
