"""What a running request holds in the KV cache: its prompt, and the part of its answer that is there already.

A request enters with ``i`` prompt tokens and gives ``o`` answer tokens at a constant pace; its cache grows from ``i``
to ``i + o``. Looking at a busy server at any moment one meets long answers more often, in proportion to ``o``, each at
a point of its life that is equally likely. Hence, ``i`` and ``o`` independent of one another:

    mean live tokens   = E[o (i + o/2)] / E[o] = E[i] + E[o^2] / (2 E[o])
    second moment      = E[i^2] + E[i] E[o^2] / E[o] + E[o^3] / (3 E[o])

The prompt's own processing is not counted in the life: it is short beside the answer wherever answers are long. Source:
length-biased sampling (the inspection paradox) applied to the residence time of a request.
"""

from __future__ import annotations

import math

from infcalc.frozen import frozen
from infcalc.workload.lengths import Constant, Lengths, mean_tokens, moment, normal_quantile, quantile_tokens
from infcalc.workload.quadrature import nodes

_SIDE = 0.5 * math.sqrt(0.6)
_LIFE = ((5 / 18, 0.5 - _SIDE), (8 / 18, 0.5), (5 / 18, 0.5 + _SIDE))
"""Three Gauss points over a request's life: weights and shares of the answer given."""
_WHOLE_LIFE = ((1.0, 1.0),)
_BISECTIONS = 24
_SLICES = 128
P95 = 0.95


@frozen
class Part:
    """One part of a request's cache: ``bytes_per_token`` up to ``window_tokens`` (None: without end).

    ``padding_tokens`` is what rounding to blocks adds on average, half a block; a window includes it.
    """

    bytes_per_token: float
    window_tokens: float | None = None
    padding_tokens: float = 0.0


@frozen
class Demand:
    """Bytes that one running request holds at a random moment: mean and standard deviation."""

    mean_bytes: float
    deviation_bytes: float


def mean_live_tokens(inputs: Lengths, outputs: Lengths, *, reserved: bool = False) -> float:
    """Return the mean tokens in cache of a running request; ``reserved``: the whole answer's room is taken at once.

    Prompts of 1,000 and answers of 140 tokens hold 1,070:

    >>> from infcalc.workload.lengths import parse_lengths
    >>> mean_live_tokens(parse_lengths("1000"), parse_lengths("140"))
    1070.0
    """
    held = moment(outputs, 2) / mean_tokens(outputs)
    return mean_tokens(inputs) + (held if reserved else 0.5 * held)


def live_quantile_tokens(inputs: Lengths, outputs: Lengths, probability: float, *, reserved: bool = False) -> float:
    """Return the tokens in cache that a running request exceeds with chance ``1 - probability``."""
    # Slices of equal share show where a law lies better than nodes, whose strength is its moments.
    prompts = _slices(inputs)
    pairs = [
        (weight / len(prompts), prompt, answer)
        for prompt in prompts
        for weight, answer in nodes(outputs, by_length=True)
    ]

    def share_below(tokens: float) -> float:
        if reserved:
            return math.fsum(weight for weight, prompt, answer in pairs if prompt + answer <= tokens)
        return sum(weight * min(1.0, max(0.0, (tokens - prompt) / answer)) for weight, prompt, answer in pairs)

    low, high = 0.0, math.log(max(prompt + answer for _, prompt, answer in pairs))
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        if share_below(math.exp(middle)) < probability:
            low = middle
        else:
            high = middle
    return math.exp(high)


def _slices(lengths: Lengths) -> tuple[float, ...]:
    match lengths:
        case Constant():
            return (lengths.value_tokens,)
        case _:
            return tuple(quantile_tokens(lengths, (index + 0.5) / _SLICES) for index in range(_SLICES))


def demand(
    inputs: Lengths,
    outputs: Lengths,
    parts: tuple[Part, ...],
    *,
    constant_bytes: float = 0.0,
    reserved: bool = False,
) -> Demand:
    """Return what one running request holds, in bytes.

    Parts without a window follow the closed form; windows saturate, and their expectation is a sum over the nodes of
    both lengths and of the request's life.
    """
    if all(part.window_tokens is None for part in parts):
        slope = math.fsum(part.bytes_per_token for part in parts)
        mean = mean_live_tokens(inputs, outputs, reserved=reserved)
        answer = mean_tokens(outputs)
        squares, cubes = moment(outputs, 2) / answer, moment(outputs, 3) / answer
        share, square_share = (1.0, 1.0) if reserved else (0.5, 1 / 3)
        second = moment(inputs, 2) + 2 * mean_tokens(inputs) * share * squares + square_share * cubes
        return Demand(
            mean_bytes=constant_bytes
            + slope * mean
            + math.fsum(part.bytes_per_token * part.padding_tokens for part in parts),
            deviation_bytes=slope * math.sqrt(max(0.0, second - mean**2)),
        )
    first = second = 0.0
    life = _WHOLE_LIFE if reserved else _LIFE
    for prompt_weight, prompt in nodes(inputs):
        for answer_weight, answer in nodes(outputs, by_length=True):
            for life_weight, share in life:
                held = prompt + share * answer
                size = constant_bytes + sum(_part_bytes(part, held) for part in parts)
                weight = prompt_weight * answer_weight * life_weight
                first += weight * size
                second += weight * size**2
    return Demand(mean_bytes=first, deviation_bytes=math.sqrt(max(0.0, second - first**2)))


def _part_bytes(part: Part, held_tokens: float) -> float:
    padded = held_tokens + part.padding_tokens
    return part.bytes_per_token * (padded if part.window_tokens is None else min(padded, part.window_tokens))


def requests_within(pool_bytes: float, one: Demand, probability: float | None = None) -> float:
    """Return how many requests a pool holds: at their mean demand, or so that it is enough with ``probability``.

    The demand of N independent requests is taken as normal with mean ``N m`` and deviation ``sqrt(N) s``; the largest N
    solves ``N m + z s sqrt(N) = pool``.
    """
    if one.mean_bytes <= 0 or pool_bytes <= 0:
        return 0.0
    if probability is None:
        return pool_bytes / one.mean_bytes
    margin = normal_quantile(probability) * one.deviation_bytes
    root = (math.sqrt(margin**2 + 4 * one.mean_bytes * pool_bytes) - margin) / (2 * one.mean_bytes)
    return root**2


def share_beyond(inputs: Lengths, outputs: Lengths, limit_tokens: float) -> float:
    """Return the share of requests whose prompt and answer together are longer than ``limit_tokens``."""
    answers = nodes(outputs)
    return sum(
        prompt_weight * answer_weight
        for prompt_weight, prompt in nodes(inputs)
        for answer_weight, answer in answers
        if prompt + answer > limit_tokens
    )


def users_of(requests: float, *, think_time_s: float, service_time_s: float) -> float:
    """Return the users that keep ``requests`` running when each thinks ``think_time_s`` between two requests.

    The interactive response-time law ``N = X (R + Z)`` with ``requests = X R``: users = requests (1 + Z / R).

    >>> users_of(72, think_time_s=30, service_time_s=10)
    288.0
    """
    return requests * (1 + think_time_s / service_time_s)
