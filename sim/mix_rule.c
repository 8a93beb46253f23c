/* The rule of llama.cpp's quantiser (llama_tensor_get_type in src/llama-quant.cpp,
 * August 2026). It gives the first layers, the last ones and some between more bits,
 * and depends on how many tensors of a class came before. Left out: Falcon's branches
 * and the options that override types; mixes made with those are data
 * (sim/data/models.json). */
#include "sim/mix_rule.h"

#include <string.h>
#include <strings.h>

static const struct {
    const char *name;
    enum tensor_type type;
} mixes[MIX_COUNT] = {
#define MIX_ROW(name, type) [MIX_##name] = {#name, TENSOR_TYPE_##type},
    MIXES(MIX_ROW)
#undef MIX_ROW
};

const char *mix_name(enum mix mix)
{
    return mixes[mix].name;
}

enum tensor_type mix_default_type(enum mix mix)
{
    return mixes[mix].type;
}

int mix_find(const char *name)
{
    /* tools/quantize/quantize.cpp */
    static const struct {
        const char *name;
        enum mix mix;
    } aliases[] = {{"Q3_K", MIX_Q3_K_M}, {"Q4_K", MIX_Q4_K_M}, {"Q5_K", MIX_Q5_K_M}};

    for (int i = 0; i < MIX_COUNT; i++)
        if (strcasecmp(name, mixes[i].name) == 0)
            return i;
    for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++)
        if (strcasecmp(name, aliases[i].name) == 0)
            return aliases[i].mix;
    return -1;
}

static bool is(const char *name, const char *other)
{
    return strcmp(name, other) == 0;
}

bool mix_is_attn_v(const char *name)
{
    return is(name, "attn_v.weight") || is(name, "attn_qkv.weight") || is(name, "attn_kv_b.weight");
}

static bool ends_with(const char *text, const char *end)
{
    size_t text_length = strlen(text), end_length = strlen(end);

    return text_length >= end_length && is(text + text_length - end_length, end);
}

bool mix_quantises(const struct mix_tensor *tensor)
{
    const char *name = tensor->name;

    return tensor->dims > 1 && ends_with(name, "weight") && !ends_with(name, "_norm.weight") &&
           !is(name, "ffn_gate_inp.weight") && !is(name, "ssm_conv1d.weight");
}

enum tensor_type mix_type_that_fits(enum tensor_type type, uint64_t row_elements)
{
    enum tensor_type other = TENSOR_TYPE_F16;

    if (row_elements % tensor_type_info(type)->block_elements == 0)
        return type;
    switch (type) {
    case TENSOR_TYPE_IQ1_S:
    case TENSOR_TYPE_IQ1_M:
    case TENSOR_TYPE_IQ2_XXS:
    case TENSOR_TYPE_IQ2_XS:
    case TENSOR_TYPE_IQ2_S:
    case TENSOR_TYPE_IQ3_XXS:
    case TENSOR_TYPE_IQ3_S:
    case TENSOR_TYPE_IQ4_XS:
        other = TENSOR_TYPE_IQ4_NL;
        break;
    case TENSOR_TYPE_Q2_K:
    case TENSOR_TYPE_Q3_K:
    case TENSOR_TYPE_TQ1_0:
    case TENSOR_TYPE_TQ2_0:
    case TENSOR_TYPE_Q2_0:
        other = TENSOR_TYPE_Q4_0;
        break;
    case TENSOR_TYPE_Q4_K:
        other = TENSOR_TYPE_Q5_0;
        break;
    case TENSOR_TYPE_Q5_K:
        other = TENSOR_TYPE_Q5_1;
        break;
    case TENSOR_TYPE_Q6_K:
        other = TENSOR_TYPE_Q8_0;
        break;
    default:
        break;
    }
    if (row_elements % tensor_type_info(other)->block_elements != 0)
        return TENSOR_TYPE_F16;
    return other;
}

/* The mixes of 1 and 2 bits named IQ have rules of their own. */
static bool is_iq1_or_iq2(enum mix mix)
{
    return mix == MIX_IQ1_S || mix == MIX_IQ1_M || mix == MIX_IQ2_XXS || mix == MIX_IQ2_XS ||
           mix == MIX_IQ2_S || mix == MIX_IQ2_M;
}

/* The first and the last eighth, and every third between. */
static bool gets_more_bits(uint32_t i, uint32_t count)
{
    return i < count / 8 || i >= 7 * count / 8 || (i - count / 8) % 3 == 2;
}

/* Position of a feed-forward tensor: with experts its block, else how many came before. */
static uint32_t ffn_position(const struct mix_rule *rule, const struct mix_tensor *tensor,
                             uint32_t *seen)
{
    uint32_t before = (*seen)++;

    return rule->n_expert > 1 ? (uint32_t)tensor->layer : before;
}

static enum tensor_type output_type(const struct mix_rule *rule, const struct mix_tensor *tensor,
                                    enum tensor_type type)
{
    if (tensor->ne[0] % tensor_type_info(type)->block_elements != 0)
        return TENSOR_TYPE_Q8_0;
    if (is_iq1_or_iq2(rule->mix) || rule->mix == MIX_IQ3_XXS)
        return TENSOR_TYPE_Q5_K;
    return type == TENSOR_TYPE_Q8_0 ? type : TENSOR_TYPE_Q6_K;
}

static enum tensor_type token_embd_type(enum mix mix, enum tensor_type type)
{
    switch (mix) {
    case MIX_IQ1_S:
    case MIX_IQ1_M:
    case MIX_IQ2_XXS:
    case MIX_IQ2_XS:
        return TENSOR_TYPE_Q2_K;
    case MIX_IQ2_S:
    case MIX_IQ2_M:
    case MIX_IQ3_XXS:
        return TENSOR_TYPE_IQ3_S;
    case MIX_TQ1_0:
    case MIX_TQ2_0:
    case MIX_Q2_0:
        return TENSOR_TYPE_Q4_K;
    default:
        return type;
    }
}

static enum tensor_type iq1_or_iq2_type(struct mix_rule *rule, const struct mix_tensor *tensor,
                                        enum tensor_type type)
{
    bool is_iq2_s_or_m = rule->mix == MIX_IQ2_S || rule->mix == MIX_IQ2_M;
    enum tensor_type better = is_iq2_s_or_m ? TENSOR_TYPE_IQ3_S : TENSOR_TYPE_Q2_K;

    if (mix_is_attn_v(tensor->name))
        return rule->n_gqa >= 4 || rule->n_expert >= 4 ? TENSOR_TYPE_Q4_K : better;
    if (rule->n_expert == 8 && is(tensor->name, "attn_k.weight"))
        return TENSOR_TYPE_Q4_K;
    if (strstr(tensor->name, "ffn_down"))
        return rule->ffn_down_seen++ < rule->n_block / 8 ? better : type;
    if (is(tensor->name, "attn_output.weight")) {
        if (rule->n_expert == 8)
            return TENSOR_TYPE_Q5_K;
        if (rule->mix == MIX_IQ1_S || rule->mix == MIX_IQ1_M)
            return TENSOR_TYPE_IQ2_XXS;
        return is_iq2_s_or_m ? TENSOR_TYPE_IQ3_S : type;
    }
    return type;
}

static enum tensor_type attn_v_by_mix(const struct mix_rule *rule, uint32_t i,
                                      enum tensor_type type)
{
    bool few_kv_heads = rule->n_gqa >= 4;

    switch (rule->mix) {
    case MIX_Q2_K:
        return few_kv_heads ? TENSOR_TYPE_Q4_K : TENSOR_TYPE_Q3_K;
    case MIX_IQ3_XXS:
        if (!few_kv_heads && !rule->imatrix)
            return TENSOR_TYPE_IQ3_S;
        return few_kv_heads ? TENSOR_TYPE_Q4_K : type;
    case MIX_Q2_K_S:
    case MIX_IQ3_XS:
    case MIX_IQ3_S:
        return few_kv_heads ? TENSOR_TYPE_Q4_K : type;
    case MIX_IQ3_M:
        return TENSOR_TYPE_Q4_K;
    case MIX_Q3_K_M:
        return i < 2 ? TENSOR_TYPE_Q5_K : TENSOR_TYPE_Q4_K;
    case MIX_Q3_K_L:
        return TENSOR_TYPE_Q5_K;
    case MIX_IQ4_NL:
    case MIX_IQ4_XS:
        return few_kv_heads ? TENSOR_TYPE_Q5_K : type;
    case MIX_Q4_K_M:
    case MIX_Q5_K_M:
        return gets_more_bits(i, rule->n_attn_v) ? TENSOR_TYPE_Q6_K : type;
    case MIX_Q4_K_S:
        return i < 4 ? TENSOR_TYPE_Q5_K : type;
    default:
        return type;
    }
}

static enum tensor_type attn_v_type(struct mix_rule *rule, enum tensor_type type)
{
    type = attn_v_by_mix(rule, rule->attn_v_seen++, type);
    if (rule->is_llama_70b && (type == TENSOR_TYPE_Q3_K || type == TENSOR_TYPE_Q4_K))
        type = TENSOR_TYPE_Q5_K;
    return rule->n_expert == 8 ? TENSOR_TYPE_Q8_0 : type;
}

static enum tensor_type attn_q_or_k_type(const struct mix_rule *rule, bool is_k,
                                         enum tensor_type type)
{
    if (is_k && rule->n_expert == 8)
        return TENSOR_TYPE_Q8_0;
    if (rule->mix == MIX_IQ3_XS)
        return TENSOR_TYPE_IQ3_XXS;
    return rule->mix == MIX_IQ3_XXS ? TENSOR_TYPE_IQ2_S : type;
}

static enum tensor_type attn_output_type(const struct mix_rule *rule, enum tensor_type type)
{
    if (rule->n_expert == 8)
        return tensor_type_row_bytes(type, 256) <= tensor_type_row_bytes(TENSOR_TYPE_Q4_K, 256)
                   ? TENSOR_TYPE_Q5_K
                   : type;
    switch (rule->mix) {
    case MIX_Q2_K:
        return TENSOR_TYPE_Q3_K;
    case MIX_IQ3_XXS:
        return TENSOR_TYPE_IQ3_S;
    case MIX_Q3_K_M:
    case MIX_IQ3_M:
        return TENSOR_TYPE_Q4_K;
    case MIX_Q3_K_L:
        return TENSOR_TYPE_Q5_K;
    default:
        return type;
    }
}

static enum tensor_type ffn_gate_or_up_type(const struct mix_rule *rule, uint32_t i,
                                            enum tensor_type type)
{
    bool is_between = i >= rule->n_block / 8 && i < 7 * rule->n_block / 8;

    return rule->mix == MIX_IQ3_XS && is_between ? TENSOR_TYPE_IQ3_XXS : type;
}

static enum tensor_type ffn_down_type(const struct mix_rule *rule, uint32_t i,
                                      enum tensor_type type)
{
    bool is_first = i < rule->n_block / 8;

    switch (rule->mix) {
    case MIX_Q2_K:
        return TENSOR_TYPE_Q3_K;
    case MIX_Q2_K_S:
    case MIX_IQ3_M:
        return is_first ? TENSOR_TYPE_Q4_K : type;
    case MIX_IQ3_XXS:
        if (rule->imatrix)
            return type;
        return is_first ? TENSOR_TYPE_Q4_K : TENSOR_TYPE_Q3_K;
    case MIX_Q3_K_M:
        return i < rule->n_block / 16 ? TENSOR_TYPE_Q5_K : TENSOR_TYPE_Q4_K;
    case MIX_Q3_K_L:
        return TENSOR_TYPE_Q5_K;
    case MIX_Q4_K_M:
    case MIX_Q5_K_M:
        return gets_more_bits(i, rule->n_block) ? TENSOR_TYPE_Q6_K : type;
    case MIX_Q4_K_S:
        return is_first ? TENSOR_TYPE_Q5_K : type;
    case MIX_IQ4_NL:
    case MIX_IQ4_XS:
        return is_first && !rule->imatrix ? TENSOR_TYPE_Q5_K : type;
    case MIX_Q4_0:
        return is_first && rule->imatrix ? TENSOR_TYPE_Q4_1 : type;
    case MIX_Q5_0:
        return is_first && rule->imatrix ? TENSOR_TYPE_Q5_1 : type;
    default:
        return type;
    }
}

/* By class of the name; the order of the questions is that of llama.cpp. */
static enum tensor_type wanted_type(struct mix_rule *rule, const struct mix_tensor *tensor)
{
    const char *name = tensor->name;
    enum tensor_type type = mixes[rule->mix].type;
    bool is_token_embd = is(name, "token_embd.weight");

    if (rule->mix == MIX_MXFP4_MOE)
        return tensor->ne[2] > 1 ? TENSOR_TYPE_MXFP4 : TENSOR_TYPE_Q8_0;
    if (is(name, "output.weight") || (is_token_embd && !rule->has_output))
        return output_type(rule, tensor, type);
    if (is_token_embd)
        return token_embd_type(rule->mix, type);
    if (is_iq1_or_iq2(rule->mix))
        return iq1_or_iq2_type(rule, tensor, type);
    if (mix_is_attn_v(name))
        return attn_v_type(rule, type);
    if (is(name, "attn_k.weight") || is(name, "attn_q.weight"))
        return attn_q_or_k_type(rule, is(name, "attn_k.weight"), type);
    if (is(name, "attn_output.weight"))
        return attn_output_type(rule, type);
    if (strstr(name, "ffn_up"))
        return ffn_gate_or_up_type(rule, ffn_position(rule, tensor, &rule->ffn_up_seen), type);
    if (strstr(name, "ffn_gate"))
        return ffn_gate_or_up_type(rule, ffn_position(rule, tensor, &rule->ffn_gate_seen), type);
    if (strstr(name, "ffn_down"))
        return ffn_down_type(rule, ffn_position(rule, tensor, &rule->ffn_down_seen), type);
    return type;
}

enum tensor_type mix_rule_next(struct mix_rule *rule, const struct mix_tensor *tensor)
{
    enum tensor_type type = mixes[rule->mix].type;

    if (!mix_quantises(tensor))
        return TENSOR_TYPE_F32;
    if (!tensor_type_info(type)->quantised)
        return type;
    return mix_type_that_fits(wanted_type(rule, tensor), tensor->ne[0]);
}
