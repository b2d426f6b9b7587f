"""Small start-up logs in the shapes that engines print, written for these tests; figures follow from one another."""

from __future__ import annotations

V1_H100 = """\
INFO 08-05 12:00:06 [api_server.py:1755] vLLM API server version 0.11.0
INFO 08-05 12:00:06 [cli_args.py:261] non-default args: {'model_tag': 'meta-llama/Llama-3.1-8B-Instruct', \
'model': 'meta-llama/Llama-3.1-8B-Instruct', 'max_model_len': 16384, 'gpu_memory_utilization': 0.9}
INFO 08-05 12:00:12 [scheduler.py:205] Chunked prefill is enabled with max_num_batched_tokens=8192.
(EngineCore_DP0 pid=71) INFO 08-05 12:00:20 [core.py:77] Initializing a V1 LLM engine (v0.11.0) with config: \
model='meta-llama/Llama-3.1-8B-Instruct', speculative_config=None, tokenizer='other', dtype=torch.bfloat16, \
max_seq_len=16384, tensor_parallel_size=1, pipeline_parallel_size=1, data_parallel_size=1, quantization=None, \
enforce_eager=False, kv_cache_dtype=auto, compilation_config={"level":3,"cudagraph_capture_sizes":[512,504]}
Loading safetensors checkpoint shards: 100% Completed | 4/4 [00:03<00:00,  1.27it/s]
(EngineCore_DP0 pid=71) INFO 08-05 12:00:50 [gpu_model_runner.py:2653] Model loading took 14.9889 GiB and 3.8 seconds
(EngineCore_DP0 pid=71) INFO 08-05 12:01:05 [gpu_worker.py:298] Available KV cache memory: 51.38 GiB
(EngineCore_DP0 pid=71) INFO 08-05 12:01:05 [kv_cache_utils.py:1087] GPU KV cache size: 420,880 tokens
(EngineCore_DP0 pid=71) INFO 08-05 12:01:05 [kv_cache_utils.py:1091] Maximum concurrency for 16,384 tokens per \
request: 25.69x
(EngineCore_DP0 pid=71) INFO 08-05 12:01:30 [gpu_model_runner.py:3480] Graph capturing finished in 20 secs, took \
0.61 GiB
(EngineCore_DP0 pid=71) INFO 08-05 12:01:30 [gpu_worker.py:391] Free memory on device (78.69/79.18 GiB) on startup. \
Desired GPU memory utilization is (0.9, 71.26 GiB). Actual usage is 14.99 GiB for weight, 4.76 GiB for peak \
activation, 0.13 GiB for non-torch memory, and 0.61 GiB for CUDAGraph memory. Replace gpu_memory_utilization config \
with `--kv-cache-memory=54359738368` (50.63 GiB) to fit into requested memory. Current kv cache memory in use is \
51.38 GiB.
"""

V0_V100 = """\
INFO 02-01 10:00:00 llm_engine.py:234] Initializing a V0 LLM engine (v0.7.3) with config: \
model='/data/huggingface/hub/models--Qwen--Qwen2.5-7B-Instruct/snapshots/0a1b2c', speculative_config=None, \
dtype=torch.float16, max_seq_len=8192, tensor_parallel_size=2, pipeline_parallel_size=1, quantization=None, \
enforce_eager=True, kv_cache_dtype=auto
INFO 02-01 10:00:30 model_runner.py:1115] Loading model weights took 7.1217 GB
(VllmWorkerProcess pid=240) INFO 02-01 10:00:30 model_runner.py:1115] Loading model weights took 7.1217 GB
(VllmWorkerProcess pid=240) INFO 02-01 10:00:40 worker.py:267] the current vLLM instance can use total_gpu_memory \
(31.74GiB) x gpu_memory_utilization (0.90) = 28.57GiB
(VllmWorkerProcess pid=240) INFO 02-01 10:00:40 worker.py:267] model weights take 7.12GiB; non_torch_memory takes \
0.25GiB; PyTorch activation peak memory takes 1.40GiB; the rest of the memory reserved for KV Cache is 19.80GiB.
INFO 02-01 10:00:40 worker.py:267] the current vLLM instance can use total_gpu_memory (31.74GiB) x \
gpu_memory_utilization (0.90) = 28.57GiB
INFO 02-01 10:00:40 worker.py:267] model weights take 7.12GiB; non_torch_memory takes 0.65GiB; PyTorch activation \
peak memory takes 1.40GiB; the rest of the memory reserved for KV Cache is 19.40GiB.
INFO 02-01 10:00:41 executor_base.py:111] # cuda blocks: 45402, # CPU blocks: 9362
INFO 02-01 10:00:41 executor_base.py:116] Maximum concurrency for 8192 tokens per request: 88.68x
"""

GRAPHS_CHARGED = """\
(Worker_TP0 pid=514) INFO 07-12 02:35:02 [gpu_model_runner.py:5187] Model loading took 32.9 GiB memory and 9.1 seconds
(Worker_TP0 pid=514) INFO 07-12 02:35:26 [gpu_model_runner.py:6639] Estimated CUDA graph memory: 1.50 GiB total
(Worker_TP1 pid=515) INFO 07-12 02:35:26 [gpu_model_runner.py:6639] Estimated CUDA graph memory: 1.50 GiB total
(Worker_TP0 pid=514) INFO 07-12 02:35:26 [gpu_worker.py:538] Available KV cache memory: 34.00 GiB
(Worker_TP1 pid=515) INFO 07-12 02:35:26 [gpu_worker.py:538] Available KV cache memory: 33.20 GiB
(Worker_TP0 pid=514) INFO 07-12 02:35:26 [gpu_worker.py:553] CUDA graph memory profiling is enabled (default since \
v0.21.0). The current --gpu-memory-utilization=0.9200 is equivalent to --gpu-memory-utilization=0.9010 without CUDA \
graph memory profiling.
(EngineCore pid=500) INFO 07-12 02:35:27 [kv_cache_utils.py:2178] GPU KV cache size: 217,568 tokens, Maximum \
concurrency for 32,768 tokens per request: 6.64x
(Worker_TP0 pid=514) INFO 07-12 02:35:40 [gpu_worker.py:621] CUDA graph pool memory: 0.90 GiB (actual), 1.50 GiB \
(estimated), difference: 0.60 GiB (66.7%).
(Worker_TP1 pid=515) INFO 07-12 02:35:41 [gpu_worker.py:857] Free memory on device (78.65/79.15 GiB) on startup. \
Desired GPU memory utilization is (0.92, 72.82 GiB). Actual usage is 35.12 GiB for consumed memory (weights + \
non-torch), 4.50 GiB for peak activation, and 0.90 GiB for CUDAGraph memory. Current kv cache memory in use is \
33.2 GiB.
"""

SGLANG = """\
[2026-03-10 12:00:00] server_args=ServerArgs(model_path='Qwen/QwQ-32B', tokenizer_path='Qwen/QwQ-32B', \
skip_tokenizer_init=False, dtype='auto', kv_cache_dtype='auto', quantization=None, context_length=None, \
mem_fraction_static=0.85, max_running_requests=None, chunked_prefill_size=2048, page_size=1, tp_size=4, dp_size=1, \
pp_size=1, disable_cuda_graph=False, speculative_algorithm=None, json_model_override_args='{}')
[2026-03-10 12:00:10 TP0] Init torch distributed begin.
[2026-03-10 12:00:12 TP0] Load weight begin. avail mem=21.63 GB
[2026-03-10 12:00:12 TP1] Load weight begin. avail mem=21.60 GB
[2026-03-10 12:01:12 TP0] Load weight end. type=Qwen2ForCausalLM, dtype=torch.bfloat16, avail mem=6.09 GB, mem \
usage=15.54 GB.
[2026-03-10 12:01:12 TP1] Load weight end. type=Qwen2ForCausalLM, dtype=torch.bfloat16, avail mem=6.06 GB, mem \
usage=15.54 GB.
[2026-03-10 12:01:13 TP0] KV Cache is allocated. #tokens: 46500, K size: 1.42 GB, V size: 1.42 GB
[2026-03-10 12:01:13 TP1] KV Cache is allocated. #tokens: 46500, K size: 1.42 GB, V size: 1.42 GB
[2026-03-10 12:01:30 TP0] Capture cuda graph end. Time elapsed: 7.14 s. mem usage=0.86 GB. avail mem=2.10 GB.
[2026-03-10 12:01:31 TP0] max_total_num_tokens=46500, chunked_prefill_size=2048, max_prefill_tokens=16384, \
max_running_requests=2049, context_len=131072
[2026-03-10 12:02:00 TP0] Decode batch, #running-req: 1, #token: 120, token usage: 0.00
"""

TENSORRT = """\
[TensorRT-LLM] TensorRT-LLM version: 1.2.0
[01/16/2026-06:20:10] [TRT-LLM] [I] LLM Args:
model='meta-llama/Llama-3.1-8B-Instruct' tokenizer=None dtype='auto' tensor_parallel_size=1 max_batch_size=64 \
kv_cache_config=KvCacheConfig(enable_block_reuse=True, free_gpu_memory_fraction=None)
[TensorRT-LLM][INFO] Number of tokens per block: 32.
[TensorRT-LLM][INFO] [MemUsageChange] Allocated 1.00 GiB for max tokens in paged KV cache (8192).
[01/16/2026-06:20:17] [TRT-LLM] [I] Peak memory during memory usage profiling (torch + non-torch): 20.15 GiB, \
available KV cache memory when calculating max tokens: 54.00 GiB, fraction is set 0.9, kv size per token is 131072. \
device total memory 79.15 GiB, temporary kv cache memory during profiling 1.00 GiB
[01/16/2026-06:20:18] [TRT-LLM] [I] max_seq_len=131072, max_num_requests=64, max_num_tokens=8192, max_batch_size=64
[TensorRT-LLM][INFO] Number of blocks in KV cache primary pool: 13824
[TensorRT-LLM][INFO] [MemUsageChange] Allocated 54.00 GiB for max tokens in paged KV cache (442368).
"""

LLAMA_CPP = """\
ggml_cuda_init: found 1 CUDA devices:
  Device 0: NVIDIA GeForce RTX 4090, compute capability 8.9, VMM: yes
build: 4589 (eb7cf15a) with cc (Ubuntu 13.3.0) 13.3.0 for x86_64-linux-gnu
llama_model_load_from_file_impl: using device CUDA0 (NVIDIA GeForce RTX 4090) - 23674 MiB free
llama_model_loader: loaded meta data with 33 key-value pairs and 292 tensors from \
/models/Meta-Llama-3.1-8B-Instruct-Q8_0.gguf (version GGUF V3 (latest))
load_tensors: offloaded 33/33 layers to GPU
load_tensors:        CUDA0 model buffer size =  7605.33 MiB
load_tensors:   CPU_Mapped model buffer size =   532.31 MiB
llama_context: n_seq_max     = 4
llama_context: n_ctx         = 16384
llama_context: n_ctx_per_seq = 4096
llama_context: n_ubatch      = 512
llama_context: flash_attn    = 1
llama_kv_cache_unified:      CUDA0 KV buffer size =  1088.00 MiB
llama_kv_cache_unified: size = 1088.00 MiB (  4096 cells,  32 layers,  4/4 seqs), K (q8_0):  544.00 MiB, V (q8_0):  \
544.00 MiB
llama_context:      CUDA0 compute buffer size =   258.50 MiB
llama_context:  CUDA_Host compute buffer size =    40.01 MiB
"""

ONE_REQUEST = """\
INFO 08-05 12:00:20 [core.py:77] Initializing a V1 LLM engine (v0.11.0) with config: model='Qwen/Qwen3-32B', \
dtype=torch.bfloat16, max_seq_len=40960, tensor_parallel_size=1, quantization=None, kv_cache_dtype=auto
INFO 08-05 12:00:50 [gpu_model_runner.py:2653] Model loading took 61.03 GiB and 13.8 seconds
INFO 08-05 12:01:05 [gpu_worker.py:298] Available KV cache memory: 4.45 GiB
ValueError: To serve at least one request with the models's max seq len (40960), (10.00 GiB KV cache is needed, \
which is larger than the available KV cache memory (4.45 GiB). Based on the available memory, the estimated maximum \
model length is 18224. Try increasing `gpu_memory_utilization` or decreasing `max_model_len`.
"""

FREE_MEMORY = """\
INFO 08-05 12:00:20 [core.py:77] Initializing a V1 LLM engine (v0.11.0) with config: model='Qwen/Qwen3-8B', \
dtype=torch.bfloat16, max_seq_len=32768, tensor_parallel_size=1, quantization=None, kv_cache_dtype=auto
ValueError: Free memory on device (60.00/79.15 GiB) on startup is less than desired GPU memory utilization \
(0.9, 71.23 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes.
"""

NO_ROOM = """\
INFO 08-05 12:00:20 [core.py:77] Initializing a V1 LLM engine (v0.11.0) with config: \
model='meta-llama/Llama-3.3-70B-Instruct', dtype=torch.bfloat16, max_seq_len=8192, tensor_parallel_size=2, \
quantization=None, kv_cache_dtype=auto
INFO 08-05 12:00:50 [gpu_model_runner.py:2653] Model loading took 65.74 GiB and 33.8 seconds
ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing.
"""

NEGATIVE_GRAPHS = """\
INFO 08-02 [core.py:77] Initializing a V1 LLM engine (v0.26.0) with config: model='Qwen/Qwen3-30B-A3B-FP8', \
dtype=torch.bfloat16, max_seq_len=32768, tensor_parallel_size=1, quantization=fp8, kv_cache_dtype=auto
INFO 08-02 [cli_args.py:1] non-default args: {'gpu_memory_utilization': 0.8}
INFO 08-02 [gpu_model_runner.py:1] Model loading took 29.1 GiB memory and 40 seconds
INFO 08-02 [gpu_model_runner.py:1] Estimated CUDA graph memory: -20.50 GiB total
INFO 08-02 [gpu_worker.py:1] Available KV cache memory: 90.60 GiB
INFO 08-02 [gpu_model_runner.py:1] Graph capturing finished in 9 secs, took 0.73 GiB
"""

OUT_OF_MEMORY = """\
INFO 08-05 12:00:20 [core.py:77] Initializing a V1 LLM engine (v0.11.0) with config: model='Qwen/Qwen3-8B', \
dtype=torch.bfloat16, max_seq_len=8192, tensor_parallel_size=1, quantization=None, kv_cache_dtype=auto
INFO 08-05 12:00:21 [utils.py:233] non-default args: {'model': 'Qwen/Qwen3-8B', 'gpu_memory_utilization': 0.98}
INFO 08-05 12:00:50 [gpu_model_runner.py:2653] Model loading took 15.27 GiB and 13.8 seconds
INFO 08-05 12:01:05 [gpu_worker.py:298] Available KV cache memory: 56.40 GiB
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 594.00 MiB. GPU 0 has a total capacity of 79.18 GiB of \
which 300.00 MiB is free. Including non-PyTorch memory, this process has 78.88 GiB memory in use.
RuntimeError: CUDA out of memory occurred when warming up sampler with 1024 dummy requests. Please try lowering \
`max_num_seqs` or `gpu_memory_utilization` when initializing the engine.
"""

STATES_REFUSED = """\
INFO 07-01 12:00:20 [core.py:100] Initializing a V1 LLM engine (v0.30.0) with config: \
model='Qwen/Qwen3-Next-80B-A3B-Instruct', dtype=torch.bfloat16, max_seq_len=32768, tensor_parallel_size=2, \
quantization=None, kv_cache_dtype=auto
INFO 07-01 12:00:50 [gpu_model_runner.py:1] Model loading took 74.31 GiB memory and 33.8 seconds
INFO 07-01 12:01:05 [kv_cache_utils.py:1] Setting attention block size to 544 tokens to ensure that attention page \
size is >= mamba page size.
ValueError: max_num_seqs (9000) exceeds available Mamba cache blocks (5150). Each decode sequence requires one Mamba \
cache block, so CUDA graph capture cannot proceed. Please lower max_num_seqs to at most 5150 or increase \
gpu_memory_utilization.
"""

PIPELINE = """\
INFO 08-05 12:00:20 [core.py:77] Initializing a V1 LLM engine (v0.11.0) with config: \
model='meta-llama/Llama-3.1-8B-Instruct', dtype=torch.bfloat16, max_seq_len=32768, tensor_parallel_size=1, \
pipeline_parallel_size=3
(Worker_PP0 pid=1) INFO 08-05 12:00:50 [gpu_model_runner.py:2653] Model loading took 5.47 GiB and 22.1 seconds
(Worker_PP1 pid=2) INFO 08-05 12:00:50 [gpu_model_runner.py:2653] Model loading took 4.50 GiB and 22.1 seconds
(Worker_PP2 pid=3) INFO 08-05 12:00:50 [gpu_model_runner.py:2653] Model loading took 5.05 GiB and 22.1 seconds
(Worker_PP0 pid=1) INFO 08-05 12:01:05 [gpu_worker.py:298] Available KV cache memory: 64.60 GiB
(Worker_PP1 pid=2) INFO 08-05 12:01:05 [gpu_worker.py:298] Available KV cache memory: 65.60 GiB
(Worker_PP2 pid=3) INFO 08-05 12:01:05 [gpu_worker.py:298] Available KV cache memory: 60.10 GiB
INFO 08-05 12:01:05 [kv_cache_utils.py:1087] GPU KV cache size: 1,539,360 tokens
"""

SGLANG_STATES = """\
[2026-03-10 12:00:00] server_args=ServerArgs(model_path='Qwen/Qwen3-Next-80B-A3B-Instruct', tp_size=2, \
mem_fraction_static=0.9, chunked_prefill_size=8192)
[2026-03-10 12:00:12 TP0] Load weight begin. avail mem=137.90 GB
[2026-03-10 12:01:12 TP0] Load weight end. type=Qwen3NextForCausalLM, dtype=torch.bfloat16, avail mem=63.59 GB, mem \
usage=74.31 GB.
[2026-03-10 12:01:13 TP0] Mamba Cache is allocated. max_mamba_cache_size: 1285, conv_state size: 1.04GB, ssm_state \
size: 22.55GB
[2026-03-10 12:01:13 TP0] KV Cache is allocated. #tokens: 2291000, K size: 13.11 GB, V size: 13.11 GB
[2026-03-10 12:01:31 TP0] max_total_num_tokens=2291000, chunked_prefill_size=8192, max_prefill_tokens=16384, \
max_running_requests=1285, context_len=262144
"""

SGLANG_WINDOWS = """\
[2026-03-10 12:00:00] server_args=ServerArgs(model_path='openai/gpt-oss-20b', tp_size=1, mem_fraction_static=0.83, \
chunked_prefill_size=8192)
[2026-03-10 12:00:12] Load weight begin. avail mem=78.45 GB
[2026-03-10 12:00:42] Load weight end. type=GptOssForCausalLM, dtype=torch.bfloat16, avail mem=65.48 GB, mem \
usage=12.97 GB.
[2026-03-10 12:00:43] Use sliding window memory pool. full_layer_tokens=1265000, swa_layer_tokens=1012000
[2026-03-10 12:00:43] KV Cache is allocated. #tokens: 1012000, K size: 11.58 GB, V size: 11.58 GB
[2026-03-10 12:00:43] KV Cache is allocated. #tokens: 1265000, K size: 14.48 GB, V size: 14.48 GB
[2026-03-10 12:00:43] SWAKVPool mem usage: 52.12 GB, swa size: 1012000, full size: 1265000
[2026-03-10 12:01:31] max_total_num_tokens=1265000, chunked_prefill_size=8192, max_prefill_tokens=16384, \
max_running_requests=4096, context_len=131072
"""

LLAMA_WINDOWS = """\
llama_model_loader: loaded meta data with 43 key-value pairs and 808 tensors from /models/gemma-3-27b-it.gguf \
(version GGUF V3 (latest))
print_info: file type   = Q4_K - Medium
load_tensors: offloaded 63/63 layers to GPU
load_tensors:        CUDA0 model buffer size = 15745.00 MiB
load_tensors:   CPU_Mapped model buffer size =  1102.50 MiB
llama_context: n_seq_max     = 4
llama_context: n_ctx         = 32768
llama_context: n_ubatch      = 512
llama_context: kv_unified    = true
llama_kv_cache_iswa: creating non-SWA KV cache, size = 32768 cells
llama_kv_cache:      CUDA0 KV buffer size =  2560.00 MiB
llama_kv_cache: size = 2560.00 MiB ( 32768 cells,  10 layers,  4/1 seqs), K (f16): 1280.00 MiB, V (f16): 1280.00 MiB
llama_kv_cache_iswa: creating     SWA KV cache, size = 4608 cells
llama_kv_cache:      CUDA0 KV buffer size =  1872.00 MiB
llama_kv_cache: size = 1872.00 MiB (  4608 cells,  52 layers,  4/1 seqs), K (f16):  936.00 MiB, V (f16):  936.00 MiB
"""

TENSORRT_OLD = """\
[TensorRT-LLM][INFO] TensorRT-LLM version: 0.16.0
[TensorRT-LLM][INFO] Loaded engine size: 15320 MiB
[TensorRT-LLM][INFO] Memory usage when calculating max tokens in paged kv cache: total: 79.15 GiB, available: 55.00 GiB
[TensorRT-LLM][INFO] Number of blocks in KV cache primary pool: 6336
[TensorRT-LLM][INFO] [MemUsageChange] Allocated 49.50 GiB for max tokens in paged KV cache (405504).
"""

ALL = {
    "vllm": (
        *(V1_H100, V0_V100, GRAPHS_CHARGED, ONE_REQUEST, FREE_MEMORY, NO_ROOM, NEGATIVE_GRAPHS),
        *(OUT_OF_MEMORY, STATES_REFUSED, PIPELINE),
    ),
    "sglang": (SGLANG, SGLANG_STATES, SGLANG_WINDOWS),
    "tensorrt-llm": (TENSORRT, TENSORRT_OLD),
    "llama.cpp": (LLAMA_CPP, LLAMA_WINDOWS),
}
