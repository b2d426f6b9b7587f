from __future__ import annotations

from infcalc.report.explained import lines
from infcalc.spec.explain import Explanation, Input


def test_an_explanation_is_one_line_of_formula_values_origins_and_source() -> None:
    inputs = (
        Input(name="layers", value=80, origin="models.yaml (shipped)", source="config.json"),
        Input(name="tp", value=4, origin="given"),
    )
    full = Explanation(quantity="x", formula="layers / tp", substituted="80 / 4 = 20", inputs=inputs, source="a paper")
    bare = Explanation(quantity="y", formula="1 + 1", substituted="2")
    assert lines((full, bare)) == (
        (
            "x = layers / tp = 80 / 4 = 20 [layers = 80 (models.yaml (shipped), config.json); tp = 4 (given)] "
            "(source: a paper)"
        ),
        "y = 1 + 1 = 2",
    )
    assert lines(()) == ()
