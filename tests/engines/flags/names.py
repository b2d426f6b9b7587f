"""Options that the table of engines may write, apart from it: by engine, as their own releases list them.

The shared reference on engines names those of memory, batching, ranks and drafting; what it leaves out, options of
processes and of the network, was read in the releases themselves.
"""

from __future__ import annotations

import re
from pathlib import Path

REFERENCE = Path(__file__).parents[4] / "shared" / "reference" / "engines.md"

BESIDE = {
    "vllm": (
        "--data-parallel-start-rank --dtype --enforce-eager --speculative-model --num-speculative-tokens "
        "--ngram-prompt-lookup-max --enable-lora --max-lora-rank --max-loras --language-model-only "
        "--distributed-executor-backend --nnodes --node-rank --master-addr --headless --served-model-name --host "
        "--port"
    ),
    "sglang": (
        "--enable-dp-attention --dtype --disable-cuda-graph --enable-lora --max-lora-rank --max-loras-per-batch "
        "--nnodes --node-rank --dist-init-addr --served-model-name --host --port"
    ),
    "tensorrt-llm": (
        "--host --port speculative_config.num_nextn_predict_layers speculative_config.speculative_model_dir"
    ),
    "llama.cpp": "-a --host --port",
}
"""Not in the reference. vLLM: arg_utils.py of 0.5.0 to 0.33.0; SGLang: server_args.py of 0.4.0 to 0.5.23; TensorRT-LLM:
``trtllm-serve`` of 0.18.2 and of 1.4, its blog on DeepSeek-R1; llama.cpp: the server's README."""


BROUGHT = (
    ("vllm", "--data-parallel-size", "0.8.2", "0.8.3"),
    ("vllm", "--kv-offloading-size", "0.11.0", "0.11.1"),
    ("vllm", "--decode-context-parallel-size", "0.10.1", "0.10.2"),
    ("vllm", "--kv-transfer-config", "0.6.4", "0.6.5"),
    ("vllm", "--language-model-only", "0.16.0", "0.17.0"),
    ("sglang", "--attn-dp-size", "0.5.21", "0.5.22"),
    ("sglang", "--dcp-size", "0.5.14", "0.5.15"),
    ("sglang", "--disaggregation-mode", "0.4.4", "0.4.6"),
)
"""The last release read without an option, and the first with it: of the releases themselves, not of the table."""


def names_in(text: str) -> frozenset[str]:
    """Every word of a text that may be an option or a key, ``--[no-]x`` as both."""
    found = set(re.findall(r"(?<![\w-])--?[A-Za-z][\w-]*", text))
    found |= {f"--{no}{name}" for name in re.findall(r"--\[no-\]([\w-]+)", text) for no in ("", "no-")}
    # `--disaggregation-transfer-backend`; keys of YAML stand without dashes.
    return frozenset(found | set(re.findall(r"[a-z_0-9A-Z]+", text)))
