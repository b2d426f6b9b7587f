"""The times of cases on a device: warmed up, in runs that a clock can tell, as often as a budget allows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.api.lab_device_nouns import Case, Course, LeftOut, Samples, Timing, samples_of
from infcalc.api.lab_torch import LeftOutError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from infcalc.api.lab_torch import TorchDevice

LEAST_SAMPLES = 3
_AIM_S = {"cuda": 5e-3, "cpu": 2e-3}
"""How long a sample should be: many times the grain of the clock."""
_MOST_RUNS = 1000
_LEAST_S = 1e-9


def course_of(
    device: TorchDevice,
    cases: Sequence[Case],
    *,
    num_samples: int,
    budget_s: float,
    passed_s: Callable[[], float],
    tell: Callable[[int], None],
) -> Course:
    """Return the times of ``cases``, each with its ``budget_s``; those that do not run are left out with the reason.

    ``passed_s`` counts budgets, ``tell`` is told how many cases are done.
    """
    timings: list[Timing] = []
    left_out: list[LeftOut] = []
    for number, case in enumerate(cases):
        try:
            samples = _samples(device, case, num_samples, budget_s, passed_s)
        except LeftOutError as reason:
            left_out.append(LeftOut(case=case.name, why=str(reason)))
        else:
            timings.append(Timing(case=case, samples=samples))
        device.release()
        tell(number + 1)
    return Course(timings=tuple(timings), left_out=tuple(left_out))


def _samples(
    device: TorchDevice, case: Case, num_samples: int, budget_s: float, passed_s: Callable[[], float]
) -> Samples:
    work = device.ready(case)
    once_s = max(_LEAST_S, device.sampler(work, 1)())
    num = max(1, min(_MOST_RUNS, round(_AIM_S[device.kind] / once_s)))
    sample = device.sampler(work, num)
    start_s = passed_s()
    times_s: list[float] = []
    for _ in range(num_samples):
        times_s.append(max(_LEAST_S, sample()))
        if len(times_s) >= LEAST_SAMPLES and passed_s() - start_s > budget_s:
            break
    return samples_of(times_s)
