"""The parts of a KV cache that work: blocks, block tables, prefix indexes, managers, and what people compare them with.

They know tokens, blocks and reference counts; neither time nor cost, nor what a block holds. A scheduler asks a manager
for room, an executor follows the block tables:

1. ``manager.match_prefix(tokens)``: what is cached of a prompt, nothing changed.
2. ``manager.allocate(sequence_id, tokens, num_new_tokens)``: blocks of the hit shared, blocks of the new tokens taken;
   None, and nothing changed, when they do not fit. ``manager.append(sequence_id, num_new_tokens)``: room for more.
3. ``manager.take_copies()``: copies that the executor carries out, in order, before it writes anything of this step.
4. ``manager.commit(sequence_id, tokens)`` after the step: these tokens are computed. Full blocks become findable now,
   so that requests of one step do not share what that step computes. (A scheduler whose executor computes in order may
   commit as soon as it plans: then they do share, as in vLLM's full attention. It forks only after the step.)
5. ``manager.free(sequence_id)`` at the end, ``manager.preempt(sequence_id)`` when it must make room.

``manager.KvCacheManager`` follows vLLM (full blocks, hash chain), ``radix_manager.RadixCacheManager`` SGLang (tokens,
radix tree); ``surface.KvManager`` is what both offer. A call that no correct scheduler makes raises ``Misuse``.
"""
