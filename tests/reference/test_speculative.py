"""Two transformers that draft and verify over real blocks: the same tokens as without any cache, or without drafts."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infcalc.errors import CacheOverflow
from infcalc.kvcache.manager import KvCacheManager
from infcalc.kvcache.radix_manager import RadixCacheManager
from infcalc.reference.arithmetic import BATCHED
from infcalc.reference.branches import END, Branches
from infcalc.reference.cache import NoCache, PagedCache
from infcalc.reference.mixers import Segment
from infcalc.reference.speculative import DynamicProposer, LookupProposer, Proposer, StaticProposer, generated
from infcalc.reference.transformer import Transformer
from infcalc.reference.weights import blurred, random_weights
from infcalc.spec.layers import LayerRun
from infcalc.spec.model import Model
from infcalc.speculation import exact
from infcalc.speculation.branching import Siblings
from infcalc.speculation.dynamic_tree import DynamicTree
from infcalc.speculation.exact import Laws, Tokens, tempered
from infcalc.speculation.ngram import PromptLookup
from infcalc.speculation.rounds import Round, chain_round, dynamic_round, lookup_round, tree_round, written
from infcalc.speculation.tree import TreeShape, chain, full_tree
from tests.reference.models import DENSE, GQA, MAX_TOKENS, MODELS, model, transformer
from tests.speculation.laws import chi_square_z, law_of_continuations, numbered
from tests.speculation.test_tree import shapes

BLOCK = 4
NAMES = ("gqa", "qk-norm", "sliding", "chunked", "moe", "mla")
PROMPT = [7, 3, 11, 7, 3, 11, 7, 3]
EAGLE2 = DynamicTree(num_expanded=2, max_depth=3, num_nodes=5)


@cache
def blurred_one(name: str, noise_fraction: float) -> Transformer:
    return Transformer(MODELS[name], blurred(random_weights(MODELS[name], seed=7), noise_fraction, seed=1), MAX_TOKENS)


def branches(made: Transformer, *, num_blocks: int = 40, prompt: list[int] | None = None) -> Branches:
    """Return a sequence in blocks of its own."""
    one = Branches(made, KvCacheManager(num_blocks, BLOCK), PagedCache(made.cache_shape, num_blocks, BLOCK))
    one.begin(PROMPT if prompt is None else prompt)
    return one


def uncached(made: Transformer, tokens: list[int]) -> Laws:
    """Return the logits behind all tokens of a sequence of its own."""
    segment = Segment(rows=slice(0, len(tokens)), store=NoCache(made.cache_shape))
    return made.logits(made.hidden(np.array(tokens), np.arange(len(tokens)), (segment,)))


# Trees in the cache


@pytest.mark.parametrize("name", NAMES)
def test_a_node_of_a_tree_has_the_bits_of_its_path_as_a_sequence(name: str) -> None:
    made, shape = transformer(name), full_tree(2, 2, 2)
    drafts = np.random.default_rng(5).integers(0, 61, shape.num_nodes).tolist()
    one = branches(made)
    one.feed(PROMPT[:-1])
    scores = one.grow([PROMPT[-1], *drafts], [END, *shape.parents])
    for node in range(shape.num_nodes + 1):
        path = [drafts[step - 1] for step in shape.path(node)]
        assert (scores[node] == uncached(made, [*PROMPT, *path])[-1]).all()


@settings(max_examples=25, deadline=None)
@given(shape=shapes.filter(lambda shape: shape.num_nodes), pick=st.integers(0, 2**16), cut=st.integers(0, 25))
def test_what_is_kept_of_a_tree_is_a_sequence_again(shape: TreeShape, pick: int, cut: int) -> None:
    """Whatever the shape, grown at once or in two steps, and whichever node is the last to stay."""
    made = transformer("gqa")
    drafts = np.random.default_rng(pick).integers(0, 61, shape.num_nodes).tolist()
    one = branches(made)
    one.feed(PROMPT)
    cut = min(cut, shape.num_nodes)
    for part in (slice(0, cut), slice(cut, None)):
        if drafts[part]:
            one.grow(drafts[part], [parent - 1 for parent in shape.parents[part]])
    path = shape.path(pick % (shape.num_nodes + 1))
    one.keep([node - 1 for node in path])
    known = [*PROMPT, *(drafts[node - 1] for node in path)]
    assert one.num_committed_tokens == len(known)
    assert (one.feed([5, 9]) == uncached(made, [*known, 5, 9])[-1]).all()


def test_only_a_path_is_kept() -> None:
    one = branches(transformer("gqa"))
    one.feed(PROMPT)
    one.grow([1, 2, 3], [END, END, 0])
    for wrong in ([2], [1, 2], [0, 1]):
        with pytest.raises(ValueError, match="not a path"):
            one.keep(wrong)
    one.keep([0, 2])
    assert one.num_committed_tokens == len(PROMPT) + 2


def test_rejected_drafts_leave_no_block_behind() -> None:
    made = transformer("gqa")
    manager = KvCacheManager(40, BLOCK)
    one = Branches(made, manager, PagedCache(made.cache_shape, 40, BLOCK))
    one.begin(PROMPT)
    one.feed(PROMPT)
    for _ in range(50):
        one.grow([1] * 14, [END, *full_tree(2, 2, 2).parents[:13]])
        one.keep([])
        manager.check_invariants()
    # Two blocks of the prompt and the look-ahead of one round, not of fifty.
    assert manager.pool.num_used == 2 + 4
    assert one.num_committed_tokens == 8
    one.end()
    assert manager.pool.num_used == 0
    # What was committed is found by the next sequence, what was drafted is not.
    again = Branches(made, manager, PagedCache(made.cache_shape, 40, BLOCK), sequence_id=1)
    again.begin([*PROMPT, 1, 1, 1, 1, 1])
    assert again.num_committed_tokens == 8


def test_drafts_without_room_are_refused() -> None:
    one = branches(transformer("gqa"), num_blocks=4)
    one.feed(PROMPT)
    with pytest.raises(CacheOverflow, match="no room for 9 drafts"):
        one.grow([1] * 9, range(-1, 8))


# Whole generations

Kind = tuple[Callable[[Branches, float], Proposer], Callable[[exact.Model, exact.Model], Round]]


def static(shape: TreeShape, siblings: Siblings) -> Kind:
    return (
        lambda one, temperature: StaticProposer(one, shape, siblings, temperature_fraction=temperature),
        lambda target, draft: tree_round(target, draft, shape, siblings),
    )


def propose(tokens: object) -> tuple[int, ...]:
    assert isinstance(tokens, list)
    return PromptLookup(tokens, max_ngram=3, min_ngram=1).propose(4)


KINDS: dict[str, Kind] = {
    "chain": static(chain(4), Siblings.WITH_REPLACEMENT),
    "SpecInfer": static(full_tree(2, 2, 2), Siblings.WITH_REPLACEMENT),
    "without replacement": static(full_tree(3, 2), Siblings.WITHOUT_REPLACEMENT),
    "best": static(full_tree(2, 2, 1), Siblings.BEST),
    "EAGLE-2": (
        lambda one, temperature: DynamicProposer(one, EAGLE2, temperature_fraction=temperature),
        lambda target, draft: dynamic_round(target, draft, EAGLE2),
    ),
    "n-gram": (
        lambda _one, _temperature: LookupProposer(PromptLookup(max_ngram=3, min_ngram=1), 4),
        lambda target, _draft: lookup_round(target, propose),
    ),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["gqa", "mla"])
def test_greedy_drafts_write_what_the_target_writes_alone(name: str, kind: str) -> None:
    made = transformer(name)
    known = list(PROMPT)
    for _ in range(24):
        known.append(int(uncached(made, known)[-1].argmax()))
    target = branches(made)
    proposer = KINDS[kind][0](branches(blurred_one(name, 0.1)), 0.0)
    found = generated(target, proposer, PROMPT, 24, np.random.default_rng(0), temperature_fraction=0.0)
    assert list(found.tokens) == known[len(PROMPT) :]
    assert sum(tokens * number for tokens, number in found.rounds.items()) >= 24
    # Drafts of a little noise are worth something, and no fewer steps than tokens would be none of it.
    assert target.num_passes - 1 == sum(found.rounds.values()) < 24


@pytest.mark.parametrize("kind", KINDS)
def test_sampled_drafts_write_what_the_same_chance_writes_without_a_cache(kind: str) -> None:
    """The round of the distribution tests, on laws computed anew from the whole context: bit for bit the same."""
    temperature = 0.8
    target, draft = transformer("gqa"), blurred_one("gqa", 0.3)

    def laws(made: Transformer) -> exact.Model:
        return lambda contexts: np.stack([tempered(uncached(made, row)[-1], temperature) for row in contexts.tolist()])

    run = KINDS[kind][1](laws(target), laws(draft))
    for seed in range(3):
        proposer = KINDS[kind][0](branches(draft), temperature)
        made = generated(
            branches(target), proposer, PROMPT, 12, np.random.default_rng(seed), temperature_fraction=temperature
        )
        alone = written(np.array(PROMPT), 1, 12, run, np.random.default_rng(seed))
        assert list(made.tokens) == alone.tokens[0].tolist()
        assert made.rounds == alone.rounds


def test_a_radix_cache_serves_as_well_and_shares_prefixes() -> None:
    made, temperature = transformer("gqa"), 0.8
    manager = RadixCacheManager(60, BLOCK)
    cache = PagedCache(made.cache_shape, 60, BLOCK)
    found = []
    for sequence_id in range(2):
        target = Branches(made, manager, cache, sequence_id=sequence_id)
        target.begin(PROMPT)
        proposer = StaticProposer(branches(blurred_one("gqa", 0.3)), full_tree(2, 2), Siblings.WITHOUT_REPLACEMENT)
        found.append(
            generated(target, proposer, PROMPT, 20, np.random.default_rng(4), temperature_fraction=temperature).tokens
        )
        target.end()
        manager.check_invariants()
    assert found[0] == found[1]
    assert manager.hits.num_hit_tokens == BLOCK


def test_each_token_goes_through_each_model_once() -> None:
    shape = full_tree(2, 2)
    target, draft = branches(transformer("gqa")), branches(blurred_one("gqa", 0.2))
    proposer = StaticProposer(draft, shape, Siblings.WITHOUT_REPLACEMENT)
    found = generated(target, proposer, PROMPT, 20, np.random.default_rng(3))
    rounds = sum(found.rounds.values())
    assert (target.num_passes, target.num_rows) == (1 + rounds, len(PROMPT) - 1 + rounds * (1 + shape.num_nodes))
    # The root with what the draft had not seen, then the two nodes that have children.
    assert draft.num_passes == rounds * 3
    held = sum((tokens - 1) * number for tokens, number in found.rounds.items())
    assert draft.num_rows <= len(PROMPT) + rounds * 3 + held


def test_a_target_that_drafts_for_itself_accepts_all() -> None:
    made = transformer("gqa")
    proposer = StaticProposer(branches(made), chain(4), Siblings.WITH_REPLACEMENT)
    found = generated(branches(made), proposer, PROMPT, 50, np.random.default_rng(1))
    assert found.rounds == {5: 10}


def test_a_lookup_of_a_repeating_answer_saves_most_steps() -> None:
    """A greedy answer of random weights falls into a loop, which a lookup then copies."""
    made = transformer("mqa-tied")
    target = branches(made)
    proposer = LookupProposer(PromptLookup(max_ngram=3, min_ngram=2), 6)
    found = generated(target, proposer, PROMPT, 60, np.random.default_rng(0), temperature_fraction=0.0)
    assert sum(found.rounds.values()) < 30


# The law of a pair of transformers

SMALL = 5


def small(*, num_layers: int, noise_fraction: float = 0.0) -> exact.Model:
    """Laws of a transformer with a vocabulary of five, each context computed once."""
    layers = model(*[(GQA, DENSE)] * num_layers).layers
    described = Model(
        name="tiny",
        architecture="llama",
        hidden_size=24,
        vocab_size=SMALL,
        layers=tuple(LayerRun(num_layers=1, layer=run.layer) for run in layers),
        tied_embeddings=False,
    )
    weights = blurred(random_weights(described, seed=3), noise_fraction, seed=4)
    made = Transformer(described, weights, 16, arithmetic=BATCHED)
    tables: dict[int, Laws] = {}

    def laws(contexts: Tokens) -> Laws:
        length = contexts.shape[1]
        if length not in tables:
            prompt = contexts[0, :2].tolist()
            every = product(range(SMALL), repeat=length - 2)
            tables[length] = np.stack([tempered(uncached(made, [*prompt, *path])[-1], 0.9) for path in every])
        return tables[length][numbered(contexts[:, 2:], SMALL)]

    return laws


@pytest.mark.parametrize("draft", [(1, 0.0), (2, 0.4)], ids=["smaller", "noisier"])
def test_200000_continuations_of_a_pair_have_the_law_of_the_target(draft: tuple[int, float]) -> None:
    target, drafting = small(num_layers=2), small(num_layers=draft[0], noise_fraction=draft[1])
    law = law_of_continuations(target, SMALL, 3)
    runs = {
        "chain": chain_round(target, drafting, 2),
        "tree": tree_round(target, drafting, full_tree(2, 2), Siblings.WITHOUT_REPLACEMENT),
        "EAGLE-2": dynamic_round(target, drafting, DynamicTree(num_expanded=2, max_depth=2, num_nodes=4)),
    }
    for number, run in enumerate(runs.values()):
        made = written(np.array([0, 1]), 200_000, 3, run, np.random.default_rng(number))
        counts = np.bincount(numbered(made.tokens, SMALL), minlength=SMALL**3).astype(float)
        assert chi_square_z(counts, law) < 3.7
        # Some drafts are accepted, and not all of them.
        assert 1.1 < sum(tokens * rounds for tokens, rounds in made.first_round.items()) / 200_000 < 2.95
