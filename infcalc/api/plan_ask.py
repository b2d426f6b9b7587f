"""What is asked of a planner: a load, limits, and what it may choose from, with the defaults of what is not said."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from infcalc.api.offer import Offer
from infcalc.api.offering import check_offer
from infcalc.api.ranges import check_ranges
from infcalc.errors import UsageError
from infcalc.frozen import frozen
from infcalc.planning.nouns import Goal

if TYPE_CHECKING:
    from infcalc.api.drafting import DraftAsk
    from infcalc.api.objectives import Objective

HOURS_PER_MONTH = 730.0
"""365 days of 24 hours over 12 months."""
DEFAULT_USERS = 100
DEFAULT_SLO = "ttft-p95=3s,tpot-p95=100ms"
"""Where none is given: an answer begins while one still looks, and streams faster than people read."""
_MOST_USERS = 10**6
_MOST_GPUS = 10**6
_OF_REQUESTS = frozenset({"ttft_s", "tpot_s", "e2e_s"})
_MOST_CONFIRMED = 50
_MOST_SHOWN = 1000


@frozen
class PlanAsk:
    """What is to be served, how well, for how much, and what may be chosen; None and empty: the default.

    ``goal`` is a word of :class:`infcalc.planning.nouns.Goal`. ``allow`` are precisions of weights and KV that may be
    taken although they lose something (``fp8``, ``weights=int4``, ``kv=fp8``). ``headroom_fraction`` more than the load
    is planned for; ``num_spare`` replicas may fail and all limits still hold. ``usd_per_hour`` is the budget.
    """

    goal: str = Goal.COST
    num_users: int | None = None
    think_time_s: float = 0.0
    requests_per_s: float | None = None
    input_tokens: str | None = None
    output_tokens: str | None = None
    prefix_hit_fraction: float | None = None
    """Of each prompt, found in the prefix cache; None: what prompts of the trace share, without one nothing."""
    file: str | None = None
    """A trace: its lengths, and its rate where no load is given."""
    slo: tuple[Objective, ...] = ()
    gpus_from: tuple[str, ...] = ()
    engines_from: tuple[str, ...] = ()
    allow: tuple[str, ...] = ()
    draft: DraftAsk | None = None
    """Ways of drafting that may be taken, beside none at all; None: none."""
    usd_per_hour: float | None = None
    headroom_fraction: float = 0.0
    num_spare: int = 0
    max_gpus: int | None = None
    num_confirmed: int = 5
    num_shown: int = 10
    from_naive: bool = False
    with_pools: bool = True
    """Mixed fleets and disaggregated prefill are judged too."""
    seed: int = 0
    num_workers: int | None = None


def goal_of(asked: PlanAsk) -> Goal:
    """Return the goal.

    Raises:
        UsageError: there is no such goal.

    """
    word = asked.goal.strip().lower()
    try:
        return Goal(word)
    except ValueError:
        raise UsageError(
            f"{asked.goal!r} is no objective", place="--objective", hint=f"one of {', '.join(Goal)}"
        ) from None


def check_plan(asked: PlanAsk) -> None:
    """Refuse numbers that no plan can have, and loads that exclude each other.

    Raises:
        UsageError: one is out of range, or two are given.

    """
    goal_of(asked)
    if asked.num_users is not None and asked.requests_per_s is not None:
        raise UsageError(
            "both --users and --rate", place="--rate", hint="give one: users wait for their answers, a rate does not"
        )
    if asked.think_time_s and asked.requests_per_s is not None:
        raise UsageError(
            "both --think-time and --rate",
            place="--think-time",
            hint="give --users with it: at a rate requests come whatever users do",
        )
    counts = (
        ("--users", asked.num_users, 1, _MOST_USERS),
        ("--max-gpus", asked.max_gpus, 1, _MOST_GPUS),
        ("--spare", asked.num_spare, 0, _MOST_GPUS),
        ("--confirm", asked.num_confirmed, 0, _MOST_CONFIRMED),
        ("--top", asked.num_shown, 1, _MOST_SHOWN),
    )
    check_ranges(counts)
    if not (0 <= asked.headroom_fraction <= 10):  # noqa: PLR2004 - eleven times the load is a mistake
        raise UsageError(
            f"{asked.headroom_fraction:g} is out of range",
            place="--headroom",
            hint="a share of the load, such as 0.2 or 20%",
        )
    if asked.usd_per_hour is not None and not (0 < asked.usd_per_hour < math.inf):
        raise UsageError(
            f"{asked.usd_per_hour:g} USD/h is out of range", place="--budget", hint="write 5000/month or 8/h"
        )
    check_offer(
        Offer(
            concurrency=1 if asked.num_users is not None or asked.think_time_s else None,
            requests_per_s=asked.requests_per_s,
            think_time_s=asked.think_time_s,
            prefix_hit_fraction=asked.prefix_hit_fraction or 0.0,
        )
    )
    for one in asked.slo:
        if one.quantity not in _OF_REQUESTS:
            raise UsageError(
                f"{one.quantity} is no time of a request",
                place="--slo",
                hint="write ttft-p95=500ms,tpot-p95=50ms,e2e=10s",
            )


_BUDGET = re.compile(
    r"^\$?\s*([0-9][0-9_,]*(?:\.[0-9]+)?)\s*(?:USD)?\s*(?:/|per\s+)?\s*(h|hour|month|mo|m)?$", re.IGNORECASE
)


def parse_budget(text: str) -> float:
    """Return a budget in USD per hour; a month has 730 hours, and is meant where nothing is said.

    Raises:
        UsageError: it is none.

    >>> parse_budget("7300/month"), parse_budget("$8/h")
    (10.0, 8.0)

    """
    match = _BUDGET.match(text.strip())
    if match is None:
        raise UsageError(f"{text!r} is not a budget", place="--budget", hint="write 5000/month or 8/h, in USD")
    usd = float(match[1].replace(",", "").replace("_", ""))
    return usd if (match[2] or "month").lower().startswith("h") else usd / HOURS_PER_MONTH


def parse_share(text: str, option: str) -> float:
    """Return a share: ``0.2`` or ``20%``.

    Raises:
        UsageError: it is none.

    >>> parse_share("20%", "--headroom"), parse_share("0.2", "--headroom")
    (0.2, 0.2)

    """
    word = text.strip()
    try:
        return float(word.removesuffix("%")) / 100 if word.endswith("%") else float(word)
    except ValueError:
        raise UsageError(f"{text!r} is not a share", place=option, hint="write 0.2 or 20%") from None


def parse_spare(text: str) -> int:
    """Return how many replicas may fail: ``N+1``, ``2``.

    Raises:
        UsageError: it is no number of replicas.

    >>> parse_spare("N+1"), parse_spare("2")
    (1, 2)

    """
    word = text.strip().upper().removeprefix("N+")
    if not word.isdigit():
        raise UsageError(f"{text!r} is no number of spare replicas", place="--spare", hint="write N+1, or 1")
    return int(word)
