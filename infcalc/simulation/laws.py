"""What must hold after every run, however it was computed: nothing is lost, nothing is made up, time goes forward."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from infcalc.kvcache.invariant import holds
from infcalc.scheduling.scheduler import Scheduler
from infcalc.simulation.records import Outcome, RequestRecord
from infcalc.simulation.request import Request


def check_laws(
    requests: Sequence[Request], records: Sequence[RequestRecord], scheduler: Scheduler | None = None
) -> None:
    """Check the ``records`` of a run, ordered by index, and that its scheduler holds nothing any more.

    Raises:
        AssertionError: a law is broken.

    """
    indices = [record.index for record in records]
    holds(indices == list(range(len(requests))), "every request ends once")
    for request, record in zip(requests, records, strict=True):
        _check_tokens(request, record)
        _check_times(record)
    if scheduler is not None:
        holds(not scheduler.has_work, "nobody is left in the engine")
        holds(scheduler.kv.num_free_blocks == scheduler.num_blocks, "all blocks are given back")


def _check_tokens(request: Request, record: RequestRecord) -> None:
    who = f"request {record.index}"
    holds(record.prompt_tokens == request.prompt_tokens, f"{who} keeps its prompt")
    holds(0 <= record.hit_tokens < record.prompt_tokens, f"{who} computes its last prompt token at least")
    match record.outcome:
        case Outcome.FINISHED:
            holds(0 < record.output_tokens <= request.output_tokens, f"{who} gets no more than its answer")
            holds(record.computed_tokens >= record.output_tokens, f"each token of {who} takes a computation")
            if not record.num_preemptions:
                # The last token of an answer is never computed.
                needed = record.prompt_tokens + record.output_tokens - 1 - record.hit_tokens
                holds(record.computed_tokens == needed, f"each token of {who} is found or computed, once")
        case Outcome.REJECTED:
            holds(not record.computed_tokens and not record.output_tokens, f"{who} was rejected and gets nothing")
        case Outcome.ABORTED:
            holds(record.output_tokens < request.output_tokens, f"{who} was given up before its end")


def _check_times(record: RequestRecord) -> None:
    moments = (record.arrival_ps, record.scheduled_ps, record.first_token_ps, record.last_token_ps, record.end_ps)
    happened = [moment for moment in moments if moment is not None]
    holds(all(before <= after for before, after in pairwise(happened)), f"time runs forward for request {record.index}")
    if record.outcome is Outcome.FINISHED:
        holds(len(happened) == len(moments), f"request {record.index} has all its moments")
