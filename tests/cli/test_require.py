import pytest

from infcalc.cli.require import check
from infcalc.errors import ObjectiveNotMet, UsageError

RESULT = {"kv_bytes_per_token": 327_680, "rows": [{"sequences": 117, "context_tokens": 4096}, {"sequences": 14}]}


def test_a_gate_that_holds_passes() -> None:
    check(["kv_bytes_per_token == 327680", "rows.sequences>=14"], RESULT)


def test_a_key_in_several_rows_must_hold_in_all() -> None:
    with pytest.raises(ObjectiveNotMet, match="sequences>=100: found 14") as failure:
        check(["sequences>=100"], RESULT)
    assert failure.value.exit_code == 4


@pytest.mark.parametrize(
    "gate",
    [
        "sequences",
        "sequences>=",
        ">=3",
        "sequences>=many",
        "sequences>=nan",
        "a b>1",
        "a[]>1",
        "a[b>1",
        "a[b]>1",
        "a[=c]>1",
        "a[b=]>1",
    ],
)
def test_what_is_no_gate_is_bad_usage(gate: str) -> None:
    with pytest.raises(UsageError):
        check([gate], RESULT)


def test_an_unknown_key_lists_the_known_ones() -> None:
    with pytest.raises(UsageError, match="context_tokens"):
        check(["sequence>=1"], RESULT)


SUMMARY = {
    "summary": [
        {"quantity": "kv_pool_bytes", "group": "all", "median_abs_error_fraction": 0.02, "worst": {"of_fraction": 0.3}},
        {"quantity": "kv_pool_bytes", "group": "tp 2", "median_abs_error_fraction": 0.09},
        {"quantity": "weights_bytes", "group": "all", "median_abs_error_fraction": 0.001},
        {"quantity": "kv_blocks", "group": "all", "median_abs_error_fraction": None},
    ]
}


def test_conditions_in_brackets_pick_rows() -> None:
    check(["summary[quantity=kv_pool_bytes,group=all].median_abs_error_fraction<=0.03"], SUMMARY)
    check(["summary[ quantity = 'kv_pool_bytes', group=tp 2].median_abs_error_fraction == 0.09"], SUMMARY)
    check(["summary[quantity=KV_POOL_BYTES,group=all].worst.of_fraction==0.3"], SUMMARY)
    with pytest.raises(ObjectiveNotMet, match=r"<=0.03: found 0.09"):
        check(["summary[quantity=kv_pool_bytes].median_abs_error_fraction<=0.03"], SUMMARY)


def test_conditions_that_pick_nothing_list_what_could_be_picked() -> None:
    with pytest.raises(UsageError, match=r"quantity: kv_pool_bytes, weights_bytes$"):
        check(["summary[quantity=pool].median_abs_error_fraction<=0.03"], SUMMARY)
    with pytest.raises(UsageError, match="size: in no row"):
        check(["summary[size=3].median_abs_error_fraction<=0.03"], SUMMARY)


def test_side_by_side_answers_are_rows_too() -> None:
    both = {"side_by_side": [{"gpu": "a", "sequences": 3}, {"gpu": "b", "sequences": 9}]}
    check(["side_by_side[gpu=b].sequences>=9"], both)


def test_a_key_of_several_tables_means_that_of_the_first() -> None:
    """Tables that only look around, such as speedups at other batches, fail no gate on the answer."""
    result = {
        "rows": [{"speedup": 2.5}, {"speedup": 2.1}],
        "by_batch": [{"batch": 256, "speedup": 1.1}],
        "full_load": [{"speedup": 0.9}],
    }
    check(["speedup>=2", "by_batch.speedup>=1", "by_batch[batch=256].speedup==1.1"], result)
    with pytest.raises(ObjectiveNotMet, match=r"speedup>=2.2: found 2.1$"):
        check(["speedup>=2.2"], result)
    with pytest.raises(ObjectiveNotMet, match=r"found 1.1$"):
        check(["by_batch.speedup>=2"], result)
    both = {"side_by_side": [result, {"rows": [{"speedup": 1.5}], "by_batch": [{"speedup": 9}]}]}
    with pytest.raises(ObjectiveNotMet, match=r"found 1.5$"):
        check(["speedup>=2"], both)


def test_what_the_answer_says_of_itself_comes_before_what_a_change_would_give() -> None:
    result = {"changes": [{"sequences": 3}], "sequences": 117, "ttft_s": {"p99": 2.0}, "tpot_s": {"p99": 0.1}}
    check(["sequences>=100", "changes.sequences==3"], result)
    # Names of no table are all meant: which one would be a guess.
    with pytest.raises(ObjectiveNotMet, match=r"found 2$"):
        check(["p99<=1"], result)
    side = {"side_by_side": [result, result | {"sequences": 5}]}
    with pytest.raises(ObjectiveNotMet, match=r"found 5$"):
        check(["sequences>=100"], side)


def test_what_is_not_there_is_not_made_up_by_what_lies_deeper() -> None:
    result = {"ttft_s": None, "sweep": {"points": [{"ttft_s": 0.1}]}}
    with pytest.raises(ObjectiveNotMet, match="there is no such figure"):
        check(["ttft_s<=1"], result)
    check(["points.ttft_s<=1"], result)
