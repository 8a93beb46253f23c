/* What the values of each role look like, and how a range of bytes is put together from
 * the blocks of synth_block.h. Files and bytes are little-endian, and so is the host. */
#include "ref/synth.h"

#include <string.h>

/* ---- what values look like ---- */

/* Values are uniform in centre +- amplitude; amplitude 0: mean 0 and a deviation of
 * deviation_of(). Roles that are not here: norms (by their name), biases, and products. */
static const struct {
    enum tensor_role role;
    float centre, amplitude;
} role_values[] = {
    {TENSOR_ROLE_ROPE_FREQS, 2.5f, 1.5f}, /* divisors of 1 to 4 */
    {TENSOR_ROLE_ATTN_SINKS, 0, 1},
    {TENSOR_ROLE_SSM_CONV1D, 0, 0.8660254f}, /* a deviation of 1/2 */
    {TENSOR_ROLE_SSM_DT, 0, 1},
    {TENSOR_ROLE_SSM_A, -0.525f, 0.475f},
    {TENSOR_ROLE_FFN_GATE_INP_SCALE, 1, 0.1f},
    {TENSOR_ROLE_FFN_DOWN_EXPS_SCALE, 1, 0.1f},
    {TENSOR_ROLE_LAYER_OUTPUT_SCALE, 0.75f, 0.25f},
};

#define NORM_AMPLITUDE 0.09f
#define BIAS_AMPLITUDE 0.05f
#define SQRT_3 1.7320508075688772 /* amplitude of a uniform distribution / its deviation */

static bool ends_in(const char *name, const char *end)
{
    size_t length = strlen(name), end_length = strlen(end);

    return length >= end_length && strcmp(name + length - end_length, end) == 0;
}

static void choose_values(const struct model_tensor *tensor, float *centre, float *amplitude)
{
    *centre = 0;
    *amplitude = 0;
    for (size_t i = 0; i < sizeof role_values / sizeof *role_values; i++)
        if (role_values[i].role == tensor->role) {
            *centre = role_values[i].centre;
            *amplitude = role_values[i].amplitude;
            return;
        }
    if (ends_in(tensor->name, ".bias")) {
        *amplitude = BIAS_AMPLITUDE;
    } else if (tensor->ne[1] == 1 && strstr(tensor->name, "norm")) {
        *centre = 1;
        *amplitude = NORM_AMPLITUDE;
    }
}

/* ---- a tensor ---- */

/* Root mean square of the values of a quantised type at d = 1; 0 for others. */
static double type_rms(enum tensor_type type)
{
    switch (type) {
    case TENSOR_TYPE_Q8_0:
        return SYNTH_RMS_Q8_0;
    case TENSOR_TYPE_Q4_0:
        return SYNTH_RMS_Q4_0;
    case TENSOR_TYPE_Q4_K:
        return SYNTH_RMS_Q4_K;
    case TENSOR_TYPE_Q5_K:
        return SYNTH_RMS_Q5_K;
    case TENSOR_TYPE_Q6_K:
        return SYNTH_RMS_Q6_K;
    default:
        return 0;
    }
}

static bool is_float(enum tensor_type type)
{
    return type == TENSOR_TYPE_F32 || type == TENSOR_TYPE_F16 || type == TENSOR_TYPE_BF16;
}

bool synth_makes_type(enum tensor_type type)
{
    return is_float(type) || type_rms(type) > 0;
}

/* d rises from `scale` by up to a sixteenth, so its mean is 1/32 above. */
static void choose_scale(struct synth *synth, double deviation)
{
    double d = deviation / type_rms(synth->type) / (1 + 1.0 / 32);
    uint32_t bits = arith_f16_from_f32((float)d);
    uint32_t steps = bits >> 10 ? 1024 + (bits & 0x3ff) : bits;

    synth->scale = bits ? bits : 1;
    synth->scale_spread = steps / 16;
}

/* FNV-1a, 64 bits. Source: draft-eastlake-fnv. */
static uint64_t hash_name(const char *name)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);

    for (; *name != '\0'; name++)
        hash = (hash ^ (unsigned char)*name) * UINT64_C(0x100000001b3);
    return hash;
}

/* Spreads near seeds apart. Source: Steele, Lea, Flood, "Fast splittable pseudorandom
 * number generators" (2014), the output function of SplitMix64. */
static uint64_t spread_seed(uint64_t seed)
{
    seed += UINT64_C(0x9e3779b97f4a7c15);
    seed = (seed ^ seed >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    seed = (seed ^ seed >> 27) * UINT64_C(0x94d049bb133111eb);
    return seed ^ seed >> 31;
}

/* Of a product, or of embeddings. */
static double deviation_of(const struct model_tensor *tensor, bool tied)
{
    double deviation = 1 / sqrt((double)tensor->ne[0]);

    switch (tensor->role) {
    case TENSOR_ROLE_TOKEN_EMBD:
        return tied ? deviation : 1;
    case TENSOR_ROLE_ATTN_OUTPUT:
    case TENSOR_ROLE_SSM_OUT:
        return deviation / 4;
    default:
        return deviation;
    }
}

int synth_init(struct synth *synth, const struct model_tensor *tensor, bool tied, uint64_t seed,
               struct error *err)
{
    const struct tensor_type_info *info = tensor_type_info(tensor->type);
    uint64_t key = hash_name(tensor->name) ^ spread_seed(seed);
    double deviation = deviation_of(tensor, tied);
    float centre, amplitude;

    if (!synth_makes_type(tensor->type))
        return error_set(err, ERROR_UNSUPPORTED,
                         "tensor %.60s: synthetic values are not made as %s; they are as F32, "
                         "F16, BF16, Q8_0, Q4_0, Q4_K, Q5_K, Q6_K",
                         tensor->name, info ? info->name : "a type without a name");
    choose_values(tensor, &centre, &amplitude);
    if (!is_float(tensor->type) && centre != 0)
        return error_set(err, ERROR_UNSUPPORTED,
                         "tensor %.60s: synthetic values around %g are not made as %s, only as "
                         "F32, F16 or BF16",
                         tensor->name, (double)centre, info->name);
    *synth = (struct synth){
        .key = {(uint32_t)key, (uint32_t)(key >> 32)}, .type = tensor->type, .centre = centre};
    if (is_float(tensor->type))
        synth->amplitude = amplitude > 0 ? amplitude : (float)(deviation * SQRT_3);
    else
        choose_scale(synth, amplitude > 0 ? (double)amplitude / SQRT_3 : deviation);
    return 0;
}

/* ---- bytes ---- */

#define UNIT_BYTES_MAX 256

/* Bytes of the unit that is made at once: four floats, or a block. */
static size_t unit_bytes(enum tensor_type type)
{
    size_t block_bytes = tensor_type_info(type)->block_bytes;

    return is_float(type) ? SYNTH_FLOATS_UNIT * block_bytes : block_bytes;
}

static void make_unit(const struct synth *synth, uint64_t unit, unsigned char *out)
{
    float values[SYNTH_FLOATS_UNIT];

    if (!is_float(synth->type)) {
        synth_block(synth, unit, out);
        return;
    }
    synth_floats(synth, unit, values);
    if (synth->type == TENSOR_TYPE_F32) {
        memcpy(out, values, sizeof values);
        return;
    }
    for (size_t i = 0; i < SYNTH_FLOATS_UNIT; i++)
        if (synth->type == TENSOR_TYPE_F16)
            synth_put_u16(out + 2 * i, arith_f16_from_f32(values[i]));
        else
            synth_put_u16(out + 2 * i, arith_bf16_from_f32(values[i]));
}

void synth_bytes(const struct synth *synth, uint64_t offset, void *bytes, size_t size)
{
    size_t whole = unit_bytes(synth->type);
    unsigned char *out = bytes;

    while (size > 0) {
        uint64_t unit = offset / whole;
        size_t skip = (size_t)(offset % whole);
        size_t part = whole - skip < size ? whole - skip : size;

        if (part == whole) {
            make_unit(synth, unit, out);
        } else {
            unsigned char edge[UNIT_BYTES_MAX];

            make_unit(synth, unit, edge);
            memcpy(out, edge + skip, part);
        }
        offset += part;
        out += part;
        size -= part;
    }
}
