from __future__ import annotations

from typing import Any

import pytest

from infcalc.api.deployment import Ask
from infcalc.api.drafting import DraftAsk, SpeculateResult, speculate
from infcalc.api.simulated_drafting import SimulationAsk
from infcalc.errors import UsageError

FEW = SimulationAsk(num_rounds=2000)


def simulated(**options: Any) -> SpeculateResult:  # noqa: ANN401 - any of DraftAsk
    return speculate(draft=DraftAsk(simulation=FEW, **options)).result


def test_nothing_is_simulated_unasked() -> None:
    result = speculate(draft=DraftAsk(methods=("eagle3",))).result
    assert (result.simulated_method, result.simulation) == (None, ())


def test_the_chain_of_the_contest_is_the_row_of_the_method() -> None:
    result = simulated(methods=("eagle3",), num_draft_tokens=5)
    (row,) = result.rows
    line = next(one for one in result.simulation if one.num_draft_tokens == 5 and one.siblings is None)
    assert line.expected_tokens_per_round == pytest.approx(row.tokens_per_round)
    assert line.prices[0].speedup == pytest.approx(row.speedup)
    assert [price.batch for price in line.prices] == [1, 64]


def test_the_fastest_chain_takes_part() -> None:
    result = simulated()
    chains = [row for row in result.rows if row.method != "ngram"]
    assert result.simulated_method == max(chains, key=lambda row: row.speedup).method


def test_shapes_are_priced_at_the_batch_asked_for_and_at_those_that_fit() -> None:
    assert [price.batch for price in simulated(batch=8).simulation[0].prices] == [1, 8, 64]
    # Some twenty sequences of 32k fit.
    result = speculate(draft=DraftAsk(simulation=FEW), contexts=(32_768,)).result
    assert result.max_batch < 64
    assert [price.batch for price in result.simulation[0].prices] == [1]


def test_acceptance_of_trees_and_lookups_says_nothing_of_a_chain() -> None:
    for methods in (("eagle2",), ("ngram", "eagle3-tree")):
        with pytest.raises(UsageError, match="only lookups and trees") as refused:
            simulated(methods=methods)
        assert refused.value.place == "--simulate"
    assert simulated(methods=("ngram",), acceptance=(0.6,)).simulated_method == "ngram"


def test_the_seed_decides_and_is_an_input() -> None:
    def counted(seed: int) -> list[float]:
        answer = speculate(draft=DraftAsk(methods=("eagle3",), simulation=SimulationAsk(num_rounds=2000, seed=seed)))
        origins = {item.name: (item.value, item.origin) for item in answer.inputs}
        assert origins["seed"] == (seed, "given (--seed)" if seed else "default")
        assert origins["simulate"] == (2000, "given (--simulate)")
        return [row.tokens_per_round for row in answer.result.simulation]

    assert counted(0) == counted(0)
    assert counted(0) != counted(1)


def test_every_deployment_has_its_own_contest() -> None:
    # Of one length, and without the last shape: each model has a best one of its own.
    draft = DraftAsk(methods=("eagle3",), num_draft_tokens=3, simulation=FEW)
    answer = speculate(Ask(models=("llama3-70b", "llama3-8b")), draft)
    first, second = (result.simulation for result in answer.results)
    assert [row.tokens_per_round for row in first[:-1]] == [row.tokens_per_round for row in second[:-1]]
    assert first[0].prices != second[0].prices


def test_explanations_cover_the_contest() -> None:
    answer = speculate(draft=DraftAsk(methods=("eagle3",), simulation=FEW), explain=True)
    said = [text.quantity for text in answer.explanations]
    assert "expected_tokens_per_round (tree 3 x 2, distinct)" in said


@pytest.mark.parametrize(
    ("ask", "place"),
    [
        (SimulationAsk(num_rounds=0), "--simulate"),
        (SimulationAsk(num_rounds=200_001), "--simulate"),
        (SimulationAsk(num_rounds=1, seed=-1), "--seed"),
    ],
)
def test_what_cannot_be_run_is_refused(ask: SimulationAsk, place: str) -> None:
    with pytest.raises(UsageError) as refused:
        speculate(draft=DraftAsk(simulation=ask))
    assert refused.value.place == place
