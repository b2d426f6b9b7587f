from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from infcalc.report.svg.labels import Box, Label, along, around_point, placed, text_width
from tests.report.reviews import attributes

ROOM = Box(left=0.0, top=0.0, right=300.0, bottom=200.0)
PLACES = st.tuples(st.floats(min_value=0, max_value=300), st.floats(min_value=0, max_value=200))


def box_of(text: dict[str, str], words: str) -> Box:
    width = text_width(words)
    left = float(text["x"]) - {"start": 0.0, "middle": width / 2, "end": width}[text["text-anchor"]]
    foot = float(text["y"])
    return Box(left=left, top=foot - 10, right=left + width, bottom=foot + 1)


@given(st.lists(PLACES, min_size=1, max_size=25))
def test_labels_meet_neither_each_other_nor_what_is_taken_nor_the_edge(places: list[tuple[float, float]]) -> None:
    labels = [Label(x=x, y=y, text=f"{number} x gpu", short=f"{number}") for number, (x, y) in enumerate(places)]
    taken = [around_point(150, 100, 20)]
    texts = placed(labels, taken, ROOM)
    boxes = [box_of(attributes(text), str(text.children[0])) for text in texts]
    for box in boxes:
        assert not box.meets(taken[0])
        assert box.left >= -0.1
        assert box.right <= 300.1
    assert not [pair for pair in combinations(boxes, 2) if pair[0].meets(pair[1])]


def test_the_first_labels_come_first() -> None:
    labels = [Label(x=50, y=50, text=f"label {number}", strong=number == 0) for number in range(20)]
    texts = placed(labels, [], ROOM)
    assert texts[0].children == ("label 0",)
    assert attributes(texts[0])["class"] == "strong"
    assert len(texts) < len(labels)


def test_the_short_text_stands_where_the_whole_has_no_place() -> None:
    narrow = Box(left=0.0, top=0.0, right=40.0, bottom=200.0)
    (text,) = placed([Label(x=10, y=100, text="7: 2 x h200-nvl-141gb", short="7")], [], narrow)
    assert text.children == ("7",)


def test_a_line_is_covered_from_end_to_end() -> None:
    boxes = along([(0.0, 0.0), (100.0, 0.0), (100.0, 50.0)])
    for x, y in ((0, 0), (33, 0), (100, 0), (100, 27), (100, 50)):
        assert any(box.left <= x <= box.right and box.top <= y <= box.bottom for box in boxes)
