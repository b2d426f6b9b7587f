"""The tables of ``speculate``: whether a batch fits is said of each, also where that is not known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from infcalc.api.drafting import DraftAsk, speculate
from infcalc.report.views.speculate import view


@pytest.mark.parametrize(
    ("fits", "known", "told"),
    [(True, True, {"yes", "no"}), (True, False, {"unknown"}), (False, False, {"no"})],
)
def test_every_batch_says_whether_it_fits(fits: bool, known: bool, told: set[str]) -> None:
    answer = speculate(draft=DraftAsk(methods=("ngram",), acceptance=(0.6,)))
    result = replace(answer.result, fits=fits, full_load=answer.result.full_load if known else ())
    table = next(one for one in view(replace(answer, results=(result,))).tables if "by batch" in one.title)
    assert {row["fits"] for row in table.rows} == told
    if known:
        (load,) = answer.result.full_load
        assert [row["fits"] == "yes" for row in table.rows] == [
            point.batch <= load.sequences_without for point in answer.result.by_batch
        ]
