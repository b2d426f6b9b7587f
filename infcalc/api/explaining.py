"""How the figures of ``kv`` and ``concurrency`` came about: formula, substituted values, origin of each input."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from infcalc.api.sizing import deployment_budgets, fitting_room
from infcalc.engines.rules import FractionBase
from infcalc.frozen import frozen
from infcalc.lowering.cache import compressed_entry_bytes, indexer_entry_bytes, latent_entry_bytes
from infcalc.memory.kv import constant_bytes, kv_components
from infcalc.spec.explain import Explanation, Input
from infcalc.spec.kv import KV_FORMATS, KvFormat
from infcalc.spec.layers import CompressedAttention, GroupedAttention, LatentAttention, Mixer, Reach, RecurrentMixer

if TYPE_CHECKING:
    from infcalc.api.deployment import Deployment
    from infcalc.api.fitting import ConcurrencyResult
    from infcalc.api.sizing import KvResult
    from infcalc.memory.budget import Budget

_ACCOUNTING = "KV specs of vLLM (get_num_kv_heads), SGLang and TensorRT-LLM, which agree"


def explain_kv(deployment: Deployment, result: KvResult) -> tuple[Explanation, ...]:
    """Return one explanation per figure of ``kv``."""
    form = KV_FORMATS[result.kv_dtype]
    terms = _growing_terms(deployment, form)
    slope = Explanation(
        quantity="kv_bytes_per_token",
        formula=" + ".join(dict.fromkeys(term.formula for term in terms)) or "no layer grows without end",
        substituted=f"{' + '.join(term.substituted for term in terms) or '0'} = {result.kv_bytes_per_token:,}",
        inputs=(
            Input(name="KV format", value=form.name, origin=form.note),
            *(item for term in terms for item in term.inputs),
        ),
        source=_ACCOUNTING,
    )
    stages = deployment_budgets(deployment)
    sizes = tuple(_size(deployment, form, row.context_tokens, row.kv_bytes) for row in result.rows)
    rows = tuple(_fit(deployment, form, stages, row.context_tokens) for row in result.rows)
    governing = fitting_room(deployment, form, stages, result.rows[0].context_tokens).stage
    return (slope, *sizes, explain_pool(deployment, stages[governing]), *rows)


def explain_concurrency(deployment: Deployment, result: ConcurrencyResult) -> tuple[Explanation, ...]:
    """Return one explanation per figure of ``concurrency``."""
    stages = deployment_budgets(deployment)
    first = result.rows[0]
    governing = fitting_room(deployment, KV_FORMATS[first.kv_dtype], stages, first.context_tokens).stage
    rows = tuple(_fit(deployment, KV_FORMATS[row.kv_dtype], stages, row.context_tokens) for row in result.rows)
    return (explain_pool(deployment, stages[governing]), *rows)


def _size(deployment: Deployment, form: KvFormat, context_tokens: int, kv_bytes: int) -> Explanation:
    parts = kv_components(deployment.model, form, with_mtp=deployment.with_mtp)
    terms = [
        f"{part.entry_bytes:,} x {min(context_tokens, part.window_tokens or context_tokens) // part.tokens_per_entry:,}"
        for part in parts
        if part.entry_bytes
    ]
    state = constant_bytes(parts)
    return Explanation(
        quantity=f"kv_bytes at {context_tokens:,} tokens",
        formula="sum over parts of bytes per entry x whole entries of min(tokens, window), + kv_bytes_per_request",
        substituted=" + ".join([*terms, *([f"{state:,}"] if state else [])]) + f" = {kv_bytes:,}",
    )


def _fit(deployment: Deployment, form: KvFormat, stages: tuple[Budget, ...], context_tokens: int) -> Explanation:
    fits = fitting_room(deployment, form, stages, context_tokens)
    budget = stages[fits.stage]
    pool = budget.least_pool_bytes
    name = "pool of the least rank" if budget.behind_bytes else "kv_pool_bytes"
    dp = deployment.parallelism.dp
    if fits.pages is None:
        formula = f"floor({name} / bytes of the blocks of one sequence on that GPU) x attention-DP ranks"
        worked = f"floor({pool:,} / {fits.blocked_bytes:,})"
        if fits.held_back_bytes:
            formula = formula.replace(name, f"({name} - empty blocks)")
            worked = f"floor(({pool:,} - {fits.held_back_bytes:,}) / {fits.blocked_bytes:,})"
    else:
        pages = fits.pages
        pool = pages.paged_bytes
        named = name if pages.num_state_slots is None else f"{name} without the slots of recurrent states"
        formula = f"floor((floor({named} / page) - empty pages) / pages of one sequence)"
        worked = f"floor((floor({pool:,} / {pages.block_bytes:,}) - {pages.null_blocks}) / {pages.sequence_blocks:,})"
        if pages.num_state_slots is not None:
            formula, worked = f"min({formula}, slots)", f"min({worked}, {pages.num_state_slots:,})"
        formula += " x attention-DP ranks"
    return Explanation(
        quantity=f"sequences at {context_tokens:,} tokens, KV in {form.name}",
        formula=formula,
        substituted=f"{worked} x {dp} = {fits.sequences:,}",
        inputs=(
            Input(name="KV format", value=form.name, origin=form.note),
            Input(name="block_tokens", value=deployment.block_tokens, origin=f"{deployment.rules.engine}"),
            Input(name="pipeline stage", value=fits.stage, origin="the one with the least room"),
        ),
    )


def explain_pool(deployment: Deployment, budget: Budget) -> Explanation:
    """Return how the KV pool of a GPU came about, in the terms of its engine."""
    rules = deployment.rules
    origins = {item.name: item for item in deployment.inputs}
    gpu = deployment.gpu
    formula, substituted = _subtraction(deployment, budget)
    return Explanation(
        quantity="kv_pool_bytes",
        formula=f"{formula}; the engine's fraction is {rules.fraction_base.value}",
        substituted=f"{substituted} = {budget.kv_pool_bytes - budget.missing_bytes:,}",
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
                name="loading", value=budget.loading_bytes, origin="exact: rotary tables and idle ends of large tensors"
            ),
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


def _subtraction(deployment: Deployment, budget: Budget) -> tuple[str, str]:
    """Return the formula of the pool by what the engine's fraction is a fraction of, and the same with values."""
    total = f"{deployment.gpu.cuda_total_bytes:,}"
    weights, activation = f"{budget.weights_bytes:,}", f"{budget.activation.value_bytes:,}"
    weights = f"{weights} - {budget.loading_bytes:,}"
    buffers, graphs = f"{budget.non_torch.value_bytes:,}", f"{budget.cuda_graph_bytes:,}"
    share = f"{deployment.fraction:g}" if deployment.fraction is not None else "1"
    match deployment.rules.fraction_base:
        case FractionBase.TOTAL:
            return (
                "floor(CUDA total x fraction) - weights - loading - activation - buffers - CUDA graphs",
                f"floor({total} x {share}) - {weights} - {activation} - {buffers} - {graphs}",
            )
        case FractionBase.FREE_BEFORE_WEIGHTS:
            return (
                "floor((CUDA total - buffers) x fraction) - weights - loading",
                f"floor(({total} - {buffers}) x {share}) - {weights}",
            )
        case FractionBase.FREE_AFTER_WEIGHTS:
            return (
                "floor((CUDA total - weights - loading - activation - buffers - CUDA graphs) x fraction)",
                f"floor(({total} - {weights} - {activation} - {buffers} - {graphs}) x {share})",
            )
        case FractionBase.NONE:
            return (
                "CUDA total - weights - loading - activation - buffers",
                f"{total} - {weights} - {activation} - {buffers}",
            )
        case _:
            assert_never(deployment.rules.fraction_base)


@frozen
class _Term:
    """One addend of the slope: its formula, its values, and where they came from."""

    formula: str
    substituted: str
    inputs: tuple[Input, ...]


_CONFIG_KEYS = {
    "layers": "num_hidden_layers",
    "num_kv_heads": "num_key_value_heads",
    "value_head_dim": "v_head_dim",
    "indexer head_dim": "index_head_dim",
    "entry_dim": "head_dim",
    "compression": "compress_ratios",
}


def _growing_terms(deployment: Deployment, form: KvFormat) -> list[_Term]:
    """Return what grows without end, an addend per kind of mixer and one more for its indexer."""
    counted: dict[Mixer, int] = {}
    for run in deployment.model.layers:
        if run.layer.mixer is not None:
            counted[run.layer.mixer] = counted.get(run.layer.mixer, 0) + run.num_layers
    mtp = deployment.model.mtp
    if deployment.with_mtp and mtp is not None and mtp.layer.mixer is not None:
        counted[mtp.layer.mixer] = counted.get(mtp.layer.mixer, 0) + mtp.num_layers
    terms: list[_Term] = []
    for mixer, layers in counted.items():
        terms += _mixer_terms(deployment, mixer, layers, form)
    return terms


def _mixer_terms(deployment: Deployment, mixer: Mixer, layers: int, form: KvFormat) -> list[_Term]:
    def inputs(**values: object) -> tuple[Input, ...]:
        place = deployment.model_origins.get("layers", "its catalog entry")
        return tuple(
            Input(
                name=name.replace("__", " "),
                value=value,
                origin=f"{place}: {_CONFIG_KEYS.get(name, name)}" if place.endswith(".json") else place,
                source=deployment.model.source,
            )
            for name, value in values.items()
        )

    match mixer:
        case GroupedAttention(shares_kv=False, reach=Reach.FULL):
            value_dim = mixer.value_head_dim or mixer.head_dim
            key, value = form.vector_bytes(mixer.head_dim), form.vector_bytes(value_dim)
            own = _Term(
                formula="layers x num_kv_heads x (K bytes + V bytes)",
                substituted=f"{layers} x {mixer.num_kv_heads} x ({key} + {value})",
                inputs=inputs(
                    layers=layers,
                    num_kv_heads=mixer.num_kv_heads,
                    head_dim=mixer.head_dim,
                    value_head_dim=value_dim,
                ),
            )
            indexer = mixer.indexer
        case LatentAttention():
            own = _Term(
                formula="layers x bytes of one latent (kv_lora_rank + qk_rope_head_dim), K and V in one",
                substituted=f"{layers} x {latent_entry_bytes(mixer, form)}",
                inputs=inputs(layers=layers, kv_lora_rank=mixer.kv_lora_rank, qk_rope_head_dim=mixer.qk_rope_head_dim),
            )
            indexer = mixer.indexer
        case CompressedAttention() if mixer.compression:
            own = _Term(
                formula="layers x entry bytes / compression",
                substituted=f"{layers} x {compressed_entry_bytes(mixer, form)} / {mixer.compression}",
                inputs=inputs(layers=layers, entry_dim=mixer.entry_dim, compression=mixer.compression),
            )
            indexer = mixer.indexer
        case GroupedAttention() | CompressedAttention() | RecurrentMixer():
            return []
        case _:
            assert_never(mixer)
    if indexer is None or indexer.shared:
        return [own]
    keys = _Term(
        formula="layers x bytes of one indexer key / tokens per key",
        substituted=f"{layers} x {indexer_entry_bytes(indexer)} / {indexer.pool_tokens}",
        inputs=inputs(layers=layers, indexer__head_dim=indexer.head_dim),
    )
    return [own, keys]
