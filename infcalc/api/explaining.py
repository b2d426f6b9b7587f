"""How the figures of ``kv`` and ``concurrency`` came about: formula, substituted values, origin of each input."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from infcalc.api.sizing import deployment_budgets
from infcalc.spec.explain import Explanation, Input
from infcalc.spec.kv import KV_FORMATS, KvFormat
from infcalc.spec.layers import CompressedAttention, GroupedAttention, LatentAttention, Mixer, Reach, RecurrentMixer

if TYPE_CHECKING:
    from infcalc.api.deployment import Deployment
    from infcalc.api.fitting import ConcurrencyResult
    from infcalc.api.sizing import KvResult

_ACCOUNTING = "KV specs of vLLM (get_num_kv_heads), SGLang and TensorRT-LLM, which agree"


def explain_kv(deployment: Deployment, result: KvResult) -> tuple[Explanation, ...]:
    """Return one explanation per figure of ``kv``."""
    form = KV_FORMATS[result.kv_dtype]
    model_origin = deployment.model_origins.get("layers", "its catalog entry")
    terms: list[str] = []
    inputs: list[Input] = [Input(name="KV format", value=form.name, origin=form.note)]
    formulas: list[str] = []
    counted: dict[Mixer, int] = {}
    for run in deployment.model.layers:
        if run.layer.mixer is not None:
            counted[run.layer.mixer] = counted.get(run.layer.mixer, 0) + run.num_layers
    for mixer, layers in counted.items():
        formula, term, parts = _growing(mixer, layers, form)
        if term:
            formulas.append(formula)
            terms.append(term)
            inputs += [
                Input(name=name, value=value, origin=model_origin, source=deployment.model.source)
                for name, value in parts
            ]
    slope = Explanation(
        quantity="kv_bytes_per_token",
        formula=" + ".join(dict.fromkeys(formulas)) or "no layer grows without end",
        substituted=f"{' + '.join(terms) or '0'} = {result.kv_bytes_per_token:,}",
        inputs=tuple(inputs),
        source=_ACCOUNTING,
    )
    sizes = tuple(
        Explanation(
            quantity=f"kv_bytes at {row.context_tokens:,} tokens",
            formula="sum over parts of bytes_per_token x min(tokens, window) + kv_bytes_per_request",
            substituted=" + ".join(
                [
                    f"{part.bytes_per_token:,} x {min(row.context_tokens, part.window_tokens or row.context_tokens):,}"
                    for part in result.kv_components
                    if part.bytes_per_token
                ]
                + ([f"{result.kv_bytes_per_request:,}"] if result.kv_bytes_per_request else [])
            )
            + f" = {row.kv_bytes:,}",
        )
        for row in result.rows
    )
    rows = tuple(
        Explanation(
            quantity=f"sequences at {row.context_tokens:,} tokens",
            formula="floor(KV pool per GPU / bytes of one sequence there), whole blocks, the fullest stage decides",
            substituted=f"{result.kv_pool_bytes:,} / {row.kv_bytes_per_gpu:,} = {row.sequences:,}",
        )
        for row in result.rows
    )
    return (slope, *sizes, _pool(deployment), *rows)


def explain_concurrency(deployment: Deployment, result: ConcurrencyResult) -> tuple[Explanation, ...]:
    """Return one explanation per figure of ``concurrency``."""
    rows = tuple(
        Explanation(
            quantity=f"sequences at {row.context_tokens:,} tokens, KV in {row.kv_dtype}",
            formula="floor(kv_pool_bytes / bytes of one sequence on that GPU), whole blocks",
            substituted=f"{row.kv_pool_bytes:,} / {row.kv_bytes_per_gpu:,} = {row.sequences:,}",
            inputs=(Input(name="KV format", value=row.kv_dtype, origin=row.note),),
        )
        for row in result.rows
    )
    return (_pool(deployment), *rows)


def _pool(deployment: Deployment) -> Explanation:
    budget = min(deployment_budgets(deployment), key=lambda stage: stage.kv_pool_bytes)
    rules = deployment.rules
    origins = {item.name: item for item in deployment.inputs}
    gpu = deployment.gpu
    return Explanation(
        quantity="kv_pool_bytes",
        formula=(
            "usable - weights - activation - buffers - CUDA graphs; the engine's fraction is "
            + rules.fraction_base.value
        ),
        substituted=(
            f"{budget.usable_bytes:,} - {budget.weights_bytes:,} - {budget.activation.value_bytes:,} - "
            f"{budget.non_torch.value_bytes:,} - {budget.cuda_graph_bytes:,} -> {budget.kv_pool_bytes:,}"
        ),
        inputs=(
            Input(
                name="CUDA total",
                value=gpu.cuda_total_bytes,
                origin=(
                    "estimated from its family"
                    if gpu.cuda_total_estimated
                    else deployment.gpu_origins.get("cuda_total", "its catalog entry")
                ),
                source=gpu.source,
            ),
            origins["memory_fraction"],
            Input(name="weights", value=budget.weights_bytes, origin="exact: the tensors of the model, sharded"),
            Input(
                name="activation",
                value=budget.activation.value_bytes,
                origin="modelled",
                source=budget.activation.source,
            ),
            Input(
                name="buffers", value=budget.non_torch.value_bytes, origin="modelled", source=budget.non_torch.source
            ),
            Input(name="CUDA graphs", value=budget.cuda_graph_bytes, origin="modelled", source=rules.cuda_graph_source),
        ),
        source=rules.fraction_source,
    )


def _growing(mixer: Mixer, layers: int, form: KvFormat) -> tuple[str, str, list[tuple[str, object]]]:
    """Return formula, substituted term and inputs of what grows without end in ``layers`` layers of this mixer."""
    match mixer:
        case GroupedAttention(shares_kv=False, reach=Reach.FULL):
            value_dim = mixer.value_head_dim or mixer.head_dim
            key, value = form.vector_bytes(mixer.head_dim), form.vector_bytes(value_dim)
            return (
                "layers x num_kv_heads x (K bytes + V bytes)",
                f"{layers} x {mixer.num_kv_heads} x ({key} + {value})",
                [
                    ("layers", layers),
                    ("num_kv_heads", mixer.num_kv_heads),
                    ("head_dim", mixer.head_dim),
                    ("value_head_dim", value_dim),
                ],
            )
        case LatentAttention():
            return (
                "layers x bytes of (kv_lora_rank + qk_rope_head_dim), K and V in one",
                f"{layers} x bytes({mixer.kv_lora_rank} + {mixer.qk_rope_head_dim})",
                [
                    ("layers", layers),
                    ("kv_lora_rank", mixer.kv_lora_rank),
                    ("qk_rope_head_dim", mixer.qk_rope_head_dim),
                    ("indexer head_dim", mixer.indexer.head_dim if mixer.indexer else 0),
                ],
            )
        case CompressedAttention() if mixer.compression:
            return (
                "layers x entry bytes / compression",
                f"{layers} x bytes({mixer.entry_dim}) / {mixer.compression}",
                [("layers", layers), ("entry_dim", mixer.entry_dim), ("compression", mixer.compression)],
            )
        case GroupedAttention() | CompressedAttention() | RecurrentMixer():
            return "", "", []
        case _:
            assert_never(mixer)
