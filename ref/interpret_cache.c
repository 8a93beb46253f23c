/* Caches, attention, recurrent states, and copies between memories. */
#include "ref/interpret_private.h"

#include <stdlib.h>
#include <string.h>

#include "ref/arith.h"

/* ---- sizes ---- */

static enum tensor_type cache_type(const struct interpreter *interpreter, unsigned value)
{
    return layout_cache_type(interpreter->placement, value);
}

static size_t cache_bytes(const struct interpreter *interpreter, unsigned value, bool sliding,
                          uint64_t row_values)
{
    return layout_cache_bytes(interpreter->placement, &interpreter->room, value, sliding,
                              row_values);
}

static uint64_t state_rows(const struct interpreter *interpreter, unsigned value, int layer)
{
    return layout_state_rows(interpreter->model, &interpreter->room, value, layer);
}

/* ---- rotary embedding ---- */

/* base^(-2 i / turned), divided by the model's own factors. */
static int set_frequencies(struct interpreter *interpreter, const struct program_op *op,
                           uint32_t turned, struct error *err)
{
    const struct numbers *numbers = interpreter->numbers;
    double base = op->sliding ? numbers->rope_base_sliding : numbers->rope_base;
    const float *factors = NULL;
    double *grown = realloc(interpreter->frequencies, (turned / 2 + 1) * sizeof *grown);

    if (grown == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for rotary frequencies");
    interpreter->frequencies = grown;
    if (op->tensor >= 0) {
        factors = interpret_tensor(interpreter, op, op->tensor, err);
        if (factors == NULL)
            return -1;
    }
    for (uint32_t i = 0; i < turned / 2; i++) {
        grown[i] = arith_pow_double(base, -2.0 * i / turned) * numbers->rope_scale;
        if (factors != NULL)
            grown[i] /= (double)factors[i];
    }
    return 0;
}

int interpret_rope(struct interpreter *interpreter, const struct program_op *op, struct error *err)
{
    uint32_t tokens = interpreter->program->tokens;
    uint64_t n = (uint64_t)tokens * op->heads * op->columns;
    struct rope rope = {.tokens = interpret_tokens(interpreter, op, err),
                        .token_count = tokens,
                        .heads = op->heads,
                        .dim = (uint32_t)op->columns,
                        .turned = layout_turned(interpreter->numbers, op),
                        .halves = interpreter->numbers->rope == NUMBERS_ROPE_HALVES};
    float *x = memory_find(interpreter->memory, op->a, op->layer, n * sizeof *x, err);

    if (rope.tokens == NULL || x == NULL || set_frequencies(interpreter, op, rope.turned, err) != 0)
        return -1;
    rope.frequencies = interpreter->frequencies;
    interpreter->kernels->rope(&rope, x);
    return 0;
}

/* ---- caches ---- */

int interpret_store(struct interpreter *interpreter, const struct program_op *op, struct error *err)
{
    uint32_t count = interpreter->program->tokens;
    enum tensor_type type = cache_type(interpreter, op->out.value);
    uint64_t width = op->kv_heads * op->columns, row = op->row_heads * op->columns;
    uint64_t stride = op->from.row > 0 ? op->from.row : width; /* kept rows are of all heads */
    const struct program_token *tokens = interpret_tokens(interpreter, op, err);
    const float *in = interpret_in(interpreter, op, op->a, count * stride, err);
    char *cache = memory_reserve(interpreter->memory, op->out, op->layer,
                                 cache_bytes(interpreter, op->out.value, op->sliding, row), err);

    if (tokens == NULL || in == NULL || cache == NULL)
        return -1;
    if (op->columns % tensor_type_info(type)->block_elements != 0)
        return error_set(err, ERROR_UNSUPPORTED, "heads of %llu values do not fill blocks of %s",
                         (unsigned long long)op->columns, tensor_type_info(type)->name);
#ifdef _OPENMP
#pragma omp parallel for schedule(static) if (count >= INTERPRET_MANY_TOKENS)
#endif
    for (uint32_t t = 0; t < count; t++)
        interpreter->kernels->store(type, in + t * stride + op->from.first, width,
                                    cache + tokens[t].cell[op->sliding] *
                                                tensor_type_row_bytes(type, row),
                                    op->kv_first * op->columns);
    return 0;
}

static void load_row(enum tensor_type type, const char *row, uint64_t first, uint64_t n, float *out)
{
    for (uint64_t i = 0; i < n && type == TENSOR_TYPE_F16; i++)
        out[i] = arith_f32_from_f16(((const uint16_t *)(const void *)row)[first + i]);
    for (uint64_t i = 0; i < n && type != TENSOR_TYPE_F16; i += ARITH_BLOCK)
        arith_dequantise_block(type, row + tensor_type_row_bytes(type, first + i), 0, out + i);
}

/* Rows are read from the cache's type, turned back by as many positions as they move down,
 * and stored again. */
int interpret_shift(struct interpreter *interpreter, const struct program_op *op, struct error *err)
{
    const struct layout_room *room = &interpreter->room;
    enum tensor_type type = cache_type(interpreter, op->out.value);
    uint64_t rows = (uint64_t)room->streams * room->cells[op->sliding];
    uint64_t width = op->row_heads * op->columns, part = op->kv_heads * op->columns;
    uint64_t row_bytes = tensor_type_row_bytes(type, width);
    const uint32_t *shifts =
        memory_find(interpreter->memory, op->a, -1, rows * sizeof *shifts, err);
    char *cache = memory_reserve(interpreter->memory, op->out, op->layer, rows * row_bytes, err);
    struct program_token token = {.token = 0};
    struct rope rope = {.tokens = &token,
                        .token_count = 1,
                        .heads = op->kv_heads,
                        .dim = (uint32_t)op->columns,
                        .turned = layout_turned(interpreter->numbers, op),
                        .halves = interpreter->numbers->rope == NUMBERS_ROPE_HALVES};
    float *values = calloc(part + 1, sizeof *values);

    if (shifts == NULL || cache == NULL || values == NULL ||
        set_frequencies(interpreter, op, rope.turned, err) != 0) {
        free(values);
        return error_set(err, ERROR_MEMORY, "no memory for a row of K");
    }
    for (uint32_t i = 0; i < rope.turned / 2; i++)
        interpreter->frequencies[i] = -interpreter->frequencies[i];
    rope.frequencies = interpreter->frequencies;
    for (uint64_t row = 0; row < rows; row++) {
        char *bytes = cache + row * row_bytes;

        if (shifts[row] == 0)
            continue;
        token.position = shifts[row];
        load_row(type, bytes, op->kv_first * op->columns, part, values);
        interpreter->kernels->rope(&rope, values);
        interpreter->kernels->store(type, values, part, bytes, op->kv_first * op->columns);
    }
    free(values);
    return 0;
}

int interpret_attend(struct interpreter *interpreter, const struct program_op *op,
                     struct error *err)
{
    const struct layout_room *room = &interpreter->room;
    const struct model_layer *l = &interpreter->model->layers[op->layer];
    struct program_operand cells = {
        .value = OP_VALUE_CELLS, .slot = op->sliding, .space = op->a.space};
    uint64_t rows = (uint64_t)interpreter->program->tokens * op->heads;
    struct attend attend = {.query = interpret_in(interpreter, op, op->a, rows * op->columns, err),
                            .tokens = interpret_tokens(interpreter, op, err),
                            .token_count = interpreter->program->tokens,
                            .heads = op->heads,
                            .kv_heads = op->kv_heads,
                            .dim_k = (uint32_t)op->columns,
                            .dim_v = (uint32_t)op->rows,
                            .type_k = interpreter->placement->plan.type_k,
                            .type_v = interpreter->placement->plan.type_v,
                            .row_heads = op->row_heads,
                            .kv_first = op->kv_first,
                            .positions = room->positions,
                            .window = l->window,
                            .scale = layout_attention_scale(interpreter->numbers, op->columns)};
    float *out = interpret_out(interpreter, op, op->out, rows * op->rows, err);

    attend.cache_k = memory_find(
        interpreter->memory, op->b, op->layer,
        cache_bytes(interpreter, op->b.value, op->sliding, op->row_heads * op->columns), err);
    attend.cache_v = memory_find(
        interpreter->memory, op->c, op->layer,
        cache_bytes(interpreter, op->c.value, op->sliding, op->row_heads * op->rows), err);
    attend.cells =
        memory_find(interpreter->memory, cells, -1,
                    (uint64_t)room->sequences * room->positions * sizeof *attend.cells, err);
    if (attend.query == NULL || attend.tokens == NULL || out == NULL || attend.cache_k == NULL ||
        attend.cache_v == NULL || attend.cells == NULL)
        return -1;
    return interpreter->kernels->attend(&attend, out) == 0
               ? 0
               : error_set(err, ERROR_MEMORY, "no memory for attention");
}

/* ---- recurrent layers ---- */

int interpret_convolve(struct interpreter *interpreter, const struct program_op *op,
                       struct error *err)
{
    const struct model_layer *l = &interpreter->model->layers[op->layer];
    uint32_t tokens = interpreter->program->tokens;
    uint64_t rows = state_rows(interpreter, OP_VALUE_CONV, op->layer);
    struct convolve convolve = {.tokens = interpret_tokens(interpreter, op, err),
                                .token_count = tokens,
                                .channels = op->columns,
                                .taps = l->gdn_conv_kernel,
                                .weight =
                                    interpret_role(interpreter, op, TENSOR_ROLE_SSM_CONV1D, err),
                                .segment_channels = (uint64_t)l->gdn_k_heads * l->gdn_state_dim,
                                .first = op->slice.first,
                                .count = op->slice.count,
                                .planes = interpreter->room.planes};
    float *x =
        memory_find(interpreter->memory, op->a, op->layer, tokens * op->columns * sizeof *x, err);

    convolve.state = memory_reserve(interpreter->memory, op->b, op->layer,
                                    rows * op->columns * sizeof *convolve.state, err);
    if (convolve.tokens == NULL || convolve.weight == NULL || x == NULL || convolve.state == NULL)
        return -1;
    return interpreter->kernels->convolve(&convolve, x) == 0
               ? 0
               : error_set(err, ERROR_MEMORY, "no memory for a convolution");
}

/* The device's part of a row of values, one a value head: a range in each segment. */
static void take_heads(const struct program_op *op, const struct model_layer *l, const float *in,
                       float *out)
{
    for (uint32_t s = 0; s < op->slice.segments; s++)
        memcpy(out + s * op->slice.count, in + s * l->gdn_k_heads + op->slice.first,
               op->slice.count * sizeof *in);
}

int interpret_delta(struct interpreter *interpreter, const struct program_op *op, struct error *err)
{
    const struct model_layer *l = &interpreter->model->layers[op->layer];
    uint64_t tokens = interpreter->program->tokens, n = op->columns;
    uint64_t values = state_rows(interpreter, OP_VALUE_STATE, op->layer) * op->heads * n * n;
    const float *dt = interpret_role(interpreter, op, TENSOR_ROLE_SSM_DT, err);
    const float *a = interpret_role(interpreter, op, TENSOR_ROLE_SSM_A, err);
    struct delta delta = {.mix = interpret_in(interpreter, op, op->a,
                                              tokens * (2 * op->kv_heads + op->heads) * n, err),
                          .beta = interpret_in(interpreter, op, op->b, tokens * op->heads, err),
                          .alpha = interpret_in(interpreter, op, op->c, tokens * op->heads, err),
                          .tokens = interpret_tokens(interpreter, op, err),
                          .token_count = (uint32_t)tokens,
                          .k_heads = op->kv_heads,
                          .v_heads = op->heads,
                          .dim = (uint32_t)n,
                          .eps = interpreter->numbers->norm_eps,
                          .state = memory_reserve(interpreter->memory, op->out2, op->layer,
                                                  values * sizeof(float), err),
                          .planes = interpreter->room.planes};
    float *out = interpret_out(interpreter, op, op->out, tokens * op->heads * n, err);
    float *own = calloc(2 * (size_t)op->heads + 1, sizeof *own);
    int status = -1;

    if (own == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for a delta rule");
    if (dt != NULL && a != NULL && delta.mix != NULL && delta.beta != NULL && delta.alpha != NULL &&
        delta.tokens != NULL && delta.state != NULL && out != NULL) {
        take_heads(op, l, dt, own);
        take_heads(op, l, a, own + op->heads);
        delta.dt = own;
        delta.a = own + op->heads;
        status = interpreter->kernels->delta(&delta, out);
        if (status != 0)
            error_set(err, ERROR_MEMORY, "no memory for a delta rule");
    }
    free(own);
    return status;
}

/* ---- copies ---- */

/* Values that are copied whole: what the host says of tokens and cells. */
static int copy_whole(struct interpreter *interpreter, const struct program_op *op,
                      struct error *err)
{
    const struct layout_room *room = &interpreter->room;
    size_t bytes = (size_t)room->sequences * room->positions * sizeof(int32_t);
    const void *in;
    void *out;

    if (op->a.value == OP_VALUE_TOKENS)
        bytes = interpreter->program->tokens * sizeof(struct program_token);
    else if (op->a.value == OP_VALUE_SHIFTS)
        bytes = (size_t)room->streams * room->cells[op->sliding] * sizeof(uint32_t);
    in = memory_find(interpreter->memory, op->a, op->layer, bytes, err);
    out = in != NULL ? memory_reserve(interpreter->memory, op->out, op->layer, bytes, err) : NULL;

    if (out == NULL)
        return -1;
    memcpy(out, in, bytes);
    return 0;
}

/* The cells that a window covers, of each stream. */
static int copy_cells(struct interpreter *interpreter, const struct program_op *op,
                      struct error *err)
{
    const struct layout_room *room = &interpreter->room;
    enum tensor_type type = cache_type(interpreter, op->a.value);
    uint64_t from_row = tensor_type_row_bytes(type, op->from.row);
    uint64_t to_row = tensor_type_row_bytes(type, op->to.row);
    uint64_t width = tensor_type_row_bytes(type, op->width);
    /* A window that is sent ahead may leave before the first rows came. */
    const char *in =
        memory_reserve(interpreter->memory, op->a, op->layer,
                       cache_bytes(interpreter, op->a.value, op->sliding, op->from.row), err);
    char *out =
        in != NULL
            ? memory_reserve(interpreter->memory, op->out, op->layer,
                             cache_bytes(interpreter, op->out.value, op->sliding, op->to.row), err)
            : NULL;

    if (out == NULL)
        return -1;
    for (uint32_t stream = 0; stream < room->streams; stream++)
        for (uint32_t cell = 0; cell < interpreter->step.used[op->sliding]; cell++) {
            uint64_t row = (uint64_t)stream * room->cells[op->sliding] + cell;

            memcpy(out + row * to_row + tensor_type_row_bytes(type, op->to.first),
                   in + row * from_row + tensor_type_row_bytes(type, op->from.first), width);
        }
    return 0;
}

int interpret_copy(struct interpreter *interpreter, const struct program_op *op, struct error *err)
{
    size_t size = layout_element_bytes(op->a.value);
    uint64_t rows = layout_rows(interpreter->program, op);
    const char *in;
    char *out;

    if (op->width == 0)
        return copy_whole(interpreter, op, err);
    if (layout_is_cache(op->a.value))
        return copy_cells(interpreter, op, err);
    if (op->a.value == OP_VALUE_STATE || op->a.value == OP_VALUE_CONV) {
        rows = state_rows(interpreter, op->a.value, op->layer);
        /* Before the first step the host's state is not there yet; it is zero. */
        if (op->a.space == PROGRAM_AT_HOST &&
            memory_reserve(interpreter->memory, op->a, op->layer, rows * op->from.row * size,
                           err) == NULL)
            return -1;
    }
    in = memory_find(interpreter->memory, op->a, op->layer, rows * op->from.row * size, err);
    out = in != NULL ? memory_reserve(interpreter->memory, op->out, op->layer,
                                      rows * op->to.row * size, err)
                     : NULL;
    if (out == NULL)
        return -1;
    for (uint64_t row = 0; row < rows; row++)
        for (uint32_t s = 0; s < op->segments; s++)
            memcpy(out + (row * op->to.row + s * op->to.segment + op->to.first) * size,
                   in + (row * op->from.row + s * op->from.segment + op->from.first) * size,
                   op->width * size);
    return 0;
}
