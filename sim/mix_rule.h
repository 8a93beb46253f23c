/* Which type llama.cpp gives each tensor when it makes a mix such as Q4_K_M. */
#ifndef SIM_MIX_RULE_H
#define SIM_MIX_RULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/tensor_type.h"

/* Name of a mix and the type of every tensor that no rule names. Best first.
 * Source: src/llama-quant.cpp of llama.cpp (August 2026). */
#define MIXES(MIX)                                                                                 \
    MIX(F32, F32)                                                                                  \
    MIX(F16, F16)                                                                                  \
    MIX(BF16, BF16)                                                                                \
    MIX(Q8_0, Q8_0)                                                                                \
    MIX(Q6_K, Q6_K)                                                                                \
    MIX(Q5_K_M, Q5_K)                                                                              \
    MIX(Q5_K_S, Q5_K)                                                                              \
    MIX(Q5_1, Q5_1)                                                                                \
    MIX(Q5_0, Q5_0)                                                                                \
    MIX(Q4_K_M, Q4_K)                                                                              \
    MIX(Q4_K_S, Q4_K)                                                                              \
    MIX(Q4_1, Q4_1)                                                                                \
    MIX(Q4_0, Q4_0)                                                                                \
    MIX(MXFP4_MOE, MXFP4)                                                                          \
    MIX(IQ4_NL, IQ4_NL)                                                                            \
    MIX(IQ4_XS, IQ4_XS)                                                                            \
    MIX(Q3_K_L, Q3_K)                                                                              \
    MIX(Q3_K_M, Q3_K)                                                                              \
    MIX(Q3_K_S, Q3_K)                                                                              \
    MIX(IQ3_M, IQ3_S)                                                                              \
    MIX(IQ3_S, IQ3_S)                                                                              \
    MIX(IQ3_XS, IQ3_S)                                                                             \
    MIX(IQ3_XXS, IQ3_XXS)                                                                          \
    MIX(Q2_K, Q2_K)                                                                                \
    MIX(Q2_K_S, Q2_K)                                                                              \
    MIX(IQ2_M, IQ2_S)                                                                              \
    MIX(IQ2_S, IQ2_XS)                                                                             \
    MIX(IQ2_XS, IQ2_XS)                                                                            \
    MIX(IQ2_XXS, IQ2_XXS)                                                                          \
    MIX(Q2_0, Q2_0)                                                                                \
    MIX(TQ2_0, TQ2_0)                                                                              \
    MIX(TQ1_0, TQ1_0)                                                                              \
    MIX(IQ1_M, IQ1_M)                                                                              \
    MIX(IQ1_S, IQ1_S)                                                                              \
    MIX(Q1_0, Q1_0)

enum mix {
#define MIX_ENUM(name, type) MIX_##name,
    MIXES(MIX_ENUM)
#undef MIX_ENUM
        MIX_COUNT
};

/** Its name, upper case: "Q4_K_M". */
const char *mix_name(enum mix mix);

/** The type of every tensor that no rule names. */
enum tensor_type mix_default_type(enum mix mix);

/** Finds a mix by name, or by an alias of llama-quantize ("Q4_K" is Q4_K_M), case ignored.
 * @return a value of enum mix, or -1 */
int mix_find(const char *name);

/** A tensor as the rule sees it. */
struct mix_tensor {
    const char *name; /* without "blk.N." */
    int layer;        /* block number; -1 for globals */
    unsigned dims;    /* 1 to 4 */
    uint64_t ne[4];   /* ggml order; unused are 1 */
};

/** What the rule asks about a model, and what it has counted so far. */
struct mix_rule {
    enum mix mix;
    bool imatrix;      /* made with an importance matrix */
    bool is_llama_70b; /* arch llama, 80 blocks, grouped heads */
    bool has_output;   /* output.weight is a tensor of its own */
    uint32_t n_block;  /* nextn blocks included, if the file has them */
    uint32_t n_gqa;    /* query heads per KV head in the first attention layer */
    uint32_t n_expert; /* 0 without experts */
    uint32_t n_attn_v; /* tensors of the attn_v class, see mix_is_attn_v() */
    /* zero at the start */
    uint32_t attn_v_seen, ffn_up_seen, ffn_gate_seen, ffn_down_seen;
};

/** attn_v and what holds V together with others: attn_qkv, attn_kv_b. */
bool mix_is_attn_v(const char *name);

/** False for what stays F32: norms, biases, routers, one-dimensional tensors. */
bool mix_quantises(const struct mix_tensor *tensor);

/**
 * Type of the next tensor. Call it for every tensor of a model, in file order
 * (globals first, then block by block): the rule counts.
 */
enum tensor_type mix_rule_next(struct mix_rule *rule, const struct mix_tensor *tensor);

/**
 * `type`, or the nearest one whose block divides a row: Q4_K becomes Q5_0 on
 * a row of 2880; F16 where nothing fits.
 */
enum tensor_type mix_type_that_fits(enum tensor_type type, uint64_t row_elements);

#endif
