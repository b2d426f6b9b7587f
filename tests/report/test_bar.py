from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from infcalc.report.bar import memory_bar


def test_a_small_part_still_has_a_letter() -> None:
    bar, legend = memory_bar((("W", "weights", 1), ("K", "KV", 10**9)), 10**9, width=20).splitlines()
    assert bar.startswith("[WK")
    assert "free" not in legend


def test_what_does_not_fit_stands_behind_the_end() -> None:
    bar, legend = memory_bar((("W", "weights", 150),), 100, width=10).splitlines()
    assert bar == "[WWWWWWWWWW]WWWWW"
    assert "50 B beyond the end" in legend


@given(sizes=st.lists(st.integers(0, 10**12), max_size=6), total=st.integers(1, 10**12))
def test_the_bar_is_as_wide_as_asked(sizes: list[int], total: int) -> None:
    bar = memory_bar(tuple(("ABCDEF"[place], "part", size) for place, size in enumerate(sizes)), total, width=40)
    assert bar.index("]") == 41


def test_small_parts_do_not_push_others_over_the_end() -> None:
    bar, legend = memory_bar((("W", "weights", 10_000), ("A", "a", 1), ("B", "b", 1)), 10_002, width=20).splitlines()
    assert bar == f"[{'W' * 18}AB]"
    assert "beyond" not in legend


def test_no_part_of_the_legend_is_broken_over_lines() -> None:
    drawn = memory_bar((("W", "weights", 5 * 2**30), ("G", "CUDA graphs", 2**30)), 8 * 2**30, width=20, legend_width=24)
    assert drawn.splitlines()[1:] == ["W weights 5 GiB,", "G CUDA graphs 1 GiB,", ". free 2 GiB"]
