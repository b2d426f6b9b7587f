"""``--save-requests``: a line per request of a run, as CSV or JSON lines."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from infcalc.files import write_text
from infcalc.simulation.batch_shape import PS_PER_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from infcalc.api.simulation_site import Ran

COLUMNS = (
    "request",
    "outcome",
    "arrival_s",
    "scheduled_s",
    "first_token_s",
    "last_token_s",
    "input_tokens",
    "output_tokens",
    "hit_tokens",
    "preemptions",
    "replica",
)
"""Times count from the start of the run. ``arrival_s``: it was sent; ``first_token_s`` and ``last_token_s``: its sender
had them."""


def save_requests(ran: Ran, path: str) -> None:
    """Write all requests of a run: CSV where the name ends in .csv, else JSON lines.

    Raises:
        FileProblem: the file cannot be written.

    """
    rows = _rows(ran)
    if path.lower().endswith(".csv"):
        lines = [",".join("" if value is None else str(value) for value in row) for row in rows]
        write_text(path, "\n".join([",".join(COLUMNS), *lines, ""]))
    else:
        lines = [json.dumps(dict(zip(COLUMNS, row, strict=True))) for row in rows]
        write_text(path, "\n".join([*lines, ""]))


def _rows(ran: Ran) -> Iterator[tuple[object, ...]]:
    gathered, load = ran.gathered, ran.load
    done, latency = gathered.finished, ran.setting.front_end.latency_ps
    place_of = {one: place for place, one in enumerate(done.indices.tolist())}
    asked = {original: index for index, original in enumerate(load.asked.tolist())}
    times = zip(
        done.scheduled_ps.tolist(),
        (done.first_token_ps + latency).tolist(),
        (done.last_token_ps + latency).tolist(),
        done.output_tokens.tolist(),
        done.hit_tokens.tolist(),
        done.num_preemptions.tolist(),
        strict=True,
    )
    finished = list(times)
    for original in range(load.num_requests):
        index = asked.get(original)
        if index is None:
            yield (original, "rejected", None, None, None, None, load.refused_tokens[original], None, None, None, None)
            continue
        sent, prompt = int(gathered.sent_ps[index]), int(load.prompt_tokens[index])
        arrival = None if sent < 0 else sent / PS_PER_S
        replica = int(gathered.placed[index]) if gathered.placed[index] >= 0 else None
        place = place_of.get(index)
        if place is None:
            outcome = "rejected" if index in gathered.reasons else "unfinished" if gathered.partial else "aborted"
            yield (original, outcome, arrival, None, None, None, prompt, None, None, None, replica)
            continue
        scheduled, first, last, output, hits, preemptions = finished[place]
        yield (
            original,
            "finished",
            arrival,
            scheduled / PS_PER_S,
            first / PS_PER_S,
            last / PS_PER_S,
            prompt,
            output,
            hits,
            preemptions,
            replica,
        )
