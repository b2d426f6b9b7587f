"""Kernels of one step that share their curve and what they work on, priced together: the quick way for a lone step.

Most kernels of a layer multiply the same tokens on the same curve. Its fraction of the peak is then read off once for
all of them, and what does not depend on the step is added up beforehand. The times are those of
:func:`infcalc.roofline.curves.kernel_s`, kernel by kernel, but for rounding.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple, cast

from infcalc.lowering.work import Driver, Linear

if TYPE_CHECKING:
    from collections.abc import Iterable

    from infcalc.lowering.work import Load
    from infcalc.spec.efficiency import Fractions, KernelCurve


class Share(NamedTuple):
    """One kind of kernel of a group: what each of its ``num_kernels`` kernels does for an item, and once."""

    num_kernels: int
    item_flop: float
    item_bytes: float
    once_bytes: float
    sequence_bytes: float


class Alike(NamedTuple):
    """Kernels of one curve, driven by the same items of a step."""

    driver: Driver
    curve: KernelCurve
    shares: tuple[Share, ...]

    def time_s(self, load: Load) -> float:
        """Return the seconds of all of them in a step of plain numbers."""
        items: float = getattr(load, self.driver)
        if not items:
            return 0.0
        curve = self.curve
        flop_per_s = curve.peak_flop_per_s * fraction(curve.compute_fraction, items)
        bandwidth, fractions, sharpness = curve.bandwidth_bytes_per_s, curve.bandwidth_fraction, curve.sharpness
        fixed_s = curve.latency_s + items * curve.latency_per_token_s
        sharp = math.isinf(sharpness)
        total_s = 0.0
        for num_kernels, item_flop, item_bytes, once_bytes, sequence_bytes in self.shares:
            longer_s = item_flop * items / flop_per_s
            num_bytes = once_bytes + item_bytes * items
            if sequence_bytes:
                num_bytes += sequence_bytes * cast("float", load.num_sequences)
            shorter_s = num_bytes / (bandwidth * fraction(fractions, num_bytes)) if num_bytes > 0 else 0.0
            if shorter_s > longer_s:
                longer_s, shorter_s = shorter_s, longer_s
            if shorter_s and not sharp:
                longer_s *= (1 + (shorter_s / longer_s) ** sharpness) ** (1 / sharpness)
            total_s += num_kernels * (longer_s + fixed_s)
        return total_s


def fraction(curve: Fractions, amount: float) -> float:
    """Return the fraction of a peak that ``amount`` reaches."""
    knots, fractions = curve.knots, curve.fractions
    if len(knots) == 1:
        return fractions[0]
    place = math.log2(amount) if amount > 0 else knots[0]
    above = bisect_right(knots, place)
    if not above:
        return fractions[0]
    if above == len(knots):
        return fractions[-1]
    share = (place - knots[above - 1]) / (knots[above] - knots[above - 1])
    return fractions[above - 1] + share * (fractions[above] - fractions[above - 1])


def is_plain(law: object) -> bool:
    """Tell whether a law can be priced so: work in proportion to items, and weights read once."""
    return isinstance(law, Linear) and law.routed is None


def grouped(kernels: Iterable[tuple[Linear, KernelCurve, int]]) -> tuple[Alike, ...]:
    """Return kernels (law, curve, number) in groups of one curve and driver, in order."""
    groups: dict[tuple[Driver, int], tuple[KernelCurve, list[Share]]] = {}
    for law, curve, number in kernels:
        # Curves are made once for each kind of kernel and handed out: the same object where they are the same.
        _, shares = groups.setdefault((law.driver, id(curve)), (curve, []))
        shares.append(
            Share(
                number,
                law.item_flop / number,
                (law.item_weight_bytes + law.item_activation_bytes) / number,
                law.weight_bytes / number,
                2 * law.sequence_state_bytes / number,
            )
        )
    return tuple(Alike(driver, curve, tuple(shares)) for (driver, _), (curve, shares) in groups.items())
