/* The usual numbers of each architecture, and the keys of a file that say otherwise.
 *
 * Keys and defaults: src/llama-arch.cpp and src/models/ of llama.cpp. Left out: YaRN and
 * other scalings of positions than linear, and linear ones beside sliding windows, where
 * architectures differ in which layers they scale. */
#include "ref/numbers.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "sim/word_list.h"

/* ---- architectures ---- */

struct arch_numbers {
    const char *arch;
    float norm_eps;
    double rope_base, rope_base_sliding; /* sliding 0: the same as rope_base */
    uint32_t rope_share;                 /* head_dim_k / rope_dim */
    enum numbers_rope rope;
    enum numbers_activation activation;
    bool embedding_scaled; /* by sqrt(n_embd) */
    float attention_scale, logit_softcap;
};

/* M-RoPE of qwen35 has three positions a token, which are equal for text: plain rotation. */
static const struct arch_numbers archs[] = {
    {"llama", 1e-5f, 1e4, 0, 1, NUMBERS_ROPE_PAIRS, NUMBERS_SILU, false, 0, 0},
    {"qwen3", 1e-6f, 1e6, 0, 1, NUMBERS_ROPE_HALVES, NUMBERS_SILU, false, 0, 0},
    {"qwen3moe", 1e-6f, 1e6, 0, 1, NUMBERS_ROPE_HALVES, NUMBERS_SILU, false, 0, 0},
    {"qwen35", 1e-6f, 1e7, 0, 4, NUMBERS_ROPE_HALVES, NUMBERS_SILU, false, 0, 0},
    {"qwen35moe", 1e-6f, 1e7, 0, 4, NUMBERS_ROPE_HALVES, NUMBERS_SILU, false, 0, 0},
    {"gemma4", 1e-6f, 1e6, 1e4, 1, NUMBERS_ROPE_HALVES, NUMBERS_GELU_TANH, true, 1, 30},
    {"muse-glimmer", 1e-5f, 5e5, 0, 1, NUMBERS_ROPE_HALVES, NUMBERS_SILU, false, 0, 0},
};

#define ARCH_COUNT (sizeof archs / sizeof *archs)

static int refuse_arch(const struct model *model, struct error *err)
{
    const char *names[ARCH_COUNT];
    char list[200];

    for (size_t i = 0; i < ARCH_COUNT; i++)
        names[i] = archs[i].arch;
    word_list_text(names, ARCH_COUNT, list, sizeof list);
    return error_set(err, ERROR_UNSUPPORTED,
                     "the reference does not compute models of architecture %s; it computes %s",
                     model->arch, list);
}

static const struct arch_numbers *find_arch(const struct model *model)
{
    for (size_t i = 0; i < ARCH_COUNT; i++)
        if (strcmp(archs[i].arch, model->arch) == 0)
            return &archs[i];
    return NULL;
}

/* ---- keys ---- */

struct reading {
    const struct model *model;
    const struct gguf *gguf; /* may be NULL */
    struct error *err;
};

#define KEY_BYTES 128

/* The key "<arch>.<key>", or NULL. */
static const struct gguf_key *find_key(const struct reading *reading, const char *key)
{
    char name[KEY_BYTES];

    if (!reading->gguf)
        return NULL;
    snprintf(name, sizeof name, "%s.%s", reading->model->arch, key);
    return gguf_find_key(reading->gguf, name);
}

static int fail_key(const struct reading *reading, enum error_code code, const char *key,
                    const char *text)
{
    return error_set_at(reading->err, code, gguf_part_path(reading->gguf, 0), 0, 0,
                        "key \"%s.%s\": %s", reading->model->arch, key, text);
}

/* Reads a float over its default; it has to lie above `low`. */
static int read_float(const struct reading *reading, const char *key, float low, float *value)
{
    const struct gguf_key *found = find_key(reading, key);
    char text[100];
    float read;

    if (!found)
        return 0;
    if (!gguf_get_f32(reading->gguf, found->name, &read))
        return fail_key(reading, ERROR_INPUT, key, "is not a number");
    if (!(read > low) || isinf(read)) {
        snprintf(text, sizeof text, "%g cannot be; a finite number above %g can", (double)read,
                 (double)low);
        return fail_key(reading, ERROR_INPUT, key, text);
    }
    *value = read;
    return 0;
}

/* As read_float for a factor that 0 leaves out: the default stays. */
static int read_factor(const struct reading *reading, const char *key, float *value)
{
    const struct gguf_key *found = find_key(reading, key);
    float read;

    if (found && gguf_get_f32(reading->gguf, found->name, &read) && read == 0)
        return 0;
    return read_float(reading, key, 0, value);
}

static int read_base(const struct reading *reading, const char *key, double *base)
{
    float value = (float)*base;

    if (!find_key(reading, key))
        return 0;
    if (read_float(reading, key, 1, &value))
        return -1;
    *base = (double)value;
    return 0;
}

/* ---- rotary positions ---- */

/* The width of a key head, 0 without a layer of that kind. */
static uint32_t head_dim(const struct model *model, enum model_mixer mixer)
{
    for (uint32_t i = 0; i < model->n_layer + model->n_layer_nextn; i++)
        if (model->layers[i].mixer == mixer)
            return model->layers[i].head_dim_k;
    return 0;
}

/* Reads how many values of a head turn over the default; 0 for heads that are not there. */
static int read_rope_dim(const struct reading *reading, const char *key, uint32_t head_dim_k,
                         uint32_t *rope_dim)
{
    const struct gguf_key *found = find_key(reading, key);
    uint64_t value = *rope_dim;

    if (head_dim_k == 0)
        value = 0;
    else if (found && !gguf_get_u64(reading->gguf, found->name, &value))
        return fail_key(reading, ERROR_INPUT, key, "is not an integer of 0 or more");
    if (value > head_dim_k || value % 2 != 0)
        return error_set_at(reading->err, ERROR_INPUT, reading->model->source, 0, 0,
                            "key \"%s.%s\": %" PRIu64 " values of a head of %" PRIu32
                            " cannot turn in pairs",
                            reading->model->arch, key, value, head_dim_k);
    *rope_dim = (uint32_t)value;
    return 0;
}

static int read_rope_dims(const struct reading *reading, const struct arch_numbers *arch,
                          struct numbers *numbers)
{
    uint32_t full = head_dim(reading->model, MODEL_MIXER_ATTENTION);
    uint32_t sliding = head_dim(reading->model, MODEL_MIXER_SLIDING_WINDOW);

    if (full == 0)
        full = sliding; /* one number serves both */
    numbers->rope_dim = full / arch->rope_share;
    if (read_rope_dim(reading, "rope.dimension_count", full, &numbers->rope_dim))
        return -1;
    numbers->rope_dim_sliding = sliding == full ? numbers->rope_dim : sliding / arch->rope_share;
    return read_rope_dim(reading, "rope.dimension_count_swa", sliding, &numbers->rope_dim_sliding);
}

static int read_rope_bases(const struct reading *reading, const struct arch_numbers *arch,
                           struct numbers *numbers)
{
    numbers->rope_base = arch->rope_base;
    if (read_base(reading, "rope.freq_base", &numbers->rope_base))
        return -1;
    numbers->rope_base_sliding =
        arch->rope_base_sliding > 0 ? arch->rope_base_sliding : numbers->rope_base;
    return read_base(reading, "rope.freq_base_swa", &numbers->rope_base_sliding);
}

/* Whether rope.scaling.type asks for linear scaling; files from before that key scale
 * where they have a factor. */
static int read_scaling_type(const struct reading *reading, bool *linear)
{
    static const char name[] = "rope.scaling.type";
    const struct gguf_key *found = find_key(reading, name);
    const char *text;
    char message[120];
    size_t length;

    *linear = true;
    if (!found)
        return 0;
    if (!gguf_get_string(reading->gguf, found->name, &text, &length))
        return fail_key(reading, ERROR_INPUT, name, "is not a string");
    if (length == 6 && memcmp(text, "linear", 6) == 0)
        return 0;
    *linear = false;
    if (length == 4 && memcmp(text, "none", 4) == 0)
        return 0;
    snprintf(message, sizeof message,
             "the reference does not scale positions by \"%.*s\"; it computes none and linear",
             (int)(length < 20 ? length : 20), text);
    return fail_key(reading, ERROR_UNSUPPORTED, name, message);
}

static int read_rope_scale(const struct reading *reading, struct numbers *numbers)
{
    const char *key =
        find_key(reading, "rope.scaling.factor") ? "rope.scaling.factor" : "rope.scale_linear";
    float factor = 1;
    bool linear;

    numbers->rope_scale = 1;
    if (read_scaling_type(reading, &linear))
        return -1;
    if (!linear)
        return 0;
    if (read_factor(reading, key, &factor))
        return -1;
    if (factor != 1 && head_dim(reading->model, MODEL_MIXER_SLIDING_WINDOW) != 0)
        return fail_key(reading, ERROR_UNSUPPORTED, key,
                        "the reference does not scale positions of a model with sliding windows");
    numbers->rope_scale = 1 / (double)factor;
    return 0;
}

/* ---- all of them ---- */

static int read_router(const struct reading *reading, struct numbers *numbers)
{
    const struct gguf_key *found = find_key(reading, "expert_weights_norm");

    numbers->expert_scale = 1;
    numbers->router_normalised = true;
    if (found && !gguf_get_bool(reading->gguf, found->name, &numbers->router_normalised))
        return fail_key(reading, ERROR_INPUT, "expert_weights_norm", "is not true or false");
    return read_factor(reading, "expert_weights_scale", &numbers->expert_scale);
}

static int fill(const struct reading *reading, const struct arch_numbers *arch,
                struct numbers *numbers)
{
    numbers->norm_eps = arch->norm_eps;
    numbers->embedding_scale =
        arch->embedding_scaled ? (float)sqrt((double)reading->model->n_embd) : 1;
    numbers->attention_scale = arch->attention_scale;
    numbers->logit_softcap = arch->logit_softcap;
    numbers->activation = arch->activation;
    numbers->rope = arch->rope;
    return read_float(reading, "attention.layer_norm_rms_epsilon", 0, &numbers->norm_eps) ||
                   read_factor(reading, "embedding_scale", &numbers->embedding_scale) ||
                   read_factor(reading, "attention.scale", &numbers->attention_scale) ||
                   read_factor(reading, "final_logit_softcapping", &numbers->logit_softcap) ||
                   read_router(reading, numbers) || read_rope_dims(reading, arch, numbers) ||
                   read_rope_bases(reading, arch, numbers) || read_rope_scale(reading, numbers)
               ? -1
               : 0;
}

int numbers_of(const struct model *model, const struct gguf *gguf, struct numbers *numbers,
               struct error *err)
{
    const struct arch_numbers *arch = find_arch(model);
    struct reading reading = {.model = model, .gguf = gguf, .err = err};
    struct numbers filled = {0};

    if (!arch)
        return refuse_arch(model, err);
    if (fill(&reading, arch, &filled))
        return -1;
    *numbers = filled;
    return 0;
}
