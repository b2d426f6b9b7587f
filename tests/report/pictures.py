"""An answer for every picture, each made once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import count
from typing import Any

from infcalc.api.answer import Answer
from infcalc.api.batching_policies import batching
from infcalc.api.batching_requests import BatchingAsk
from infcalc.api.bounds import roofline
from infcalc.api.deployment import Ask
from infcalc.api.drafting import speculate
from infcalc.api.filling import memory
from infcalc.api.fitting import concurrency
from infcalc.api.lab import LabAsk, lab
from infcalc.api.lab_timing import Instruments
from infcalc.api.offer import Offer
from infcalc.api.paging_waste import PagingAsk, paging
from infcalc.api.plan_ask import PlanAsk
from infcalc.api.planning import plan
from infcalc.api.prefix_hits import prefix_cache
from infcalc.api.prefix_stream import PrefixAsk
from infcalc.api.simulating import simulate
from infcalc.api.simulation_ask import SimulationAsk
from infcalc.api.sizing import kv
from infcalc.api.speed import estimate
from infcalc.api.sweeping import parse_sweep
from infcalc.api.workload_ask import WorkloadAsk
from infcalc.api.workloads import workload
from infcalc.report import cache_plots, curves, plots
from infcalc.report.lab_plot import plot_lab
from infcalc.report.plan_plot import plot_plan
from infcalc.report.simulation_plots import plot_simulation
from infcalc.report.slots_picture import plot_batching
from infcalc.report.timeline import plot_workload

ONE = Ask(models=("llama3-8b",), gpus=("h100",), num_gpus=1)
SEVERAL = Ask(models=("llama3-8b", "llama3-70b"), gpus=("h100", "h200"), num_gpus=2)
TOO_LARGE = Ask(models=("deepseek-v3",), gpus=("h100",), num_gpus=1)


def in_the_lab() -> Answer[Any]:
    ticks = count()
    asked = LabAsk(hidden_size=64, num_layers=1, count_tokens=40, context_tokens=20, batches=(1,), repeat=2, quick=True)
    return lab(asked, Instruments(clock=lambda: next(ticks) / 1000, today="2030-01-02", progress=lambda _: None))


def planned() -> Answer[Any]:
    asked = PlanAsk(
        num_users=50,
        input_tokens="1000",
        output_tokens="300",
        gpus_from=("h100-sxm5-80gb", "l40s", "h200"),
        num_confirmed=0,
        with_pools=False,
    )
    return plan(Ask(models=("llama3-8b", "llama3-70b")), asked)


def simulated(**asked: Any) -> Answer[Any]:  # noqa: ANN401
    load = WorkloadAsk(requests_per_s=None if "sweep" in asked else 4.0, num_requests=30)
    return simulate(SEVERAL if "compared" in asked else ONE, SimulationAsk(load=load, **asked))


FEW = BatchingAsk(num_requests=6, policies=("static", "vllm"))
Plot = Callable[[Answer[Any], str], None]
Axis = tuple[str, ...]
PICTURES: dict[str, tuple[Callable[[], Answer[Any]], Plot, Axis, str]] = {
    # Answer, picture, what goes up in each panel (empty: bars with names), what goes to the right.
    "kv": (lambda: kv(SEVERAL), plots.plot_kv, ("KV cache of one sequence, GiB",), "context, tokens"),
    "concurrency": (
        lambda: concurrency(replace(SEVERAL, kv_dtypes=("bf16", "fp8"))),
        plots.plot_concurrency,
        ("sequences that fit",),
        "precision of the KV cache",
    ),
    "memory": (lambda: memory(SEVERAL), plots.plot_memory, ("",), "memory of the governing GPU, GiB"),
    "memory of one": (lambda: memory(ONE), plots.plot_memory, ("",), "memory of the governing GPU, GiB"),
    "memory lacking": (lambda: memory(TOO_LARGE), plots.plot_memory, ("",), "memory of the governing GPU, GiB"),
    "roofline": (
        lambda: roofline(SEVERAL),
        plots.plot_roofline,
        ("rate of one GPU, TFLOP/s",),
        "work per byte moved, FLOP/B",
    ),
    "roofline of one": (
        lambda: roofline(ONE),
        plots.plot_roofline,
        ("rate of one GPU, TFLOP/s",),
        "work per byte moved, FLOP/B",
    ),
    "estimate": (lambda: estimate(SEVERAL), curves.plot_estimate, ("",), "share of the step's time, %"),
    "sweep": (
        lambda: estimate(SEVERAL, Offer(output_tokens=200), sweep=parse_sweep("batch=1..256")),
        curves.plot_estimate,
        ("time per output token, ms",),
        "throughput of the replica, output tokens/s",
    ),
    "sweep of one value": (
        lambda: estimate(ONE, Offer(output_tokens=200), sweep=parse_sweep("batch=8")),
        curves.plot_estimate,
        ("time per output token, ms",),
        "throughput of the replica, output tokens/s",
    ),
    "speculate": (
        lambda: speculate(SEVERAL),
        plots.plot_speculate,
        ("speedup over plain decoding",),
        "batch, sequences in decode",
    ),
    "batching": (lambda: batching(replace(SEVERAL, weights="fp8"), FEW), plot_batching, ("",), "time, s"),
    "batching of one": (lambda: batching(ONE, replace(FEW, policies=("vllm",))), plot_batching, ("",), "time, s"),
    "paging": (
        lambda: paging(SEVERAL, PagingAsk(num_requests=100, pool_tokens=9000)),
        cache_plots.plot_paging,
        ("",),
        "share of the KV pool, %",
    ),
    "prefix-cache": (
        lambda: prefix_cache(SEVERAL, PrefixAsk(num_requests=50)),
        cache_plots.plot_prefix_cache,
        ("share found in the cache, %",),
        "size of the cache, tokens",
    ),
    "simulate": (
        lambda: simulated(compared=("static", "vllm")),
        plot_simulation,
        ("KV cache\nin use, %", "slots\nin use, %", "requests\nwaiting", "answers,\ntokens/s"),
        "time, s",
    ),
    "simulated sweep": (
        lambda: simulated(sweep=parse_sweep("rate=1..16")),
        plot_simulation,
        ("time to first\ntoken, ms", "time per output\ntoken, ms", "throughput,\noutput tokens/s"),
        "rate, requests/s",
    ),
    "plan": (planned, plot_plan, ("time of a whole request, s",), "cost, USD a month"),
    "lab": (in_the_lab, plot_lab, ("time so far, s",), "tokens produced"),
    "workload": (
        lambda: workload(WorkloadAsk(num_requests=300)),
        plot_workload,
        ("requests/s", "tokens/s"),
        "time, s (stretches of ",
    ),
    "workload without times": (
        lambda: workload(WorkloadAsk(num_requests=1)),
        plot_workload,
        ("length, tokens",),
        "percentile of the requests",
    ),
}


@cache
def answer_of(name: str) -> Answer[Any]:
    return PICTURES[name][0]()
