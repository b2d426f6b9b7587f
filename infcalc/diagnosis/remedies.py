"""What to do, once for all rules: in words, in each engine's own options, and with the change that prices it."""

from __future__ import annotations

from typing import Final

from infcalc.diagnosis.rule import Change, Remedy, Turn


def advice(text: str) -> Remedy:
    """Return a remedy that no option of an engine sets and no model prices."""
    return Remedy(text=text, flags={})


def _set(name: str, value: str = "") -> Turn:
    return Turn(name=name, value=value)


def _without(name: str) -> Turn:
    return Turn(name=name, leave_out=True)


KV_FP8: Final = Remedy(
    text="store keys and values in 8 bit: twice the requests find room",
    flags={
        "vllm": (_set("--kv-cache-dtype", "fp8"),),
        "sglang": (_set("--kv-cache-dtype", "fp8_e4m3"),),
        "tensorrt-llm": (_set("kv_cache_config.dtype", "fp8"),),
        "llama.cpp": (_set("-ctk", "q8_0"), _set("-ctv", "q8_0")),
    },
    change=Change.KV_FP8,
)
MORE_MEMORY: Final = Remedy(
    text="give the engine more of the GPU's memory, as far as nothing else needs it",
    flags={
        "vllm": (_set("--gpu-memory-utilization", "{more_memory}"),),
        "sglang": (_set("--mem-fraction-static", "{more_memory}"),),
        "tensorrt-llm": (_set("--kv_cache_free_gpu_memory_fraction", "{more_memory}"),),
    },
    change=Change.MORE_MEMORY,
)
MORE_SEQUENCES: Final = Remedy(
    text="let more sequences run at once",
    flags={
        "vllm": (_set("--max-num-seqs", "{more_sequences}"),),
        "sglang": (_set("--max-running-requests", "{more_sequences}"),),
        "tensorrt-llm": (_set("--max_batch_size", "{more_sequences}"),),
        "llama.cpp": (_set("-np", "{more_sequences}"),),
    },
    change=Change.MORE_SEQUENCES,
)
FEWER_SEQUENCES: Final = Remedy(
    text="let no more requests run, or be sent, than find room: the rest wait without losing their work",
    flags={
        "vllm": (_set("--max-num-seqs", "{fewer_sequences}"),),
        "sglang": (_set("--max-running-requests", "{fewer_sequences}"),),
        "tensorrt-llm": (_set("--max_batch_size", "{fewer_sequences}"),),
    },
    change=Change.FEWER_CLIENTS,
)
TWICE_THE_TP: Final = Remedy(
    text="split the model over twice as many GPUs",
    flags={
        "vllm": (_set("--tensor-parallel-size", "{twice_tp}"),),
        "sglang": (_set("--tp-size", "{twice_tp}"),),
        "tensorrt-llm": (_set("--tp_size", "{twice_tp}"),),
    },
    change=Change.TWICE_THE_GPUS,
)
REPLICA: Final = Remedy(
    text="add a second replica, and give each half of the requests",
    flags={},
    change=Change.REPLICA,
)
WEIGHTS_FP8: Final = Remedy(
    text="load weights in FP8: half the bytes of 16 bit",
    flags={"vllm": (_set("--quantization", "fp8"),), "sglang": (_set("--quantization", "fp8"),)},
    change=Change.WEIGHTS_FP8,
)
WEIGHTS_INT4: Final = Remedy(
    text="load a 4-bit checkpoint (AWQ, GPTQ): a quarter of the bytes of 16 bit",
    flags={},
    change=Change.WEIGHTS_INT4,
)
WEIGHTS_16: Final = Remedy(text="load the checkpoint in 16 bit", flags={}, change=Change.WEIGHTS_16)
LARGER_BUDGET: Final = Remedy(
    text="let a step hold more tokens: the engine's default, or twice as many where it has that",
    flags={
        "vllm": (_set("--max-num-batched-tokens", "{larger_budget}"),),
        "sglang": (_set("--chunked-prefill-size", "{larger_budget}"),),
        "tensorrt-llm": (_set("--max_num_tokens", "{larger_budget}"),),
        "llama.cpp": (_set("-b", "{larger_budget}"),),
    },
    change=Change.BUDGET_RAISED,
)
HALF_BUDGET: Final = Remedy(
    text="let a step hold fewer tokens: gaps become shorter, first tokens come a little later",
    flags={
        "vllm": (_set("--max-num-batched-tokens", "{half_budget}"),),
        "sglang": (_set("--chunked-prefill-size", "{half_budget}"),),
        "tensorrt-llm": (_set("enable_chunked_prefill", "true"), _set("--max_num_tokens", "{half_budget}")),
        "llama.cpp": (_set("-b", "{half_budget}"),),
    },
    change=Change.BUDGET_HALVED,
)
WITH_GRAPHS: Final = Remedy(
    text="let the engine capture CUDA graphs",
    flags={"vllm": (_without("--enforce-eager"),), "sglang": (_without("--disable-cuda-graph"),)},
    change=Change.GRAPHS,
)
SMALLER_TP: Final = Remedy(
    text="split over half as many GPUs, and run two replicas on them: fewer ranks wait for the link",
    flags={
        "vllm": (_set("--tensor-parallel-size", "{half_tp}"),),
        "sglang": (_set("--tp-size", "{half_tp}"),),
        "tensorrt-llm": (_set("--tp_size", "{half_tp}"),),
    },
    change=Change.SMALLER_TP,
)
STAGES: Final = Remedy(
    text="split by layers where the link is slow: stages pass one activation, TP reduces twice per layer",
    flags={
        "vllm": (_set("--pipeline-parallel-size", "{stages}"), _set("--tensor-parallel-size", "{tp_of_stage}")),
        "sglang": (_set("--pp-size", "{stages}"), _set("--tp-size", "{tp_of_stage}")),
        "tensorrt-llm": (_set("--pp_size", "{stages}"), _set("--tp_size", "{tp_of_stage}")),
    },
    change=Change.STAGES,
)
NO_DRAFTING: Final = Remedy(
    text="turn drafting off",
    flags={
        "vllm": (_without("--speculative-config"),),
        "sglang": (_without("--speculative-algorithm"),),
        "tensorrt-llm": (_without("speculative_config.decoding_type"),),
        "llama.cpp": (_without("-md"),),
    },
    change=Change.NO_DRAFTING,
)
SHORTER_DRAFTS: Final = Remedy(
    text="draft fewer tokens in a round: infcalc speculate names the best length",
    flags={
        "vllm": (_set("--speculative-config", '{{"num_speculative_tokens": {best_drafts}, ...}}'),),
        "sglang": (_set("--speculative-num-steps", "{best_drafts}"),),
        "tensorrt-llm": (_set("speculative_config.max_draft_len", "{best_drafts}"),),
        "llama.cpp": (_set("--draft-max", "{best_drafts}"),),
    },
)
PREFIXES: Final = Remedy(
    text="put what prompts share (system text, tools, documents) first and unchanged, and send it to the same replica; "
    "infcalc prefix-cache tells from a trace how much can be found",
    flags={
        "vllm": (_set("--enable-prefix-caching"),),
        "sglang": (_without("--disable-radix-cache"),),
        "tensorrt-llm": (_set("kv_cache_config.enable_block_reuse", "true"),),
    },
    change=Change.HALF_CACHED,
)
NO_OFFLOAD: Final = Remedy(
    text="keep all weights on the GPU, where they fit",
    flags={"vllm": (_without("--cpu-offload-gb"),), "sglang": (_without("--cpu-offload-gb"),)},
    change=Change.NO_OFFLOAD,
)
