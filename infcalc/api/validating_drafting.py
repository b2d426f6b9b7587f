"""How right are predicted speedups of drafting? What is predicted for a published one, without it.

Tokens per round are a property of the text and the drafter, not of the machine: where a report states them they are an
input, as the lengths of its prompts are, and what is predicted is what a round costs. Elsewhere they are published ones
of the same method. A stated speedup, or the throughput behind it, goes into nothing.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from infcalc.api.recorded import DRAFT_LENGTHS, DRAFT_STEPS, DRAFT_WIDTHS
from infcalc.api.recorded_runs import Machine, amount_of, machine_of, predict
from infcalc.api.rounds import Passes, Rig, head_pass, passes_of, rig_of, target_timer
from infcalc.errors import FileProblem, UsageError
from infcalc.frozen import frozen
from infcalc.lowering.tensors import inventory, parameters
from infcalc.roofline.passes import Head
from infcalc.speculation.linear import UniformAcceptance, alpha_of_tokens_per_round
from infcalc.speculation.priced import SpeculationRow, drafting_of, rows
from infcalc.speculation.published import PROFILES, SMALL_DRAFT, SMALL_FRACTION, Drafter, Method, method_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from infcalc.catalog.lookup import Catalog
    from infcalc.speculation.published import Profile

STATED = "tokens per round stated"
PUBLISHED = "tokens per round published"
_GPU_UNSTATED = "NVIDIA A100 SXM 80GB"
"""What papers of 2023 and 2024 measured on where they do not say; a speedup depends little on it."""
_PROMPT_TOKENS, _ANSWER_TOKENS = 512, 200
"""Of conversations, where lengths are not stated."""
_CUSTOMARY = {Drafter.MODEL: 5, Drafter.HEAD: 3, Drafter.WIDE_HEAD: 3, Drafter.OWN_LAYERS: 3, Drafter.LOOKUP: 5}
"""Draft tokens of a chain where a report does not state them: those of the engines' own examples."""
_TINY = 1e8
_LAYERS_OF_TINY = 2
"""Of draft models of some 68 million parameters (llama-68m, vicuna-68m)."""
_PER_SQUARE = 12
"""Parameters of a decoder layer over the square of its width, about."""
_PER_CUBIC_LAYER = 12 * 128**2
"""With a width of 128 for each layer, as in models of the Llama shape."""
_BITS_OF_FOUR = 4.5
_UNITS = {"m": 1e6, "b": 1e9}
_DRAFTS = {"sps": "a draft model of 68M"}
"""What a benchmark drafts with where it does not say: SpS of Spec-Bench."""
_WORDS = (
    (re.compile(r"samd.*eagle|hass"), Method.EAGLE2),
    (re.compile(r"eagle-?3|p-eagle"), Method.EAGLE3),
    (re.compile(r"eagle-?2"), Method.EAGLE2),
    (re.compile(r"eagle-?1"), Method.EAGLE),
    (re.compile(r"medusa"), Method.MEDUSA),
    (re.compile(r"hydra|mlp-speculator"), Method.HYDRA),
    (re.compile(r"mtp|nextn"), Method.MTP),
    (re.compile(r"n-?gram|prompt-?lookup|suffix|^samd?$"), Method.NGRAM),
    (re.compile(r"token-?recycling"), Method.RECYCLING),
    (re.compile(r"draft-?model|speculative-model|standalone|vanilla"), Method.DRAFT_MODEL),
)
"""What people call a way of drafting, blanks and underlines being hyphens, and the published one that is nearest."""
_TREES = {Method.EAGLE: Method.EAGLE_TREE, Method.EAGLE2: Method.EAGLE2, Method.EAGLE3: Method.EAGLE3_TREE}
_LONGEST_CHAIN = 12
"""No server is told to draft a longer chain with a head: so many tokens are the nodes of a tree."""
_OF_RESEARCH = {Method.EAGLE: Method.EAGLE_TREE, Method.EAGLE3: Method.EAGLE3_TREE}
"""Code of papers drafts trees where servers draft chains."""
_RESEARCH = "hf"
_SIZE = re.compile(r"(?<![0-9.])([0-9]+(?:\.[0-9]+)?)\s*([mb])(?![a-z])", re.IGNORECASE)
_FOUR_BITS = re.compile(r"int4|awq|gptq|4[- ]?bit", re.IGNORECASE)


@frozen
class Drafted:
    """What is predicted for one published speedup."""

    row: SpeculationRow
    low: float
    high: float
    kind: str
    """Whether tokens per round were stated or are those of publications."""


def predict_speedup(entry: Mapping[str, Any], catalog: Catalog, known: dict[Any, Any]) -> Drafted:
    """Return what is predicted for the speedup of one entry.

    Raises:
        InfcalcError: the entry does not say enough, or names what is not known.

    """
    machine = machine_of(_completed(entry), catalog, known, None)
    flags, load = entry.get("flags") or {}, entry.get("workload") or {}
    method = _method(flags, research=machine.paced == _RESEARCH)
    length = _first(flags, DRAFT_LENGTHS)
    prompt = amount_of(load.get("input_tokens")) or _PROMPT_TOKENS
    answer = amount_of(load.get("output_tokens")) or _ANSWER_TOKENS
    rig = rig_of(
        machine.deployment,
        machine.form,
        machine.efficiency,
        context_tokens=prompt + answer / 2,
        steps=machine.pace,
        paced=machine.paced,
    )
    named = str(flags.get("draft_model") or _DRAFTS.get(str(flags.get("spec") or "").lower(), ""))
    profile, passes = _drafter(rig, _shaped(PROFILES[method], flags), named)
    tokens = amount_of((entry.get("measured") or {}).get("acceptance", {}).get("mean_tokens_per_step"))
    stated = tokens is not None
    if profile.tree_tokens is not None:
        length = None
    elif length is None:
        length = _first(flags, DRAFT_STEPS) or max(_CUSTOMARY[profile.drafter], math.ceil(tokens or 0) - 1)
    proposed = profile.max_draft_tokens if length is None else length
    if tokens is not None and tokens > proposed + 1:
        raise FileProblem(
            f"{tokens:g} tokens of a round that drafts {proposed}",
            hint="mean_tokens_per_step holds the token of the target, and is one more than the drafts at most",
        )
    drafting = drafting_of(
        profile,
        acceptance=None if tokens is None else _acceptance(tokens, proposed),
        num_draft_tokens=length,
        draft_timer=passes.timer,
        fixed_s=rig.fixed_s(tree=profile.tree_tokens is not None),
        cost_source=passes.source,
        fixed_source=rig.added.footing.otherwise,
        operations_ratio=passes.operations_ratio,
    )
    (row,) = rows((drafting,), target_timer(rig), batch=_running(entry, machine, catalog, known))
    return Drafted(row=row, low=row.speedup_low, high=row.speedup_high, kind=STATED if stated else PUBLISHED)


def _completed(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entry with the machine that a report leaves open, so that its ratio can be predicted at all."""
    found = dict(entry)
    if not (entry.get("gpu") or {}).get("name"):
        found["gpu"] = {"name": _GPU_UNSTATED}
    ranks = entry.get("parallel") or {}
    if ranks.get("tp") is None:
        found["parallel"] = {**ranks, "tp": entry.get("gpus") or 1}
    return found


def _first(flags: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    return next((int(flags[name]) for name in names if flags.get(name)), None)


def _method(flags: Mapping[str, Any], *, research: bool) -> Method:
    text = str(flags.get("spec") or "")
    word = re.sub(r"[\s_]+", "-", text.strip().lower())
    if not word and flags.get("draft_model"):
        word = Method.DRAFT_MODEL
    found = next((method for pattern, method in _WORDS if pattern.search(word)), None)
    if found is None:
        try:
            found = method_of(word)
        except UsageError as unknown:
            raise FileProblem(f"{text!r} is not a known way of drafting", hint=unknown.hint) from None
    wide = (_first(flags, DRAFT_WIDTHS) or 1) > 1
    nodes = _first(flags, DRAFT_LENGTHS) or 0
    if found in _TREES and (wide or nodes > _LONGEST_CHAIN):
        return _TREES[found]
    return _OF_RESEARCH.get(found, found) if research else found


def _shaped(profile: Profile, flags: Mapping[str, Any]) -> Profile:
    """Return the profile with the tree that a report states, where it drafts one."""
    if profile.tree_tokens is None:
        return profile
    nodes, depth, width = (_first(flags, names) for names in (DRAFT_LENGTHS, DRAFT_STEPS, DRAFT_WIDTHS))
    return replace(
        profile,
        tree_tokens=nodes or profile.tree_tokens,
        max_draft_tokens=depth or profile.max_draft_tokens,
        tree_width=width or profile.tree_width,
    )


def _acceptance(tokens: float, num_draft_tokens: int) -> UniformAcceptance:
    return UniformAcceptance(alpha=alpha_of_tokens_per_round(tokens, num_draft_tokens))


def _drafter(rig: Rig, profile: Profile, named: str) -> tuple[Profile, Passes]:
    """Return the profile and the passes of its drafter; a draft model is known by the size in its name."""
    size = _SIZE.search(named)
    if profile.drafter is not Drafter.MODEL or size is None:
        return profile, passes_of(rig, profile)
    number = float(size[1]) * _UNITS[size[2].lower()]
    num_layers = _LAYERS_OF_TINY if number < _TINY else round((number / _PER_CUBIC_LAYER) ** (1 / 3))
    work = Head(
        num_parameters=number,
        num_layers=num_layers,
        hidden_size=round(math.sqrt(number / (_PER_SQUARE * num_layers))),
        bits_per_element=_BITS_OF_FOUR if _FOUR_BITS.search(named) else 16,
    )
    small = number < SMALL_FRACTION * parameters(inventory(rig.deployment.model)).total
    passes = Passes(rig=rig, one_pass=head_pass(rig, work), source=f"{named}, by its size")
    return SMALL_DRAFT if small else profile, passes


def _running(entry: Mapping[str, Any], machine: Machine, catalog: Catalog, known: dict[Any, Any]) -> int:
    """Return the sequences that decode at once: as stated, else as many as the load keeps running without drafts."""
    load = entry.get("workload") or {}
    stated = amount_of(load.get("batch")) or amount_of(load.get("concurrency"))
    most = machine.deployment.max_num_seqs * machine.deployment.parallelism.dp
    if stated is not None:
        return max(1, min(round(stated), most))
    rate, count = amount_of(load.get("request_rate")), amount_of(load.get("num_requests"))
    if rate is not None and math.isinf(rate):
        return max(1, min(round(count or most), most))
    if rate is None:
        return max(1, min(round(count or 1), most))
    lengths = {
        "input_tokens": load.get("input_tokens") or _PROMPT_TOKENS,
        "output_tokens": load.get("output_tokens") or _ANSWER_TOKENS,
    }
    loaded = {**_completed(entry), "kind": "serving", "workload": {**load, **lengths}}
    return max(1, min(round(predict(loaded, catalog, known).speed.num_decodes), most))
