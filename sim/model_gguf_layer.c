/* One block of a GGUF file: which mixer it has, and how wide everything is.
 * Widths come from the shapes of tensors, head counts from the keys, and where
 * they disagree the shapes win. Left out: blocks that llama.cpp runs but we do
 * not model (Mamba, experts in one tensor each) are refused. */
#include <inttypes.h>
#include <string.h>

#include "sim/model_gguf_private.h"

/* What the keys say about the attention of a block; 0 where they do not. */
struct attention_keys {
    uint32_t n_head, n_head_kv, head_dim_k, head_dim_v;
    uint32_t window;
};

/* ---- sliding windows ---- */

/* Blocks with a window where the file does not list them: of `period` blocks
 * all but the last, or with `dense_first` all but the first.
 * Source: set_swa_pattern in src/models/ of llama.cpp. */
static const struct {
    const char *arch;
    uint32_t period;
    bool dense_first;
} window_patterns[] = {
    {"cohere2", 4, false},     {"exaone4", 4, false}, {"gemma2", 2, false},
    {"gemma3", 6, false},      {"gemma3n", 5, false}, {"gemma4", 6, false},
    {"gpt-oss", 2, false},     {"olmo2", 4, false},   {"muse-glimmer", 4, false},
    {"smallthinker", 4, true},
};

static bool has_window_by_arch(const char *arch, uint32_t index)
{
    for (size_t i = 0; i < sizeof window_patterns / sizeof *window_patterns; i++)
        if (strcmp(window_patterns[i].arch, arch) == 0) {
            uint32_t place = index % window_patterns[i].period;

            return window_patterns[i].dense_first ? place != 0
                                                  : place != window_patterns[i].period - 1;
        }
    return false; /* llama.cpp ignores the key for other architectures */
}

static int has_window(const struct model_reading *reading, uint32_t index, bool *answer)
{
    static const char name[] = "attention.sliding_window_pattern";
    const struct gguf_key *key = model_reading_find_key(reading, name);
    bool is_nextn = reading->model->layers[index].is_nextn;
    uint32_t period;

    if (!key) {
        *answer = !is_nextn && has_window_by_arch(reading->model->arch, index);
        return 0;
    }
    if (key->type == GGUF_TYPE_ARRAY || key->type == GGUF_TYPE_BOOL) {
        *answer = model_reading_bool(reading, name, index);
        return 0;
    }
    if (model_reading_u32(reading, name, 0, 0, UINT32_MAX, &period))
        return -1;
    *answer = !is_nextn && (period == 0 || index % period != period - 1);
    return 0;
}

/* ---- attention ---- */

static int read_attention_keys(const struct model_reading *reading, uint32_t index,
                               struct attention_keys *keys)
{
    const uint32_t limit = MODEL_GGUF_HEAD_LIMIT;
    uint32_t width, k, v;
    bool windowed;

    if (has_window(reading, index, &windowed) ||
        model_reading_u32(reading, "attention.head_count", index, 0, limit, &keys->n_head) ||
        model_reading_u32(reading, "attention.head_count_kv", index, keys->n_head, limit,
                          &keys->n_head_kv) ||
        model_reading_u32(reading, "attention.sliding_window", index, 0, UINT32_MAX, &keys->window))
        return -1;
    width = keys->n_head != 0 ? reading->model->n_embd / keys->n_head : 0;
    if (model_reading_u32(reading, "attention.key_length", index, width, limit, &k) ||
        model_reading_u32(reading, "attention.value_length", index, width, limit, &v))
        return -1;
    if (!windowed)
        keys->window = 0;
    if (keys->window != 0 &&
        (model_reading_u32(reading, "attention.key_length_swa", index, k, limit, &k) ||
         model_reading_u32(reading, "attention.value_length_swa", index, v, limit, &v)))
        return -1;
    keys->head_dim_k = k;
    keys->head_dim_v = v;
    return 0;
}

static int require_head_count(const struct model_reading *reading,
                              const struct attention_keys *keys)
{
    if (keys->n_head != 0)
        return 0;
    if (!model_reading_find_key(reading, "attention.head_count"))
        return model_reading_fail_key(reading, "attention.head_count", "is missing");
    return model_reading_fail_key(reading, "attention.head_count",
                                  "is 0 for a block that has attention");
}

/* Query heads share key heads evenly, or nothing computes them. */
static int check_head_counts(const struct model_reading *reading, const struct model_layer *layer)
{
    if (layer->n_head_kv == 0 || layer->n_head % layer->n_head_kv == 0)
        return 0;
    return model_reading_fail_key(reading, "attention.head_count_kv",
                                  "%" PRIu32 " query heads cannot share %" PRIu32
                                  " key heads evenly",
                                  layer->n_head, layer->n_head_kv);
}

/* The heads of attn_k: a norm of one head's width tells it; else the key does. */
static int shape_keys(const struct model_reading *reading, uint32_t index,
                      const struct attention_keys *keys, struct model_layer *layer)
{
    const struct model_tensor *k =
        model_find_tensor(reading->model, (int)index, TENSOR_ROLE_ATTN_K);
    const struct model_tensor *norm =
        model_find_tensor(reading->model, (int)index, TENSOR_ROLE_ATTN_K_NORM);
    uint64_t rows = k->ne[1], width = 0;

    if (norm && norm->ne[0] < rows && rows % norm->ne[0] == 0)
        width = norm->ne[0];
    else if (keys->n_head_kv != 0 && rows % keys->n_head_kv == 0)
        width = rows / keys->n_head_kv;
    else if (keys->head_dim_k != 0 && rows % keys->head_dim_k == 0)
        width = keys->head_dim_k;
    if (width == 0 && require_head_count(reading, keys))
        return -1;
    if (width == 0)
        return model_reading_fail_tensor(reading, k, ERROR_INPUT,
                                         "%" PRIu64 " rows are not whole heads; "
                                         "attention.head_count_kv is %" PRIu32,
                                         rows, keys->n_head_kv);
    return model_reading_narrow(reading, k, width, MODEL_GGUF_HEAD_LIMIT, &layer->head_dim_k) ||
                   model_reading_narrow(reading, k, rows / width, MODEL_GGUF_HEAD_LIMIT,
                                        &layer->n_head_kv)
               ? -1
               : 0;
}

/* The width of a value head; without attn_v the values are made from the keys. */
static int shape_values(const struct model_reading *reading, uint32_t index,
                        struct model_layer *layer)
{
    const struct model_tensor *v =
        model_find_tensor(reading->model, (int)index, TENSOR_ROLE_ATTN_V);

    layer->v_from_k = !v;
    layer->head_dim_v = layer->head_dim_k;
    if (!v)
        return 0;
    if (v->ne[1] % layer->n_head_kv != 0)
        return model_reading_fail_tensor(reading, v, ERROR_INPUT,
                                         "%" PRIu64 " rows are not %" PRIu32 " whole heads",
                                         v->ne[1], layer->n_head_kv);
    return model_reading_narrow(reading, v, v->ne[1] / layer->n_head_kv, MODEL_GGUF_HEAD_LIMIT,
                                &layer->head_dim_v);
}

/* Query heads: attn_output takes one value head of each; attn_q may hold a gate
 * beside each query, which doubles its rows. */
static int shape_queries(const struct model_reading *reading, uint32_t index,
                         const struct attention_keys *keys, struct model_layer *layer)
{
    const struct model_tensor *q =
        model_find_tensor(reading->model, (int)index, TENSOR_ROLE_ATTN_Q);
    const struct model_tensor *output =
        model_find_tensor(reading->model, (int)index, TENSOR_ROLE_ATTN_OUTPUT);
    uint64_t n_head = keys->n_head, rows;

    if (output && output->ne[0] % layer->head_dim_v == 0)
        n_head = output->ne[0] / layer->head_dim_v;
    if (n_head == 0)
        return require_head_count(reading, keys);
    if (n_head > MODEL_GGUF_HEAD_LIMIT)
        return model_reading_fail_tensor(reading, output ? output : q, ERROR_INPUT,
                                         "%" PRIu64 " heads are too many", n_head);
    layer->n_head = (uint32_t)n_head;
    if (!q)
        return 0;
    rows = n_head * layer->head_dim_k;
    layer->q_gated = q->ne[1] == 2 * rows;
    if (q->ne[1] != rows && !layer->q_gated)
        return model_reading_fail_tensor(reading, q, ERROR_INPUT,
                                         "%" PRIu64 " rows are not %" PRIu64 " heads of %" PRIu32
                                         ", with or without a gate",
                                         q->ne[1], n_head, layer->head_dim_k);
    return 0;
}

/* attn_qkv holds queries, keys and values one behind the other. */
static int shape_fused(const struct model_reading *reading, const struct model_tensor *qkv,
                       const struct attention_keys *keys, struct model_layer *layer)
{
    uint64_t heads = (uint64_t)keys->n_head + 2 * (uint64_t)keys->n_head_kv;
    uint64_t rows = (uint64_t)keys->n_head * keys->head_dim_k +
                    (uint64_t)keys->n_head_kv * keys->head_dim_k +
                    (uint64_t)keys->n_head_kv * keys->head_dim_v;

    if (require_head_count(reading, keys))
        return -1;
    layer->n_head = keys->n_head;
    layer->n_head_kv = keys->n_head_kv;
    layer->head_dim_k = keys->head_dim_k;
    layer->head_dim_v = keys->head_dim_v;
    if (qkv->ne[1] == rows)
        return 0;
    if (qkv->ne[1] % heads != 0)
        return model_reading_fail_tensor(reading, qkv, ERROR_INPUT,
                                         "%" PRIu64 " rows are not %" PRIu32
                                         " query and 2 x %" PRIu32 " key and value heads",
                                         qkv->ne[1], keys->n_head, keys->n_head_kv);
    if (model_reading_narrow(reading, qkv, qkv->ne[1] / heads, MODEL_GGUF_HEAD_LIMIT,
                             &layer->head_dim_k))
        return -1;
    layer->head_dim_v = layer->head_dim_k;
    return 0;
}

/* Queries without keys read the cache of an earlier block and own no rows. */
static int shape_borrowing(const struct model_reading *reading, uint32_t index,
                           const struct attention_keys *keys, struct model_layer *layer)
{
    if (require_head_count(reading, keys))
        return -1;
    layer->head_dim_k = keys->head_dim_k;
    layer->head_dim_v = keys->head_dim_v;
    if (layer->head_dim_k == 0 || layer->head_dim_v == 0)
        return model_reading_fail_key(reading, "attention.key_length",
                                      "is 0 for a block that has attention");
    return shape_queries(reading, index, keys, layer);
}

static int shape_attention(const struct model_reading *reading, uint32_t index,
                           const struct attention_keys *keys, struct model_layer *layer)
{
    const struct model *model = reading->model;
    const struct model_tensor *qkv = model_find_tensor(model, (int)index, TENSOR_ROLE_ATTN_QKV);
    int result = 0;

    layer->mixer = keys->window != 0 ? MODEL_MIXER_SLIDING_WINDOW : MODEL_MIXER_ATTENTION;
    layer->window = keys->window;
    if (model_find_tensor(model, (int)index, TENSOR_ROLE_ATTN_K))
        result = shape_keys(reading, index, keys, layer) || shape_values(reading, index, layer) ||
                 shape_queries(reading, index, keys, layer);
    else if (qkv)
        result = shape_fused(reading, qkv, keys, layer);
    else if (model_find_tensor(model, (int)index, TENSOR_ROLE_ATTN_Q))
        result = shape_borrowing(reading, index, keys, layer);
    return result ? -1 : check_head_counts(reading, layer);
}

/* ---- latent attention ---- */

/* One latent row a token, followed by the rotated part; values are a view of it. */
static int shape_mla(const struct model_reading *reading, uint32_t index, struct model_layer *layer)
{
    const struct model *model = reading->model;
    const struct model_tensor *latent =
        model_find_tensor(model, (int)index, TENSOR_ROLE_ATTN_KV_A_MQA);
    const struct model_tensor *k_b = model_find_tensor(model, (int)index, TENSOR_ROLE_ATTN_K_B);

    if (model_reading_narrow(reading, latent, latent->ne[1], MODEL_GGUF_HEAD_LIMIT,
                             &layer->head_dim_k) ||
        model_reading_narrow(reading, k_b, k_b->ne[1], MODEL_GGUF_HEAD_LIMIT, &layer->head_dim_v) ||
        model_reading_narrow(reading, k_b, k_b->ne[2], MODEL_GGUF_HEAD_LIMIT, &layer->n_head))
        return -1;
    if (layer->head_dim_v > layer->head_dim_k)
        return model_reading_fail_tensor(reading, k_b, ERROR_INPUT,
                                         "a latent row of %" PRIu32
                                         " values does not fit into %" PRIu32,
                                         layer->head_dim_v, layer->head_dim_k);
    layer->mixer = MODEL_MIXER_MLA;
    layer->n_head_kv = 1;
    layer->v_in_k = true;
    return 0;
}

/* Files from before llama.cpp kept latent rows have attn_kv_b in one piece; it
 * caches the keys and values of every head for them, and so do we. */
static int shape_expanded_mla(const struct model_reading *reading, uint32_t index,
                              const struct attention_keys *keys, struct model_layer *layer)
{
    const struct model *model = reading->model;
    const struct model_tensor *q_b = model_find_tensor(model, (int)index, TENSOR_ROLE_ATTN_Q_B);
    const struct model_tensor *q =
        q_b ? q_b : model_find_tensor(model, (int)index, TENSOR_ROLE_ATTN_Q);
    const struct model_tensor *output =
        model_find_tensor(model, (int)index, TENSOR_ROLE_ATTN_OUTPUT);

    if (require_head_count(reading, keys))
        return -1;
    layer->mixer = MODEL_MIXER_ATTENTION;
    layer->n_head = layer->n_head_kv = keys->n_head;
    layer->head_dim_k = keys->head_dim_k;
    layer->head_dim_v = keys->head_dim_v;
    if (q && q->ne[1] % keys->n_head == 0 &&
        model_reading_narrow(reading, q, q->ne[1] / keys->n_head, MODEL_GGUF_HEAD_LIMIT,
                             &layer->head_dim_k))
        return -1;
    if (output && output->ne[0] % keys->n_head == 0 &&
        model_reading_narrow(reading, output, output->ne[0] / keys->n_head, MODEL_GGUF_HEAD_LIMIT,
                             &layer->head_dim_v))
        return -1;
    return 0;
}

/* ---- gated delta nets ---- */

static int read_delta_net_keys(const struct model_reading *reading, struct model_layer *layer)
{
    const uint32_t limit = MODEL_GGUF_HEAD_LIMIT;

    layer->mixer = MODEL_MIXER_GATED_DELTA_NET;
    return model_reading_u32(reading, "ssm.conv_kernel", 0, 0, limit, &layer->gdn_conv_kernel) ||
                   model_reading_u32(reading, "ssm.state_size", 0, 0, limit,
                                     &layer->gdn_state_dim) ||
                   model_reading_u32(reading, "ssm.group_count", 0, 0, limit,
                                     &layer->gdn_k_heads) ||
                   model_reading_u32(reading, "ssm.time_step_rank", 0, 0, limit,
                                     &layer->gdn_v_heads)
               ? -1
               : 0;
}

/* ssm_conv1d is (kernel, inner + 2 x key heads x state), ssm_norm (state),
 * ssm_out (inner, n_embd); inner is value heads x state. */
static int shape_delta_net(const struct model_reading *reading, uint32_t index,
                           struct model_layer *layer)
{
    const struct model *model = reading->model;
    const struct model_tensor *conv = model_find_tensor(model, (int)index, TENSOR_ROLE_SSM_CONV1D);
    const struct model_tensor *norm = model_find_tensor(model, (int)index, TENSOR_ROLE_SSM_NORM);
    const struct model_tensor *out = model_find_tensor(model, (int)index, TENSOR_ROLE_SSM_OUT);
    const uint32_t limit = MODEL_GGUF_HEAD_LIMIT;
    uint64_t state, inner, channels = conv->ne[1];

    if (read_delta_net_keys(reading, layer))
        return -1;
    state = norm ? norm->ne[0] : layer->gdn_state_dim;
    inner = out ? out->ne[0] : state * layer->gdn_v_heads;
    if (state == 0 || state > limit || inner == 0 || inner % state != 0 || inner >= channels ||
        (channels - inner) % (2 * state) != 0)
        return model_reading_fail_tensor(reading, conv, ERROR_INPUT,
                                         "%" PRIu64 " channels are not %" PRIu64
                                         " inner values and whole key heads of %" PRIu64,
                                         channels, inner, state);
    layer->gdn_state_dim = (uint32_t)state;
    return model_reading_narrow(reading, conv, conv->ne[0], limit, &layer->gdn_conv_kernel) ||
                   model_reading_narrow(reading, conv, inner / state, limit, &layer->gdn_v_heads) ||
                   model_reading_narrow(reading, conv, (channels - inner) / (2 * state), limit,
                                        &layer->gdn_k_heads)
               ? -1
               : 0;
}

/* ---- feed-forward ---- */

static int read_experts_used(const struct model_reading *reading, uint32_t index,
                             struct model_layer *layer)
{
    if (!model_reading_find_key(reading, "expert_used_count"))
        return model_reading_fail_key(reading, "expert_used_count", "is missing");
    if (model_reading_u32(reading, "expert_used_count", index, 0, UINT32_MAX,
                          &layer->n_expert_used))
        return -1;
    if (layer->n_expert_used == 0 || layer->n_expert_used > layer->n_expert)
        return model_reading_fail_key(reading, "expert_used_count",
                                      "%" PRIu32 " of %" PRIu32 " experts cannot be",
                                      layer->n_expert_used, layer->n_expert);
    return 0;
}

static int shape_experts(const struct model_reading *reading, uint32_t index,
                         struct model_layer *layer)
{
    const struct model *model = reading->model;
    const struct model_tensor *down =
        model_find_tensor(model, (int)index, TENSOR_ROLE_FFN_DOWN_EXPS);
    const struct model_tensor *router =
        model_find_tensor(model, (int)index, TENSOR_ROLE_FFN_GATE_INP);

    if (!down && router)
        return model_reading_fail_tensor(
            reading, router, ERROR_UNSUPPORTED,
            "no ffn_down_exps beside it; experts in a tensor each are not "
            "read, convert the file anew");
    if (!down)
        return 0;
    return model_reading_narrow(reading, down, down->ne[0], UINT32_MAX, &layer->n_ff_exp) ||
                   model_reading_narrow(reading, down, down->ne[2], UINT32_MAX, &layer->n_expert) ||
                   read_experts_used(reading, index, layer)
               ? -1
               : 0;
}

static int shape_feed_forward(const struct model_reading *reading, uint32_t index,
                              struct model_layer *layer)
{
    const struct model *model = reading->model;
    const struct model_tensor *down = model_find_tensor(model, (int)index, TENSOR_ROLE_FFN_DOWN);
    const struct model_tensor *shared =
        model_find_tensor(model, (int)index, TENSOR_ROLE_FFN_DOWN_SHEXP);

    if (down && model_reading_narrow(reading, down, down->ne[0], UINT32_MAX, &layer->n_ff))
        return -1;
    if (shared &&
        model_reading_narrow(reading, shared, shared->ne[0], UINT32_MAX, &layer->n_ff_shexp))
        return -1;
    return shape_experts(reading, index, layer);
}

/* ---- a block ---- */

static int shape_layer(const struct model_reading *reading, uint32_t index,
                       const struct attention_keys *keys, struct model_layer *layer)
{
    const struct model *model = reading->model;
    int result, block = (int)index;
    const struct model_tensor *conv = model_find_tensor(model, block, TENSOR_ROLE_SSM_CONV1D);

    if (conv) {
        if (!model_find_tensor(model, block, TENSOR_ROLE_SSM_BETA) &&
            !model_find_tensor(model, block, TENSOR_ROLE_SSM_BA))
            return model_reading_fail_tensor(reading, conv, ERROR_UNSUPPORTED,
                                             "a state-space block without ssm_beta or ssm_ba; of "
                                             "these only the gated delta net is modelled");
        result = shape_delta_net(reading, index, layer);
    } else if (!model_find_tensor(model, block, TENSOR_ROLE_ATTN_KV_A_MQA)) {
        result = shape_attention(reading, index, keys, layer);
    } else if (model_find_tensor(model, block, TENSOR_ROLE_ATTN_K_B)) {
        result = shape_mla(reading, index, layer);
    } else {
        result = shape_expanded_mla(reading, index, keys, layer);
    }
    return result ? -1 : shape_feed_forward(reading, index, layer);
}

/* Without tensors, of `full_attention_interval` blocks the last has attention
 * and the others are gated delta nets, if the file has such at all. */
static int is_delta_net_by_keys(const struct model_reading *reading, uint32_t index, bool *answer)
{
    uint32_t usual = strncmp(reading->model->arch, "qwen3", 5) == 0 ? 4 : 0, interval;

    if (model_reading_u32(reading, "full_attention_interval", 0, usual, UINT32_MAX, &interval))
        return -1;
    *answer = model_reading_find_key(reading, "ssm.conv_kernel") &&
              !reading->model->layers[index].is_nextn && interval != 0 &&
              (index + 1) % interval != 0;
    return 0;
}

static int read_attention_layer(const struct model_reading *reading,
                                const struct attention_keys *keys, struct model_layer *layer)
{
    const uint32_t limit = MODEL_GGUF_HEAD_LIMIT;
    uint32_t rank, rotated;

    if (model_reading_u32(reading, "attention.kv_lora_rank", 0, 0, limit / 2, &rank) ||
        model_reading_u32(reading, "rope.dimension_count", 0, 0, limit / 2, &rotated) ||
        require_head_count(reading, keys))
        return -1;
    layer->mixer = keys->window != 0 ? MODEL_MIXER_SLIDING_WINDOW : MODEL_MIXER_ATTENTION;
    layer->window = keys->window;
    layer->n_head = keys->n_head;
    layer->n_head_kv = keys->n_head_kv;
    layer->head_dim_k = keys->head_dim_k;
    layer->head_dim_v = keys->head_dim_v;
    if (rank != 0 && keys->n_head_kv == 1) {
        layer->mixer = MODEL_MIXER_MLA;
        layer->window = 0;
        layer->head_dim_k = rank + rotated;
        layer->head_dim_v = rank;
        layer->v_in_k = true;
    }
    return check_head_counts(reading, layer);
}

static int read_feed_forward(const struct model_reading *reading, uint32_t index,
                             struct model_layer *layer)
{
    uint32_t width, dense_blocks, shared_count;

    if (model_reading_u32(reading, "feed_forward_length", index, 0, UINT32_MAX, &width) ||
        model_reading_u32(reading, "leading_dense_block_count", 0, 0, UINT32_MAX, &dense_blocks) ||
        model_reading_u32(reading, "expert_count", index, 0, UINT32_MAX, &layer->n_expert))
        return -1;
    if (layer->n_expert == 0 || index < dense_blocks) {
        layer->n_ff = width;
        layer->n_expert = 0;
        return 0;
    }
    if (strcmp(reading->model->arch, "gemma4") == 0)
        layer->n_ff = width; /* beside the experts */
    if (model_reading_u32(reading, "expert_feed_forward_length", index, width, UINT32_MAX,
                          &layer->n_ff_exp) ||
        model_reading_u32(reading, "expert_shared_count", index, 0, 65535, &shared_count))
        return -1;
    if (layer->n_ff_exp > UINT32_MAX / 65536)
        return model_reading_fail_key(reading, "expert_feed_forward_length",
                                      "%" PRIu32 " is too much", layer->n_ff_exp);
    if (model_reading_u32(reading, "expert_shared_feed_forward_length", index,
                          shared_count * layer->n_ff_exp, UINT32_MAX, &layer->n_ff_shexp))
        return -1;
    return read_experts_used(reading, index, layer);
}

int model_reading_layer(const struct model_reading *reading, uint32_t index)
{
    struct model_layer *layer = &reading->model->layers[index];
    struct attention_keys keys;
    bool is_delta_net;

    if (read_attention_keys(reading, index, &keys))
        return -1;
    if (reading->model->tensor_count != 0)
        return shape_layer(reading, index, &keys, layer);
    if (is_delta_net_by_keys(reading, index, &is_delta_net))
        return -1;
    if (is_delta_net ? read_delta_net_keys(reading, layer)
                     : read_attention_layer(reading, &keys, layer))
        return -1;
    return read_feed_forward(reading, index, layer);
}
