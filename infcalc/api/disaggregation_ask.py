"""What is asked of pools of prefill and decode: how many replicas of each, the link between, and the comparison."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from infcalc.api.ranges import check_range
from infcalc.api.replicas import Policy
from infcalc.errors import UsageError
from infcalc.frozen import frozen
from infcalc.units import parse_quantity
from infcalc.workload.written import values_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from infcalc.api.simulation_ask import SimulationAsk

HANDING_OVER = (Policy.VLLM, Policy.SGLANG, Policy.TENSORRT_LLM)
"""Policies whose engines have pools of prefill and decode."""
_MOST_REPLICAS = 1024
_MOST_BYTES_PER_S = 1e15
_MOST_LATENCY_S = 60.0
_LINK = "--kv-link"
_FORMS = "write 50GB/s, or bandwidth=50GB/s,latency=20us,shared=pool"


class Shared(StrEnum):
    """Who sends over one link."""

    REPLICA = "replica"
    """Each prefill replica has a link of its own."""
    POOL = "pool"
    """All prefill replicas have one together."""


class Beside(StrEnum):
    """Which plain replicas pools are judged against, at the same number of GPUs."""

    BEST = "best"
    """The best of all TP that divide the GPUs and fit."""
    SAME = "same"
    """Replicas like those of the decode pool, else of the prefill pool."""
    NONE = "none"


@frozen
class LinkAsk:
    """A link; ``bytes_per_s`` None: what the network cards of a prefill replica's GPUs carry."""

    bytes_per_s: float | None = None
    latency_s: float = 0.0
    shared: Shared = Shared.REPLICA


@frozen
class PoolsAsk:
    """Pools of ``num_prefill`` and ``num_decode`` replicas; TP of None: as the deployment has it."""

    num_prefill: int
    num_decode: int
    prefill_tp: int | None = None
    decode_tp: int | None = None
    link: LinkAsk = LinkAsk()
    beside: Beside = Beside.BEST


def parse_link(text: str) -> LinkAsk:
    """Return the link that a text describes.

    Raises:
        UsageError: it describes none.

    >>> parse_link("50GB/s").bytes_per_s
    50000000000.0
    >>> parse_link("bandwidth=400GB/s,latency=10us,shared=pool").shared
    <Shared.POOL: 'pool'>

    """
    try:
        return _link(values_of(text, "a link"))
    except ValueError as wrong:
        raise UsageError(str(wrong), place=_LINK, hint=_FORMS) from None


def _link(values: Mapping[str, str]) -> LinkAsk:
    unknown = [key for key in values if key not in {"", "bandwidth", "latency", "shared"}]
    if unknown:
        raise ValueError(f"{unknown[0]!r} is no property of a link")
    if {"", "bandwidth"} <= set(values):
        raise ValueError("the bandwidth is given twice")
    speed = values.get("", values.get("bandwidth"))
    bytes_per_s = None if speed is None else float(parse_quantity(speed, "bytes_per_s"))
    if bytes_per_s is not None and not 1 <= bytes_per_s <= _MOST_BYTES_PER_S:
        raise ValueError(f"{bytes_per_s:g} bytes/s is out of range")
    latency_s = float(parse_quantity(values.get("latency", "0 s"), "seconds"))
    if not 0 <= latency_s <= _MOST_LATENCY_S:
        raise ValueError(f"a latency of {latency_s:g} s is out of range: from 0 to a minute")
    shared = values.get("shared", Shared.REPLICA.value).lower()
    if shared not in set(Shared):
        raise ValueError(f"{shared!r} shares no link: one of {', '.join(Shared)}")
    return LinkAsk(bytes_per_s=bytes_per_s, latency_s=latency_s, shared=Shared(shared))


def parse_beside(text: str) -> Beside:
    """Return which plain replicas a word names.

    Raises:
        UsageError: none.

    """
    try:
        return Beside(text.strip().lower())
    except ValueError:
        raise UsageError(
            f"{text!r} names no plain replicas", place="--aggregated", hint=f"one of {', '.join(Beside)}"
        ) from None


def pools_of(
    *,
    num_prefill: int | None,
    num_decode: int | None,
    prefill_tp: int | None,
    decode_tp: int | None,
    link: str | None,
    beside: str | None,
) -> PoolsAsk | None:
    """Return the pools of a command's options; None where none are asked for.

    Raises:
        UsageError: one pool without the other, or a property of pools without them.

    """
    if num_prefill is None and num_decode is None:
        for option, value in (
            ("--prefill-tp", prefill_tp),
            ("--decode-tp", decode_tp),
            (_LINK, link),
            ("--aggregated", beside),
        ):
            if value is not None:
                raise UsageError(
                    "is of pools of prefill and decode, and there are none",
                    place=option,
                    hint="add --prefill-replicas 2 --decode-replicas 6",
                )
        return None
    if num_prefill is None or num_decode is None:
        given, missing = ("--decode-replicas", "--prefill-replicas")
        if num_decode is None:
            given, missing = missing, given
        raise UsageError("one pool without the other", place=given, hint=f"add {missing} 1")
    return PoolsAsk(
        num_prefill=num_prefill,
        num_decode=num_decode,
        prefill_tp=prefill_tp,
        decode_tp=decode_tp,
        link=LinkAsk() if link is None else parse_link(link),
        beside=Beside.BEST if beside is None else parse_beside(beside),
    )


def check_pools(asked: SimulationAsk, pools: PoolsAsk) -> None:
    """Refuse what contradicts pools.

    Raises:
        UsageError: it does.

    """
    for option, number in (("--prefill-replicas", pools.num_prefill), ("--decode-replicas", pools.num_decode)):
        check_range(option, number, most=_MOST_REPLICAS)
    if asked.num_replicas is not None:
        raise UsageError(
            "replicas beside pools of prefill and decode",
            place="--replicas",
            hint="--prefill-replicas and --decode-replicas say how many there are: drop --replicas",
        )
    if asked.scaling is not None:
        raise UsageError(
            "pools of prefill and decode do not scale here",
            place="--autoscale",
            hint="scale plain replicas, or simulate the pools at one size after the other",
        )
    if asked.compared:
        raise UsageError(
            "several policies beside pools of prefill and decode",
            place="--compare",
            hint="name one with --policy: the pools stand beside plain replicas already (--aggregated)",
        )
    if asked.contiguous:
        raise UsageError(
            "room without paging is handed over by no engine", place="--contiguous", hint="drop it: pools are paged"
        )


def check_hands_over(policy: Policy) -> None:
    """Refuse a policy under which no engine hands caches over.

    Raises:
        UsageError: it is one.

    """
    if policy not in HANDING_OVER:
        raise UsageError(
            f"{policy} batching has no pools of prefill and decode: no engine with it takes over a cache",
            place="--policy",
            hint=f"one of {', '.join(HANDING_OVER)}",
        )
