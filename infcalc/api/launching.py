"""The answer of ``launch``: the text that starts a deployment, each option with its reason and its meaning."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from infcalc.api.answer import Answer, distinct
from infcalc.api.deployment import Ask, kv_format, load, resolve, single_kv_dtype, stored_in
from infcalc.api.filling import DEFAULT_CONTEXT, Change, memory
from infcalc.api.launch_ask import LaunchAsk, Target, chosen_targets
from infcalc.api.launch_reasons import reasons_of
from infcalc.api.ledger import deployment_ledger, with_admitted_sequences
from infcalc.api.sizing import startable
from infcalc.engines.launch import scripts
from infcalc.engines.launch.containers import image_gap, is_path
from infcalc.engines.launch.kserve import kserve_gap, kserve_objects
from infcalc.engines.launch.manifests import kubernetes_gap, kubernetes_objects
from infcalc.engines.launch.server import server, shell_text
from infcalc.engines.launch.spec import Drafter, Drafting, LaunchSpec, Role
from infcalc.errors import UnknownName, UsageError
from infcalc.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from infcalc.api.deployment import Deployment
    from infcalc.catalog.lookup import Catalog
    from infcalc.engines.launch.server import Server
    from infcalc.engines.launch.want import Written
    from infcalc.spec.kv import KvFormat

_DOES_NOT_FIT = 3
_NGRAM_TOKENS = 3
_GGUF = "llama.cpp"


@frozen
class LaunchFlag:
    """One option: its value (None: a switch), why it has it, what it means in the engine, and where that was read."""

    flag: str
    value: str | int | float | bool | None
    why: str
    meaning: str
    source: str
    place: str
    role: str


@frozen
class LaunchFile:
    """A file to save: its name, what it is for, and its text."""

    name: str
    target: str
    content: str


@frozen
class LaunchResult:
    """What starts one deployment. ``command`` starts one replica; of a pair, first its prefill then its decode side.

    Empty, with no files and no flags, where the deployment does not fit: ``missing_bytes`` per GPU are lacking then,
    and ``changes`` would mend it.
    """

    model: str
    model_id: str
    gpu: str
    num_gpus: int
    num_replicas: int
    num_prefill_replicas: int
    engine: str
    engine_version: str
    kv_dtype: str
    context_tokens: int
    sequences: int
    kv_pool_bytes: int
    fits: bool
    missing_bytes: int
    command: str
    flags: tuple[LaunchFlag, ...]
    files: tuple[LaunchFile, ...]
    changes: tuple[Change, ...] = ()
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def launch(
    ask: Ask | None = None, how: LaunchAsk | None = None, *, contexts: tuple[int, ...] = ()
) -> Answer[LaunchResult]:
    """Return what starts the asked deployment, with the settings that the ledger counted with.

    Whether it fits is what :func:`infcalc.api.filling.memory` says of the same ask; exit code 3 when it does not.

    Raises:
        InfcalcError: any of its kinds, as :func:`infcalc.api.deployment.resolve`.
        UsageError: several models, GPUs, precisions or lengths; an unknown target.

    """
    ask, how = ask or Ask(), how or LaunchAsk()
    chosen_targets(how)
    for option, values in (("--model", ask.models), ("--gpu", ask.gpus), ("--context", contexts)):
        if len(values) > 1:
            raise UsageError(f"{len(values)} values", place=option, hint="one deployment is launched: give one")
    word = single_kv_dtype(ask)
    checked = memory(ask, contexts=contexts)
    book = checked.result
    catalog = load(ask)
    (asked,) = resolve(ask, catalog)
    deployment, _ = startable(asked)
    form, _, _ = kv_format(deployment, word)
    if deployment.rules.checks_longest:
        deployment = replace(deployment, max_model_len=book.max_model_len)
    deployment, _ = with_admitted_sequences(deployment, form, book.context_tokens)
    if book.fits:
        result = launched(
            deployment, form, how, context_tokens=book.context_tokens, catalog=catalog, draft_name=ask.draft_model
        )
    else:
        result = replace(_without_text(deployment, form, how, context_tokens=book.context_tokens), changes=book.changes)
    return Answer(
        command="launch",
        results=(result,),
        inputs=checked.inputs,
        assumptions=distinct([*result.notes, *checked.assumptions]),
        warnings=distinct([*checked.warnings, *result.warnings]),
        exit_code=0 if book.fits else _DOES_NOT_FIT,
    )


def launched(
    deployment: Deployment,
    form: KvFormat,
    how: LaunchAsk,
    *,
    context_tokens: int = DEFAULT_CONTEXT,
    catalog: Catalog | None = None,
    draft_name: str | None = None,
) -> LaunchResult:
    """Return the text that starts a deployment whose every setting is chosen; it does not ask whether it fits.

    ``draft_name`` is the draft beside the model, whose hub id the ``catalog`` knows.

    Raises:
        UsageError: a number of ``how`` is out of range, or an unknown target.

    """
    targets = chosen_targets(how)
    frame = _without_text(deployment, form, how, context_tokens=context_tokens)
    specs, said = _specs(deployment, form, how, context_tokens=context_tokens, draft=(draft_name, catalog))
    servers = [server(spec) for spec in specs]
    files: list[LaunchFile] = []
    notes: list[str] = []
    for target in targets:
        made, gap = _files(target, specs, servers, per_machine=deployment.gpu.max_per_machine)
        files += made
        if gap:
            notes.append(f"no {target} text: {gap}")
    return replace(
        frame,
        model_id=specs[0].model_id,
        command="\n".join(shell_text(one) for one in servers),
        flags=tuple(_flag(option, one.spec.role) for one in servers for option in one.options),
        files=_distinct(files),
        notes=tuple(notes),
        warnings=distinct([*said, *(text for one in servers for text in one.warnings), *_pair_warnings(specs)]),
    )


def _distinct(files: Sequence[LaunchFile]) -> tuple[LaunchFile, ...]:
    """Return each file once, with the first target that needs it."""
    found: dict[str, LaunchFile] = {}
    for file in files:
        found.setdefault(file.name, file)
    return tuple(found.values())


def save(result: LaunchResult, folder: str) -> tuple[str, ...]:
    """Write the files of a launch into ``folder``, which is made if need be, and return their paths.

    Raises:
        FileProblem: the folder or a file cannot be written.

    """
    from infcalc import files  # noqa: PLC0415 - only with --save

    files.make_folder(folder)
    paths = []
    for file in result.files:
        path = f"{folder.rstrip('/')}/{file.name}" if folder != "/" else f"/{file.name}"
        files.write_text(path, file.content)
        paths.append(path)
    return tuple(paths)


def _without_text(deployment: Deployment, form: KvFormat, how: LaunchAsk, *, context_tokens: int) -> LaunchResult:
    book = deployment_ledger(deployment, form, context_tokens=context_tokens)
    return LaunchResult(
        model=deployment.model.name,
        model_id=deployment.model.hf_id or deployment.model.name,
        gpu=deployment.gpu.name,
        num_gpus=deployment.parallelism.num_gpus,
        num_replicas=how.num_replicas,
        num_prefill_replicas=how.num_prefill_replicas,
        engine=deployment.rules.engine,
        engine_version=deployment.rules.version,
        kv_dtype=form.name,
        context_tokens=context_tokens,
        sequences=book.sequences,
        kv_pool_bytes=book.kv_pool_bytes,
        fits=book.fits,
        missing_bytes=book.missing_bytes,
        command="",
        flags=(),
        files=(),
    )


def _flag(option: Written, role: Role) -> LaunchFlag:
    return LaunchFlag(
        flag=option.flag,
        value=option.value,
        why=option.why,
        meaning=option.meaning,
        source=option.source,
        place=option.place.value,
        role=role.value,
    )


# From a deployment to what is launched ---------------------------------------------------------------------------


def _specs(
    deployment: Deployment,
    form: KvFormat,
    how: LaunchAsk,
    *,
    context_tokens: int,
    draft: tuple[str | None, Catalog | None],
) -> tuple[tuple[LaunchSpec, ...], list[str]]:
    """Return the server, or both sides of a pair, and what is doubtful about them."""
    rules, model, gpu = deployment.rules, deployment.model, deployment.gpu
    book = deployment_ledger(deployment, form, context_tokens=context_tokens)
    why = reasons_of(deployment, form, book, context_tokens=context_tokens)
    drafting, said = _drafting(deployment, how, *draft)
    if drafting is not None and drafting.drafter is Drafter.NGRAM:
        why["drafting"] = f"{drafting.num_draft_tokens} tokens that followed the same words before, in a round"
    if how.prefix_caching:
        why["prefix_caching"] = "asked for: beginnings of prompts that come again are found"
    if how.chunked_prefill is not None:
        why["chunked_prefill"] = "asked for"
    model_id, doubts = _model_id(deployment, how)
    said += doubts
    given = {item.name for item in deployment.inputs if item.origin.startswith("given")}
    by_layer = rules.engine == _GGUF
    stored = stored_in(model)
    profile = rules.profile
    # An engine that does not chunk sets its step by the longest sequence: the ledger does, too.
    own_step = profile.unchunked and "max_num_batched_tokens" not in given
    narrow = gpu.peak("bf16") is None and gpu.peak("fp16") is not None
    own_kv, _, _ = kv_format(deployment, None)
    plain = LaunchSpec(
        engine=rules.engine,
        version=rules.version,
        model_id=model_id,
        name=model.name.rpartition("/")[2] or model.name,
        vendor=gpu.vendor,
        parallelism=deployment.parallelism,
        has_experts=model.has_experts,
        num_layers=model.num_layers,
        num_replicas=how.num_replicas,
        num_machines=_machines(deployment),
        weights="" if by_layer or _is_stored(deployment, stored) else deployment.weights,
        stored=stored,
        dtype="fp16" if deployment.weights == "fp16" or narrow else "",
        kv_dtype="" if form.name == own_kv.name and "kv_dtype" not in given else form.name,
        memory_fraction=deployment.fraction,
        max_model_len=deployment.max_model_len,
        max_num_seqs=None
        if by_layer and "max_num_seqs" not in given and deployment.max_num_seqs == rules.scheduler.max_num_seqs
        else deployment.max_num_seqs,
        max_num_batched_tokens=None if own_step else deployment.max_num_batched_tokens,
        block_tokens=deployment.block_tokens
        if "block_tokens" in given or deployment.block_tokens != rules.block_tokens
        else None,
        prefix_caching=how.prefix_caching,
        chunked_prefill=how.chunked_prefill,
        enforce_eager=rules.cuda_graph_source.startswith("--enforce-eager"),
        drafting=drafting,
        cpu_offload_bytes=deployment.cpu_offload_bytes,
        kv_offload_bytes=deployment.kv_offload_bytes,
        lora_rank=deployment.additions.lora_rank,
        num_adapters=deployment.additions.num_adapters,
        text_only=bool(model.unmodelled) and not deployment.additions.with_encoder,
        served_name=how.served_name or "",
        port=how.port,
        reasons=why | dict(how.reasons),
    )
    if not how.num_prefill_replicas:
        return (plain,), said
    sides = []
    for role, number, other in (
        (Role.PREFILL, how.num_prefill_replicas, "hands its KV to a decode server"),
        (Role.DECODE, how.num_replicas, "takes the KV from a prefill server"),
    ):
        reasons = {"role": f"{role} side of a pair, {number} of them: {other}"} | why | dict(how.reasons)
        sides.append(replace(plain, role=role, num_replicas=number, is_paired=True, reasons=reasons))
    return tuple(sides), said


def _machines(deployment: Deployment) -> int:
    """Return the machines of a replica: the fewest that its GPUs divide into."""
    number, most = deployment.parallelism.num_gpus, deployment.gpu.max_per_machine
    least = math.ceil(number / most)
    return next(count for count in range(least, number + 1) if number % count == 0)


def _is_stored(deployment: Deployment, stored: str) -> bool:
    """Return whether the checkpoint holds the weights as they are asked; 16-bit types pass for each other."""
    whole = {"bf16", "fp16", "fp32"}
    if deployment.quantization is deployment.model.quantization or deployment.weights == stored:
        return True
    return deployment.weights in whole and stored in whole


def _model_id(deployment: Deployment, how: LaunchAsk) -> tuple[str, list[str]]:
    """Return the id or path of the model as an engine takes it, and what is doubtful about it."""
    model, engine = deployment.model, deployment.rules.engine
    place = next((origin for origin in deployment.model_origins.values() if is_path(origin)), "")
    if how.model_id or place:
        from infcalc import files  # noqa: PLC0415 - only for a model that is named, or on disk

        if how.model_id:
            return files.full_path(how.model_id), []
        folder = place.removesuffix("config.json").rstrip("/")
        return files.full_path(folder) or ("/" if place.startswith("/") else "."), []
    if engine == _GGUF:
        name = f"{model.name.rpartition('/')[2]}-{deployment.weights}.gguf"
        return f"./{name}", [f"llama.cpp takes a GGUF file: {name} stands for it (--model-id names yours)"]
    if model.hf_id:
        return model.hf_id, []
    if "/" in model.name:
        return model.name, []
    return model.name, [f"{model.name}: no hub id is known; --model-id says what the engine shall load"]


def _drafting(
    deployment: Deployment, how: LaunchAsk, draft_name: str | None, catalog: Catalog | None
) -> tuple[Drafting | None, list[str]]:
    if how.drafter is not None:
        return Drafting(drafter=Drafter.NGRAM, num_draft_tokens=how.num_draft_tokens or _NGRAM_TOKENS), []
    number = deployment.num_draft_tokens
    if not number:
        return None, []
    if draft_name is None:
        if deployment.with_mtp:
            return Drafting(drafter=Drafter.MTP, num_draft_tokens=number), []
        return None, [f"{number} draft tokens of no named draft: no way of drafting is written"]
    kind, model_id = Drafter.MODEL, draft_name
    if catalog is not None:
        try:
            head = catalog.draft(draft_name)
        except UnknownName:
            from infcalc import files  # noqa: PLC0415 - opening files is only needed here

            model_id = files.load_model(catalog, draft_name).model.hf_id or draft_name
        else:
            kind = Drafter.EAGLE3 if head.kind == "eagle3" else Drafter.EAGLE
            model_id = next((alias for alias in head.aliases if "/" in alias), draft_name)
    found = Drafting(drafter=kind, model_id=model_id, num_draft_tokens=number)
    if "/" in model_id:
        return found, []
    return found, [f"{draft_name}: no hub id of this draft is known; put that of yours in its place"]


def _pair_warnings(specs: Sequence[LaunchSpec]) -> list[str]:
    """Return what a pair lacks beside its two sides."""
    if len(specs) == 1:
        return []
    if specs[0].engine == "vllm":
        return [
            "vLLM's pair needs a proxy that asks a prefill server first; KServe and llm-d bring one (--target kserve)"
        ]
    return ["the router of the pair is in serve.sh; Kubernetes objects and docker lines hold the two sides alone"]


# Texts ------------------------------------------------------------------------------------------------------------


def _files(
    target: Target, specs: tuple[LaunchSpec, ...], servers: Sequence[Server], *, per_machine: int
) -> tuple[list[LaunchFile], str]:
    """Return the files of a target, or why there are none."""
    first = specs[0]
    gaps: dict[Target, Callable[[LaunchSpec], str]] = {
        Target.PYTHON: scripts.python_gap,
        Target.DOCKER: image_gap,
        Target.KUBERNETES: kubernetes_gap,
        Target.KSERVE: kserve_gap,
    }
    gap = gaps[target](first) if target in gaps else ""
    if gap:
        return [], gap
    match target:
        case Target.SHELL:
            text = scripts.shell_file(specs, per_machine=per_machine)
            return [LaunchFile(name="serve.sh", target=target, content=text), *_configs(target, specs, servers)], ""
        case Target.PYTHON:
            return [LaunchFile(name="serve.py", target=target, content=scripts.python_file(first))], ""
        case Target.DOCKER:
            text = scripts.docker_file(specs, per_machine=per_machine)
            return [LaunchFile(name="docker.sh", target=target, content=text), *_configs(target, specs, servers)], ""
        case Target.KUBERNETES:
            text = _manifests([_with_texts(one) for one in kubernetes_objects(specs)])
            return [LaunchFile(name="kubernetes.yaml", target=target, content=text)], ""
        case Target.KSERVE:
            text = _manifests([_with_texts(one) for one in kserve_objects(specs)])
            return [LaunchFile(name="kserve.yaml", target=target, content=text)], ""


def _configs(target: Target, specs: Sequence[LaunchSpec], servers: Sequence[Server]) -> list[LaunchFile]:
    """Return the YAML that commands name, where the engine has options only there."""
    found = [
        LaunchFile(name=one.config_name, target=target, content=_manifests([one.config]))
        for one in servers
        if one.config_name
    ]
    if len(specs) > 1 and specs[0].engine == "tensorrt-llm":
        text = _manifests([scripts.pair_config(specs)])
        found.append(LaunchFile(name="disaggregated.yaml", target=target, content=text))
    return found


def _with_texts(one: dict[str, object]) -> dict[str, object]:
    """Return an object with the values of a ConfigMap as texts, which is what Kubernetes takes."""
    data = one.get("data")
    if not isinstance(data, dict):
        return one
    return one | {"data": {name: _manifests([value]) for name, value in data.items()}}


def _manifests(values: Sequence[object]) -> str:
    from infcalc import files  # noqa: PLC0415 - only where YAML is written

    return files.manifest_text(values)
