"""Keys of a config.json that change neither weights nor cache: an unread key outside this list is refused.

Sources: the fields of ``PretrainedConfig`` and ``GenerationConfig`` of Hugging Face transformers, and keys of published
configs of the families with an adapter. A key belongs here only if no value of it can change the shape of a tensor.
"""

from __future__ import annotations

import re

# Bookkeeping of the file, the library that wrote it and the classes that load it.
_BOOKKEEPING = """
_attn_implementation _attn_implementation_autoset _attn_implementation_internal _auto_class _commit_hash
_experts_implementation _flash_attn_2_enabled _name_or_path architectures attn_implementation auto_map base_model
base_model_name_or_path cache_implementation custom_pipelines dtype finetuning_task for_llm_compressor
id2label implementation init_config init_device is_decoder label2id license
model_name model_parallel model_type name name_or_path num_labels pipeline_tag problem_type reset_attention_mask seed
skip_special_tokens task_specific_params tokenizer_class tokenizer_name tokenizer_type torch_dtype torchscript
training_dtype transformers.js_config transformers_version trust_remote_code unsloth_fixed unsloth_version
use_auth_token use_bfloat16 use_cache use_mambapy use_return_dict use_safetensors verbose version xla_device
"""
# Precision blocks, which `catalog.quantization` reads.
_PRECISION = "quantization_config compression_config head_dtype router_dtype moe_router_dtype fp32_residual_connection"
# Defaults of generation.
_GENERATION = """
assistant_confidence_threshold assistant_early_exit assistant_lookbehind bad_words_ids begin_suppress_tokens
cache_config constraints decoder_start_token_id disable_compile diversity_penalty do_sample dola_layers early_stopping
encoder_no_repeat_ngram_size encoder_repetition_penalty epsilon_cutoff eta_cutoff exponential_decay_length_penalty
force_words_ids forced_bos_token_id forced_decoder_ids forced_eos_token_id generation_config guidance_scale
is_assistant length_penalty low_memory max_length max_matching_ngram_size max_new_tokens max_time min_length
min_new_tokens min_p no_repeat_ngram_size num_assistant_tokens num_assistant_tokens_schedule num_beam_groups num_beams
num_return_sequences output_attentions output_hidden_states output_loading_info output_logits output_past
output_router_logits output_scores penalty_alpha prefill_chunk_size prefix prompt_lookup_num_tokens
remove_invalid_values renormalize_logits repetition_penalty return_dict return_dict_in_generate return_legacy_cache
sequence_bias stop_strings suppress_tokens target_lookbehind temperature token_healing top_h top_k top_p typical_p
watermarking_config
"""
# Rotary and other weightless position rules.
_POSITIONS = """
alibi_bias_max attn_temperature_len attn_temperature_tuning beta_fast beta_slow compress_rope_theta floor_scale
global_rope_theta indexer_rope_interleave local_rope_theta max_position_embeddings_original mrope_section
no_rope_layer_interval no_rope_layers original_max_position_embeddings original_rope partial_rotary_factor
partial_rotary_factors rope_base rope_freq_base rope_freqs_scale rope_global_base_freq rope_interleave
rope_interleaved rope_local_base_freq rope_parameters rope_pct rope_percentage rope_ratio rope_scaling
rope_scaling_factor rope_theta rope_thetas rope_type rotary_base rotary_dim rotary_emb_base rotary_emb_fraction
rotary_emb_interleaved rotary_emb_scale_base rotary_interleaved rotary_pct rotary_percent sinusoidal_pos_embds
swa_rope_parameters swa_rope_theta use_dynamic_ntk use_logn_attn yarn_factor
"""
# Functions without weights: activations, scales, softmax, kernels, initialisation, the order of additions.
_ARITHMETIC = """
activation activation_function apply_query_key_layer_scaling apply_residual_connection_post_layernorm
apply_residual_scaling attention_in_multiplier attention_mask_func attention_multiplier attention_out_multiplier
attention_softmax_in_fp32 attn_output_multiplier attn_scale attn_softmax_bf16 bias_dropout_fusion
calc_logits_for_entire_prompt chunk_size_feed_forward clip_qkv dim_model_base embedding_multiplier
embedding_multiplier_scale ffn_act_fn fp32_logits hidden_act hidden_activation init_method init_std initializer_range
key_multiplier lm_head_multiplier logit_scale logits_scaling mamba_hidden_act masked_softmax_fusion mlp_hidden_act
mup_base_width norm_topk_prob num_logits_to_keep output_multiplier_scale pretraining_tp query_pre_attn_scalar
reorder_and_upcast_attn rescale_prenorm_residual residual_in_fp32 residual_multiplier routed_scaling_factor
scale_attention_softmax_in_fp32 scale_attn_by_inverse_layer_idx scale_attn_weights scale_depth scale_emb
slow_but_exact softmax_scale swiglu_limit time_step_floor time_step_init_scheme time_step_limit time_step_max
time_step_min time_step_scale use_associative_scan use_bidirectional_attention use_flash_attention
use_flash_attention_2 use_flash_attn use_fused_rmsnorm use_kernels use_mamba_kernels use_unpadded_lm_head
"""
# How the router was trained and how it scores: neither how many experts there are nor what they weigh.
_ROUTING = """
aux_loss_alpha aux_loss_free ep_size index_share_for_mtp_iteration input_jitter_noise load_balance_coeff
moe_aux_loss_lambda moe_drop_tokens moe_jitter_eps moe_load_balancing_type moe_router_activation_func
moe_router_fusion moe_router_load_balancing_type moe_router_topk_scaling_factor moe_z_loss_lambda router_jitter_noise
seq_aux use_aux_free_bias_update
"""

HARMLESS = frozenset(
    f"{_BOOKKEEPING} {_PRECISION} {_GENERATION} {_POSITIONS} {_ARITHMETIC} {_ROUTING}".split(),
)
"""Names of keys that may be passed over, whatever their value."""

HARMLESS_FORM = re.compile(
    # Norm constants, dropout and initialisation.
    r"(.*_)?(eps|epsilon)|(.*_)?(dropout|pdrop|layerdrop|dropout_rate|dropout_prob)|initializer_\w+"
    # How it was trained or is run.
    r"|gradient_checkpointing\w*|use_flash_attn\w*|return_dict\w*|keys_to_ignore\w*"
    # Special tokens.
    r"|(.*_)?(token_ids?|token_index)|(bos|eos|pad|unk|sep|cls|mask)_token"
    # Training losses.
    r"|(.*_)?loss_(coef|coeff|weight|alpha|factor)"
    # Caps on logits.
    r"|(.*_)?(softcap|softcapping)"
    # Towers of other modalities, which are named as not modelled.
    r"|(vision|visual|audio|speech|image|img|video|mm|vit)_\w+|visual|summary_\w+|classifier_\w+"
)
"""Forms of such names; a name must match as a whole."""


def is_harmless(key: str) -> bool:
    """Return whether ``key`` may go unread whatever its value.

    >>> is_harmless("rope_theta"), is_harmless("attention_dropout"), is_harmless("use_swa")
    (True, True, False)
    """
    return key in HARMLESS or HARMLESS_FORM.fullmatch(key) is not None
