"""What does paging save: allocators under the same arrivals and departures, and one prompt stored once."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from infcalc.api.answer import Answer, distinct
from infcalc.api.deployment import Ask, Deployment, kv_format, load, merged_inputs, resolve, single_kv_dtype
from infcalc.api.offering import limit_of, read_lengths
from infcalc.api.pools import pool_of
from infcalc.api.ranges import check_ranges
from infcalc.api.sizing import check_model_len
from infcalc.errors import UsageError
from infcalc.frozen import frozen
from infcalc.kvcache.contiguous import buddy, reserve_exact, reserve_maximum
from infcalc.kvcache.occupancy import Occupancy, PagedHolder, RunHolder, Stay, replay
from infcalc.kvcache.sharing import share
from infcalc.spec.explain import Input
from infcalc.workload.length_mixes import (
    SHAREGPT_INPUTS,
    SHAREGPT_LONGEST_TOKENS,
    SHAREGPT_OUTPUTS,
    SHAREGPT_SOURCE,
    arrival_steps,
    drawn_requests,
    mean_live_of,
)
from infcalc.workload.lengths import Lengths, described, mean_tokens, parse_lengths

if TYPE_CHECKING:
    import numpy as np

    from infcalc.api.pools import Pool
    from infcalc.spec.explain import Explanation
    from infcalc.workload.length_mixes import RequestLengths

_DOES_NOT_FIT = 3
_LIVES = 6
"""Requests by default, as a multiple of those that run at once: time to fill the pool, and as long again to look."""
_LEAST_LIVES = 3
_NEARLY = 0.9
_SOON_BLOCKS = 400_000
"""Handed out by default, where the least number of requests does not take more: a second or so."""
_FEWEST, _MOST_BY_DEFAULT, _MOST_REQUESTS = 1000, 30_000, 200_000
_MOST_BLOCKS = 2_000_000
"""Handed out in one replay: some ten seconds for all."""
_MOST_SHARED_TOKENS = 20_000_000
_MOST_LOAD = 10.0
_BLOCK_SIZES = (16, 32, 64, 128, 256)
_MOST_SEED = 2**63 - 1
PAGED = "paged"
"""The allocator that the others are compared with."""
PAPER = "Kwon et al. 2023 (PagedAttention, SOSP '23)"


@frozen
class PagingAsk:
    """What a user may say of the requests; None: the ShareGPT-like mix, and as many as fill the pool several times.

    ``load_fraction`` is the tokens that requests would hold at once, with room for all, over those of the pool.
    """

    num_requests: int | None = None
    input_tokens: str | int | float | None = None
    output_tokens: str | int | float | None = None
    pool_tokens: int | None = None
    load_fraction: float = 1.0
    shared_prefix_tokens: int = 1000
    num_shared_requests: int = 50
    seed: int = 0


@frozen
class AllocatorRow:
    """One allocator under the load; shares are means over the steps in which the pool is as full as it stays.

    Shares of what requests hold are None where none ever held anything: nothing fits.

    ``waste_fraction`` of the room that running requests hold has no token in it: ``reserved_fraction`` waits for tokens
    of the same request, ``internal_fraction`` is beyond what it asked for, or the open end of its last block.
    ``scattered_fraction`` of the free room is not in its largest run: external fragmentation.
    """

    allocator: str
    waste_fraction: float | None
    reserved_fraction: float | None
    internal_fraction: float | None
    scattered_fraction: float
    live_pool_fraction: float
    """Of the whole pool, what holds tokens."""
    held_pool_fraction: float
    rejected: int
    """Requests that found no room when they arrived."""
    preempted: int
    """Requests that had to give their blocks back half-way."""
    peak_sequences: int
    mean_sequences: float
    max_request_waste_tokens: int
    """The most room without a token that one request held."""
    held_token_steps: int
    """Tokens times steps, over the same steps."""
    live_token_steps: int


@frozen
class BlockRow:
    """Paging with blocks of another size, under the same load."""

    block_tokens: int
    waste_fraction: float | None
    rejected: int
    preempted: int


@frozen
class SharedPrefix:
    """Requests that begin with one prompt; bytes of the whole model, in whole blocks, when all have their answers.

    ``bytes_with`` is of forks that copy on write, ``bytes_with_full_blocks`` of an engine that finds full blocks by
    their hash. ``prompt_blocks_without`` and ``prompt_blocks_with`` count the blocks of the prompt itself.
    """

    requests: int
    prefix_tokens: int
    bytes_without: int
    bytes_with: int
    bytes_with_full_blocks: int
    saved_fraction: float
    copies_on_write: int
    prompt_blocks_without: int
    prompt_blocks_with: int


@frozen
class PagingResult:
    """Allocators side by side on the KV pool of one deployment; none where the model keeps nothing per token."""

    model: str
    gpu: str
    num_gpus: int
    kv_dtype: str
    kv_bytes_per_token: int | float
    pool_tokens: int
    block_tokens: int
    longest_tokens: int
    """What the contiguous allocator reserves for every request."""
    requests: int
    cut_requests: int
    """Of them, cut to the longest."""
    mean_live_tokens: float
    """Of a running request."""
    offered_sequences: float
    """Requests that would run at once with room for all."""
    allocators: tuple[AllocatorRow, ...]
    blocks: tuple[BlockRow, ...]
    shared_prefix: SharedPrefix
    nothing_per_token: bool = False
    """The model keeps a state of ``state_bytes`` for each sequence, and nothing to page."""
    state_bytes: int = 0

    @property
    def fits_none(self) -> bool:
        """Whether there are pages, and not one request finds room in them."""
        return any(row.allocator == PAGED and not row.peak_sequences for row in self.allocators)


def paging(ask: Ask | None = None, load_ask: PagingAsk | None = None, *, explain: bool = False) -> Answer[PagingResult]:
    """Return waste, rejections and concurrency of each allocator under the same requests, and what sharing saves.

    Exit code 3 where a deployment has no KV pool to try them on, or one into which no request fits.

    Raises:
        InfcalcError: any of its kinds, as :func:`infcalc.api.deployment.resolve`.

    """
    ask, wanted = ask or Ask(), load_ask or PagingAsk()
    _check(wanted)
    word = single_kv_dtype(ask)
    results: list[PagingResult] = []
    notes: list[str] = []
    talk: list[str] = []
    inputs: list[tuple[Input, ...]] = []
    explanations: list[Explanation] = []
    fits = True
    for deployment in resolve(ask, load(ask)):
        check_model_len(deployment)
        form, origin, said = kv_format(deployment, word)
        mix = _mix_of(deployment, wanted, stated_longest=ask.max_model_len is not None)
        pool = pool_of(
            deployment,
            form,
            longest_tokens=mix.longest_tokens,
            given_tokens=wanted.pool_tokens,
            option="--pool-tokens",
        )
        if pool.nothing_per_token:
            result = _nothing_to_page(deployment, form.name, wanted, mix, pool)
        else:
            drawn = _drawn(wanted, mix, pool, deployment.block_tokens)
            result = _result(deployment, form.name, wanted, mix, pool, drawn=drawn)
        fits = fits and pool.num_tokens > 0 and not result.fits_none
        results.append(result)
        talk += [*deployment.warnings, *said, *pool.warnings, *_warnings(result)]
        notes += [*deployment.assumptions, *([] if pool.nothing_per_token else _notes(result, mix))]
        inputs.append(
            (
                *deployment.inputs,
                Input(name="kv_dtype", value=form.name, origin=origin, source=form.note),
                pool.given,
                *mix.found,
                *_inputs(wanted, result),
            )
        )
        if explain and not pool.nothing_per_token:
            from infcalc.api.paging_explaining import explain_paging  # noqa: PLC0415 - only when asked

            explanations += explain_paging(result, pool)
    return Answer(
        command="paging",
        results=tuple(results),
        inputs=merged_inputs(inputs),
        assumptions=distinct(notes),
        warnings=distinct(talk),
        explanations=tuple(explanations),
        exit_code=0 if fits else _DOES_NOT_FIT,
    )


@frozen
class _Mix:
    """Lengths of requests, and the longest that is admitted."""

    inputs: Lengths
    outputs: Lengths
    longest_tokens: int
    of_sharegpt: bool
    found: tuple[Input, ...]


def _check(wanted: PagingAsk) -> None:
    counts = (
        ("--requests", wanted.num_requests, 1, _MOST_REQUESTS),
        ("--shared-requests", wanted.num_shared_requests, 1, 10_000),
        ("--shared-prefix-tokens", wanted.shared_prefix_tokens, 1, 10**7),
        ("--seed", wanted.seed, 0, _MOST_SEED),
    )
    check_ranges(counts)
    if not 0 < wanted.load_fraction <= _MOST_LOAD:
        raise UsageError(
            f"{wanted.load_fraction:g} is out of range",
            place="--load",
            hint=f"above 0 and at most {_MOST_LOAD:g}: tokens that requests want to hold over those of the pool",
        )


def _mix_of(deployment: Deployment, wanted: PagingAsk, *, stated_longest: bool) -> _Mix:
    """Return the lengths of requests: ShareGPT's with the longest of its paper, or the asked with the engine's own.

    Raises:
        UsageError: lengths that are none, or longer than what is admitted.

    """
    inputs = read_lengths(wanted.input_tokens, "--input-tokens")
    outputs = read_lengths(wanted.output_tokens, "--output-tokens")
    of_sharegpt = inputs is None and outputs is None
    longest, origin = limit_of(deployment), f"what {deployment.rules.engine} admits"
    if stated_longest:
        origin = "given (--max-model-len)"
    elif of_sharegpt and longest > SHAREGPT_LONGEST_TOKENS:
        longest, origin = SHAREGPT_LONGEST_TOKENS, "the models of the ShareGPT mix's source"
    origins = ["given (--input-tokens)", "given (--output-tokens)"]
    if inputs is None:
        inputs, origins[0] = parse_lengths(SHAREGPT_INPUTS), "ShareGPT-like"
    if outputs is None:
        outputs, origins[1] = parse_lengths(SHAREGPT_OUTPUTS), "ShareGPT-like"
    whole = mean_tokens(inputs) + mean_tokens(outputs)
    if whole > longest:
        raise UsageError(
            f"{whole:,.0f} tokens of a mean request, and sequences of {longest:,} tokens are admitted ({origin})",
            place="--max-model-len" if stated_longest else "--input-tokens",
            hint="give shorter lengths, or a larger --max-model-len",
        )
    if wanted.shared_prefix_tokens > longest - 2:
        raise UsageError(
            f"{wanted.shared_prefix_tokens:,} tokens, and sequences of {longest:,} tokens are admitted ({origin})",
            place="--shared-prefix-tokens",
            hint=f"at most {longest - 2:,}, or a larger --max-model-len",
        )
    return _Mix(
        inputs=inputs,
        outputs=outputs,
        longest_tokens=longest,
        of_sharegpt=of_sharegpt,
        found=(
            Input(name="input_tokens", value=described(inputs), origin=origins[0], source=SHAREGPT_SOURCE),
            Input(name="output_tokens", value=described(outputs), origin=origins[1], source=SHAREGPT_SOURCE),
            Input(name="longest_tokens", value=longest, origin=origin),
        ),
    )


@frozen
class _Drawn:
    """The requests of a replay, when they come, and over which steps is looked."""

    requests: tuple[RequestLengths, ...]
    offered_sequences: float
    stays: tuple[Stay, ...]
    window: range


def _drawn(wanted: PagingAsk, mix: _Mix, pool: Pool, block_tokens: int) -> _Drawn:
    # The means decide how many requests there are; what is drawn decides how fast they come.
    mean_life = mean_tokens(mix.outputs)
    many = wanted.num_requests
    if many is None:
        at_once = wanted.load_fraction * pool.num_tokens / (mean_tokens(mix.inputs) + mean_life)
        soon = _SOON_BLOCKS * block_tokens / (mean_life + block_tokens)
        wished = max(_LEAST_LIVES * at_once, min(_LIVES * at_once, soon))
        many = min(_MOST_BY_DEFAULT, max(_FEWEST, 100 * math.ceil(wished / 100)))
    _check_work(many, mean_life, block_tokens)
    lengths_rng, arrivals_rng = _chances(wanted.seed)
    requests = drawn_requests(
        mix.inputs, mix.outputs, num_requests=many, longest_tokens=mix.longest_tokens, rng=lengths_rng
    )
    # An empty pool turns away everyone, however slowly they come.
    offered = max(1e-3, wanted.load_fraction * pool.num_tokens / mean_live_of(requests))
    life = sum(one.answer_tokens for one in requests) / many
    steps = arrival_steps(many, offered / life, arrivals_rng)
    return _Drawn(
        requests=requests,
        offered_sequences=offered,
        stays=tuple(
            Stay(first_step=step, num_steps=one.answer_tokens, prompt_tokens=one.prompt_tokens)
            for step, one in zip(steps, requests, strict=True)
        ),
        window=range(steps[many // 2], steps[-1] + 1),
    )


def _chances(seed: int) -> list[np.random.Generator]:
    """Return what lengths and arrivals are drawn from, independent of one another."""
    import numpy as np  # noqa: PLC0415 - start-up

    return np.random.default_rng(seed).spawn(2)


def _check_work(many: int, mean_life: float, block_tokens: int) -> None:
    """Refuse what takes too long before it is drawn: by the mean answer, which requests that are cut stay below."""
    blocks = int(many * mean_life / block_tokens)
    if blocks > _MOST_BLOCKS:
        raise UsageError(
            f"{many:,} requests hand out {blocks:,} blocks of {block_tokens} tokens: more than "
            f"{_MOST_BLOCKS:,} take too long",
            place="--requests",
            hint=f"--requests {max(1, many * _MOST_BLOCKS // blocks)}, or a larger --block-size",
        )


def _result(
    deployment: Deployment, kv_dtype: str, wanted: PagingAsk, mix: _Mix, pool: Pool, *, drawn: _Drawn
) -> PagingResult:
    size, longest = deployment.block_tokens, mix.longest_tokens
    tokens = pool.num_tokens
    paged = replay(drawn.stays, PagedHolder(tokens, size), drawn.window)
    rows = [(PAGED, paged)]
    for name, allocator in (
        ("contiguous-max", reserve_maximum(tokens, longest)),
        ("contiguous-exact", reserve_exact(tokens)),
        ("buddy", buddy(tokens)),
    ):
        rows.append((name, replay(drawn.stays, RunHolder(allocator), drawn.window)))
    sizes = {size: paged}
    for other in _BLOCK_SIZES:
        if other not in sizes:
            sizes[other] = replay(drawn.stays, PagedHolder(tokens, other), drawn.window)
    return PagingResult(
        model=deployment.model.name,
        gpu=deployment.gpu.name,
        num_gpus=deployment.parallelism.num_gpus,
        kv_dtype=kv_dtype,
        kv_bytes_per_token=pool.kv_bytes_per_token,
        pool_tokens=tokens,
        block_tokens=size,
        longest_tokens=longest,
        requests=len(drawn.requests),
        cut_requests=sum(one.cut for one in drawn.requests),
        mean_live_tokens=mean_live_of(drawn.requests),
        offered_sequences=drawn.offered_sequences,
        allocators=tuple(_row(name, found) for name, found in rows),
        blocks=tuple(
            BlockRow(
                block_tokens=one,
                waste_fraction=found.waste_fraction,
                rejected=found.rejected,
                preempted=found.preempted,
            )
            for one, found in sorted(sizes.items())
        ),
        shared_prefix=_shared(wanted, mix, size, pool.kv_bytes_per_token),
    )


def _nothing_to_page(deployment: Deployment, kv_dtype: str, wanted: PagingAsk, mix: _Mix, pool: Pool) -> PagingResult:
    """Return the answer for a model that keeps nothing per token: no allocator has anything to hand out."""
    return PagingResult(
        model=deployment.model.name,
        gpu=deployment.gpu.name,
        num_gpus=deployment.parallelism.num_gpus,
        kv_dtype=kv_dtype,
        kv_bytes_per_token=0,
        pool_tokens=0,
        block_tokens=deployment.block_tokens,
        longest_tokens=mix.longest_tokens,
        requests=0,
        cut_requests=0,
        mean_live_tokens=0.0,
        offered_sequences=0.0,
        allocators=(),
        blocks=(),
        shared_prefix=SharedPrefix(
            requests=wanted.num_shared_requests,
            prefix_tokens=wanted.shared_prefix_tokens,
            bytes_without=0,
            bytes_with=0,
            bytes_with_full_blocks=0,
            saved_fraction=0.0,
            copies_on_write=0,
            prompt_blocks_without=0,
            prompt_blocks_with=0,
        ),
        nothing_per_token=True,
        state_bytes=pool.state_bytes,
    )


def _row(name: str, found: Occupancy) -> AllocatorRow:
    held, room = found.held_token_steps, found.capacity_tokens * found.num_steps
    return AllocatorRow(
        allocator=name,
        waste_fraction=found.waste_fraction,
        reserved_fraction=_share(found.reserved_token_steps, held) if held else None,
        internal_fraction=_share(held - found.live_token_steps - found.reserved_token_steps, held) if held else None,
        scattered_fraction=_share(found.scattered_token_steps, found.free_token_steps),
        live_pool_fraction=_share(found.live_token_steps, room),
        held_pool_fraction=_share(held, room),
        rejected=found.rejected,
        preempted=found.preempted,
        peak_sequences=found.peak_sequences,
        mean_sequences=found.sequence_steps / found.num_steps,
        max_request_waste_tokens=found.max_request_waste_tokens,
        held_token_steps=held,
        live_token_steps=found.live_token_steps,
    )


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def _shared(wanted: PagingAsk, mix: _Mix, block_tokens: int, bytes_per_token: float) -> SharedPrefix:
    number, prefix = wanted.num_shared_requests, wanted.shared_prefix_tokens
    own = drawn_requests(
        mix.inputs,
        mix.outputs,
        num_requests=number,
        longest_tokens=mix.longest_tokens - prefix,
        rng=_chances(wanted.seed)[0],
    )
    work = number * prefix + sum(one.total_tokens for one in own)
    if work > _MOST_SHARED_TOKENS:
        raise UsageError(
            f"{number:,} requests after {prefix:,} tokens: {work:,} tokens take too long",
            place="--shared-requests",
            hint=f"{_MOST_SHARED_TOKENS:,} tokens together at most",
        )
    found = share(prefix, [one.total_tokens for one in own], block_tokens)
    block_bytes = block_tokens * bytes_per_token
    return SharedPrefix(
        requests=number,
        prefix_tokens=prefix,
        bytes_without=round(found.num_blocks_apart * block_bytes),
        bytes_with=round(found.num_blocks_forked * block_bytes),
        bytes_with_full_blocks=round(found.num_blocks_found * block_bytes),
        saved_fraction=1 - found.num_blocks_forked / found.num_blocks_apart,
        copies_on_write=found.num_copies,
        prompt_blocks_without=number * found.num_prompt_blocks,
        prompt_blocks_with=found.num_prompt_blocks + found.num_copies,
    )


def _inputs(wanted: PagingAsk, result: PagingResult) -> tuple[Input, ...]:
    own = PagingAsk()

    def origin(name: str, option: str) -> str:
        return "default" if getattr(wanted, name) == getattr(own, name) else f"given ({option})"

    requests = "given (--requests)" if wanted.num_requests is not None else "several times those that run at once"
    return (
        Input(name="requests", value=result.requests, origin=requests),
        Input(name="load_fraction", value=wanted.load_fraction, origin=origin("load_fraction", "--load")),
        Input(
            name="shared_prefix_tokens",
            value=wanted.shared_prefix_tokens,
            origin=origin("shared_prefix_tokens", "--shared-prefix-tokens"),
        ),
        Input(
            name="shared_requests",
            value=wanted.num_shared_requests,
            origin=origin("num_shared_requests", "--shared-requests"),
        ),
        Input(name="seed", value=wanted.seed, origin=origin("seed", "--seed")),
    )


def _warnings(result: PagingResult) -> list[str]:
    talk = [
        f"{row.allocator}: no request fits into {result.pool_tokens:,} tokens, and all {row.rejected:,} are rejected"
        for row in result.allocators
        if not row.peak_sequences and result.pool_tokens
    ]
    if result.requests < _NEARLY * _LEAST_LIVES * result.offered_sequences:
        talk.append(
            f"{result.requests:,} requests do not fill a pool in which {result.offered_sequences:,.0f} run at once: "
            f"shares of its use are too low; --requests {_LIVES * round(result.offered_sequences)} would"
        )
    return talk


def _notes(result: PagingResult, mix: _Mix) -> list[str]:
    source = f"lengths: {SHAREGPT_SOURCE}; {result.cut_requests:,} of {result.requests:,} requests cut to "
    return [
        *([f"{source}{result.longest_tokens:,} tokens"] if mix.of_sharegpt else []),
        (
            "every allocator sees the same requests at the same steps; who finds no room is turned away, so that who "
            "was admitted leaves at the same step under each; a step gives each running request one token, and a "
            "prompt is there at once"
        ),
        (
            "shares are means over the second half of the arrivals; waste is room that running requests hold without a "
            "token in it; that an exact length or a power of two of it is known before is an assumption no engine can "
            "make"
        ),
        (
            f"{PAPER} measured 20.4 % of the KV memory holding tokens with the maximum reserved, 26.8 % with powers of "
            "two, 38.2 % with exact lengths and 96.3 % with paging (figure 2): 60 to 80 % wasted against less than 4 %"
        ),
        (
            "shared prompt: bytes of the whole model, in whole blocks, once all requests have their answers; forks "
            "copy on the first write into a block that others hold too (section 4.4 there)"
        ),
    ]
