"""Results as one flat table under the names they have in JSON: CSV, where no table of the screen holds all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.report.as_json import value_of
from infcalc.report.table import Column, Table

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_ROW = "row"
"""Column that says what a row is of: ``result``, or the singular of the list that it stands in."""


def flat(results: Iterable[object], *, lists: Mapping[str, str], identity: Sequence[str]) -> Table:
    """Return a row for each result, and one for each entry of its ``lists`` (key to the word for one of them).

    Rows of entries repeat the ``identity`` of their result, so that a script can pick by it; a key that a row does not
    have stays empty. Lists of texts become one text.
    """
    rows: list[dict[str, object]] = []
    for result in results:
        whole = value_of(result)
        values = whole if isinstance(whole, dict) else {}
        known = {key: values[key] for key in identity}
        rows.append({_ROW: "result"} | {key: _text(value) for key, value in values.items() if key not in lists})
        for key, word in lists.items():
            rows += [{_ROW: word} | known | {name: _text(item) for name, item in one.items()} for one in values[key]]
    keys = dict.fromkeys(key for row in rows for key in row)
    return Table(title="", columns=tuple(Column(key=key, heading=key) for key in keys), rows=tuple(rows))


def _text(value: object) -> object:
    return "; ".join(str(one) for one in value) if isinstance(value, list) else value
