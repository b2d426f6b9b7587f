"""A load on a server that drafts, in closed form: the server of ``estimate``, counted in rounds.

Memory is that of the deployment with its drafter; the time of a round, with prompts beside, is the one that the
simulator steps by. Bands carry the range of published acceptance, where none is given, and that of measured speedups
over their prediction.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from infcalc.api.drafted_steps import round_seconds
from infcalc.api.speed import run_on, serving
from infcalc.frozen import frozen
from infcalc.serving.rounds import RoundClock, Rounds, in_rounds, in_tokens, rounds_per_token
from infcalc.speculation.linear import tokens_per_round
from infcalc.speculation.priced import PRICING_BAND
from infcalc.speculation.spread import tokens_per_round_variance

if TYPE_CHECKING:
    from infcalc.api.drafted_load import DraftedLoad
    from infcalc.api.offering import Load
    from infcalc.api.speed import Machine, Run


def rounds_of(drafted: DraftedLoad) -> Rounds:
    """Return what a round of a way of drafting yields."""
    drafting, length = drafted.way.drafting, drafted.num_draft_tokens
    return Rounds(
        mean_tokens=tokens_per_round(drafting.acceptance, length),
        deviation_tokens=math.sqrt(tokens_per_round_variance(drafting.acceptance, length)),
        verified_tokens=float(drafting.verified_tokens(length)),
    )


@frozen
class RoundMachine:
    """A machine that drafts, for requests of one kind: its clocks price rounds, its bands are those of rounds."""

    machine: Machine
    rounds: Rounds
    clock: RoundClock
    full_clock: RoundClock
    """In a full pipeline."""


def round_machine(machine: Machine, drafted: DraftedLoad, asked: Load) -> RoundMachine:
    """Return the machine as it drafts for requests like those of ``asked``."""
    way, length = drafted.way, drafted.num_draft_tokens
    drafting = way.drafting
    known = [tokens_per_round(one, length) for one in (drafting.acceptance, drafting.low, drafting.high)]
    low, high = (factor * end / known[0] for factor, end in zip(PRICING_BAND, (min(known), max(known)), strict=True))
    rounds = rounds_of(drafted)

    def clock(*, full: bool) -> RoundClock:
        seconds = round_seconds(machine, drafted.rig, drafting, way.passes, length, full=full)
        return RoundClock(seconds, start_tokens=asked.prompt_tokens, mean_tokens=rounds.mean_tokens)

    own = clock(full=False)
    return RoundMachine(
        machine=replace(machine, bands=replace(machine.bands, pace_low_fraction=low, pace_high_fraction=high)),
        rounds=rounds,
        clock=own,
        full_clock=clock(full=True) if machine.deployment.parallelism.pp > 1 else own,
    )


def drafted_run(drafting: RoundMachine, asked: Load, room: float | None = None) -> Run:
    """Return a load on a machine that drafts; ``room`` as in :func:`infcalc.api.speed.serving`."""
    server, requests = serving(drafting.machine, asked, room)
    counted_server, counted = in_rounds(server, requests, drafting.rounds)
    counted_server = replace(counted_server, clock=drafting.clock, full_clock=drafting.full_clock)
    found = run_on(drafting.machine, asked, counted_server, counted)
    share, floors = rounds_per_token(requests, counted), found.floors
    return replace(
        found,
        asked=requests,
        speed=in_tokens(found.speed, requests, counted),
        floors=replace(floors, tpot_s=floors.tpot_s * share, alone_s=floors.alone_s * share),
    )
