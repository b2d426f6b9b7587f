"""What shall be started, in the words of no engine."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from infcalc.frozen import frozen
from infcalc.spec.parallelism import Parallelism

if TYPE_CHECKING:
    from collections.abc import Mapping


class Role(StrEnum):
    """What a server does: all of a request, or one half of a disaggregated pair."""

    SERVER = "server"
    PREFILL = "prefill"
    DECODE = "decode"


class Drafter(StrEnum):
    """Who proposes tokens."""

    NGRAM = "ngram"
    MTP = "mtp"
    EAGLE = "eagle"
    EAGLE3 = "eagle3"
    MODEL = "draft-model"


@frozen
class Drafting:
    """Speculative decoding: who drafts, from which checkpoint, and how many tokens in a round."""

    drafter: Drafter
    model_id: str = ""
    num_draft_tokens: int


@frozen
class LaunchSpec:
    """One replica of a deployment, with every choice made; ``num_replicas`` of it run side by side.

    ``reasons`` say by the name of a setting why it has its value. Precisions are infcalc's words; an empty one means:
    what the checkpoint is stored in. None leaves a setting to the engine.
    """

    engine: str
    version: str
    model_id: str
    """Hub id, folder or GGUF file."""
    name: str
    """Short name, from which names of objects and files are made."""
    vendor: str
    parallelism: Parallelism
    has_experts: bool
    num_layers: int
    num_replicas: int = 1
    num_machines: int = 1
    """Machines of one replica."""
    role: Role = Role.SERVER
    is_paired: bool = False
    """A replica is one half of a pair: the other is started apart."""
    weights: str = ""
    stored: str = ""
    """What the checkpoint is stored in."""
    dtype: str = ""
    """Type of the tensors that are not quantized, where it is not the checkpoint's."""
    kv_dtype: str = ""
    memory_fraction: float | None = None
    max_model_len: int
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    block_tokens: int | None = None
    prefix_caching: bool | None = None
    chunked_prefill: bool | None = None
    enforce_eager: bool = False
    drafting: Drafting | None = None
    cpu_offload_bytes: int = 0
    kv_offload_bytes: int = 0
    lora_rank: int = 0
    num_adapters: int = 1
    text_only: bool = False
    served_name: str = ""
    host: str = ""
    port: int | None = None
    reasons: Mapping[str, str]

    def why(self, setting: str) -> str:
        """Return the reason of a setting."""
        return self.reasons.get(setting, "")

    @property
    def gpus_per_machine(self) -> int:
        """GPUs of a replica on each of its machines."""
        return self.parallelism.num_gpus // self.num_machines
