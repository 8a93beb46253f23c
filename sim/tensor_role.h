/* What a tensor is for, read from its name; one table for every reader. */
#ifndef SIM_TENSOR_ROLE_H
#define SIM_TENSOR_ROLE_H

/* Role, and the name of its tensor after "blk.N." (layer tensors) or whole
 * (globals), without ".weight"; biases and scales are roles of their own.
 * Names: src/llama-arch.cpp of llama.cpp. */
#define TENSOR_ROLES(ROLE) \
    ROLE(TOKEN_EMBD, "token_embd.weight") \
    ROLE(OUTPUT_NORM, "output_norm.weight") \
    ROLE(OUTPUT, "output.weight") \
    ROLE(ROPE_FREQS, "rope_freqs.weight") \
    ROLE(ATTN_NORM, "attn_norm.weight") \
    ROLE(ATTN_Q, "attn_q.weight") \
    ROLE(ATTN_K, "attn_k.weight") \
    ROLE(ATTN_V, "attn_v.weight") \
    ROLE(ATTN_QKV, "attn_qkv.weight") \
    ROLE(ATTN_Q_BIAS, "attn_q.bias") \
    ROLE(ATTN_K_BIAS, "attn_k.bias") \
    ROLE(ATTN_V_BIAS, "attn_v.bias") \
    ROLE(ATTN_QKV_BIAS, "attn_qkv.bias") \
    ROLE(ATTN_Q_NORM, "attn_q_norm.weight") \
    ROLE(ATTN_K_NORM, "attn_k_norm.weight") \
    ROLE(ATTN_GATE, "attn_gate.weight") \
    ROLE(ATTN_SINKS, "attn_sinks.weight") \
    ROLE(ATTN_OUTPUT, "attn_output.weight") \
    ROLE(ATTN_OUTPUT_BIAS, "attn_output.bias") \
    ROLE(ATTN_POST_NORM, "post_attention_norm.weight") \
    ROLE(ATTN_Q_A, "attn_q_a.weight") \
    ROLE(ATTN_Q_A_NORM, "attn_q_a_norm.weight") \
    ROLE(ATTN_Q_B, "attn_q_b.weight") \
    ROLE(ATTN_KV_A_MQA, "attn_kv_a_mqa.weight") \
    ROLE(ATTN_KV_A_NORM, "attn_kv_a_norm.weight") \
    ROLE(ATTN_KV_B, "attn_kv_b.weight") \
    ROLE(ATTN_K_B, "attn_k_b.weight") \
    ROLE(ATTN_V_B, "attn_v_b.weight") \
    ROLE(SSM_CONV1D, "ssm_conv1d.weight") \
    ROLE(SSM_DT, "ssm_dt.bias") \
    ROLE(SSM_A, "ssm_a") \
    ROLE(SSM_ALPHA, "ssm_alpha.weight") \
    ROLE(SSM_BETA, "ssm_beta.weight") \
    ROLE(SSM_BA, "ssm_ba.weight") \
    ROLE(SSM_NORM, "ssm_norm.weight") \
    ROLE(SSM_OUT, "ssm_out.weight") \
    ROLE(FFN_NORM, "ffn_norm.weight") \
    ROLE(FFN_GATE, "ffn_gate.weight") \
    ROLE(FFN_UP, "ffn_up.weight") \
    ROLE(FFN_DOWN, "ffn_down.weight") \
    ROLE(FFN_GATE_BIAS, "ffn_gate.bias") \
    ROLE(FFN_UP_BIAS, "ffn_up.bias") \
    ROLE(FFN_DOWN_BIAS, "ffn_down.bias") \
    ROLE(FFN_POST_NORM, "post_ffw_norm.weight") \
    ROLE(FFN_GATE_INP, "ffn_gate_inp.weight") \
    ROLE(FFN_GATE_INP_BIAS, "ffn_gate_inp.bias") \
    ROLE(FFN_GATE_INP_SCALE, "ffn_gate_inp.scale") \
    ROLE(EXP_PROBS_BIAS, "exp_probs_b.bias") \
    ROLE(FFN_GATE_EXPS, "ffn_gate_exps.weight") \
    ROLE(FFN_UP_EXPS, "ffn_up_exps.weight") \
    ROLE(FFN_GATE_UP_EXPS, "ffn_gate_up_exps.weight") \
    ROLE(FFN_DOWN_EXPS, "ffn_down_exps.weight") \
    ROLE(FFN_GATE_EXPS_BIAS, "ffn_gate_exps.bias") \
    ROLE(FFN_UP_EXPS_BIAS, "ffn_up_exps.bias") \
    ROLE(FFN_DOWN_EXPS_BIAS, "ffn_down_exps.bias") \
    ROLE(FFN_DOWN_EXPS_SCALE, "ffn_down_exps.scale") \
    ROLE(FFN_GATE_INP_SHEXP, "ffn_gate_inp_shexp.weight") \
    ROLE(FFN_GATE_SHEXP, "ffn_gate_shexp.weight") \
    ROLE(FFN_UP_SHEXP, "ffn_up_shexp.weight") \
    ROLE(FFN_DOWN_SHEXP, "ffn_down_shexp.weight") \
    ROLE(FFN_PRE_NORM_2, "pre_ffw_norm_2.weight") \
    ROLE(FFN_POST_NORM_1, "post_ffw_norm_1.weight") \
    ROLE(FFN_POST_NORM_2, "post_ffw_norm_2.weight") \
    ROLE(LAYER_OUTPUT_SCALE, "layer_output_scale.weight") \
    ROLE(NEXTN_EH_PROJ, "nextn.eh_proj.weight") \
    ROLE(NEXTN_ENORM, "nextn.enorm.weight") \
    ROLE(NEXTN_HNORM, "nextn.hnorm.weight") \
    ROLE(NEXTN_EMBED_TOKENS, "nextn.embed_tokens.weight") \
    ROLE(NEXTN_SHARED_HEAD_HEAD, "nextn.shared_head_head.weight") \
    ROLE(NEXTN_SHARED_HEAD_NORM, "nextn.shared_head_norm.weight")

enum tensor_role {
#define TENSOR_ROLE_ENUM(role, name) TENSOR_ROLE_##role,
    TENSOR_ROLES(TENSOR_ROLE_ENUM)
#undef TENSOR_ROLE_ENUM
    TENSOR_ROLE_OTHER, /* a name that no row has; mirrored under a tensor split */
    TENSOR_ROLE_COUNT
};

/**
 * Reads a tensor's name: "blk.12.attn_q.weight" is layer 12, TENSOR_ROLE_ATTN_Q.
 *
 * @param layer set to the block number, or -1 for a global tensor
 */
enum tensor_role tensor_role_of(const char *name, int *layer);

/** The name behind a role, as in the table; "other" for TENSOR_ROLE_OTHER. */
const char *tensor_role_name(enum tensor_role role);

#endif
