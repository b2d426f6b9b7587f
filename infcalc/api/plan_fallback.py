"""Which plans the simulator confirms, and with how many replicas: the least that it confirms, in few simulations.

The best are simulated. Where one misses, more replicas are tried: as many more as it missed by, then twice the step
before, and halfway back to the least that is confirmed. Whichever setup may still be the best with what is known of it
goes first, so that nothing dearer is simulated while something cheaper is open.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from infcalc.api.plan_demand import DemandKind
from infcalc.api.plan_nouns import Trial
from infcalc.api.plan_pool import over_cores
from infcalc.api.plan_search import found_with
from infcalc.frozen import frozen
from infcalc.planning.nouns import Miss, Refusal
from infcalc.planning.seeking import seeking

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeAlias

    from infcalc.api.plan_ask import PlanAsk
    from infcalc.api.plan_nouns import Confirmation
    from infcalc.api.plan_search import Field, Found
    from infcalc.planning.nouns import Setup
    from infcalc.planning.seeking import Seeking

    Confirm: TypeAlias = Callable[[Field, tuple[Found, int]], Confirmation]

SETUPS_PER_PLAN = 3
"""Setups that are simulated at most, for each plan that is to be confirmed."""
_RUNS_PER_PLAN = 8
"""Simulations at most, for each plan that is to be confirmed."""


@frozen
class Judged:
    """The plans to show, those confirmed first, what the simulator said of each, and what missed."""

    chosen: tuple[Found, ...]
    confirmations: tuple[Confirmation | None, ...]
    missed: tuple[Refusal, ...] = ()
    notes: tuple[str, ...] = ()
    num_simulated: int = 0


@frozen
class _Candidate:
    """A setup on its way: with the least replicas that may do, and what trials told."""

    setting: Found
    """With the least number that may still do."""
    known: Seeking
    kept: Found | None = None
    said: Confirmation | None = None
    """Of the least number that was confirmed."""
    trials: tuple[Trial, ...] = ()

    @property
    def settled(self) -> bool:
        """Whether the least number is known."""
        return self.known.found is not None


def judged(field: Field, found: Sequence[Found], asked: PlanAsk, confirm: Confirm | None = None) -> Judged:
    """Return the plans to show: of ``found``, the best first, as many as asked for confirmed where they can be.

    ``confirm`` simulates one; None: :func:`infcalc.api.plan_confirming.confirm`.
    """
    if not asked.num_confirmed or not found:
        shown = tuple(found[: asked.num_shown])
        return Judged(chosen=shown, confirmations=(None,) * len(shown))
    from infcalc.api.plan_confirming import confirm as by_simulator  # noqa: PLC0415 - numpy
    from infcalc.api.plan_confirming import unsimulated  # noqa: PLC0415 - as above

    confirm = confirm or by_simulator
    wanted = asked.num_confirmed
    reasons = {one.setup: why for one in found if (why := unsimulated(one))}
    order = [
        _Candidate(setting=one, known=seeking(one.num_needed, _most(field, one)))
        for one in found
        if one.setup not in reasons
    ]
    missed: list[Refusal] = []
    num_simulated = 0

    def rank(one: _Candidate) -> tuple[float, float, float]:
        return (one.kept if one.settled and one.kept is not None else one.setting).order(field.goal)

    while num_simulated < _RUNS_PER_PLAN * wanted:
        settled = sorted((one for one in order if one.settled), key=rank)
        bar = rank(settled[wanted - 1]) if len(settled) >= wanted else None
        tried = sum(bool(one.trials) for one in order)
        opens = [
            one
            for one in order
            if not one.known.over
            and (bar is None or rank(one) < bar)
            and (one.trials or tried < SETUPS_PER_PLAN * wanted)
        ]
        if not opens:
            break
        batch = sorted(opens, key=rank)[: max(1, min(wanted - len(settled), _RUNS_PER_PLAN * wanted - num_simulated))]
        jobs = [(found_with(field, field.rig(one.setting.setup), one.known.next), one) for one in batch]
        said = over_cores(
            field, confirm, [(item, asked.seed) for item, _ in jobs], num_workers=asked.num_workers, few=2
        )
        num_simulated += len(jobs)
        for (item, one), told in zip(jobs, said, strict=True):
            after = _after(field, one, item, told)
            order[order.index(one)] = after
            if not told.confirmed:
                missed.append(_refused(item, told))
    known = {one.setting.setup: one.known for one in order}
    missed = [_mended(field, one, known[one.setup]) for one in missed]
    return _shown(field, order, [one for one in found if one.setup in reasons], missed, asked, num_simulated, reasons)


def _most(field: Field, one: Found) -> int:
    """Return the most replicas that may be tried: of a server that is filled to its limits no more help."""
    if field.demand.kind is DemandKind.CAPACITY:
        return one.num_needed
    return min(field.most_affordable(one.setup), field.most_useful())


def _after(field: Field, one: _Candidate, item: Found, said: Confirmation) -> _Candidate:
    """Return a candidate after one more simulation."""
    trials = (*one.trials, Trial(replicas=item.num_replicas, confirmed=said.confirmed))
    if said.confirmed:
        return replace(one, known=one.known.confirmed(item.num_needed), kept=item, said=said, trials=trials)
    if said.num_lost or not said.slo:
        # What no server like it admits is admitted by no number of them.
        return replace(one, known=one.known.hopeless(), trials=trials)
    factor = max((each.value_s or 0.0) / each.limit_s for each in said.slo)
    known = one.known.missed(item.num_needed, factor)
    setting = one.setting if known.over else found_with(field, field.rig(item.setup), known.num_below + 1)
    return replace(one, known=known, setting=setting, trials=trials)


def _refused(one: Found, said: Confirmation) -> Refusal:
    worst = max(
        (item for item in said.slo if not item.met), key=lambda item: (item.value_s or 0) / item.limit_s, default=None
    )
    return Refusal(
        setup=one.setup,
        kind=Miss.SIMULATION,
        reason=said.text,
        quantity="" if worst is None else worst.name,
        limit=None if worst is None else worst.limit_s,
        value=None if worst is None else worst.value_s,
        num_replicas=one.num_replicas,
    )


def _mended(field: Field, one: Refusal, known: Seeking) -> Refusal:
    """Return what missed with the replicas that were confirmed in the end, or else with those to try next."""
    number = known.num_above or (None if known.over else known.next)
    if number is None:
        return one
    change = f"{number + field.num_spare} replicas"
    return replace(one, change=change, suffices=known.num_above is not None)


def _shown(  # noqa: PLR0917 - made in one place
    field: Field,
    order: Sequence[_Candidate],
    aside: Sequence[Found],
    missed: Sequence[Refusal],
    asked: PlanAsk,
    num_simulated: int,
    reasons: dict[Setup, str],
) -> Judged:
    """Return what is shown: confirmed plans first, then those that were not simulated."""
    kept = sorted(
        ((one.kept, _told(one)) for one in order if one.kept is not None and one.said is not None),
        key=lambda pair: pair[0].order(field.goal),
    )
    others = [one.setting for one in order if one.kept is None and not one.known.over]
    rest = sorted((*others, *aside), key=lambda one: one.order(field.goal))[: max(0, asked.num_shown - len(kept))]
    notes = []
    fell = len({one.setup for one in missed})
    if missed:
        notes.append(
            f"{fell} setup{'' if fell == 1 else 's'} that the closed form lets through missed a limit when simulated, "
            f"{len(missed)} time{'' if len(missed) == 1 else 's'} of {num_simulated}, and fell back to more replicas "
            "or behind others (rejected, kind: simulation); numbers above a confirmed one are taken to be confirmed"
        )
    unsettled = [one for one in order if one.kept is not None and not one.settled]
    if unsettled:
        notes.append(
            f"{len(unsettled)} confirmed plan{' has' if len(unsettled) == 1 else 's have'} not been tried with every "
            "number of replicas below: fewer may do"
        )
    if not kept and num_simulated:
        notes.append(
            f"none of the best plans was confirmed in {num_simulated} simulations: what is shown is by formula, "
            "not simulated"
        )
    refused = max((said.num_refused for _, said in kept), default=0)
    if refused:
        notes.append(
            f"{refused} simulated request{' is' if refused == 1 else 's are'} longer than the model admits, refused "
            "on any hardware: the end of the lengths' tail"
        )
    stepped = [said.requests for _, said in kept if said.every_step]
    if stepped:
        notes.append(
            f"{len(stepped)} confirmed plan{'' if len(stepped) == 1 else 's'} with {min(stepped):,} requests alone: "
            "schedulers of other engines than vLLM are computed step by step, which takes long; their percentiles are "
            "uncertain"
        )
    shown = {one.setup for one in rest}
    notes += list(dict.fromkeys(why for setup, why in reasons.items() if setup in shown))
    return Judged(
        chosen=(*(one for one, _ in kept), *rest),
        confirmations=(*(said for _, said in kept), *(None for _ in rest)),
        missed=tuple(missed),
        notes=tuple(notes),
        num_simulated=num_simulated,
    )


def _told(one: _Candidate) -> Confirmation:
    """Return the confirmation of the least number, with what else was tried."""
    if one.said is None:
        raise AssertionError
    text = one.said.text
    fewer = sorted(trial.replicas for trial in one.trials if not trial.confirmed)
    if fewer:
        text += f"; {', '.join(map(str, fewer))} replica{'' if fewer == [1] else 's'} missed"
    return replace(one.said, text=text, trials=one.trials)
