"""The ledger of one GPU: what fills it, what is left for KV, and what the engine will print about that.

One truth for every command: :func:`infcalc.memory.budget.budgets` gives the pool of each pipeline stage, this module
cuts it into blocks as the engine does, takes the rank that governs, and carries the bands through.
"""

from __future__ import annotations

import math
from enum import StrEnum
from typing import TYPE_CHECKING

from infcalc.engines.rules import Allocator, Band, FractionBase
from infcalc.frozen import frozen
from infcalc.memory.blocks import (
    PagePlan,
    Settings,
    blocks_of,
    context_cells,
    held_back_bytes,
    plan,
    printed,
    request_blocks,
    sequences_in,
    state_slots,
    window_blocks,
)
from infcalc.memory.budget import combined_bytes
from infcalc.memory.weights import tower_bytes
from infcalc.units import format_bytes

if TYPE_CHECKING:
    from infcalc.engines.rules import EngineRules
    from infcalc.memory.budget import Budget
    from infcalc.spec.hardware import Gpu
    from infcalc.spec.kv import KvFormat
    from infcalc.spec.model import Model
    from infcalc.spec.parallelism import Parallelism


class Basis(StrEnum):
    """What a line of the ledger rests on."""

    EXACT = "exact"
    MODELLED = "modelled"
    MEASURED = "measured"


@frozen
class Line:
    """One line of the ledger: bytes on the governing GPU, the band that measurements span, and where both come from."""

    name: str
    num_bytes: int
    low_bytes: int
    high_bytes: int
    basis: str
    source: str
    high_source: str = ""
    """What the high end comes from, where that is another thing."""


@frozen
class Ledger:
    """The memory of the governing GPU, in bytes, and what the engine makes of it.

    ``kv_cache_tokens`` and ``max_concurrency`` are what the engine prints; ``sequences`` is what truly fits of the
    asked length; all of them of the least rank, as blocks are. ``needed_bytes`` is what must be there: every line and
    one sequence of ``request_tokens``; ``missing_bytes`` is how much of it is lacking.
    """

    stage: int
    total_bytes: int
    usable_bytes: int
    reserve_bytes: int
    """What the engine leaves alone."""
    reserve_bytes_low: int
    reserve_bytes_high: int
    lines: tuple[Line, ...]
    kv_pool_bytes: int
    kv_pool_bytes_low: int
    kv_pool_bytes_high: int
    kv_blocks: int
    kv_blocks_low: int
    kv_blocks_high: int
    block_tokens: int
    block_bytes: int
    kv_cache_tokens: int
    kv_cache_tokens_low: int
    kv_cache_tokens_high: int
    token_line: str
    max_concurrency: float
    max_concurrency_low: float
    max_concurrency_high: float
    sequences: int
    sequences_low: int
    sequences_high: int
    num_state_slots: int | None
    """Sequences that a pool of recurrent states admits on a rank; None where states share the pool of the blocks."""
    request_tokens: int
    """The longest sequence that must fit: ``max_model_len`` where the engine checks it, else the asked length."""
    request_bytes: int
    """Of one sequence of ``request_tokens``; of an engine that allocates cells, those of all its slots."""
    held_back_bytes: int
    """Blocks of the pool that hold no tokens: they must be there besides."""
    needed_bytes: int
    needed_bytes_low: int
    needed_bytes_high: int
    missing_bytes: int
    missing_bytes_low: int
    missing_bytes_high: int
    missing_before_kv_bytes: int
    """Of the missing, what is lacking before any KV."""
    fits: bool
    offload_bytes: int
    """Weights that lie in host memory."""
    page_groups: tuple[str, ...]
    num_recurrent_groups: int = 0
    """Groups of layers that take whole blocks per sequence, whatever its length."""
    padding_fraction: float

    @property
    def largest_doubt(self) -> str:
        """The modelled line with the widest band, and what the engine did not say that it hangs on."""
        widest = max(self.lines, key=lambda line: line.high_bytes - line.low_bytes)
        span = f"{format_bytes(widest.low_bytes)} and {format_bytes(widest.high_bytes)}"
        above = f"; at the high end {widest.high_source}" if widest.high_source else ""
        return f"{widest.name} between {span} ({widest.source}{above})"

    def line(self, name: str) -> Line:
        """Return the line of that name; one of no bytes where the ledger has none."""
        return next(
            (line for line in self.lines if line.name == name),
            Line(name=name, num_bytes=0, low_bytes=0, high_bytes=0, basis=Basis.EXACT, source=""),
        )


def ledger(
    model: Model,
    gpu: Gpu,
    kv: KvFormat,
    parallelism: Parallelism,
    rules: EngineRules,
    *,
    stages: tuple[Budget, ...],
    settings: Settings,
    context_tokens: int,
    weights_basis: Basis = Basis.EXACT,
) -> Ledger:
    """Return the ledger of the rank that governs: whose pool holds the fewest sequences, then the fewest tokens."""
    found = [
        _of_stage(
            model,
            gpu,
            kv,
            parallelism,
            rules,
            budget=budget,
            settings=settings,
            context_tokens=context_tokens,
            basis=weights_basis,
        )
        for budget in stages
    ]
    return min(found, key=lambda one: (one.fits, one.kv_cache_tokens, -one.missing_bytes))


def _of_stage(
    model: Model,
    gpu: Gpu,
    kv: KvFormat,
    parallelism: Parallelism,
    rules: EngineRules,
    *,
    budget: Budget,
    settings: Settings,
    context_tokens: int,
    basis: Basis,
) -> Ledger:
    cut = plan(model, kv, parallelism, rules, settings, stage=budget.stage)
    # The blocks, and what fits, are those of the least rank; the printed pool is mostly that of the first.
    least, lowest, most = budget.least_pool_bytes, budget.least_pool_low_bytes, budget.least_pool_high_bytes
    blocks, tokens, concurrency = printed(least, cut, rules, settings)
    blocks_low, tokens_low, concurrency_low = printed(lowest, cut, rules, settings)
    blocks_high, tokens_high, concurrency_high = printed(most, cut, rules, settings)
    # What an engine does not check at its start must fit all the same where it was asked for.
    wanted = settings.max_model_len if rules.checks_longest else min(context_tokens, settings.max_model_len)
    request = request_bytes(cut, wanted, rules, settings)
    held_back = held_back_bytes(cut, rules)
    lacking = max(0, request + held_back - budget.least_left_bytes)
    lines = _lines(model, parallelism, rules, budget, basis)
    counted = [line for line in lines if line.name != "towers"]
    needed = request + held_back + sum(line.num_bytes for line in counted)
    less = combined_bytes(line.num_bytes - line.low_bytes for line in counted)
    more = combined_bytes(line.high_bytes - line.num_bytes for line in counted)
    reserve = _reserve(gpu, rules, budget)

    def held(pool_bytes: int) -> int:
        return sequences_in(pool_bytes, cut, context_tokens, rules, settings) * parallelism.dp

    return Ledger(
        stage=budget.stage,
        total_bytes=gpu.cuda_total_bytes,
        usable_bytes=budget.usable_bytes,
        reserve_bytes=reserve,
        reserve_bytes_low=_reserve_at(gpu, rules, budget, reserve, high=False),
        reserve_bytes_high=_reserve_at(gpu, rules, budget, reserve, high=True),
        lines=lines,
        kv_pool_bytes=budget.kv_pool_bytes,
        # The printed pool may be that of any rank.
        kv_pool_bytes_low=lowest if budget.behind_bytes else budget.kv_pool_low_bytes,
        kv_pool_bytes_high=budget.kv_pool_high_bytes,
        kv_blocks=blocks,
        kv_blocks_low=blocks_low,
        kv_blocks_high=blocks_high,
        block_tokens=cut.block_tokens,
        block_bytes=cut.block_bytes,
        kv_cache_tokens=tokens,
        kv_cache_tokens_low=tokens_low,
        kv_cache_tokens_high=tokens_high,
        token_line=f"{rules.token_line.value} ({rules.printed_line_source})",
        max_concurrency=concurrency,
        max_concurrency_low=concurrency_low,
        max_concurrency_high=concurrency_high,
        sequences=held(least),
        sequences_low=held(lowest),
        sequences_high=held(most),
        num_state_slots=state_slots(least, cut),
        request_tokens=wanted,
        request_bytes=request,
        held_back_bytes=held_back,
        needed_bytes=needed,
        needed_bytes_low=round(needed - less),
        needed_bytes_high=round(needed + more),
        missing_bytes=lacking,
        missing_bytes_low=budget.missing_low_bytes + max(0, request + held_back - most),
        missing_bytes_high=budget.missing_high_bytes + max(0, request + held_back - lowest),
        missing_before_kv_bytes=budget.missing_bytes,
        fits=lacking == 0,
        offload_bytes=budget.offload_bytes,
        page_groups=_described(cut),
        num_recurrent_groups=sum(group.recurrent for group in cut.groups),
        padding_fraction=cut.padding_fraction,
    )


def request_bytes(cut: PagePlan, length: int, rules: EngineRules, settings: Settings) -> int:
    """Return the pool that one sequence of ``length`` tokens needs, as vLLM checks at its start.

    Where recurrent states have a pool of their own, both pools must hold it.
    """
    if cut.fixed_bytes_per_request:
        return cut.fixed_bytes_per_request + cut.block_bytes * _whole_blocks(cut, length, rules, settings)
    pages = cut.block_bytes * max(_whole_blocks(cut, length, rules, settings), window_blocks(cut, length))
    if not cut.slot_bytes:
        return pages
    ratio = cut.state_pool_ratio
    return max(math.ceil(pages * (1 + ratio)), math.ceil(cut.slot_bytes * (1 + ratio) / ratio))


def _whole_blocks(cut: PagePlan, length: int, rules: EngineRules, settings: Settings) -> int:
    if rules.allocator is Allocator.CELLS:
        return context_cells(length, settings) // cut.block_tokens
    if cut.fixed_bytes_per_request:
        return -(-length // cut.block_tokens)
    return request_blocks(cut, length, rules, settings)


def longest_that_fits(pool_bytes: int, cut: PagePlan, rules: EngineRules, settings: Settings) -> int:
    """Return the largest ``max_model_len`` of which one sequence fits into a pool; 0 where not even one token does."""
    low, high = 0, settings.max_model_len
    room_bytes = pool_bytes - held_back_bytes(cut, rules)
    while low < high:
        middle = (low + high + 1) // 2
        if request_bytes(cut, middle, rules, settings) <= room_bytes:
            low = middle
        else:
            high = middle - 1
    return low if blocks_of(pool_bytes, cut) or cut.fixed_bytes_per_request else 0


def _lines(
    model: Model, parallelism: Parallelism, rules: EngineRules, budget: Budget, basis: Basis
) -> tuple[Line, ...]:
    towers = tower_bytes(model, parallelism, rules) if budget.stage == 0 else 0
    core = budget.weights_bytes - budget.draft_bytes - budget.lora_bytes
    lines = [
        _exact("weights", core, "the tensors of the model as the engine loads them, on this rank", basis),
        _exact("draft", budget.draft_bytes, "weights of the draft model"),
        _exact("lora", budget.lora_bytes, "both factors of every linear layer for each adapter held"),
        _exact(
            "loading", budget.loading_bytes, "rotary tables and idle ends of large tensors, printed with the weights"
        ),
        _modelled("activation", budget.activation),
        _modelled("non_torch", budget.non_torch),
        _modelled("cuda_graphs", budget.graphs),
    ]
    if towers and basis is Basis.EXACT:
        lines.insert(1, _exact("towers", towers, f"within the weights: {', '.join(model.unmodelled)}, in 16 bit"))
    if budget.offload_bytes:
        lines.append(_exact("offload", 0, f"{format_bytes(budget.offload_bytes)} of the weights lie in host memory"))
    kept = {"weights", "activation", "non_torch", "cuda_graphs", "offload"}
    return tuple(line for line in lines if line.num_bytes or line.name in kept)


def _exact(name: str, num_bytes: int, source: str, basis: Basis = Basis.EXACT) -> Line:
    return Line(
        name=name, num_bytes=num_bytes, low_bytes=num_bytes, high_bytes=num_bytes, basis=basis.value, source=source
    )


def _modelled(name: str, band: Band) -> Line:
    return Line(
        name=name,
        num_bytes=band.value_bytes,
        low_bytes=band.low_bytes,
        high_bytes=band.high_bytes,
        basis=Basis.MODELLED.value,
        source=band.source,
        high_source=band.high_source,
    )


def _reserve(gpu: Gpu, rules: EngineRules, budget: Budget) -> int:
    """Return what the engine leaves alone of the card: the rest of its fraction."""
    match rules.fraction_base:
        case FractionBase.TOTAL:
            return gpu.cuda_total_bytes - budget.usable_bytes
        case FractionBase.FREE_BEFORE_WEIGHTS:
            taken = budget.weights_bytes + budget.loading_bytes + budget.non_torch.value_bytes + budget.kv_pool_bytes
            return max(0, gpu.cuda_total_bytes - taken)
        case _:
            parts = (
                budget.weights_bytes
                + budget.loading_bytes
                + budget.activation.value_bytes
                + budget.non_torch.value_bytes
            )
            return max(0, gpu.cuda_total_bytes - parts - budget.graphs.value_bytes - budget.kv_pool_bytes)


def _reserve_at(gpu: Gpu, rules: EngineRules, budget: Budget, reserve: int, *, high: bool) -> int:
    """Return one end of the band of :func:`_reserve`: the engine's share of what is free scales with it."""
    match rules.fraction_base:
        case FractionBase.FREE_BEFORE_WEIGHTS:
            taken = budget.non_torch.low_bytes if high else budget.non_torch.high_bytes
            return round(
                reserve * (gpu.cuda_total_bytes - taken) / (gpu.cuda_total_bytes - budget.non_torch.value_bytes)
            )
        case FractionBase.FREE_AFTER_WEIGHTS if budget.kv_pool_bytes:
            pool = budget.kv_pool_high_bytes if high else budget.kv_pool_low_bytes
            return round(reserve * pool / budget.kv_pool_bytes)
        case _:
            return reserve


def _described(cut: PagePlan) -> tuple[str, ...]:
    """Return the page groups in words, where there is more than one."""
    if len(cut.groups) == 1:
        return ()
    counted: dict[str, int] = {}
    for group in cut.groups:
        kind = (
            "recurrent" if group.recurrent else f"window of {group.window_tokens:,}" if group.window_tokens else "full"
        )
        text = f"{group.layers} layers, {kind}, {group.block_tokens:,} tokens a block"
        counted[text] = counted.get(text, 0) + 1
    return tuple(f"{number} x ({text})" for text, number in counted.items())
