"""Why each setting of a launch has its value: where it came from, and what the ledger makes of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.engines.rules import FractionBase
from infcalc.units import GIB, format_bytes

if TYPE_CHECKING:
    from infcalc.api.deployment import Deployment
    from infcalc.memory.ledger import Ledger
    from infcalc.spec.kv import KvFormat


def reasons_of(deployment: Deployment, form: KvFormat, book: Ledger, *, context_tokens: int) -> dict[str, str]:
    """Return a reason for each setting that a launch may write, by its name."""
    ranks, gpu, model = deployment.parallelism, deployment.gpu, deployment.model
    weights = format_bytes(book.line("weights").num_bytes)
    pool = format_bytes(book.kv_pool_bytes)
    origin = {item.name: item.origin for item in deployment.inputs}
    total = format_bytes(gpu.cuda_total_bytes)
    stored = f"{model.name} in {deployment.weights}"
    many = "one GPU" if ranks.num_gpus == 1 else f"each of {ranks.num_gpus} GPUs"
    split = f"{stored} leaves {weights} of weights on {many} of {total}"
    base = deployment.rules.fraction_base
    meant = "" if base is FractionBase.NONE else f", {base.value}"
    activation = format_bytes(book.line("activation").num_bytes)
    served = f"{book.sequences:,} sequences of {context_tokens:,} tokens fit"
    found = {
        "model": f"{model.name}: {origin['model']}",
        "tp": split,
        "pp": f"{ranks.pp} stages of layers: {split}",
        "dp": f"{ranks.dp} attention ranks, each with sequences and a KV cache of its own",
        "ep": f"whole experts over {ranks.ep} ranks",
        "dcp": f"{ranks.dcp} ranks of TP hold the same KV heads: each keeps 1/{ranks.dcp} of the positions",
        "weights": f"weights in {deployment.weights}: {origin['weights']}; {weights} per GPU",
        "dtype": f"{gpu.name} or the plan wants it",
        "kv_dtype": f"KV in {form.name}, {form.note}; a pool of {pool} per GPU, and {served}",
        "memory_fraction": f"{origin['memory_fraction']}{meant}; leaves {pool} per GPU for KV",
        "max_model_len": _length(deployment, book, origin["max_model_len"]),
        "max_num_seqs": f"{origin['max_num_seqs']}; {served}{_beyond(deployment, book)}",
        "max_num_batched_tokens": f"{origin['max_num_batched_tokens']}; {activation} of activation are counted for it",
        "block_tokens": f"{origin['block_tokens']}; the ledger counts blocks of {deployment.block_tokens} tokens",
        "prefix_caching": "asked for: every prompt is counted in full",
        "enforce_eager": "given (--enforce-eager): no memory for CUDA graphs is counted",
        "cpu_offload": f"given: {format_bytes(deployment.cpu_offload_bytes)} of each GPU's weights stay on the host",
        "kv_offload": f"given: {deployment.kv_offload_bytes / GIB:g} GiB of host memory for KV of all ranks",
        "lora": f"given: {deployment.additions.num_adapters} adapters up to rank {deployment.additions.lora_rank}",
        "text_only": "given (--text-only): towers are not profiled",
        "served_name": "given (--served-name)",
        "port": "given (--port), or a port of its own for each replica",
    }
    if deployment.num_draft_tokens:
        found["drafting"] = f"{deployment.num_draft_tokens} drafted tokens in a round; the draft is in the ledger"
    return found


def _beyond(deployment: Deployment, book: Ledger) -> str:
    """Return what becomes of the sequences between what fits and what may run."""
    if deployment.max_num_seqs <= book.sequences:
        return f", of which {deployment.max_num_seqs:,} run at once"
    return ", and more of that length wait"


def _length(deployment: Deployment, book: Ledger, origin: str) -> str:
    own = deployment.model.max_context_tokens
    length = deployment.max_model_len
    what = origin if own == length or origin.startswith("given") else f"shorter than the model's own {own or 0:,}"
    if not deployment.rules.checks_longest:
        return what
    return f"{what}; one such sequence needs {format_bytes(book.request_bytes)} of the pool, and must fit at the start"
