"""What infcalc expects an engine to print, in the quantities of start-up logs: the one place that asks the ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.api.sizing import deployment_budgets
from infcalc.engines.logs.reading import Quantity
from infcalc.engines.rules import FractionBase
from infcalc.frozen import frozen
from infcalc.memory.kv import constant_bytes, kv_components, sequence_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    from infcalc.api.deployment import Deployment
    from infcalc.memory.budget import Budget
    from infcalc.memory.kv import KvComponent
    from infcalc.spec.kv import KvFormat

_LLAMA_CELLS = 256


@frozen
class Span:
    """An expected number, and the band it should fall in; both ends are the number itself where it is exact."""

    value: float
    low: float
    high: float


@frozen
class Expected:
    """All that is expected of one deployment at one KV precision, of the governing rank."""

    spans: dict[Quantity, Span]
    one_request_bytes: int
    """KV of one sequence of the maximum length on that rank."""
    plain: bool
    """Whether the cache grows by the same bytes with every token: no window, no state."""

    def span(self, quantity: Quantity) -> Span | None:
        """Return what is expected of a quantity; None where infcalc expects nothing."""
        return self.spans.get(quantity)


def expected(deployment: Deployment, form: KvFormat, *, max_model_len: int, sequences: int = 1) -> Expected:
    """Return what the engine of ``deployment`` should print; ``max_model_len`` in tokens.

    ``sequences`` are the slots that llama.cpp shares its cells among.
    """
    stages = deployment_budgets(deployment)
    parts = tuple(
        kv_components(deployment.model, form, parallelism=deployment.parallelism, stage=budget.stage)
        for budget in stages
    )
    if deployment.rules.fraction_base is FractionBase.NONE:
        return _expected_cells(deployment, stages, parts, max_model_len, sequences)
    governing = min(stages, key=lambda budget: (budget.kv_pool_bytes, -budget.missing_bytes))
    held = parts[governing.stage]
    spans = _spans(deployment, governing)
    spans |= _counts(deployment, held, spans[Quantity.POOL], max_model_len)
    return Expected(
        spans=spans,
        one_request_bytes=_request_bytes(deployment, held, max_model_len),
        plain=_is_plain(held),
    )


def _spans(deployment: Deployment, budget: Budget) -> dict[Quantity, Span]:
    gpu = deployment.gpu
    non_torch = _span(budget.non_torch.value_bytes, budget.non_torch.low_bytes, budget.non_torch.high_bytes)
    activation = _span(budget.activation.value_bytes, budget.activation.low_bytes, budget.activation.high_bytes)
    graphs = budget.cuda_graph_bytes
    free = _exact(gpu.cuda_total_bytes - non_torch.value)
    spans = {
        Quantity.DEVICE_TOTAL: _exact(gpu.cuda_total_bytes),
        Quantity.WEIGHTS: _exact(budget.weights_bytes),
        Quantity.NON_TORCH: non_torch,
        Quantity.ACTIVATION: activation,
        Quantity.POOL: _span(budget.kv_pool_bytes, budget.kv_pool_low_bytes, budget.kv_pool_high_bytes),
    }
    match deployment.rules.fraction_base:
        case FractionBase.TOTAL:
            spans[Quantity.USABLE] = _exact(budget.usable_bytes)
            spans[Quantity.GRAPH_ESTIMATE] = _span(graphs, graphs // 4, 2 * graphs)
        case FractionBase.FREE_BEFORE_WEIGHTS:
            spans[Quantity.FREE_BEFORE_WEIGHTS] = free
            spans[Quantity.FREE_AFTER_WEIGHTS] = _exact(free.value - budget.weights_bytes)
        case FractionBase.FREE_AFTER_WEIGHTS:
            spans[Quantity.GRAPH_ESTIMATE] = _span(graphs, graphs // 4, 2 * graphs)
            left = free.value - budget.weights_bytes - activation.value - graphs
            spans[Quantity.FREE_FOR_KV] = _exact(max(0.0, left))
        case FractionBase.NONE:
            pass
    if Quantity.GRAPH_ESTIMATE in spans and graphs:
        spans[Quantity.GRAPHS] = spans[Quantity.GRAPH_ESTIMATE]
    return spans


def _counts(
    deployment: Deployment, held: tuple[KvComponent, ...], pool: Span, max_model_len: int
) -> dict[Quantity, Span]:
    """Return blocks, tokens and concurrency of a pool."""
    block = deployment.block_tokens
    request = _request_bytes(deployment, held, max_model_len)
    spans: dict[Quantity, Span] = {Quantity.BLOCK_TOKENS: _exact(block)}
    if not request:
        return spans
    if _is_plain(held):
        block_bytes = sequence_bytes(held, block)
        blocks = _each(pool, lambda size: size // block_bytes)
        dcp = deployment.parallelism.dcp
        spans[Quantity.BYTES_PER_TOKEN] = _exact(block_bytes / block)
        spans[Quantity.BLOCKS] = blocks
        spans[Quantity.TOKENS] = _each(blocks, lambda count: count * block * dcp)
        spans[Quantity.CONCURRENCY] = _each(spans[Quantity.TOKENS], lambda tokens: tokens / max_model_len)
    else:
        spans[Quantity.CONCURRENCY] = _each(pool, lambda size: size / request)
        spans[Quantity.TOKENS] = _each(spans[Quantity.CONCURRENCY], lambda times: float(int(times * max_model_len)))
    return spans


def _expected_cells(
    deployment: Deployment,
    stages: tuple[Budget, ...],
    parts: tuple[tuple[KvComponent, ...], ...],
    max_model_len: int,
    sequences: int,
) -> Expected:
    """llama.cpp allocates the cache for all cells of the context, over all devices."""
    cells = _padded(max_model_len, _LLAMA_CELLS)
    batch = deployment.max_num_batched_tokens
    pool = state = 0
    for part in (part for held in parts for part in held):
        if part.window_tokens is None:
            pool += part.bytes_at(cells) - part.constant_bytes
            state += part.constant_bytes * sequences
        else:
            kept = min(cells, _padded(part.window_tokens * sequences + batch, _LLAMA_CELLS))
            pool += part.entry_bytes * (kept // part.tokens_per_entry)
    activation = stages[0].activation
    spans = {
        Quantity.WEIGHTS: _exact(sum(budget.weights_bytes for budget in stages)),
        Quantity.COMPUTE: _span(activation.value_bytes, activation.low_bytes, activation.high_bytes),
        Quantity.POOL: _exact(pool),
        Quantity.TOKENS: _exact(cells),
    }
    if state:
        spans[Quantity.STATE] = _exact(state)
    return Expected(spans=spans, one_request_bytes=pool, plain=all(_is_plain(held) for held in parts))


def _request_bytes(deployment: Deployment, held: tuple[KvComponent, ...], max_model_len: int) -> int:
    """Return the bytes of one sequence of the maximum length on the rank, in whole blocks."""
    per_rank = -(-max_model_len // deployment.parallelism.dcp)
    return sequence_bytes(
        held, _padded(per_rank, deployment.block_tokens), in_flight_tokens=deployment.max_num_batched_tokens
    )


def _is_plain(held: tuple[KvComponent, ...]) -> bool:
    return not constant_bytes(held) and all(part.window_tokens is None for part in held)


def _padded(tokens: int, step: int) -> int:
    return -(-tokens // step) * step


def _exact(value: float) -> Span:
    return Span(value=value, low=value, high=value)


def _span(value: float, low: float, high: float) -> Span:
    return Span(value=value, low=low, high=high)


def _each(span: Span, change: Callable[[float], float]) -> Span:
    return Span(value=change(span.value), low=change(span.low), high=change(span.high))
