from __future__ import annotations

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infcalc.engines.logs.reader import GRAMMARS, looked_for, read_log
from infcalc.engines.logs.reading import EngineLog, FailureKind, Quantity
from infcalc.units import GIB, MIB
from tests.engines.logs import samples


def read(text: str) -> EngineLog:
    log = read_log(text)
    assert log is not None
    return log


def value(log: EngineLog, quantity: Quantity, unit: float = 1) -> float:
    figure = log.figure(quantity)
    assert figure is not None
    return figure.value / unit


def stated(log: EngineLog, name: str) -> object:
    setting = log.setting(name)
    return None if setting is None else setting.value


def test_v1_is_read_with_all_its_figures_and_settings() -> None:
    log = read(samples.V1_H100)
    assert (log.engine, log.version, log.starts) == ("vllm", "0.11.0", 1)
    expected = {
        Quantity.WEIGHTS: 14.9889,
        Quantity.POOL: 51.38,
        Quantity.ACTIVATION: 4.76,
        Quantity.NON_TORCH: 0.13,
        Quantity.GRAPHS: 0.61,
        Quantity.DEVICE_TOTAL: 79.18,
        Quantity.FREE_AT_START: 78.69,
        Quantity.USABLE: 71.26,
    }
    assert {quantity: round(value(log, quantity, GIB), 4) for quantity in expected} == expected
    assert value(log, Quantity.TOKENS) == 420_880
    assert value(log, Quantity.CONCURRENCY) == 25.69
    told = {name: stated(log, name) for name in ("model", "tp", "pp", "dtype", "memory_fraction", "max_model_len")}
    assert told == {
        "model": "meta-llama/Llama-3.1-8B-Instruct",
        "tp": 1,
        "pp": 1,
        "dtype": "bfloat16",
        "memory_fraction": 0.9,
        "max_model_len": 16384,
    }
    assert stated(log, "max_num_batched_tokens") == 8192
    assert stated(log, "quantization") is None


def test_every_figure_names_the_line_that_printed_it() -> None:
    lines = samples.V1_H100.splitlines()
    for figure in read(samples.V1_H100).figures:
        number = f"{figure.value / GIB:.4f}".rstrip("0") if figure.quantity.endswith("_bytes") else None
        line = lines[figure.line - 1].replace(",", "")
        assert (number or f"{figure.value:.2f}".removesuffix(".00")) in line


def test_v0_has_two_ranks_and_the_smaller_pool_governs() -> None:
    log = read(samples.V0_V100)
    assert (log.version, stated(log, "runner"), stated(log, "tp")) == ("0.7.3", "V0", 2)
    assert {figure.rank: figure.value / GIB for figure in log.of(Quantity.POOL)} == {"pid 240": 19.8, "": 19.4}
    assert log.governing_rank() == ""
    assert value(log, Quantity.NON_TORCH, GIB) == pytest.approx(0.65)
    assert value(log, Quantity.BLOCKS) == 45_402
    assert stated(log, "printed_fraction") == 0.9
    assert stated(log, "enforce_eager") is True


def test_the_line_of_0_2x_holds_tokens_and_concurrency_and_the_graphs_have_two_sizes() -> None:
    log = read(samples.GRAPHS_CHARGED)
    assert value(log, Quantity.TOKENS) == 217_568
    assert value(log, Quantity.CONCURRENCY) == 6.64
    assert value(log, Quantity.GRAPH_ESTIMATE, GIB) == 1.5
    assert value(log, Quantity.GRAPHS, GIB) == pytest.approx(0.9)
    assert log.governing_rank() == "TP1"
    assert value(log, Quantity.CONSUMED, GIB) == pytest.approx(35.12)
    assert stated(log, "memory_fraction") == 0.92


def test_sglang_is_read() -> None:
    log = read(samples.SGLANG)
    assert log.engine == "sglang"
    assert (stated(log, "model"), stated(log, "tp"), stated(log, "memory_fraction")) == ("Qwen/QwQ-32B", 4, 0.85)
    # The rank with least memory decides.
    assert value(log, Quantity.FREE_BEFORE_WEIGHTS, GIB) == pytest.approx(21.60)
    assert value(log, Quantity.WEIGHTS, GIB) == pytest.approx(15.54)
    assert value(log, Quantity.KEYS, GIB) == value(log, Quantity.VALUES, GIB) == pytest.approx(1.42)
    assert value(log, Quantity.TOKENS) == 46_500
    assert stated(log, "printed_length") == 131_072


def test_tensorrt_llm_is_read_and_the_pool_of_the_profiling_run_is_not_the_pool() -> None:
    log = read(samples.TENSORRT)
    assert (log.engine, log.version) == ("tensorrt-llm", "1.2.0")
    assert value(log, Quantity.POOL, GIB) == 54
    assert value(log, Quantity.TOKENS) == 442_368
    assert value(log, Quantity.BYTES_PER_TOKEN) == 131_072
    assert value(log, Quantity.TEMPORARY_KV, GIB) == 1
    assert (stated(log, "memory_fraction"), stated(log, "model")) == (0.9, "meta-llama/Llama-3.1-8B-Instruct")


def test_an_engine_of_tensorrt_llm_is_read() -> None:
    log = read(
        "[TensorRT-LLM][INFO] Engine version 0.16.0 found in the config file, assuming engine(s) built by new builder\n"
        "[TensorRT-LLM][INFO] Loaded engine size: 15323 MiB\n"
        "[TensorRT-LLM][INFO] Memory usage when calculating max tokens in paged kv cache: total: 31.84 GiB, "
        "available: 17.83 GiB\n"
        "[TensorRT-LLM][INFO] [MemUsageChange] Allocated 16.05 GiB for max tokens in paged KV cache (262944)\n"
    )
    assert log.version == "0.16.0"
    assert value(log, Quantity.WEIGHTS, MIB) == 15_323
    assert value(log, Quantity.FREE_FOR_KV, GIB) == pytest.approx(17.83)


def test_llama_cpp_is_read_in_mib_and_its_devices_add_up() -> None:
    log = read(samples.LLAMA_CPP)
    assert log.engine == "llama.cpp"
    assert {figure.rank: figure.value / MIB for figure in log.of(Quantity.WEIGHTS)} == {
        "CUDA0": 7605.33,
        "CPU_Mapped": 532.31,
    }
    assert value(log, Quantity.POOL, MIB) == 1088
    assert (stated(log, "kv_dtype"), stated(log, "max_model_len"), stated(log, "sequences")) == ("q8_0", 16384, 4)
    assert log.gpu_names == ("NVIDIA GeForce RTX 4090",)


def test_the_caches_of_a_sliding_window_model_add_up() -> None:
    log = read(
        "llama_kv_cache:      CUDA0 KV buffer size =   100.00 MiB\n"
        "llama_kv_cache: size =  100.00 MiB (  8192 cells,  12 layers,  1/1 seqs), K (f16):   50.00 MiB\n"
        "llama_kv_cache:      CUDA0 KV buffer size =     8.00 MiB\n"
        "llama_kv_cache: size =    8.00 MiB (   768 cells,  12 layers,  1/1 seqs), K (f16):    4.00 MiB\n"
    )
    assert value(log, Quantity.POOL, MIB) == 108
    assert value(log, Quantity.TOKENS) == 8192


def test_a_draft_model_of_llama_cpp_is_left_out_and_said() -> None:
    text = samples.LLAMA_CPP + samples.LLAMA_CPP.split("VMM: yes\n")[1].partition("\n")[2]
    log = read(text)
    assert value(log, Quantity.POOL, MIB) == 1088
    assert any("second model" in note for note in log.notes)


V0_LENGTH = """\
INFO Initializing an LLM engine (v0.6.0) with config: model='a/b'
ValueError: The model's max seq len (32768) is larger than the maximum number of tokens that can be stored in KV cache \
(19104). Try increasing it.
"""
OUT_OF_MEMORY = """\
INFO Initializing an LLM engine (v0.6.0) with config: model='a/b'
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.65 GiB of \
which 1.10 GiB is free.
"""


@pytest.mark.parametrize(
    ("text", "kind", "numbers"),
    [
        (samples.ONE_REQUEST, FailureKind.ONE_REQUEST, (40_960, 18_224, 10.0, 4.45)),
        (samples.FREE_MEMORY, FailureKind.FREE_MEMORY, (None, None, 71.23, 60.0)),
        (samples.NO_ROOM, FailureKind.NO_ROOM, (None, None, None, None)),
        (V0_LENGTH, FailureKind.ONE_REQUEST, (32_768, 19_104, None, None)),
        (OUT_OF_MEMORY, FailureKind.OUT_OF_MEMORY, (None, None, 2.0, None)),
    ],
    ids=["one request", "free memory", "no room", "V0 length", "out of memory"],
)
def test_refusals_are_read(text: str, kind: FailureKind, numbers: tuple[float | None, ...]) -> None:
    (failure,) = read(text).failures
    assert failure.kind is kind
    sizes = (None if size is None else size / GIB for size in (failure.needed_bytes, failure.available_bytes))
    assert (failure.max_model_len, failure.estimated_tokens, *sizes) == numbers


def test_a_negative_estimate_is_read_as_it_is_printed() -> None:
    assert value(read(samples.NEGATIVE_GRAPHS), Quantity.GRAPH_ESTIMATE, GIB) == -20.5


@pytest.mark.parametrize("text", [text for group in samples.ALL.values() for text in group])
def test_wrapping_changes_nothing(text: str) -> None:
    plain = read(text)
    rows = text.splitlines()
    docker = "\n".join(json.dumps({"log": f"{row}\n", "stream": "stdout"}) for row in rows)
    pod = "\n".join(f"\x1b[36m[pod/llm-0/engine]\x1b[0m 2026-01-01T00:00:00Z {row}" for row in rows)
    noisy = "\n".join(f"{row}\n" for row in rows).replace("\n", "\r\n")
    for wrapped in (docker, pod):
        other = read(wrapped)
        assert [(one.quantity, one.value, one.line) for one in other.figures] == [
            (one.quantity, one.value, one.line) for one in plain.figures
        ]
        assert {(one.name, one.value) for one in other.settings} >= {
            (one.name, one.value) for one in plain.settings if one.name != "served_name"
        }
    assert [(one.quantity, one.value) for one in read(noisy).figures] == [
        (one.quantity, one.value) for one in plain.figures
    ]


@pytest.mark.parametrize(("engine", "text"), [(name, text) for name, group in samples.ALL.items() for text in group])
def test_the_engine_is_told_by_its_lines(engine: str, text: str) -> None:
    assert read(text).engine == engine


def test_the_last_start_counts_and_the_others_are_told() -> None:
    first = samples.V1_H100.replace("51.38", "40.00").replace("420,880", "300,000")
    log = read(first + samples.V1_H100)
    assert value(log, Quantity.POOL, GIB) == pytest.approx(51.38)
    assert log.starts == 2
    assert any("2 starts" in text and "line " in text for text in log.left_out)


def test_a_start_that_printed_nothing_yields_to_the_one_before() -> None:
    text = samples.V1_H100 + samples.V1_H100.splitlines()[0]
    assert value(read(text), Quantity.TOKENS) == 420_880


def test_data_parallel_ranks_are_one_start() -> None:
    start = "(EngineCore_DP{0} pid=7{0}) INFO Initializing a V1 LLM engine (v0.11.0) with config: model='a/b'\n"
    pool = "(EngineCore_DP{0} pid=7{0}) INFO Available KV cache memory: 5{0}.00 GiB\n"
    log = read("".join(part.format(rank) for rank in range(2) for part in (start, pool)))
    assert log.starts == 1
    assert {figure.rank: figure.value / GIB for figure in log.of(Quantity.POOL)} == {"DP0": 50, "DP1": 51}


@pytest.mark.parametrize("text", ["", "hello", "a: 1\nb: 2", "{}", "GET /v1/models 200", "0" * 500, "\x00\x01"])
def test_what_is_no_log_is_none(text: str) -> None:
    assert read_log(text) is None


def test_an_error_can_say_which_lines_each_engine_is_known_by() -> None:
    told = looked_for()
    for grammar in GRAMMARS:
        assert grammar.engine in told
        assert all(words in told for words in grammar.looked_for)


def test_absurd_numbers_are_no_figures() -> None:
    log = read_log("Available KV cache memory: " + "9" * 400 + " GiB\nGPU KV cache size: 1,000 tokens")
    assert log is not None
    assert log.figure(Quantity.POOL) is None
    assert value(log, Quantity.TOKENS) == 1000


SAMPLES = [text for group in samples.ALL.values() for text in group]


@settings(max_examples=150, deadline=None)
@given(text=st.text(max_size=400))
def test_any_text_is_read_without_an_error(text: str) -> None:
    log = read_log(text)
    assert log is None or log.num_lines > 0


@settings(max_examples=150, deadline=None)
@given(
    sample=st.sampled_from(SAMPLES),
    cuts=st.lists(st.tuples(st.integers(0, 3000), st.text(max_size=12)), max_size=8),
    seed=st.integers(0, 2**16),
    shuffled=st.booleans(),
)
def test_a_mutilated_log_is_read_without_an_error(
    sample: str, cuts: list[tuple[int, str]], seed: int, shuffled: bool
) -> None:
    text = sample
    for position, inserted in cuts:
        at = position % (len(text) + 1)
        text = text[:at] + inserted + text[at + len(inserted) :]
    if shuffled:
        rows = text.splitlines()
        random.Random(seed).shuffle(rows)  # noqa: S311 - reproducible disorder, no secret
        text = "\n".join(rows)
    log = read_log(text)
    assert log is None or all(abs(figure.value) < 1e30 for figure in log.figures)


@pytest.mark.parametrize(
    ("text", "needed_bytes", "total_bytes"),
    [
        (
            "CUDA out of memory. Tried to allocate 594.00 MiB. GPU 0 has a total capacity of 79.18 GiB of",
            594 * MIB,
            79.18 * GIB,
        ),
        ("torch.cuda.OutOfMemoryError: HIP out of memory. Tried to allocate 1.16 GiB.", 1.16 * GIB, None),
        ("Exception: Capture cuda graph failed: CUDA out of memory. Tried to allocate 150.00 MiB.", 150 * MIB, None),
        ("RuntimeError: CUDA out of memory. Tried to allocate 20.00 KiB (GPU 0; 15.78 GiB total)", 20 * 1024, None),
        ("Tried: XPU out of memory. Tried to allocate 512 bytes.", 512, None),
        ("torch.OutOfMemoryError: CUDA out of memory.", None, None),
        ("RuntimeError: CUDA error: out of memory", None, None),
        ("RuntimeError: CUDA out of memory occurred when warming up sampler with 256 dummy requests.", None, None),
        ("[TensorRT-LLM][ERROR] CUDA runtime error in ::cudaMallocAsync(ptr, n, pool): out of memory", None, None),
        ("[TRT] [E] Requested amount of GPU memory (1048576 bytes) could not be allocated.", MIB, None),
    ],
)
@pytest.mark.parametrize("sample", [samples.V1_H100, samples.SGLANG, samples.TENSORRT])
def test_a_device_out_of_memory_is_seen_in_any_unit_and_without_one(
    sample: str, text: str, needed_bytes: float | None, total_bytes: float | None
) -> None:
    (failure,) = read(f"{sample}{text}\n").failures
    assert failure.kind is FailureKind.OUT_OF_MEMORY
    assert failure.needed_bytes == (None if needed_bytes is None else pytest.approx(needed_bytes))
    assert failure.total_bytes == (None if total_bytes is None else pytest.approx(total_bytes))


@pytest.mark.parametrize(
    "text",
    [
        "INFO If you run out of memory, try lowering gpu_memory_utilization.",
        "INFO to avoid CUDA out of memory set expandable_segments",
        "Tried to allocate shared memory for the message queue",
    ],
)
def test_advice_is_no_failure(text: str) -> None:
    assert read(f"{samples.V1_H100}{text}\n").failures == ()


def test_the_requests_of_a_warm_up_are_read() -> None:
    failures = read(samples.OUT_OF_MEMORY).failures
    assert [failure.num_dummy_requests for failure in failures] == [None, 1024]


def test_more_sequences_than_states_is_a_refusal() -> None:
    (failure,) = read(samples.STATES_REFUSED).failures
    assert (failure.kind, failure.max_num_seqs, failure.num_blocks) == (FailureKind.STATES, 9000, 5150)


def test_states_of_one_rank_add_up_on_one_line_only() -> None:
    more = "size: 22.55GB intermediate_ssm_state_cache size: 2.00GB intermediate_conv_window_cache size: 0.50GB "
    drafting = samples.SGLANG_STATES.replace("size: 22.55GB", more)
    assert value(read(samples.SGLANG_STATES), Quantity.STATE, GIB) == pytest.approx(23.59)
    assert value(read(drafting), Quantity.STATE, GIB) == pytest.approx(26.09)
    state = next(row for row in samples.SGLANG_STATES.splitlines() if "Mamba" in row)
    assert value(read(f"{samples.SGLANG_STATES}{state}\n"), Quantity.STATE, GIB) == pytest.approx(23.59)


def test_the_whole_of_two_pools_is_read() -> None:
    log = read(samples.SGLANG_WINDOWS)
    assert value(log, Quantity.POOL, GIB) == pytest.approx(52.12)
    assert value(log, Quantity.TOKENS) == 1_265_000
    assert stated(log, "window_pool") is True
    # The draft's pool comes after, and holds no more.
    draft = f"{samples.SGLANG_WINDOWS}[2026-03-10 12:02:00] KV Cache is allocated. #tokens: 900, K size: 1.00 GB, "
    assert value(read(f"{draft}V size: 1.00 GB\n"), Quantity.TOKENS) == 1_265_000


@pytest.mark.parametrize(
    ("seqs", "tokens", "sequences", "streams"),
    [("4/4", 16_384, 4, 4), ("4/1", 4096, 4, 1), ("2/ 2", 8192, 2, 2), ("3", 4096, 3, None)],
)
def test_cells_of_each_stream_are_counted(seqs: str, tokens: int, sequences: int, streams: int | None) -> None:
    row = (
        f"llama_kv_cache: size = 544.00 MiB (  4096 cells,  32 layers,  {seqs} seqs), K (f16): 1.00 MiB, V (f16): 1 MiB"
    )
    log = read(row)
    assert value(log, Quantity.TOKENS) == tokens
    assert (stated(log, "sequences"), stated(log, "streams")) == (sequences, streams)
