"""The table of requests and users that several commands show."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from infcalc.report.table import Column, Table, count
from infcalc.units import format_seconds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from infcalc.api.filling import MemoryResult
    from infcalc.api.fitting import ConcurrencyRow

    Row = ConcurrencyRow | MemoryResult


def users_table(rows: Sequence[tuple[Mapping[str, object], Row]], who: tuple[Column, ...]) -> tuple[Table, ...]:
    """Return the table of requests, of users, or of both, by what was asked; none where neither was.

    ``rows`` are what each row is called (by the keys of ``who``), and the row.
    """
    with_lengths, with_users = (
        any(value is not None for value in values)
        for values in ([row.requests for _, row in rows], [row.users_asked for _, row in rows])
    )
    if not with_lengths and not with_users:
        return ()
    title = "Requests that run at once, and users who send them" if with_lengths else "Users who hold a sequence each"
    columns = (*who, *_COMMON, *(_LENGTHS if with_lengths else ()), *(_ASKED if with_users else ()))
    if with_lengths and with_users:
        columns = tuple(
            replace(column, aside=column.aside or column.key in _LESS_WHERE_USERS_ARE_ASKED) for column in columns
        )
    keys = [column.key for column in (*_COMMON, *_LENGTHS, *_ASKED)]
    return (
        Table(
            title=title,
            columns=columns,
            rows=tuple({**named, **{key: getattr(row, key) for key in keys}} for named, row in rows),
        ),
    )


def asked_in_words(row: Row) -> str:
    """Return in a few words whether the asked users fit; empty where nobody asked."""
    if row.users_asked is None:
        return ""
    if row.sequences_needed is None:
        return f"whether {row.users_asked:,} users fit cannot be said without --service-time"
    verb = "fit" if row.users_fit else "do not fit"
    return f"{row.users_asked:,} users {verb}: they need {row.sequences_needed:,} sequences at once"


def _whole(value: object) -> str:
    return f"{value:,.0f}" if isinstance(value, int | float) else str(value)


def _time(value: object) -> str:
    return format_seconds(value) if isinstance(value, int | float) else str(value)


def _truth(value: object) -> str:
    return "yes" if value else "no"


_COMMON = (
    Column(key="kv_dtype", heading="KV", left=True),
    Column(key="context_tokens", heading="context", show=count),
    Column(key="sequences", heading="sequences", show=count),
)
_LENGTHS = (
    Column(key="mean_live_tokens", heading="live tokens", show=_whole),
    Column(key="p95_live_tokens", heading="p95", show=_whole, aside=True),
    Column(key="requests", heading="requests", show=count),
    Column(key="requests_low", heading="low", show=count, aside=True),
    Column(key="requests_high", heading="high", show=count, aside=True),
    Column(key="requests_p95", heading="95 % safe", show=count),
    Column(key="service_time_s", heading="service", show=_time),
    Column(key="users", heading="users", show=count),
    Column(key="users_low", heading="low", show=count),
    Column(key="users_high", heading="high", show=count),
)
_ASKED = (
    Column(key="users_asked", heading="asked", show=count),
    Column(key="sequences_needed", heading="needed", show=count),
    Column(key="users_fit", heading="fit", show=_truth, left=True),
)
_LESS_WHERE_USERS_ARE_ASKED = frozenset({"sequences", "service_time_s", "users_low", "users_high"})
