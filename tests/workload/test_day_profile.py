from __future__ import annotations

import pytest

from infcalc.errors import ProfileError
from infcalc.workload.day_profile import Unit, read_profile


def test_levels_hold_until_the_next_and_the_last_over_midnight() -> None:
    profile = read_profile("hour,rate\n6,2\n9.5,10\n22,1\n", "day.csv")
    assert profile.unit is Unit.RATE
    assert profile.starts_s == (6 * 3600, 9.5 * 3600, 22 * 3600)
    assert profile.lengths_s == (3.5 * 3600, 12.5 * 3600, 8 * 3600)
    assert sum(profile.lengths_s) == profile.period_s == 86_400
    assert profile.mean_level == pytest.approx((3.5 * 2 + 12.5 * 10 + 8) / 24)


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        ("time;users\n00:00;5\n08:30;50\n", Unit.USERS),
        ("# of a Monday\n\nhour\tfraction\n0\t0.1\n8.5\t1\n", Unit.FRACTION),
        ("Rate,Hour\n5,0\n50,8.5\n", Unit.RATE),
        ("time,qps\n0:00:00,5\n8:30,50\n", Unit.RATE),
    ],
)
def test_tables_are_read_as_people_write_them(text: str, unit: Unit) -> None:
    profile = read_profile(text, "day.csv")
    assert profile.unit is unit
    assert profile.starts_s == (0, 8.5 * 3600)


def test_hours_beyond_a_day_make_a_week() -> None:
    assert read_profile("hour,rate\n0,1\n120,0.5\n", "week.csv").period_s == 7 * 86_400
    assert read_profile("hour,rate\n0,1\n", "day.csv").lengths_s == (86_400,)


def test_all_faults_are_told_with_their_lines() -> None:
    text = "hour,rate\n0,1\nnoon,2\n8,many\n7,-1\n9\n9,5\n9,5\n200,1\n10,nan\n"
    with pytest.raises(ProfileError) as caught:
        read_profile(text, "day.csv")
    faults = caught.value.faults
    assert [fault.partition(":")[0] for fault in faults] == [f"line {n}" for n in (3, 4, 5, 6, 8, 9, 10)]
    assert "'noon' is no time" in faults[0]
    assert "not later" in faults[4]
    assert "day.csv" in str(caught.value)
    assert "in the profile" in str(caught.value)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "nothing"),
        ("hour,rate\n", "no line below"),
        ("hour,rate\n0,0\n", "all levels are 0"),
        ("hour,speed\n0,1\n", "unknown column 'speed'"),
        ("hour,rate,users\n0,1,1\n", "2 columns of load: rate, users"),
        ("rate\n1\n", "0 columns of time"),
        ("hour,time,rate\n0,0,1\n", "2 columns of time"),
        ("hour,fraction\n0,1.5\n", "0 to 1"),
    ],
)
def test_what_is_no_profile_is_refused(text: str, fault: str) -> None:
    with pytest.raises(ProfileError, match=fault):
        read_profile(text, "day.csv")
