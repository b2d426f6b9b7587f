"""Requests that repeat what was sent before: system prompts shared by many, and sessions of several turns.

A prompt is a shared prefix (for some requests), then all that was said in its session, then its own text. In a session
each turn waits for the answer before it and a pause; its prompt holds the earlier prompts and answers.
"""

from __future__ import annotations

import numpy as np

from infcalc.frozen import frozen
from infcalc.workload.arrival_times import gaps_of_mean_one
from infcalc.workload.arrivals import Gaps
from infcalc.workload.drawing import drawn_tokens
from infcalc.workload.lengths import Constant, Lengths, parse_lengths
from infcalc.workload.trace import NONE, Floats, Ints, PrefixTree, Sharing, Trace, Turns
from infcalc.workload.written import name_and_values

SHARED_FORM = "num=10,tokens=1000,share=0.8"
"""What shared prefixes are written like, for errors."""
_MAX_PREFIXES = 10**7
_MAX_SKEW = 10.0


@frozen
class SharedPrefixes:
    """``num_prefixes`` system prompts, one of which begins a share of all requests (or sessions).

    They are equally popular with ``skew`` 0; else the k-th most popular one is used in proportion to ``k**-skew``.
    """

    num_prefixes: int
    prefix_tokens: Lengths
    share_fraction: float = 1.0
    skew: float = 0.0


@frozen
class Sessions:
    """Sessions of several turns, with a pause between an answer and the next turn.

    The number of turns is drawn like a length; pauses have a mean and a coefficient of variation.
    """

    turns: Lengths
    think_s: float = 0.0
    think_cv: float = 0.0


SINGLE = Sessions(turns=Constant(value_tokens=1))


def parse_shared_prefixes(text: str) -> SharedPrefixes:
    """Return the shared prefixes that ``text`` describes, such as ``num=10,tokens=1000,share=0.8,skew=1``.

    Lengths may be a distribution, with semicolons inside: ``tokens=uniform:min=100;max=900``.

    Raises:
        ValueError: it describes none, and why.

    >>> parse_shared_prefixes("num=10,tokens=1k").prefix_tokens
    Constant(value_tokens=1024.0)

    """
    _, values = name_and_values(f"shared prefixes:{text}")
    unknown = sorted(set(values) - {"num", "tokens", "share", "skew"})
    if unknown or "tokens" not in values:
        raise ValueError(f"shared prefixes take num, tokens, share and skew; given {text!r}")
    number = _number(values.get("num", "1"), "num", 1, _MAX_PREFIXES)
    if number != int(number):
        raise ValueError(f"num: {values['num']} is not a whole number")
    return SharedPrefixes(
        num_prefixes=int(number),
        prefix_tokens=parse_lengths(values["tokens"].replace(";", ",")),
        share_fraction=_number(values.get("share", "1"), "share", 0, 1),
        skew=_number(values.get("skew", "0"), "skew", 0, _MAX_SKEW),
    )


def described_prefixes(prefixes: SharedPrefixes) -> str:
    """Return shared prefixes as they are written."""
    from infcalc.workload.lengths import described  # noqa: PLC0415 - a name that several modules have

    skew = f",skew={prefixes.skew:g}" if prefixes.skew else ""
    text = f"num={prefixes.num_prefixes},tokens={described(prefixes.prefix_tokens).replace(',', ';')}"
    return f"{text},share={prefixes.share_fraction:g}{skew}"


def _number(text: str, what: str, least: float, most: float) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"{what}: {text!r} is not a number") from None
    if not least <= value <= most:
        raise ValueError(f"{what}: {text} is not between {least:g} and {most:g}")
    return value


def drawn_requests(
    count: int,
    own: Lengths,
    answers: Lengths,
    rng: np.random.Generator,
    *,
    prefixes: SharedPrefixes | None = None,
    sessions: Sessions = SINGLE,
) -> Trace:
    """Return ``count`` requests, session by session, all at time 0; the last session ends where they do."""
    lengths = _turns_of(count, sessions, rng)
    own_tokens, output_tokens = drawn_tokens(own, count, rng), drawn_tokens(answers, count, rng)
    prefix_of, prefix_tokens = _prefixes_of(len(lengths), prefixes, rng)
    pauses = pauses_s(count, sessions.think_s, sessions.think_cv, rng) if len(lengths) < count else np.zeros(count)
    return woven(lengths, own_tokens, output_tokens, pauses, prefix_of=prefix_of, prefix_tokens=prefix_tokens)


def woven(
    turns: Ints,
    own_tokens: Ints,
    output_tokens: Ints,
    pauses: Floats,
    *,
    prefix_of: Ints | None = None,
    prefix_tokens: Ints | None = None,
) -> Trace:
    """Return sessions as requests at time 0, one session after the other: each prompt holds what was said before it.

    ``turns`` are those of each session; ``prefix_of`` says which of the prefixes each begins with, NONE for none.
    """
    count = len(own_tokens)
    prefix_of = np.full(len(turns), NONE, dtype=np.int64) if prefix_of is None else prefix_of
    prefix_tokens = np.empty(0, dtype=np.int64) if prefix_tokens is None else prefix_tokens
    first = np.cumsum(turns) - turns
    said = np.cumsum(own_tokens + output_tokens) - output_tokens
    before = np.where(prefix_of == NONE, 0, prefix_tokens[prefix_of] if len(prefix_tokens) else 0)
    at_start = before - (said - own_tokens)[first]
    follows = np.arange(count, dtype=np.int64) - 1
    follows[first] = NONE
    several = len(turns) < count
    return Trace(
        arrivals_s=np.zeros(count),
        input_tokens=said + np.repeat(at_start, turns),
        output_tokens=output_tokens,
        sharing=_tree(turns, prefix_of, prefix_tokens, own_tokens, output_tokens)
        if several or len(prefix_tokens)
        else None,
        turns=Turns(follows=follows, pauses_s=np.where(follows == NONE, 0.0, pauses)) if several else None,
    )


def pauses_s(count: int, mean_s: float, cv: float, rng: np.random.Generator) -> Floats:
    """Return pauses of a mean and a coefficient of variation (a Gamma law; 0: all alike)."""
    return gaps_of_mean_one(Gaps(cv=cv), count, rng) * mean_s


def _turns_of(count: int, sessions: Sessions, rng: np.random.Generator) -> Ints:
    """Return the turns of each session, ``count`` in all."""
    if isinstance(sessions.turns, Constant) and sessions.turns.value_tokens <= 1:
        return np.ones(count, dtype=np.int64)
    drawn = drawn_tokens(sessions.turns, count, rng)
    ends = np.cumsum(drawn)
    found = drawn[: int(np.searchsorted(ends, count)) + 1].copy()
    found[-1] -= int(found.sum()) - count
    return found


def _prefixes_of(count: int, prefixes: SharedPrefixes | None, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Return which prefix each session begins with, and how long each prefix is."""
    if prefixes is None:
        return np.full(count, NONE, dtype=np.int64), np.empty(0, dtype=np.int64)
    sizes = drawn_tokens(prefixes.prefix_tokens, prefixes.num_prefixes, rng)
    reach = np.cumsum(np.arange(1, prefixes.num_prefixes + 1, dtype=np.float64) ** -prefixes.skew)
    chosen = np.searchsorted(reach, rng.random(count) * reach[-1], side="right")
    chosen = np.minimum(chosen, prefixes.num_prefixes - 1)
    return np.where(rng.random(count) < prefixes.share_fraction, chosen, NONE), sizes


def _tree(lengths: Ints, prefix_of: Ints, prefix_tokens: Ints, own: Ints, answers: Ints) -> Sharing:
    """Return the tree of prefixes, then a node for each prompt and each answer that a later turn repeats."""
    count = len(own)
    last = np.zeros(count, dtype=bool)
    last[np.cumsum(lengths) - 1] = True
    first = np.zeros(count, dtype=bool)
    first[np.cumsum(lengths) - lengths] = True
    repeated = np.flatnonzero(~last)
    prompt_node = len(prefix_tokens) + 2 * (np.cumsum(~last) - 1)
    beginning = np.repeat(prefix_of, lengths)
    # The node of the turn before, its answer included: the request before in this order.
    before = np.where(first, beginning, np.concatenate([[NONE], (prompt_node + 1)[:-1]]))
    parent_ids = np.empty(len(prefix_tokens) + 2 * len(repeated), dtype=np.int64)
    node_tokens = np.empty_like(parent_ids)
    parent_ids[: len(prefix_tokens)] = NONE
    node_tokens[: len(prefix_tokens)] = prefix_tokens
    nodes = prompt_node[repeated]
    parent_ids[nodes], node_tokens[nodes] = before[repeated], own[repeated]
    parent_ids[nodes + 1], node_tokens[nodes + 1] = nodes, answers[repeated]
    tree = PrefixTree(parent_ids=parent_ids, node_tokens=node_tokens)
    return Sharing(
        tree=tree,
        prompt_ids=np.where(last, before, prompt_node),
        kept_ids=np.where(last, before, prompt_node + 1),
    )
