"""Chains of block ids as traces write them, one list per request, as the tree of what prompts share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np

from infcalc.workload.faults import Faults, numbers, shown, tokens
from infcalc.workload.sharing import shared_chains
from infcalc.workload.trace import Floats, Ints, Sharing

_KNOWN_BLOCKS = (512, 16)
"""Tokens of a block: of Mooncake's traces; of Alibaba's and, unless told otherwise, of vLLM's ``timed_trace``."""
_LARGEST_BLOCK = 2**20


def hashed_blocks(
    records: Sequence[Mapping[str, Any]], lines: Sequence[int], input_tokens: Ints, faults: Faults
) -> tuple[Sharing | None, int]:
    """Return what prompts share by their ``hash_ids``, and the tokens of a block; None and 0 where there are none.

    A prompt has one id for each block that it begins, so that the size of blocks follows from the counts.
    """
    lists = [record.get("hash_ids") or [] for record in records]
    if not any(lists):
        return None, 0
    lengths = _lengths(lists, lines, "hash_ids", faults)
    if len(faults):
        return None, 0
    block = _block_tokens(lengths, input_tokens)
    needed = -(-input_tokens // block)
    for place in np.flatnonzero((lengths > 0) & (lengths != needed)).tolist():
        faults.add(
            lines[place],
            f"{lengths[place]:,} hash_ids; {input_tokens[place]:,} tokens begin {needed[place]:,} blocks of {block:,}",
        )
    if len(faults):
        return None, 0
    offset = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    sizes = np.minimum(block, np.repeat(input_tokens, lengths) - offset * block)
    return shared_chains(_dense(lists, int(lengths.sum())), sizes, lengths, np.zeros_like(lengths)), block


def _block_tokens(lengths: Ints, input_tokens: Ints) -> int:
    """Return the size that fits the most requests: a known one, else the smallest that fits all, else the first."""
    known = lengths > 0
    fitting = [int((-(-input_tokens[known] // block) == lengths[known]).sum()) for block in _KNOWN_BLOCKS]
    if max(fitting) == int(known.sum()):
        return _KNOWN_BLOCKS[fitting.index(max(fitting))]
    # With h ids of B tokens: (h - 1) B < input <= h B.
    least = int((-(-input_tokens[known] // lengths[known])).max())
    most = int(np.where(lengths > 1, (input_tokens - 1) // np.maximum(lengths - 1, 1), _LARGEST_BLOCK)[known].min())
    if least <= most:
        # A power of two, where one fits.
        power = 1 << (least - 1).bit_length()
        return power if power <= most else least
    return _KNOWN_BLOCKS[fitting.index(max(fitting))]


def prefix_chains(
    records: Sequence[Mapping[str, Any]],
    lines: Sequence[int],
    input_tokens: Ints,
    output_tokens: Ints,
    faults: Faults,
) -> Sharing | None:
    """Return what prompts share by ``prefix_ids`` with their ``prefix_tokens``, and answers by ``answer_id``."""
    if not any("prefix_ids" in record for record in records):
        return None
    lists = [record.get("prefix_ids", []) for record in records]
    sizes = [record.get("prefix_tokens", []) for record in records]
    lengths = _lengths(lists, lines, "prefix_ids", faults)
    size_lengths = _lengths(sizes, lines, "prefix_tokens", faults)
    for place in np.flatnonzero(lengths != size_lengths).tolist():
        faults.add(lines[place], f"{lengths[place]:,} prefix_ids and {size_lengths[place]:,} prefix_tokens")
    if len(faults):
        return None
    owner = np.repeat(np.arange(len(records)), lengths)
    flat = tokens(list(chain.from_iterable(sizes)), [lines[place] for place in owner.tolist()], "prefix_tokens", faults)
    total = np.bincount(owner, weights=flat, minlength=len(records))
    for place in np.flatnonzero((total > input_tokens) & (input_tokens > 0)).tolist():
        faults.add(lines[place], f"prefixes of {total[place]:,.0f} tokens in a prompt of {input_tokens[place]:,}")
    for place in np.unique(owner[flat < 1]).tolist():
        faults.add(lines[place], "a prefix of no token")
    if len(faults):
        return None
    answered = np.array(["answer_id" in record for record in records], dtype=np.int64)
    whole = [
        [*ids, record["answer_id"]] if "answer_id" in record else ids
        for ids, record in zip(lists, records, strict=True)
    ]
    ends = np.cumsum(lengths + answered)[answered > 0] - 1
    all_sizes = np.empty(int((lengths + answered).sum()), dtype=np.int64)
    is_answer = np.zeros(len(all_sizes), dtype=bool)
    is_answer[ends] = True
    all_sizes[~is_answer] = flat
    all_sizes[is_answer] = output_tokens[answered > 0]
    return shared_chains(_dense(whole, len(all_sizes)), all_sizes, lengths + answered, answered)


def _lengths(lists: Sequence[object], lines: Sequence[int], name: str, faults: Faults) -> Ints:
    found = np.zeros(len(lists), dtype=np.int64)
    for place, ids in enumerate(lists):
        if isinstance(ids, list):
            found[place] = len(ids)
        else:
            faults.add(lines[place], f"{name} is not a list: {shown(ids)}")
    return found


def _dense(lists: Sequence[Sequence[object]], count: int) -> Ints:
    """Return ids, whole numbers or texts, as whole numbers."""
    flat = chain.from_iterable(lists)
    try:
        return np.fromiter(flat, dtype=np.int64, count=count)
    except (TypeError, ValueError, OverflowError):
        number: dict[str, int] = {}
        return np.array([number.setdefault(str(one), len(number)) for ids in lists for one in ids], dtype=np.int64)


def column(records: Sequence[Mapping[str, Any]], lines: Sequence[int], name: str, faults: Faults) -> Floats | None:
    """Return an optional column of numbers from 0 up, 0 where a request lacks it; None where all do."""
    if not any(name in record for record in records):
        return None
    found = numbers([record.get(name, 0) for record in records], lines, name, faults)
    for place in np.flatnonzero(found < 0).tolist():
        faults.add(lines[place], f"{name} {found[place]:g} is below 0")
    return found
