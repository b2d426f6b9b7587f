"""What infcalc expects an engine to print, in the quantities of start-up logs: the one place that asks the ledger."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, assert_never

from infcalc.api.sizing import deployment_budgets, page_settings
from infcalc.engines.logs.reading import Quantity
from infcalc.engines.rules import FractionBase
from infcalc.frozen import frozen
from infcalc.lowering.tensors import inventory
from infcalc.memory.blocks import context_cells, plan, printed, state_slots, window_cells
from infcalc.memory.kv import constant_bytes, kv_components
from infcalc.memory.ledger import ledger

if TYPE_CHECKING:
    from infcalc.api.deployment import Deployment
    from infcalc.memory.blocks import Settings
    from infcalc.memory.budget import Budget
    from infcalc.memory.kv import KvComponent
    from infcalc.memory.ledger import Ledger, Line
    from infcalc.spec.kv import KvFormat

_PRINTED_WITH_WEIGHTS = ("weights", "draft", "lora", "loading")


@frozen
class Span:
    """An expected number, and the band it should fall in; both ends are the number itself where it is exact."""

    value: float
    low: float
    high: float


@frozen
class Expected:
    """All that is expected of one deployment at one KV precision, of the governing rank or of an asked stage."""

    spans: dict[Quantity, Span]
    one_request_bytes: int
    """KV of one sequence of the maximum length on that rank."""
    plain: bool
    """Whether the cache grows by the same bytes with every token: no window, no state."""
    set_by_hand: bool = False
    """The pool is what the user asked for, whatever the profiling run found."""
    stage: int = 0
    """The stage that holds the fewest tokens: blocks, tokens and concurrency are its."""
    governs: bool = True
    """Whether the rest is of that stage, too."""

    def span(self, quantity: Quantity) -> Span | None:
        """Return what is expected of a quantity; None where infcalc expects nothing."""
        return self.spans.get(quantity)


def expected(
    deployment: Deployment,
    form: KvFormat,
    *,
    sequences: int = 1,
    streams: int = 1,
    flash: bool | None = None,
    copies_embedding: bool = False,
    stage: int | None = None,
    pool_bytes: int | None = None,
    num_blocks: int | None = None,
) -> Expected:
    """Return what the engine of ``deployment`` should print.

    ``sequences`` are the slots of llama.cpp and ``streams`` the parts of its cache: one that the slots share, or one
    for each. ``flash`` says whether it computes attention without its score matrix (None: not known), and
    ``copies_embedding`` that the head lies on the device, where a tied embedding is held once more. ``stage`` is the
    pipeline stage whose memory is expected (None: that which governs); blocks, tokens and concurrency are those of the
    governing one in any case. ``pool_bytes`` and ``num_blocks`` are pools set by hand, which no profiling run then
    sizes.
    """
    stages = deployment_budgets(deployment, flash=flash)
    parts = tuple(
        kv_components(deployment.model, form, parallelism=deployment.parallelism, stage=budget.stage)
        for budget in stages
    )
    if deployment.rules.fraction_base is FractionBase.NONE:
        settings = replace(page_settings(deployment), num_slots=sequences, unified_cache=streams == 1)
        found = _expected_cells(deployment, parts, settings, flash=flash)
        return _with_copy(found, deployment) if copies_embedding else found

    def of_stages(budgets: tuple[Budget, ...]) -> Ledger:
        return ledger(
            deployment.model,
            deployment.gpu,
            form,
            deployment.parallelism,
            deployment.rules,
            stages=budgets,
            settings=page_settings(deployment),
            context_tokens=deployment.max_model_len,
        )

    book = of_stages(stages)
    shown = book if stage is None or stage == book.stage else of_stages((stages[stage],))
    plain = _is_plain(parts[shown.stage])
    spans = _spans(deployment, shown) | _counts(book) | _states(deployment, form, shown)
    if plain:
        spans[Quantity.BYTES_PER_TOKEN] = _exact(shown.block_bytes / shown.block_tokens)
    by_hand = pool_bytes if num_blocks is None else num_blocks * book.block_bytes
    if by_hand is not None:
        spans |= _set_by_hand(deployment, form, book.stage, by_hand)
    return Expected(
        spans=spans,
        one_request_bytes=book.request_bytes,
        plain=plain,
        set_by_hand=by_hand is not None,
        stage=book.stage,
        governs=shown.stage == book.stage,
    )


def _states(deployment: Deployment, form: KvFormat, book: Ledger) -> dict[Quantity, Span]:
    """Return what the pool of recurrent states takes of the whole, where they have one of their own.

    One slot more than are handed out takes what padding writes.
    """
    settings = page_settings(deployment)
    cut = plan(deployment.model, form, deployment.parallelism, deployment.rules, settings, stage=book.stage)
    ends = (book.kv_pool_bytes, book.kv_pool_bytes_low, book.kv_pool_bytes_high)
    slots = [state_slots(pool_bytes, cut) for pool_bytes in ends]
    value, low, high = (0 if held is None else (held + 1) * cut.slot_bytes for held in slots)
    return {Quantity.STATE: Span(value=value, low=low, high=high)} if cut.state_pool_ratio else {}


def _set_by_hand(deployment: Deployment, form: KvFormat, stage: int, pool_bytes: int) -> dict[Quantity, Span]:
    settings = page_settings(deployment)
    cut = plan(deployment.model, form, deployment.parallelism, deployment.rules, settings, stage=stage)
    blocks, tokens, concurrency = printed(pool_bytes, cut, deployment.rules, settings)
    spans = {Quantity.POOL: _exact(pool_bytes), Quantity.BLOCKS: _exact(blocks), Quantity.TOKENS: _exact(tokens)}
    return spans if concurrency is None else spans | {Quantity.CONCURRENCY: _exact(concurrency)}


def _spans(deployment: Deployment, book: Ledger) -> dict[Quantity, Span]:
    weights = sum(book.line(name).num_bytes for name in _PRINTED_WITH_WEIGHTS)
    non_torch, activation, graphs = (_of(book.line(name)) for name in ("non_torch", "activation", "cuda_graphs"))
    free = _less(_exact(book.total_bytes), non_torch)
    spans = {
        Quantity.DEVICE_TOTAL: _exact(book.total_bytes),
        Quantity.WEIGHTS: _exact(weights),
        Quantity.NON_TORCH: non_torch,
        Quantity.ACTIVATION: activation,
        Quantity.POOL: Span(value=book.kv_pool_bytes, low=book.kv_pool_bytes_low, high=book.kv_pool_bytes_high),
    }
    match deployment.rules.fraction_base:
        case FractionBase.TOTAL:
            spans[Quantity.PEAK] = _sum(_exact(weights), activation)
            spans[Quantity.USABLE] = _exact(book.usable_bytes)
            spans[Quantity.GRAPH_ESTIMATE] = graphs
        case FractionBase.FREE_BEFORE_WEIGHTS:
            spans[Quantity.FREE_BEFORE_WEIGHTS] = free
            spans[Quantity.FREE_AFTER_WEIGHTS] = _less(free, _exact(weights))
        case FractionBase.FREE_AFTER_WEIGHTS:
            spans[Quantity.GRAPH_ESTIMATE] = graphs
            left = _less(_less(_less(free, _exact(weights)), activation), graphs)
            spans[Quantity.FREE_FOR_KV] = left
            spans[Quantity.PEAK] = _sum(_exact(weights), non_torch, activation, graphs)
        case FractionBase.NONE:
            pass
        case _:
            assert_never(deployment.rules.fraction_base)
    if graphs.value and Quantity.GRAPH_ESTIMATE in spans:
        spans[Quantity.GRAPHS] = graphs
    return spans


def _counts(book: Ledger) -> dict[Quantity, Span]:
    """Return blocks, tokens and concurrency of a pool, as the engine prints them."""
    return {
        Quantity.BLOCK_TOKENS: _exact(book.block_tokens),
        Quantity.BLOCKS: Span(value=book.kv_blocks, low=book.kv_blocks_low, high=book.kv_blocks_high),
        Quantity.TOKENS: Span(value=book.kv_cache_tokens, low=book.kv_cache_tokens_low, high=book.kv_cache_tokens_high),
        Quantity.CONCURRENCY: Span(
            value=book.max_concurrency, low=book.max_concurrency_low, high=book.max_concurrency_high
        ),
    }


def _expected_cells(
    deployment: Deployment,
    parts: tuple[tuple[KvComponent, ...], ...],
    settings: Settings,
    *,
    flash: bool | None,
) -> Expected:
    """llama.cpp allocates the cache for all cells of the context, over all devices."""
    cells = context_cells(deployment.max_model_len, settings)
    pool = state = 0
    for part in (part for held in parts for part in held):
        if part.window_tokens is None:
            pool += part.bytes_at(cells) - part.constant_bytes
            state += part.constant_bytes * settings.num_slots
        else:
            pool += part.entry_bytes * (window_cells(part.window_tokens, settings) // part.tokens_per_entry)
    # The log names the buffers of the host, too: the input embedding lies there.
    everywhere = replace(deployment, rules=replace(deployment.rules, host_embedding=False))
    stages = deployment_budgets(deployment, settings=settings, flash=flash)
    graph = max((budget.activation for budget in stages), key=lambda band: band.value_bytes)
    spans = {
        Quantity.WEIGHTS: _exact(sum(budget.weights_bytes for budget in deployment_budgets(everywhere))),
        Quantity.COMPUTE: Span(value=graph.value_bytes, low=graph.low_bytes, high=graph.high_bytes),
        Quantity.POOL: _exact(pool),
        Quantity.TOKENS: _exact(cells),
    }
    if state:
        spans[Quantity.STATE] = _exact(state)
    return Expected(spans=spans, one_request_bytes=pool, plain=all(_is_plain(held) for held in parts))


def _with_copy(expectation: Expected, deployment: Deployment) -> Expected:
    """Return llama.cpp's buffers with a tied embedding on the device as the head, beside that of the host.

    Over several devices it is counted on the first and on the last.
    """
    if not deployment.model.tied_embeddings or deployment.parallelism.pp > 1:
        return expectation
    tensors = inventory(deployment.model, deployment.quantization)
    copied = sum(tensor.bytes_total for tensor in tensors if tensor.name == "embedding")
    weights = _sum(expectation.spans[Quantity.WEIGHTS], _exact(copied))
    return replace(expectation, spans={**expectation.spans, Quantity.WEIGHTS: weights})


def _is_plain(held: tuple[KvComponent, ...]) -> bool:
    return not constant_bytes(held) and all(part.window_tokens is None for part in held)


def _exact(value: float) -> Span:
    return Span(value=value, low=value, high=value)


def _of(line: Line) -> Span:
    return Span(value=line.num_bytes, low=line.low_bytes, high=line.high_bytes)


def _sum(*spans: Span) -> Span:
    return Span(
        value=sum(span.value for span in spans),
        low=sum(span.low for span in spans),
        high=sum(span.high for span in spans),
    )


def _less(span: Span, taken: Span) -> Span:
    """Return what is left of a number after another; the band widens by both."""
    return Span(
        value=max(0.0, span.value - taken.value),
        low=max(0.0, span.low - taken.high),
        high=max(0.0, span.high - taken.low),
    )
