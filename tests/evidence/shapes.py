"""Small texts of each shape that the readers know, made for these tests: no figure in them was measured."""

from __future__ import annotations

import json
from typing import Any

from infcalc.evidence.nouns import Format

VLLM_SERVE: dict[str, Any] = {
    "date": "20260102-030405",
    "backend": "vllm",
    "model_id": "meta-llama/Llama-3.1-8B-Instruct",
    "tokenizer_id": "meta-llama/Llama-3.1-8B-Instruct",
    "num_prompts": 40,
    "gpu_name": "NVIDIA-H100-PCIe",
    "gpu_count": "1",
    "tensor_parallel_size": 1,
    "request_rate": 4.0,
    "burstiness": 1.0,
    "max_concurrency": None,
    "duration": 10.0,
    "completed": 40,
    "total_input_tokens": 8000,
    "total_output_tokens": 4000,
    "request_throughput": 4.0,
    "request_goodput:": 3.5,
    "output_throughput": 400.0,
    "total_token_throughput": 1200.0,
    "mean_ttft_ms": 30.0,
    "median_ttft_ms": 28.0,
    "std_ttft_ms": 4.0,
    "p99_ttft_ms": 45.0,
    "mean_tpot_ms": 9.0,
    "median_tpot_ms": 8.9,
    "p99_tpot_ms": 12.0,
    "mean_itl_ms": 9.1,
    "p99_itl_ms": 21.0,
    "mean_e2el_ms": 921.0,
}
SGLANG_SERVE: dict[str, Any] = {
    "tag": None,
    "backend": "sglang",
    "dataset_name": "random",
    "request_rate": "trace",
    "max_concurrency": 16,
    "sharegpt_output_len": None,
    "random_input_len": 1024,
    "random_output_len": 128,
    "random_range_ratio": 1.0,
    "server_info": {"model_path": "Qwen/Qwen3-8B", "tp_size": 2, "version": "0.5.4", "kv_cache_dtype": "auto"},
    "duration": 20.0,
    "completed": 100,
    "total_input_tokens": 102400,
    "total_output_tokens": 12800,
    "total_output_tokens_retokenized": 12790,
    "request_throughput": 5.0,
    "input_throughput": 5120.0,
    "output_throughput": 640.0,
    "total_throughput": 5760.0,
    "mean_e2e_latency_ms": 3000.0,
    "median_e2e_latency_ms": 2900.0,
    "mean_ttft_ms": 200.0,
    "median_ttft_ms": 180.0,
    "mean_tpot_ms": 22.0,
    "p99_tpot_ms": 30.0,
    "mean_itl_ms": 22.5,
    "max_itl_ms": 300.0,
    "concurrency": 15.0,
    "accept_length": None,
}
LATENCY: dict[str, Any] = {
    "avg_latency": 2.5,
    "latencies": [2.4, 2.5, 2.6],
    "percentiles": {"10": 2.42, "50": 2.5, "90": 2.58, "99": 2.598},
    "batch_size": 8,
    "input_len": 512,
    "output_len": 128,
}
THROUGHPUT: dict[str, Any] = {
    "input": 128,
    "output": 256,
    "elapsed_time": 16.0,
    "num_requests": 64,
    "total_num_tokens": 24576,
    "requests_per_second": 4.0,
    "tokens_per_second": 1536.0,
}


def _spread(mean: float) -> dict[str, Any]:
    points = {"p001": 0.5, "p01": 0.6, "p05": 0.7, "p10": 0.8, "p25": 0.9, "p50": 0.95, "p75": 1.1}
    points |= {"p90": 1.3, "p95": 1.4, "p99": 1.8, "p999": 1.9}
    return {
        "successful": {
            "mean": mean,
            "median": 0.95 * mean,
            "std_dev": 0.2 * mean,
            "min": 0.5 * mean,
            "max": 2 * mean,
            "percentiles": {name: factor * mean for name, factor in points.items()},
        },
        "errored": {"mean": 0.0, "median": 0.0},
    }


def guidellm(version: str) -> dict[str, Any]:
    return {
        "metadata": {"version": 1, "guidellm_version": version},
        "args": {"backend": {"kind": "openai_http", "model": "Qwen/Qwen3-8B"}},
        "benchmarks": [
            {
                "type_": "generative_benchmark",
                "config": {"strategy": {"type_": "concurrent", "streams": 8, "max_concurrency": 8}},
                "scheduler_metrics": {"requests_made": {"successful": 80, "errored": 1, "incomplete": 2, "total": 83}},
                "metrics": {
                    "request_totals": {"successful": 80, "errored": 1, "incomplete": 2, "total": 83},
                    "requests_per_second": _spread(4.0),
                    "request_concurrency": _spread(7.9),
                    "request_latency": _spread(2.0),
                    "prompt_token_count": _spread(256.0),
                    "output_token_count": _spread(101.0),
                    "time_to_first_token_ms": _spread(100.0),
                    "time_per_output_token_ms": _spread(19.8),
                    "inter_token_latency_ms": _spread(19.0),
                    "output_tokens_per_second": _spread(404.0),
                    "tokens_per_second": _spread(1428.0),
                },
                "duration": 20.0,
            }
        ],
    }


_POINTS = {"min": 0.5, "p1": 0.6, "p50": 0.95, "p90": 1.3, "p99": 1.8, "max": 2.0}


def _metric(unit: str, mean: float) -> dict[str, Any]:
    return {"unit": unit, "avg": mean, **{name: factor * mean for name, factor in _POINTS.items()}, "std": 0.2 * mean}


AIPERF: dict[str, Any] = {
    "schema_version": "1.0",
    "aiperf_version": "0.13.0",
    "request_throughput": {"unit": "requests/sec", "avg": 5.0},
    "request_latency": _metric("ms", 3000.0),
    "request_count": {"unit": "requests", "avg": 100},
    "time_to_first_token": _metric("ms", 200.0),
    "inter_token_latency": _metric("ms", 22.0),
    "output_token_throughput": {"unit": "tokens/sec", "avg": 640.0},
    "output_token_throughput_per_user": _metric("tokens/sec/user", 45.0),
    "output_sequence_length": _metric("tokens", 128.0),
    "input_sequence_length": _metric("tokens", 1024.0),
    "benchmark_duration": {"unit": "sec", "avg": 20.0},
    "error_request_count": {"unit": "requests", "avg": 2},
    "input_config": {"endpoint": {"model_names": ["Qwen/Qwen3-8B"]}, "loadgen": {"concurrency": 16}},
}
GENAI_PERF: dict[str, Any] = {
    "request_throughput": {"unit": "requests/sec", "avg": 5.0},
    "request_latency": _metric("ms", 3000.0),
    "time_to_first_token": _metric("ms", 200.0),
    "inter_token_latency": _metric("ms", 22.0),
    "output_token_throughput": {"unit": "tokens/sec", "avg": 640.0},
    "output_sequence_length": _metric("tokens", 128.0),
    "input_sequence_length": _metric("tokens", 1024.0),
    "input_config": {
        "model_names": ["Qwen/Qwen3-8B"],
        "endpoint": {"backend": "vllm"},
        "perf_analyzer": {"stimulus": {"concurrency": 16}},
    },
}


def _seconds(mean: float) -> dict[str, float]:
    return {"mean": mean, "min": 0.5 * mean, "p1": 0.6 * mean, "median": 0.95 * mean, "p99": 1.8 * mean}


INFERENCE_PERF: dict[str, Any] = {
    "load_summary": {
        "count": 600,
        "schedule_delay": {"mean": 0.0002, "min": -0.001},
        "send_duration": 60.0,
        "requested_rate": 10.0,
        "achieved_rate": 10.0,
    },
    "successes": {
        "count": 600,
        "latency": {
            "request_latency": _seconds(1.05),
            "normalized_time_per_output_token": _seconds(0.0165),
            "time_per_output_token": _seconds(0.0075),
            "time_to_first_token": _seconds(0.05),
            "inter_token_latency": _seconds(0.0075),
        },
        "throughput": {
            "input_tokens_per_sec": 2000.0,
            "output_tokens_per_sec": 640.0,
            "total_tokens_per_sec": 2640.0,
            "requests_per_sec": 10.0,
        },
        "prompt_len": {"mean": 200.0, "min": 190.0},
        "output_len": {"mean": 64.0, "min": 60.0},
    },
    "failures": {"count": 0, "request_latency": None},
}
TRTLLM: dict[str, Any] = {
    "engine": {
        "model": "meta-llama/Llama-3.1-8B",
        "model_path": None,
        "engine_dir": None,
        "version": "1.1.0",
        "backend": "Pytorch",
        "dtype": "bfloat16",
        "kv_cache_dtype": None,
        "quantization": "FP8",
        "max_sequence_length": 4096,
    },
    "machine": {"name": "NVIDIA H100 80GB HBM3", "memory.total": 79.6, "clocks.mem": 2.619},
    "world_info": {
        "tp_size": 2,
        "pp_size": 1,
        "ep_size": None,
        "world_size": 2,
        "max_batch_size": 256,
        "max_num_tokens": 8192,
        "issue_rate": 1.0526e15,
    },
    "request_info": {
        "num_requests": 512,
        "avg_num_concurrent_requests": 64.0,
        "avg_input_length": 1000.0,
        "avg_output_length": 200.0,
    },
    "performance": {
        "total_latency_ms": 20480.0,
        "avg_request_latency_ms": 2500.0,
        "request_throughput_req_s": 25.0,
        "system_output_throughput_tok_s": 5000.0,
        "system_total_throughput_tok_s": 30000.0,
        "output_throughput_per_user_tok_s": 80.0,
        "output_throughput_per_gpu_tok_s": 2500.0,
        "request_latency_percentiles_ms": {"p50": 2450.0, "p90": 2700.0, "minimum": 2000.0, "average": 2500.0},
    },
    "streaming_metrics": {
        "token_output_speed_tok_s": 90.0,
        "avg_ttft_ms": 100.0,
        "avg_tpot_ms": 12.0,
        "tpot_percentiles": {"p50": 11.9, "p99": 14.0},
        "ttft_percentiles": {"p50": 90.0, "p99": 400.0},
    },
}
_LLAMA: dict[str, Any] = {
    "build_commit": "abc1234",
    "build_number": 6500,
    "gpu_info": "NVIDIA GeForce RTX 4090",
    "model_filename": "Llama-3.1-8B-Instruct-Q4_K_M.gguf",
    "model_type": "llama 8B Q4_K - Medium",
    "model_size": 4920733696,
    "model_n_params": 8030261312,
    "n_batch": 2048,
    "n_ubatch": 512,
    "type_k": "f16",
    "type_v": "f16",
    "n_gpu_layers": 99,
    "flash_attn": True,
    "n_prompt": 512,
    "n_gen": 0,
    "n_depth": 0,
    "avg_ns": 51200000,
    "stddev_ns": 100000,
    "avg_ts": 10000.0,
    "stddev_ts": 20.0,
}
LLAMA: list[dict[str, Any]] = [
    _LLAMA,
    _LLAMA | {"n_prompt": 0, "n_gen": 128, "avg_ns": 1280000000, "avg_ts": 100.0, "stddev_ts": 0.5},
]
ENGINE_TRACE: list[dict[str, Any]] = [
    {
        "request_id": f"bench-{number}",
        "input_toks": 100 + number,
        "output_toks": 11,
        "arrival_time": 1000.0 + number,
        "queued_ts": 50.0 + number,
        "scheduled_ts": 50.0 + number,
        "first_token_ts": 50.1 + number,
        "last_token_ts": 50.3 + number,
    }
    for number in range(4)
]

SERVE_TEXT = """\
Traffic request rate: 4.0
Burstiness factor: 1.0 (Poisson process)
Maximum request concurrency: None
============ Serving Benchmark Result ============
Successful requests:                     40
Failed requests:                         0
Benchmark duration (s):                  10.00
Total input tokens:                      8000
Total generated tokens:                  4000
Request throughput (req/s):              4.00
Output token throughput (tok/s):         400.00
Peak output token throughput (tok/s):    600.00
Peak concurrent requests:                9.00
Total Token throughput (tok/s):          1200.00
---------------Time to First Token----------------
Mean TTFT (ms):                          30.00
Median TTFT (ms):                        28.00
P99 TTFT (ms):                           45.00
-----Time per Output Token (excl. 1st token)------
Mean TPOT (ms):                          9.00
Median TPOT (ms):                        8.90
P99 TPOT (ms):                           12.00
---------------Inter-token Latency----------------
Mean ITL (ms):                           9.10
Median ITL (ms):                         8.80
P99 ITL (ms):                            21.00
==================================================
"""
SGLANG_TEXT = """\
============ Serving Benchmark Result ============
Backend:                                 sglang
Traffic request rate:                    inf
Max request concurrency:                 16
Successful requests:                     100
Benchmark duration (s):                  20.00
Total input tokens:                      102400
Total generated tokens:                  12800
Request throughput (req/s):              5.00
Input token throughput (tok/s):          5120.00
Output token throughput (tok/s):         640.00
Total token throughput (tok/s):          5760.00
Concurrency:                             15.00
----------------End-to-End Latency----------------
Mean E2E Latency (ms):                   3000.00
Median E2E Latency (ms):                 2900.00
---------------Time to First Token----------------
Mean TTFT (ms):                          200.00
---------------Inter-Token Latency----------------
Mean ITL (ms):                           22.50
Max ITL (ms):                            300.00
==================================================
"""
TRTLLM_TEXT = """\
===========================================================
= ENGINE DETAILS
===========================================================
Model:                  meta-llama/Llama-3.1-8B
TensorRT-LLM Version:   1.1.0
===========================================================
= REQUEST DETAILS
===========================================================
Number of requests:             512
Number of concurrent requests:  64.0000
Average Input Length (tokens):  1000.0000
Average Output Length (tokens): 200.0000
===========================================================
= WORLD + RUNTIME INFORMATION
===========================================================
TP Size:                2
PP Size:                1
EP Size:                None
Max Runtime Batch Size: 256
Max Runtime Tokens:     8192
Issue Rate (req/sec):   1.0526E+15
===========================================================
= PERFORMANCE OVERVIEW
===========================================================
Request Throughput (req/sec):                     25.0000
Total Output Throughput (tokens/sec):             5000.0000
Total Token Throughput (tokens/sec):              30000.0000
Total Latency (ms):                               20480.0000
Average request latency (ms):                     2500.0000
Average time-to-first-token [TTFT] (ms):          100.0000
Average time-per-output-token [TPOT] (ms):        12.0000

[TPOT] P50    : 11.9000
[TPOT] P99    : 14.0000
[Latency] MAXIMUM: 2900.0000
"""
AIPERF_CSV = """\
Metric,avg,min,max,sum,p1,p5,p10,p25,p50,p75,p90,p95,p99,std
Time to First Token (ms),200.00,100.00,400.00,,120.00,,,,190.00,,260.00,,360.00,40.00
Inter Token Latency (ms),22.00,11.00,44.00,,13.20,,,,20.90,,28.60,,39.60,4.40
Request Latency (ms),"3,000.00","1,500.00","6,000.00",,,,,,"2,850.00",,,,"5,400.00",600.00
Output Sequence Length (tokens),128.00,64.00,256.00,,,,,,,,,,,
Input Sequence Length (tokens),"1,024.00",512.00,"2,048.00",,,,,,,,,,,

Metric,Value
Benchmark Duration (sec),20.00
Output Token Throughput (tokens/sec),640.00
Request Count,100.00
Request Throughput (requests/sec),5.00
"""
_OLD_HEAD = ["Type", "Run Id", "Id", "Name", "Start Time", "End Time", "Duration", "Successful Requests"]
_OLD_ROW = [
    "generative_benchmark",
    "1",
    "2",
    "concurrent@8",
    "2026-01-02 03:04:05",
    "2026-01-02 03:04:25",
    "20.0",
    "80",
]
_OLD_METRICS = {
    "Requests per second": 4.0,
    "Request latency": 2.0,
    "Prompt token count": 256.0,
    "Output token count": 101.0,
    "Time to first token ms": 100.0,
    "Time per output token ms": 18.9,
    "Inter token latency ms": 19.0,
    "Output tokens per second": 404.0,
}
_ELEVEN = (0.5, 0.55, 0.6, 0.7, 0.8, 0.9, 1.1, 1.3, 1.4, 1.8, 2.0)


def _cell(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if "," in text or '"' in text else text


def _line(cells: list[str]) -> str:
    return ",".join(_cell(cell) for cell in cells) + "\n"


def guidellm_csv_old() -> str:
    head, row = list(_OLD_HEAD), list(_OLD_ROW)
    for name, mean in _OLD_METRICS.items():
        words = ("mean", "median", "std dev", "[min, 0.1, 1, 5, 10, 25, 75, 90, 95, 99, max]")
        head += [f"Successful {name} {word}" for word in words]
        row += [f"{mean}", f"{0.95 * mean}", f"{0.2 * mean}", str([factor * mean for factor in _ELEVEN])]
    return _line(head) + _line(row)


def guidellm_csv_new() -> str:
    columns: list[tuple[str, str, str, str]] = [
        ("Run Info", "Backend", "", '{"type_": "openai_http", "model": "Qwen/Qwen3-8B"}'),
        ("Run Info", "Profile", "", '{"type_": "concurrent", "strategy_types": ["concurrent"], "streams": [8]}'),
        ("Benchmark", "Strategy", "", "concurrent"),
        ("Timings", "Duration", "Sec", "20.0"),
        ("Request Counts", "Successful", "", "80"),
        ("Request Counts", "Errored", "", "1"),
        ("Request Counts", "Total", "", "83"),
    ]
    metrics = (
        ("Request Latency", "Sec", 2.0),
        ("Time to First Token", "ms", 100.0),
        ("Time per Output Token", "ms", 19.8),
        ("Inter Token Latency", "ms", 19.0),
        ("Server Throughput", "Requests/Sec", 4.0),
        ("Token Metrics", "Input Tokens", 256.0),
        ("Token Metrics", "Output Tokens", 101.0),
        ("Token Throughput", "Output Tokens/Sec", 404.0),
    )
    for group, name, mean in metrics:
        for word, value in (("Mean", mean), ("Median", 0.95 * mean), ("Std Dev", 0.2 * mean)):
            columns.append((group, f"Successful {name}", word, f"{value}"))
        columns.append((group, f"Successful {name}", "Percentiles", str([factor * mean for factor in _ELEVEN])))
    columns.append(("Runtime Info", "Metadata", "", '{"version": 1, "guidellm_version": "0.5.4"}'))
    return "".join(_line([column[level] for column in columns]) for level in range(4))


LLAMA_MARKDOWN = """\
| model                          |       size |     params | backend    | ngl |            test |                  t/s |
| ------------------------------ | ---------: | ---------: | ---------- | --: | --------------: | -------------------: |
| llama 8B Q4_K - Medium         |   4.58 GiB |     8.03 B | CUDA       |  99 |           pp512 |     10000.00 ± 20.00 |
| llama 8B Q4_K - Medium         |   4.58 GiB |     8.03 B | CUDA       |  99 |   tg128 @ d4096 |        100.00 ± 0.50 |

build: abc1234 (6500)
"""
PROMETHEUS = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="Qwen/Qwen3-8B"} 12.0
vllm:num_requests_waiting{engine="0",model_name="Qwen/Qwen3-8B"} 3.0
vllm:kv_cache_usage_perc{engine="0",model_name="Qwen/Qwen3-8B"} 0.75
vllm:prefix_cache_queries_total{engine="0",model_name="Qwen/Qwen3-8B"} 10000.0
vllm:prefix_cache_hits_total{engine="0",model_name="Qwen/Qwen3-8B"} 2500.0
vllm:num_preemptions_total{engine="0",model_name="Qwen/Qwen3-8B"} 4.0
vllm:prompt_tokens_total{engine="0",model_name="Qwen/Qwen3-8B"} 20000.0
vllm:generation_tokens_total{engine="0",model_name="Qwen/Qwen3-8B"} 10000.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.1",model_name="Qwen/Qwen3-8B"} 60.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.2",model_name="Qwen/Qwen3-8B"} 100.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf",model_name="Qwen/Qwen3-8B"} 100.0
vllm:time_to_first_token_seconds_count{engine="0",model_name="Qwen/Qwen3-8B"} 100.0
vllm:time_to_first_token_seconds_sum{engine="0",model_name="Qwen/Qwen3-8B"} 9.0
vllm:inter_token_latency_seconds_count{engine="0",model_name="Qwen/Qwen3-8B"} 9900.0
vllm:inter_token_latency_seconds_sum{engine="0",model_name="Qwen/Qwen3-8B"} 198.0
vllm:request_prompt_tokens_count{engine="0",model_name="Qwen/Qwen3-8B"} 100.0
vllm:request_prompt_tokens_sum{engine="0",model_name="Qwen/Qwen3-8B"} 20000.0
vllm:cache_config_info{block_size="16",num_gpu_blocks="2588",gpu_memory_utilization="0.9"} 1.0
"""
PROMETHEUS_SGLANG = """\
sglang:num_running_reqs{model_name="Qwen/Qwen3-8B"} 20.0
sglang:num_queue_reqs{model_name="Qwen/Qwen3-8B"} 5.0
sglang:token_usage{model_name="Qwen/Qwen3-8B"} 0.98
sglang:cache_hit_rate{model_name="Qwen/Qwen3-8B"} 0.1
sglang:gen_throughput{model_name="Qwen/Qwen3-8B"} 900.0
sglang:max_total_num_tokens{model_name="Qwen/Qwen3-8B"} 400000.0
sglang:time_to_first_token_seconds_count{model_name="Qwen/Qwen3-8B"} 50.0
sglang:time_to_first_token_seconds_sum{model_name="Qwen/Qwen3-8B"} 25.0
"""
VLLM_LOG = """\
INFO 01-02 03:04:05 [loggers.py:118] Engine 000: Avg prompt throughput: 512.0 tokens/s, Avg generation throughput: \
640.5 tokens/s, Running: 16 reqs, Waiting: 2 reqs, GPU KV cache usage: 42.5%, Prefix cache hit rate: 12.0%
INFO 01-02 03:04:15 [loggers.py:118] Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: \
700.0 tokens/s, Running: 16 reqs, Waiting: 0 reqs, GPU KV cache usage: 50.0%, Prefix cache hit rate: 12.5%
INFO 01-02 03:04:15 [metrics.py:96] SpecDecoding metrics: Mean acceptance length: 2.50, Accepted throughput: 420.00 \
tokens/s, Drafted throughput: 840.00 tokens/s, Accepted: 4200 tokens, Drafted: 8400 tokens, Per-position acceptance \
rate: 0.800, 0.500, 0.200, Avg Draft acceptance rate: 50.0%
"""
SGLANG_LOG = """\
[2026-01-02 03:04:05 TP0] Prefill batch, #new-seq: 2, #new-token: 4096, #cached-token: 128, token usage: 0.10, \
#running-req: 8, #queue-req: 3, input throughput (token/s): 20000.00
[2026-01-02 03:04:06 TP0] Decode batch, #running-req: 10, #token: 20480, token usage: 0.12, cuda graph: True, \
gen throughput (token/s): 450.00, #queue-req: 0
[2026-01-02 03:04:07 TP0] Decode batch, #running-req: 10, #token: 20490, token usage: 0.12, accept len: 2.10, \
cuda graph: False, gen throughput (token/s): 455.00, #queue-req: 1
"""


def _csv_of(rows: list[dict[str, Any]]) -> str:
    quoted = [",".join('"' + str(value) + '"' for value in row.values()) for row in rows]
    return "\n".join([",".join(rows[0]), *quoted]) + "\n"


def _lines(rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


OBJECTS: dict[str, tuple[Format, Any]] = {
    "vllm serve": (Format.VLLM_SERVE, VLLM_SERVE),
    "vllm serve, wrapped": (
        Format.VLLM_SERVE,
        {"gpu": "NVIDIA-H100-PCIe", "gpu_count": 1, "engine": "vllm", "engine_version": "0.8.5", "result": VLLM_SERVE},
    ),
    "sglang": (Format.SGLANG_SERVE, SGLANG_SERVE),
    "vllm latency": (Format.VLLM_LATENCY, LATENCY),
    "vllm throughput": (Format.VLLM_THROUGHPUT, THROUGHPUT),
    "guidellm 0.3": (Format.GUIDELLM, guidellm("0.3.1")),
    "guidellm 0.8": (Format.GUIDELLM, guidellm("0.8.1")),
    "aiperf": (Format.AIPERF, AIPERF),
    "genai-perf": (Format.AIPERF, GENAI_PERF),
    "inference-perf": (Format.INFERENCE_PERF, INFERENCE_PERF),
    "trtllm-bench": (Format.TRTLLM_BENCH, TRTLLM),
}
"""Files of one JSON object."""
TEXTS: dict[str, tuple[Format, str]] = {
    **{name: (form, json.dumps(value, indent=1)) for name, (form, value) in OBJECTS.items()},
    "two objects in one file": (Format.VLLM_SERVE, json.dumps(VLLM_SERVE) + json.dumps(VLLM_SERVE, indent=1)),
    "sglang lines": (Format.SGLANG_SERVE, _lines([SGLANG_SERVE, SGLANG_SERVE])),
    "llama-bench": (Format.LLAMA_BENCH, json.dumps(LLAMA, indent=1)),
    "llama-bench lines": (Format.LLAMA_BENCH, _lines(LLAMA)),
    "llama-bench csv": (Format.LLAMA_BENCH_CSV, _csv_of(LLAMA)),
    "llama-bench markdown": (Format.LLAMA_BENCH_MARKDOWN, LLAMA_MARKDOWN),
    "engine trace": (Format.ENGINE_TRACE, _lines(ENGINE_TRACE)),
    "serve text": (Format.SERVE_TEXT, SERVE_TEXT),
    "sglang text": (Format.SERVE_TEXT, SGLANG_TEXT),
    "trtllm text": (Format.TRTLLM_TEXT, TRTLLM_TEXT),
    "aiperf csv": (Format.AIPERF_CSV, AIPERF_CSV),
    "guidellm csv 0.3": (Format.GUIDELLM_CSV, guidellm_csv_old()),
    "guidellm csv 0.5": (Format.GUIDELLM_CSV, guidellm_csv_new()),
    "vllm metrics": (Format.PROMETHEUS, PROMETHEUS),
    "sglang metrics": (Format.PROMETHEUS, PROMETHEUS_SGLANG),
    "vllm log": (Format.INTERVAL_LOG, VLLM_LOG),
    "sglang log": (Format.INTERVAL_LOG, SGLANG_LOG),
}
