"""What is said of a simulation: what it rests on, what is doubtful, and how its figures came about."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.api import fleet_words as words
from infcalc.spec.explain import Explanation, Input
from infcalc.units import format_seconds

if TYPE_CHECKING:
    from infcalc.api.drafted_load import DraftedLoad
    from infcalc.api.simulation_nouns import RunResult, SimulationResult
    from infcalc.api.simulation_site import Place, Ran

_BUSY = 0.9
_MILLION = 1e6


def notes_of(result: SimulationResult, place: Place, ran: Ran) -> list[str]:
    """Return what a simulation rests on."""
    machinery = place.machinery
    if machinery is None:
        return []
    pace, policy = machinery.machine.pace.value, ran.setting.policy
    steps = (
        f"{policy}: {policy.meaning}; step times are those of estimate for {result.engine} {result.engine_version}, "
        f"{machinery.pace.low:.2f} to {machinery.pace.high:.2f} times as long in four of five measurements"
    )
    front = (
        f"the front end takes {format_seconds(pace.request_s)} for a request and "
        f"{format_seconds(pace.prompt_token_s)} for a token of its prompt, one after the other, and "
        f"{format_seconds(pace.latency_s)} on the way in and out: in TTFT and end-to-end times"
    )
    found = [steps, front]
    reserving = [run for run in (result.compare or (ran.result,)) if run.policy in _RESERVING]
    if reserving:
        what = "the longest sequence" if place.asked.contiguous else "the longest answer of all"
        found.append(f"static and continuous batching keep room for {what} from the start, as without paging")
    if place.pools is not None:
        from infcalc.api.disaggregation import HANDOVERS  # noqa: PLC0415 - only with pools

        found += words.pool_notes(place.pools, result.router, HANDOVERS[policy])
    elif place.asked.scaling is not None:
        found += words.scaling_notes(place.asked.scaling)
    if result.num_lanes > 1 and place.pools is None:
        found.append(_lanes(result, place))
    if not place.asked.keep_requests and len(ran.gathered.finished.num_preemptions):
        found.append(
            "--no-requests: this load is not served in aggregate, and its requests are kept while it runs all the same"
        )
    if place.drafted is not None:
        found.append(
            f"{place.drafted.way.method} drafts {place.drafted.num_draft_tokens} tokens for each answer in each step; "
            "how many are accepted is drawn for each round, and a round is priced as speculate does; the drafter's own "
            "prefill is not counted, its memory is"
        )
    return found


_RESERVING = {"static", "continuous"}


def _lanes(result: SimulationResult, place: Place) -> str:
    per = place.seats.lanes_per_replica
    if per > 1:
        kind = f"{result.num_replicas} x {per} lanes (ranks or micro-batches), each with steps of its own,"
        if place.site.deployment.model.has_experts and place.site.deployment.parallelism.dp > 1:
            kind = f"{result.num_replicas} x {per} lanes, whose ranks step together,"
    else:
        kind = f"{'up to ' if place.asked.scaling is not None else ''}{result.num_lanes} replicas"
    return f"{kind} behind a router: {result.router}, {result.router.meaning}"


def doubts_of(result: SimulationResult, ran: Ran) -> list[str]:
    """Return what a reader must be warned of."""
    found = [f"SLO: {one.text}" for one in result.slo if not one.met]
    if result.disaggregation is not None:
        found += words.pool_doubts(result.disaggregation)
    runs: tuple[RunResult, ...] = result.compare or (ran.result,)
    for run in runs:
        if run.partial:
            found.append(
                f"partial: broken off after {format_seconds(run.duration_s)} of the run, with {run.completed:,} of "
                f"{run.requests:,} requests answered"
            )
        if run.rejected:
            found.append(_rejected(run, ran))
        if run.aborted:
            found.append(f"{run.policy}: {run.aborted:,} requests were given up for want of room in the cache")
    if result.not_run:
        found.append(f"partial: broken off before these runs were made: {', '.join(result.not_run)}")
    if ran.load.num_cut:
        found.append(
            f"{ran.load.num_cut:,} answers end where prompt and answer reach the {ran.load.limit_tokens:,} tokens that "
            "model and server admit"
        )
    if ran.gathered.front_end_busy_fraction > _BUSY:
        share = ran.gathered.front_end_busy_fraction
        found.append(f"the front end is busy {share:.0%} of the time: requests queue before the scheduler sees them")
    return distinct_of(found)


def distinct_of(texts: list[str]) -> list[str]:
    """Return the texts in order, each once."""
    return list(dict.fromkeys(texts))


def _rejected(run: RunResult, ran: Ran) -> str:
    long = len(ran.load.refused_tokens)
    why = f"{long:,} prompts reach the {ran.load.limit_tokens:,} tokens that model and server admit" if long else ""
    rest = run.rejected - long
    if rest:
        reason = next(iter(ran.gathered.reasons.values()), "longer than the cache")
        why += f"{'; ' if why else ''}{rest:,} could never run to their end with this cache ({reason})"
    return f"{run.rejected:,} of {run.requests:,} requests were rejected: {why}"


def explanations_of(place: Place, ran: Ran) -> list[Explanation]:
    """Return how the figures of the shown run came about."""
    done, run = ran.gathered.finished, ran.result
    tokens, prompts, hits = (int(column.sum()) for column in (done.output_tokens, done.prompt_tokens, done.hit_tokens))
    rule = Input(name="rules", value=str(run.policy), origin=ran.setting.policy.meaning)
    found = [
        Explanation(
            quantity="output_tokens_per_s",
            formula="answer tokens / time from the first request sent to the last answer",
            substituted=f"{tokens:,} / {format_seconds(run.duration_s)} = {run.output_tokens_per_s:.5g}, in "
            f"{run.steps:,} steps",
            inputs=(rule,),
        ),
        Explanation(
            quantity="prefix_hit_rate_fraction",
            formula="prompt tokens that the cache held at the first admission / all prompt tokens",
            substituted=f"{hits:,} / {prompts:,} = {run.prefix_hit_rate_fraction:.5g}",
        ),
    ]
    if run.ttft_s is not None and run.queue_s is not None:
        found.append(
            Explanation(
                quantity="ttft_s",
                formula="front end + queue + steps until the first token + latency",
                substituted=f"mean {format_seconds(run.ttft_s.mean)}, {format_seconds(run.queue_s.mean)} of it queue",
                inputs=tuple(_front_end(place)),
            )
        )
    if place.drafted is not None and run.tokens_per_round is not None:
        found += _rounds(run, ran, place.drafted)
    if run.kv_usage_fraction is not None:
        blocks = sum(one.num_blocks for one in ran.gathered.replicas)
        found.append(
            Explanation(
                quantity="kv_usage_fraction",
                formula="blocks held by running requests, over the time of the run / blocks",
                substituted=f"{run.kv_usage_fraction.mean * blocks:,.0f} / {blocks:,} = "
                f"{run.kv_usage_fraction.mean:.5g} in the mean, {run.kv_usage_fraction.max:.5g} at most",
            )
        )
    if run.disaggregation is not None and place.pools is not None:
        found += words.pool_explanations(place.pools, run.disaggregation, prompts / max(1, len(done)))
    if run.scaling is not None:
        found += words.scaling_explanations(run.scaling)
    found.append(
        Explanation(
            quantity="goodput_fraction",
            formula="requests answered within every limit of --slo / all requests",
            substituted=f"{round(run.goodput_fraction * run.requests):,} / {run.requests:,} = "
            f"{run.goodput_fraction:.5g}",
        )
    )
    if run.usd_per_million_output_tokens is not None and place.rent is not None:
        share = place.terms.utilization_fraction
        gpus = f"{place.num_gpus}"
        if run.scaling is not None:
            gpus = f"{run.scaling.gpu_s / run.duration_s:.4g}"
        found.append(
            Explanation(
                quantity="usd_per_million_output_tokens",
                formula="USD per GPU-hour x GPUs / 3600 / (tokens/s) x 10^6" + ("" if share == 1 else " / utilization"),
                substituted=f"{place.rent.usd_per_hour:.4g} x {gpus} / 3600 / {run.output_tokens_per_s:.5g} x 10^6"
                + ("" if share == 1 else f" / {share:g}")
                + f" = {run.usd_per_million_output_tokens:.4g}",
                inputs=(
                    Input(name="USD per GPU-hour", value=f"{place.rent.usd_per_hour:.4g}", origin=place.rent.source),
                ),
            )
        )
    return found


def _rounds(run: RunResult, ran: Ran, drafted: DraftedLoad) -> list[Explanation]:
    done, counts = ran.gathered.finished, ran.gathered.rounds
    # Weighted by the answers: who answers long is there in more rounds.
    tokens = float((done.output_tokens * (done.prompt_tokens + done.output_tokens / 2)).sum())
    context = round(tokens / max(1, int(done.output_tokens.sum())))
    return [
        Explanation(
            quantity="tokens_per_round",
            formula="1 + accepted drafts / rounds",
            substituted=f"1 + {counts.num_accepted:,} / {counts.num_rounds:,} = {run.tokens_per_round:.5g}; "
            f"{drafted.expected_tokens_per_round:.5g} by the law that they are drawn from",
            source="as vLLM counts: vllm:spec_decode_num_accepted_tokens, vllm:spec_decode_num_drafts",
        ),
        *drafted.explanations(round(counts.num_rounds / max(1, run.steps)), context),
    ]


def _front_end(place: Place) -> list[Input]:
    if place.machinery is None:
        return []
    since = place.machinery.machine.pace
    return [
        Input(name=name, value=format_seconds(getattr(since.value, name)), origin=since.value.footing(name).text)
        for name in ("request_s", "prompt_token_s", "latency_s")
    ]
