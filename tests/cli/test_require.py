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


@pytest.mark.parametrize("gate", ["sequences", "sequences>=", ">=3", "sequences>=many", "sequences>=nan", "a b>1"])
def test_what_is_no_gate_is_bad_usage(gate: str) -> None:
    with pytest.raises(UsageError):
        check([gate], RESULT)


def test_an_unknown_key_lists_the_known_ones() -> None:
    with pytest.raises(UsageError, match="context_tokens"):
        check(["sequence>=1"], RESULT)
