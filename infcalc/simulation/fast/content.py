"""Which beginnings requests share, as a tree: nodes of tokens, each shared whole or not at all."""

from __future__ import annotations

from collections.abc import Sequence

from infcalc.frozen import frozen
from infcalc.simulation.request import Request

NOTHING = -1


@frozen
class Content:
    """``ends``: of each request the deepest node; ``parents`` and ``sizes_tokens``: the nodes, parents first."""

    ends: list[int]
    parents: list[int]
    sizes_tokens: list[int]


def content_of(requests: Sequence[Request]) -> Content:
    """Return the tree of the spans that requests begin with, and of answers where they follow on spans alone.

    All tokens of a text are alike, so that two spans of one text agree as far as the shorter one goes: it ends a node.

    >>> from infcalc.simulation.request import Span
    >>> ask = lambda *spans: Request(arrival_ps=0, prompt_tokens=99, output_tokens=1, spans=spans)
    >>> content_of([ask(Span(text=text, num_tokens=size)) for text, size in ((1, 20), (1, 30), (2, 5))])
    Content(ends=[0, 1, 2], parents=[-1, 0, -1], sizes_tokens=[20, 10, 5])
    """
    places: dict[tuple[int, int, int], int] = {}
    lengths: dict[tuple[int, int], set[int]] = {}
    ends: list[int] = []
    for request in requests:
        place = NOTHING
        for text, num_tokens in _runs(request):
            lengths.setdefault((place, text), set()).add(num_tokens)
            place = places.setdefault((place, text, num_tokens), len(places))
        ends.append(place)
    node_of = {NOTHING: NOTHING}
    parents: list[int] = []
    sizes: list[int] = []
    for (before, text), ways in lengths.items():
        node, done = node_of[before], 0
        for num_tokens in sorted(ways):
            parents.append(node)
            sizes.append(num_tokens - done)
            node, done = len(parents) - 1, num_tokens
            node_of[places[before, text, num_tokens]] = node
    return Content(ends=[node_of[place] for place in ends], parents=parents, sizes_tokens=sizes)


def _runs(request: Request) -> list[tuple[int, int]]:
    """Return text and length of what a request begins with; spans of one text in a row are one run."""
    found: list[tuple[int, int]] = []
    pieces = [(span.text, span.num_tokens) for span in request.spans]
    if not request.own_tokens and request.answer is not None:
        pieces.append((request.answer, request.output_tokens))
    for text, num_tokens in pieces:
        if found and found[-1][0] == text:
            found[-1] = (text, found[-1][1] + num_tokens)
        else:
            found.append((text, num_tokens))
    return found
