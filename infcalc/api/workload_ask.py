"""What trace is asked for: a file, or a load to make one from, and the defaults of what is not said."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from infcalc.api.ranges import check_range
from infcalc.errors import UsageError
from infcalc.frozen import frozen
from infcalc.spec.explain import Input
from infcalc.workload import arrivals as arriving
from infcalc.workload import lengths

if TYPE_CHECKING:
    from infcalc.workload.arrivals import Arrivals
    from infcalc.workload.generation import Recipe
    from infcalc.workload.lengths import Lengths

MAX_REQUESTS = 10**7
_DEFAULT_REQUESTS = 10_000
_DEFAULT_ARRIVALS = "poisson:rate=12"
_DEFAULT_INPUT = "lognormal:mean=500,cv=1"
_DEFAULT_OUTPUT = "lognormal:mean=240,cv=1"
_MAX_TURNS = 10_000
_MAX_SEED = 2**63


@frozen
class WorkloadAsk:
    """A trace to describe: ``file``, or what one is made from, written as on the command line.

    ``arrivals`` says when requests come; ``requests_per_s`` with ``burstiness``, or ``num_clients`` with ``think_s``
    say it in other words. In sessions ``think_s`` is the pause before the next turn.
    """

    file: str | None = None
    trace_format: str | None = None
    arrivals: str | None = None
    requests_per_s: float | None = None
    burstiness: float | None = None
    num_clients: int | None = None
    think_s: float | None = None
    input_tokens: str | None = None
    output_tokens: str | None = None
    num_requests: int | None = None
    shared_prefix: str | None = None
    turns: str | None = None
    speedup: float | None = None
    seed: int | None = None
    save_trace: str | None = None
    clients_option: str = "--concurrency"
    """The option that said ``num_clients``: errors name it."""


def seed_of(ask: WorkloadAsk) -> int:
    """Return the seed.

    Raises:
        UsageError: it is out of range.

    """
    if ask.seed is None:
        return 0
    if not 0 <= ask.seed < _MAX_SEED:
        raise UsageError(f"{ask.seed} is out of range", place="--seed", hint="a whole number from 0 to 2**63 - 1")
    return ask.seed


def times_of(ask: WorkloadAsk, *, for_file: bool) -> tuple[Arrivals | None, tuple[Input, ...]]:
    """Return the asked arrivals and what was given for them; None where nothing was.

    Raises:
        UsageError: arrivals that are none, or said twice; options that only make sense without a file.

    """
    if for_file:
        for option, value in (
            ("--input-tokens", ask.input_tokens),
            ("--output-tokens", ask.output_tokens),
            ("--shared-prefix", ask.shared_prefix),
            ("--turns", ask.turns),
        ):
            if value is not None:
                raise UsageError("the file says this", place=option, hint="leave out the option, or the file")
    said = [
        option
        for option, value in (
            ("--arrivals", ask.arrivals),
            ("--rate", ask.requests_per_s),
            (ask.clients_option, ask.num_clients),
        )
        if value is not None
    ]
    if len(said) > 1:
        raise UsageError(f"both {' and '.join(said)}", place=said[1], hint="both say when requests come; give one")
    if ask.burstiness is not None and ask.requests_per_s is None:
        raise UsageError("burstiness is that of a rate", place="--burstiness", hint="add --rate, or gamma:rate=,cv=")
    if ask.think_s is not None and ask.num_clients is None and ask.turns is None:
        raise UsageError("a pause of nobody", place="--think-time", hint="add --users 100, or --turns 4")
    found = _times(ask)
    if found is None:
        return None, ()
    return found, (Input(name="arrivals", value=arriving.described(found), origin="given"),)


def _times(ask: WorkloadAsk) -> Arrivals | None:
    if ask.arrivals is not None:
        try:
            return arriving.parse_arrivals(ask.arrivals)
        except ValueError as wrong:
            raise UsageError(str(wrong), place="--arrivals", hint=f"write {arriving.FORMS}") from None
    if ask.requests_per_s is not None:
        rate = ask.requests_per_s
        if not 0 < rate <= arriving.MAX_PER_S:
            hint = f"above 0, up to {arriving.MAX_PER_S:,.0f}"
            raise UsageError(f"{rate:g} requests per second", place="--rate", hint=hint)
        burstiness = 1.0 if ask.burstiness is None else ask.burstiness
        if not arriving.MAX_CV**-2 <= burstiness < math.inf:
            hint = f"from {arriving.MAX_CV**-2:g} up; 1 is Poisson, below 1 burstier"
            raise UsageError(f"{burstiness:g} is out of range", place="--burstiness", hint=hint)
        gaps = arriving.Gaps(cv=burstiness**-0.5)
        return arriving.OpenLoop(profile=arriving.Steady(rate_per_s=rate), gaps=gaps)
    if ask.num_clients is not None:
        check_range(ask.clients_option, ask.num_clients, most=arriving.MAX_CLIENTS)
        return arriving.ClosedLoop(num_clients=ask.num_clients, think_s=ask.think_s or 0.0)
    return None


def recipe_of(ask: WorkloadAsk) -> tuple[Recipe, tuple[Input, ...]]:
    """Return what a trace is made from, and each part with its origin.

    Raises:
        UsageError: a part that is none.

    """
    times, given = times_of(ask, for_file=False)
    if times is None:
        times = arriving.parse_arrivals(_DEFAULT_ARRIVALS)
        given = (Input(name="arrivals", value=arriving.described(times), origin="default"),)
    own = _length(ask.input_tokens, "--input-tokens", _DEFAULT_INPUT)
    answers = _length(ask.output_tokens, "--output-tokens", _DEFAULT_OUTPUT)
    from infcalc.workload.generation import Recipe  # noqa: PLC0415 - numpy, which what is refused needs not
    from infcalc.workload.sessions import (  # noqa: PLC0415
        SHARED_FORM,
        SINGLE,
        Sessions,
        described_prefixes,
        parse_shared_prefixes,
    )

    number = _DEFAULT_REQUESTS if ask.num_requests is None else ask.num_requests
    inputs = [
        _input("num_requests", number, ask.num_requests),
        *given,
        _input("input_tokens", lengths.described(own), ask.input_tokens),
        _input("output_tokens", lengths.described(answers), ask.output_tokens),
    ]
    prefixes = None
    if ask.shared_prefix is not None:
        try:
            prefixes = parse_shared_prefixes(ask.shared_prefix)
        except ValueError as wrong:
            raise UsageError(str(wrong), place="--shared-prefix", hint=f"write {SHARED_FORM}") from None
        inputs.append(_input("shared_prefix", described_prefixes(prefixes), ask.shared_prefix))
    sessions = SINGLE
    if ask.turns is not None:
        turns = _length(ask.turns, "--turns", "1")
        if lengths.mean_tokens(turns) > _MAX_TURNS:
            raise UsageError(f"{ask.turns} turns", place="--turns", hint=f"up to {_MAX_TURNS:,}")
        sessions = Sessions(turns=turns, think_s=ask.think_s or 0.0)
        inputs.append(_input("turns", lengths.described(turns), ask.turns))
        inputs.append(_input("think_time_s", sessions.think_s, ask.think_s))
    recipe = Recipe(
        num_requests=number,
        arrivals=times,
        own_tokens=own,
        output_tokens=answers,
        prefixes=prefixes,
        sessions=sessions,
    )
    return recipe, tuple(inputs)


def _input(name: str, value: object, given: object) -> Input:
    return Input(name=name, value=value, origin="default" if given is None else "given")


def _length(text: str | None, option: str, default: str) -> Lengths:
    try:
        return lengths.parse_lengths(default if text is None else text)
    except ValueError as wrong:
        raise UsageError(str(wrong), place=option, hint=f"write {lengths.FORMS}") from None
