/* Gated delta net: docs/arithmetic.md, "Recurrent layers". Tokens of a sequence one after the
 * other; heads, columns of a state and channels of the convolution do not touch each other. */
#include "ref/kernels_private.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ref/arith.h"

/* Tokens of this token's sequence in the step, from this one on. */
static uint32_t tokens_from(const struct program_token *tokens, uint32_t count, uint32_t t)
{
    uint32_t sum = 0;

    for (uint32_t i = t; i < count; i++)
        sum += tokens[i].sequence == tokens[t].sequence;
    return sum;
}

static bool is_first(const struct program_token *tokens, uint32_t t)
{
    for (uint32_t i = 0; i < t; i++)
        if (tokens[i].sequence == tokens[t].sequence)
            return false;
    return true;
}

/* Makes room for the planes of `added` tokens behind plane `undone`: what was plane undone + p
 * becomes plane added + p. Each plane has `size` values of its own, `stride` apart. */
static void age_planes(float *state, uint32_t planes, uint32_t undone, uint32_t added,
                       uint64_t size, uint64_t stride)
{
    for (uint32_t i = added; i < planes; i++) {
        uint32_t to = undone < added ? planes - 1 - (i - added) : i;
        uint32_t from = undone + to - added;

        if (from < planes && from != to)
            memcpy(state + to * stride, state + from * stride, size * sizeof *state);
    }
}

/* ---- convolution ---- */

/* One token's inputs in `history` (taps, channels), oldest first. */
static void convolve_token(const struct convolve *convolve, const float *history, float *x)
{
    for (uint64_t c = 0; c < convolve->channels; c++) {
        uint64_t channel = c / convolve->count * convolve->segment_channels + convolve->first +
                           c % convolve->count;
        const float *weight = convolve->weight + channel * convolve->taps;
        float sum = 0;

        for (uint32_t j = 0; j < convolve->taps; j++)
            sum = fmaf(weight[j], history[j * convolve->channels + c], sum);
        x[c] = arith_silu(sum);
    }
}

static void convolve_sequence(const struct convolve *convolve, uint32_t first, float *history,
                              float *x)
{
    const struct program_token *tokens = convolve->tokens;
    uint64_t kept = (convolve->taps - 1) * convolve->channels;
    float *state = convolve->state + tokens[first].sequence * (uint64_t)convolve->planes * kept;

    if (tokens[first].from_zero)
        memset(history, 0, kept * sizeof *history);
    else
        memcpy(history, state + tokens[first].undone * kept, kept * sizeof *history);
    age_planes(state, convolve->planes, tokens[first].undone,
               tokens_from(tokens, convolve->token_count, first), kept, kept);
    for (uint32_t t = first; t < convolve->token_count; t++) {
        float *row = x + t * convolve->channels;
        uint32_t plane;

        if (tokens[t].sequence != tokens[first].sequence)
            continue;
        memcpy(history + kept, row, convolve->channels * sizeof *row);
        convolve_token(convolve, history, row);
        memmove(history, history + convolve->channels, kept * sizeof *history);
        plane = tokens_from(tokens, convolve->token_count, t) - 1;
        if (plane < convolve->planes)
            memcpy(state + plane * kept, history, kept * sizeof *history);
    }
}

int REF_NAME(convolve)(const struct convolve *convolve, float *x)
{
    float *history = malloc(convolve->taps * convolve->channels * sizeof *history);

    if (history == NULL)
        return -1;
    for (uint32_t t = 0; t < convolve->token_count; t++)
        if (is_first(convolve->tokens, t))
            convolve_sequence(convolve, t, history, x);
    free(history);
    return 0;
}

/* ---- delta rule ---- */

/* x / sqrt(sum of squares + eps), times a factor. */
static void unit(const float *x, uint32_t n, float eps, float factor, float *y)
{
    float scale = arith_rsqrt(arith_sum_squares(x, n) + eps);

    for (uint32_t i = 0; i < n; i++)
        y[i] = x[i] * scale * factor;
}

/* A token's step of a head: (dim, dim) state, a row for each value. */
static void delta_step(const struct delta *delta, uint32_t t, uint32_t h, float *s, float *scratch,
                       float *out)
{
    uint32_t n = delta->dim, k_head = h % delta->k_heads;
    const float *mix = delta->mix + (uint64_t)t * (2 * delta->k_heads + delta->v_heads) * n;
    const float *value = mix + (uint64_t)(2 * delta->k_heads + h) * n;
    float *q = scratch, *k = scratch + n;
    uint64_t gate = (uint64_t)t * delta->v_heads + h;
    float beta = arith_sigmoid(delta->beta[gate]);
    float decay = arith_exp(delta->a[h] * arith_softplus(delta->alpha[gate] + delta->dt[h]));

    unit(mix + (uint64_t)k_head * n, n, delta->eps, arith_rsqrt((float)n), q);
    unit(mix + (uint64_t)(delta->k_heads + k_head) * n, n, delta->eps, 1.0f, k);
    for (uint32_t row = 0; row < n; row++) {
        float *state = s + (uint64_t)row * n;
        float change;

        for (uint32_t i = 0; i < n; i++)
            state[i] = state[i] * decay;
        change = (value[row] - arith_dot8(state, k, n)) * beta;
        for (uint32_t i = 0; i < n; i++)
            state[i] = arith_canonical(fmaf(k[i], change, state[i]));
        out[row] = arith_dot8(state, q, n);
    }
}

static void delta_sequence(const struct delta *delta, uint32_t first, uint32_t h, float *scratch,
                           float *out)
{
    const struct program_token *tokens = delta->tokens;
    uint64_t size = (uint64_t)delta->dim * delta->dim, plane_size = delta->v_heads * size;
    float *state = delta->state + tokens[first].sequence * delta->planes * plane_size + h * size;
    float *s = scratch + 2 * delta->dim;

    if (tokens[first].from_zero)
        memset(s, 0, size * sizeof *s);
    else
        memcpy(s, state + tokens[first].undone * plane_size, size * sizeof *s);
    age_planes(state, delta->planes, tokens[first].undone,
               tokens_from(tokens, delta->token_count, first), size, plane_size);
    for (uint32_t t = first; t < delta->token_count; t++) {
        uint32_t plane;

        if (tokens[t].sequence != tokens[first].sequence)
            continue;
        delta_step(delta, t, h, s, scratch, out + ((uint64_t)t * delta->v_heads + h) * delta->dim);
        plane = tokens_from(tokens, delta->token_count, t) - 1;
        if (plane < delta->planes)
            memcpy(state + plane * plane_size, s, size * sizeof *s);
    }
}

int REF_NAME(delta)(const struct delta *delta, float *out)
{
    size_t size = (2 + (size_t)delta->dim) * delta->dim;
    float *scratch = malloc(delta->v_heads * size * sizeof *scratch);

    if (scratch == NULL)
        return -1;
    REF_PARALLEL_FOR(delta->v_heads * size * delta->token_count)
    for (uint32_t h = 0; h < delta->v_heads; h++)
        for (uint32_t t = 0; t < delta->token_count; t++)
            if (is_first(delta->tokens, t))
                delta_sequence(delta, t, h, scratch + h * size, out);
    free(scratch);
    return 0;
}
