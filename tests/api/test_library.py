"""The package as a library: the names it offers, and answers that type checkers know."""

from __future__ import annotations

import inspect

import pytest

from infcalc import api
from infcalc.api import Answer, Ask, DraftAsk, InfcalcError, concurrency, gpus, kv, models, roofline, show, speculate
from infcalc.api.answer import distinct
from infcalc.api.bounds import RooflineResult
from infcalc.api.drafting import SpeculateResult
from infcalc.api.fitting import ConcurrencyResult
from infcalc.api.listing import GpusResult, ModelsResult, ShowResult
from infcalc.api.sizing import KvResult


def test_five_lines_of_python_answer_a_question() -> None:
    answer: Answer[KvResult] = kv(Ask(models=("llama3-70b",), num_gpus=4), contexts=(4096,))
    per_token: int | float = answer.result.kv_bytes_per_token
    assert per_token == 327_680
    assert answer.result.rows[0].kv_bytes == 1_342_177_280


def test_every_question_answers_with_its_own_result() -> None:
    sized: Answer[KvResult] = kv()
    held: Answer[ConcurrencyResult] = concurrency()
    bound: Answer[RooflineResult] = roofline()
    drafted: Answer[SpeculateResult] = speculate(draft=DraftAsk(methods=("ngram",)))
    known: Answer[ModelsResult] = models(text="gemma-3")
    owned: Answer[GpusResult] = gpus(text="hopper")
    shown: Answer[ShowResult] = show("h100")
    assert [answer.command for answer in (sized, held, bound, drafted, known, owned, shown)] == [
        *("kv", "concurrency", "roofline", "speculate", "models", "gpus", "show")
    ]
    assert all(len(answer.results) == 1 for answer in (sized, held, bound, drafted, known, owned, shown))
    assert sized.result.model == held.result.model == "llama3-70b"
    assert [row.method for row in drafted.result.rows] == ["ngram"]
    assert {row.name for row in known.result.models} == {"gemma-3-1b", "gemma-3-4b", "gemma-3-12b", "gemma-3-27b"}
    assert all("Hopper" in row.architecture for row in owned.result.gpus)
    assert shown.result.section == "gpus"


def test_results_stand_side_by_side_and_the_first_is_the_result() -> None:
    answer = kv(Ask(models=("llama3-8b", "llama3-70b"), kv_dtypes=("bf16", "fp8")))
    assert [(one.model, one.kv_dtype) for one in answer.results] == [
        (model, kv_dtype) for model in ("llama3-8b", "llama3-70b") for kv_dtype in ("bf16", "fp8")
    ]
    assert answer.result is answer.results[0]


def test_the_same_question_has_the_same_answer() -> None:
    ask = Ask(models=("gpt-oss-120b",), gpus=("h100",), num_gpus=2)
    assert kv(ask) == kv(ask)
    assert concurrency(ask, explain=True) == concurrency(ask, explain=True)


def test_an_answer_explains_itself_only_when_asked() -> None:
    assert kv().explanations == ()
    explained = kv(explain=True)
    assert "kv_bytes_per_token" in {text.quantity for text in explained.explanations}
    assert explained.results == kv().results


def test_every_input_says_where_it_came_from() -> None:
    for answer in (kv(), concurrency(), roofline(batches=(1,)), speculate()):
        names = [item.name for item in answer.inputs]
        assert len(names) == len(set(names))
        assert {"model", "gpu", "tp", "weights", "engine", "engine_version", "memory_fraction"} <= set(names)
        assert all(item.origin for item in answer.inputs)


def test_errors_are_of_one_family() -> None:
    for wrong in (Ask(models=("no-such-model",)), Ask(tp=3), Ask(memory_fraction=2.0), Ask(gpus=("no-such-gpu",))):
        with pytest.raises(InfcalcError):
            kv(wrong)


@pytest.mark.parametrize("name", api.__all__)
def test_names_are_offered(name: str) -> None:
    value = getattr(api, name)
    assert inspect.isfunction(value) or inspect.isclass(value)
    assert name in dir(api)


def test_a_name_that_is_not_offered_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'kvv'"):
        api.kvv  # noqa: B018


def test_repeated_notes_are_told_once_in_their_order() -> None:
    assert distinct(["b", "a", "b"]) == ("b", "a")
