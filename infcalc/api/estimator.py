"""Many estimates of one deployment: what does not depend on the load is made once.

:func:`infcalc.api.speed.estimate` answers one question in full; an :class:`Estimator` gives the same figures, and only
those, to a planner that asks for thousands of loads.

>>> from infcalc.api import Ask, Offer
>>> estimator = Estimator(Ask(models=("llama3.1-8b",), gpus=("h100-sxm5-80gb",), tp=1))
>>> offers = [Offer(concurrency=clients, input_tokens=1000, output_tokens=200) for clients in (1, 64)]
>>> alone, many = [estimator.estimate(offer) for offer in offers]
>>> alone.tpot_s.value < many.tpot_s.value
True
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from infcalc.api.deployment import Ask, load, resolve
from infcalc.api.figures import scaled
from infcalc.api.ledger import deployment_ledger
from infcalc.api.offering import check_offer, load_for
from infcalc.api.speed import machine_of, rate_of, run_of, serving, site_of, times_of
from infcalc.errors import UsageError
from infcalc.frozen import frozen
from infcalc.serving.server import in_batches

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from infcalc.api.deployment import Deployment
    from infcalc.api.offer import Figure, Offer
    from infcalc.api.offering import Load
    from infcalc.catalog.lookup import Catalog

_AMPLE = 2.0
"""Requests at their mean demand that a lane has room for, from which on one whole request surely fits."""


@frozen
class Estimate:
    """The figures of one load; all are None where not one request fits, times also where the load is not stable."""

    fits: bool
    ttft_s: Figure | None = None
    tpot_s: Figure | None = None
    e2e_s: Figure | None = None
    output_tokens_per_s: Figure | None = None
    requests_per_s: Figure | None = None
    batch: float = 0.0
    """Mean requests in decode over the replica."""
    max_batch: float = 0.0
    """Most that memory and the engine let run at once."""
    stable: bool = True
    bound_by: str = ""


@frozen
class Batches:
    """Static batches, one for each asked size; not a number where so many do not run at once."""

    batch: NDArray[np.float64]
    ttft_s: NDArray[np.float64]
    tpot_s: NDArray[np.float64]
    e2e_s: NDArray[np.float64]
    output_tokens_per_s: NDArray[np.float64]
    max_batch: float


class Estimator:
    """Estimates of one deployment under any load.

    ``ask`` names one model and one GPU; ``catalog`` is the catalog where it is at hand (None: the one of the ask).

    Raises:
        InfcalcError: any of its kinds, as :func:`infcalc.api.deployment.resolve`.

    """

    __slots__ = ("_fitting", "_machine", "_site")

    def __init__(self, ask: Ask | None = None, catalog: Catalog | None = None) -> None:
        ask = ask or Ask()
        catalog = catalog or load(ask)
        deployments = resolve(ask, catalog)
        if len(deployments) != 1:
            raise UsageError(
                f"{len(deployments)} deployments", place="--model, --gpu", hint="make one Estimator for each of them"
            )
        self._site = site_of(ask, deployments[0], catalog)
        self._machine = machine_of(self._site)
        self._fitting: dict[int, bool] = {}

    @property
    def deployment(self) -> Deployment:
        """What is deployed."""
        return self._site.deployment

    def estimate(self, offer: Offer) -> Estimate:
        """Return the figures of one load: those of :func:`infcalc.api.speed.estimate`.

        Raises:
            UsageError: no load can be so, or its requests are longer than the server admits.

        """
        check_offer(offer)
        asked = load_for(self.deployment, offer, ())
        room = self._machine.rooms.requests(asked.inputs, asked.outputs)
        if not self._fits(asked, room):
            return Estimate(fits=False)
        run = run_of(self._machine, asked, room)
        speed = run.speed
        rate, answer_tokens = rate_of(run), run.asked.answer_tokens
        times = times_of(run, rate)
        return Estimate(
            fits=True,
            ttft_s=times.ttft_s,
            tpot_s=times.tpot_s if answer_tokens > 1 else None,
            e2e_s=times.e2e_s,
            output_tokens_per_s=scaled(rate, answer_tokens),
            requests_per_s=rate,
            batch=speed.num_decodes,
            max_batch=run.server.num_places,
            stable=speed.stable,
            bound_by=speed.bound_by,
        )

    def batches(self, sizes: Sequence[int] | NDArray[np.integer[Any]], offer: Offer) -> Batches:
        """Return static batches of many sizes in one call; lengths and prefix hits are those of ``offer``.

        Raises:
            UsageError: no load can be so, a size is below 1, or requests are longer than the server admits.

        """
        import numpy as np  # noqa: PLC0415 - only where many batches are asked for

        wanted = np.asarray(sizes, dtype=np.float64)
        if wanted.ndim != 1 or not wanted.size or not bool(np.all(wanted >= 1)):
            raise UsageError("sizes of batches that none can have", place="--batch", hint="whole numbers, 1 or more")
        single = replace(offer, batch=1, concurrency=None, requests_per_s=None)
        check_offer(single)
        asked = load_for(self.deployment, single, ())
        room = self._machine.rooms.requests(asked.inputs, asked.outputs)
        server, requests = serving(self._machine, asked, room)
        most = server.num_places if self._fits(asked, room) else 0.0
        curve = in_batches(replace(server, num_places=most), requests, wanted)
        return Batches(
            batch=wanted,
            ttft_s=curve.ttft_s,
            tpot_s=curve.tpot_s,
            e2e_s=curve.e2e_s,
            output_tokens_per_s=wanted * requests.answer_tokens / curve.makespan_s,
            max_batch=most,
        )

    def _fits(self, asked: Load, room: float) -> bool:
        """Tell whether one request fits in memory; where there is ample room for many, it does."""
        deployment, total = self.deployment, asked.total_tokens
        if room >= _AMPLE * deployment.parallelism.dp:
            return True
        if total not in self._fitting:
            book = deployment_ledger(replace(deployment, max_model_len=total), self._site.form, context_tokens=total)
            self._fitting[total] = book.fits
        return self._fitting[total]
