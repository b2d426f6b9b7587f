"""How many tokens the KV pool of a deployment holds: what allocators and prefix caches are tried on."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from infcalc.api.ledger import deployment_ledger
from infcalc.errors import UsageError
from infcalc.frozen import frozen
from infcalc.memory.kv import constant_bytes, kv_components, slope_bytes_per_token
from infcalc.spec.explain import Input
from infcalc.units import format_bytes

if TYPE_CHECKING:
    from infcalc.api.deployment import Deployment
    from infcalc.spec.kv import KvFormat

MOST_TOKENS = 10**9


@frozen
class Pool:
    """Room for KV of one rank, in tokens; ``origin`` says where that comes from, ``warnings`` what it leaves out."""

    num_tokens: int
    origin: str
    kv_bytes_per_token: int | float
    """Whole model, unsharded; of a token in the window, where every layer has one."""
    state_bytes: int = 0
    """What a sequence takes whatever its length, whole model."""
    missing_bytes: int = 0
    """Per GPU, where the deployment does not fit."""
    warnings: tuple[str, ...] = ()

    @property
    def nothing_per_token(self) -> bool:
        """Whether the model keeps nothing per token: there are no pages."""
        return not self.kv_bytes_per_token

    @property
    def given(self) -> Input:
        """The pool as an input."""
        return Input(name="pool_tokens", value=self.num_tokens, origin=self.origin)


def pool_of(
    deployment: Deployment, form: KvFormat, *, longest_tokens: int, given_tokens: int | None, option: str
) -> Pool:
    """Return the pool of a deployment that admits sequences of ``longest_tokens``, or the given one (``option``).

    Raises:
        UsageError: the given pool is out of range.

    """
    parts = kv_components(deployment.model, form, with_mtp=deployment.with_mtp)
    per_token = slope_bytes_per_token(parts) or sum(part.bytes_per_token for part in parts)
    state = constant_bytes(parts)
    talk = _left_out(deployment, partial=state > 0 or any(part.window_tokens for part in parts), pages=per_token > 0)
    if given_tokens is not None:
        if not 1 <= given_tokens <= MOST_TOKENS:
            raise UsageError(
                f"{given_tokens} is out of range", place=option, hint=f"a number of tokens from 1 to {MOST_TOKENS:,}"
            )
        return Pool(
            num_tokens=given_tokens,
            origin=f"given ({option})",
            kv_bytes_per_token=per_token,
            state_bytes=state,
            warnings=talk,
        )
    book = deployment_ledger(deployment, form, context_tokens=longest_tokens)
    if not book.fits:
        # The longest that the model was made for may be more than anyone asks for here.
        admitting = replace(deployment, max_model_len=longest_tokens)
        book = deployment_ledger(admitting, form, context_tokens=longest_tokens)
    tokens = min(book.kv_cache_tokens, MOST_TOKENS) if book.fits else 0
    if not book.fits:
        where = f"{deployment.model.name} in {deployment.weights} on {deployment.parallelism.num_gpus} x "
        where += f"{deployment.gpu.name}: {format_bytes(book.missing_bytes)} per GPU are missing"
        hint = f"there is no KV pool; see `infcalc memory`, or give {option}"
        talk += (f"{where} for one sequence of {longest_tokens:,} tokens: {hint}",)
    return Pool(
        num_tokens=tokens,
        origin=f"KV pool of one rank, as {deployment.rules.engine} prints it",
        kv_bytes_per_token=per_token,
        state_bytes=state,
        missing_bytes=book.missing_bytes,
        warnings=talk,
    )


def _left_out(deployment: Deployment, *, partial: bool, pages: bool) -> tuple[str, ...]:
    if not pages or not partial:
        return ()
    return (
        (
            f"{deployment.model.name} has layers with a window or a state: here every sequence takes what the pool's "
            "tokens are counted in, whatever its length"
        ),
    )
