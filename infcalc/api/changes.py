"""What can be changed where a deployment does not fit: the one list that ``memory`` and ``compare`` try, in order."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING

from infcalc.api.deployment import has_whole_blocks
from infcalc.api.sizing import deployment_budgets, fraction_warnings
from infcalc.engines.limits import limits
from infcalc.engines.verdicts import cache_kind, kv_verdict, weights_verdict
from infcalc.errors import InfcalcError
from infcalc.frozen import frozen

if TYPE_CHECKING:
    from infcalc.api.deployment import Ask, Deployment
    from infcalc.spec.kv import KvFormat
    from infcalc.spec.parallelism import Parallelism

_MAX_GPUS = 64
_HIGHER_FRACTIONS = (0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.92, 0.95, 0.97)
"""Tried one after the other; what each is a fraction of is the engine's own."""
_SIXTEEN_BITS = 16
_OFFERED_SEQUENCES = 16
_WEIGHT_WORDS = {"llama.cpp": (("q8_0", 8.5), ("q4_k_m", 5.0))}
"""Narrower weights where an engine does not take fp8 and int4: each with bits below which it saves nothing."""
_KV_WORDS = {"llama.cpp": "q8_0"}


class Kind(StrEnum):
    """What is changed."""

    GPUS = "more GPUs"
    RANKS = "other ranks on the same GPUs"
    LENGTH = "a shorter longest sequence"
    FRACTION = "a higher fraction"
    KV = "another KV precision"
    WEIGHTS = "another weight precision"
    SEQUENCES = "fewer sequences"
    BOTH = "both precisions"


@frozen
class Candidate:
    """One change that may help: its kind, what it sets (a number, a precision), as infcalc's options, and the ask."""

    kind: Kind
    value: str
    text: str
    ask: Ask


def families(
    ask: Ask, deployment: Deployment, form: KvFormat, *, longest: int = 0, serving: bool = False
) -> list[list[Candidate]]:
    """Return the changes to try, each kind from the nearest to the farthest.

    ``longest`` is the longest sequence that would fit (0: none); ``serving`` that fewer sequences are no mend.
    """
    ranks = deployment.parallelism
    by_layer = limits(deployment.rules.engine).splits_by_layer and ranks.tp == 1
    found = [_more_stages(ask, ranks)] if by_layer else [_more_gpus(ask, ranks), _more_tp(ask, ranks)]
    if deployment.rules.checks_longest and 0 < longest < deployment.max_model_len:
        changed = replace(ask, max_model_len=longest)
        found.append([Candidate(kind=Kind.LENGTH, value=str(longest), text=f"--max-model-len {longest}", ask=changed)])
    if deployment.fraction is not None:
        found.append(
            [
                Candidate(
                    kind=Kind.FRACTION,
                    value=f"{share:g}",
                    text=f"{deployment.rules.fraction_flag} {share}",
                    ask=replace(ask, memory_fraction=share),
                )
                for share in _HIGHER_FRACTIONS
                if share > deployment.fraction
            ]
        )
    kv_word = _KV_WORDS.get(deployment.rules.engine, "fp8")
    weight_words = _WEIGHT_WORDS.get(deployment.rules.engine, (("fp8", 8), ("int4", 4)))
    narrow_kv = form.element_bits >= _SIXTEEN_BITS
    if narrow_kv:
        changed = replace(ask, kv_dtypes=(kv_word,))
        found.append([Candidate(kind=Kind.KV, value=kv_word, text=f"--kv-dtype {kv_word}", ask=changed)])
    found.append(
        [
            Candidate(kind=Kind.WEIGHTS, value=word, text=f"--weights {word}", ask=replace(ask, weights=word))
            for word, bits in weight_words
            if _narrower(deployment, bits)
        ]
    )
    if deployment.max_num_seqs > _OFFERED_SEQUENCES and not serving:
        few = replace(ask, max_num_seqs=_OFFERED_SEQUENCES)
        text = f"--max-num-seqs {_OFFERED_SEQUENCES}"
        found.append([Candidate(kind=Kind.SEQUENCES, value=str(_OFFERED_SEQUENCES), text=text, ask=few)])
    if _narrower(deployment, 8) and narrow_kv:
        word = weight_words[0][0]
        both = replace(ask, weights=word, kv_dtypes=(kv_word,))
        text = f"--weights {word} --kv-dtype {kv_word}"
        found.append([Candidate(kind=Kind.BOTH, value=word, text=text, ask=both)])
    return found


def can_serve(candidate: Candidate, deployment: Deployment, form: KvFormat) -> bool:
    """Return whether the engine can do what a candidate, resolved to ``deployment`` and ``form``, asks of it.

    A precision that it cannot store or compute is no mend, nor is a fraction that starves what lives outside it.
    """
    rules, gpu = deployment.rules, deployment.gpu
    if not has_whole_blocks(rules.engine, deployment.model, deployment.parallelism, deployment.quantization):
        return False
    cached = kv_verdict(rules.engine, rules.version, gpu, form.name, cache=cache_kind(deployment.model))
    if cached.supported is False:
        return False
    if candidate.ask.weights is not None:
        computed = weights_verdict(rules.engine, rules.version, gpu, deployment.weights)
        if computed.supported is False:
            return False
    return candidate.kind is not Kind.FRACTION or not fraction_warnings(deployment, deployment_budgets(deployment))


def _more_gpus(ask: Ask, ranks: Parallelism) -> list[Candidate]:
    found = []
    number = ranks.num_gpus * 2
    while number <= _MAX_GPUS:
        tp = number // (ranks.pp * ranks.dp)
        whole = _all_ranks_hold_experts(ranks)
        wider = replace(ask, num_gpus=number, tp=None, pp=ranks.pp, dp=ranks.dp, ep=tp * ranks.dp if whole else ask.ep)
        text = f"--gpus {number} (TP {tp}, EP {tp * ranks.dp})" if whole else f"--gpus {number} (TP {tp})"
        found.append(Candidate(kind=Kind.GPUS, value=str(number), text=text, ask=wider))
        number *= 2
    return found


def _more_stages(ask: Ask, ranks: Parallelism) -> list[Candidate]:
    """Return more GPUs for an engine that gives each of them some layers: any number of them."""
    found = []
    for number in range(ranks.num_gpus + 1, _MAX_GPUS + 1):
        wider = replace(ask, num_gpus=number, tp=None, pp=None, dp=None)
        found.append(Candidate(kind=Kind.GPUS, value=str(number), text=f"--gpus {number}", ask=wider))
    return found


def _more_tp(ask: Ask, ranks: Parallelism) -> list[Candidate]:
    """Return the same GPUs with TP instead of attention DP, and instead of pipeline stages: weights are split more."""
    ways = [(ranks.tp * ranks.dp, ranks.pp, 1), (ranks.tp * ranks.pp, 1, ranks.dp), (ranks.num_gpus, 1, 1)]
    found = []
    for tp, pp, dp in dict.fromkeys(ways):
        if tp > ranks.tp:
            whole = _all_ranks_hold_experts(ranks)
            changed = replace(ask, tp=tp, pp=pp, dp=dp, ep=tp * dp if whole else ask.ep)
            text = f"--tp {tp} --pp {pp} --dp {dp} on the same GPUs"
            found.append(Candidate(kind=Kind.RANKS, value=f"TP {tp}, PP {pp}, DP {dp}", text=text, ask=changed))
    return found


def _all_ranks_hold_experts(ranks: Parallelism) -> bool:
    return ranks.ep > 1 and ranks.ep == ranks.tp * ranks.dp


def _narrower(deployment: Deployment, bits: float) -> bool:
    from infcalc.spec.weights import weight_format  # noqa: PLC0415 - only where something does not fit

    try:
        return weight_format(deployment.weights).element_bits > bits
    except InfcalcError:
        return False
