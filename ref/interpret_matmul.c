/* Products with weights, and the sums that they leave. */
#include "ref/interpret_private.h"

#include <stdlib.h>
#include <string.h>

#include "ref/arith.h"

/* Segments of a tensor's columns, of which a tensor split cuts each. */
static uint32_t column_segments(const struct interpreter *interpreter,
                                const struct model_tensor *tensor)
{
    const struct model_layer *l;

    if (tensor->role != TENSOR_ROLE_SSM_OUT)
        return 1;
    l = &interpreter->model->layers[tensor->layer];
    return l->gdn_v_heads / l->gdn_k_heads;
}

/* The product with all columns of a matrix; what takes part of it is filled in by callers. */
static struct matmul whole(const struct interpreter *interpreter, const struct model_tensor *tensor,
                           const void *weight)
{
    uint32_t segments = column_segments(interpreter, tensor);
    uint64_t columns = tensor->ne[0] / segments;
    uint32_t group = share_group(interpreter->model, tensor);

    return (struct matmul){.type = tensor->type,
                           .weight = weight,
                           .row_bytes = tensor_type_row_bytes(tensor->type, tensor->ne[0]),
                           .rows = tensor->ne[1],
                           .segment_columns = columns,
                           .segments = segments,
                           .count = columns,
                           .group = group,
                           .groups_total = segments * ((columns + group - 1) / group)};
}

/* The device's columns of each segment. */
static void take_columns(const struct interpreter *interpreter, const struct program_op *op,
                         struct matmul *matmul)
{
    if (op->slice.count == 0)
        return;
    matmul->first = op->slice.first;
    matmul->count = op->slice.count;
    /* What a broken rule would do: groups as long as the device's part allows. */
    while (interpreter->fault == INTERPRET_DEVICE_GROUPS && matmul->group < 1024 &&
           matmul->group < matmul->count && matmul->first % (2 * matmul->group) == 0)
        matmul->group *= 2;
}

static int64_t *new_sums(uint64_t count, struct error *err)
{
    int64_t *sums = calloc(count + 1, sizeof *sums);

    if (sums == NULL)
        error_set(err, ERROR_MEMORY, "no memory for %llu sums", (unsigned long long)count);
    return sums;
}

/* Rows of a product, segment by segment, as f32. */
static int product(struct interpreter *interpreter, const struct program_op *op,
                   const struct model_tensor *tensor, const void *weight, const float *in,
                   uint32_t tokens, float *out, struct error *err)
{
    uint32_t segments = op->slice.segments > 0 ? op->slice.segments : 1;
    uint64_t segment_rows = tensor->ne[1] / segments, count = op->rows / segments;
    int64_t *sums = new_sums(tokens * op->rows, err);

    if (sums == NULL)
        return -1;
    for (uint32_t s = 0; s < segments; s++) {
        struct matmul matmul = whole(interpreter, tensor, weight);

        matmul.row_first = s * segment_rows + op->slice.first;
        matmul.rows = count;
        interpreter->kernels->matmul(&matmul, in, NULL, tokens, sums + s * count, op->rows);
    }
    for (uint64_t i = 0; i < tokens * op->rows; i++)
        out[i] = arith_from_fixed(sums[i]);
    free(sums);
    return 0;
}

int interpret_matmul(struct interpreter *interpreter, const struct program_op *op,
                     struct error *err)
{
    uint32_t tokens = layout_rows(interpreter->program, op);
    const struct model_tensor *tensor = &interpreter->model->tensors[op->tensor];
    const void *weight = interpret_tensor(interpreter, op, op->tensor, err);
    const float *in = interpret_in(interpreter, op, op->a, tokens * tensor->ne[0], err);
    float *out = interpret_out(interpreter, op, op->out, tokens * op->rows, err);

    if (weight == NULL || in == NULL || out == NULL)
        return -1;
    return product(interpreter, op, tensor, weight, in, tokens, out, err);
}

static int64_t *sums_out(struct interpreter *interpreter, const struct program_op *op,
                         struct program_operand operand, struct error *err)
{
    uint64_t n = (uint64_t)interpreter->program->tokens * interpreter->model->n_embd;

    return memory_reserve(interpreter->memory, operand, op->layer, n * sizeof(int64_t), err);
}

int interpret_partial(struct interpreter *interpreter, const struct program_op *op,
                      struct error *err)
{
    uint32_t tokens = layout_rows(interpreter->program, op);
    const struct model_tensor *tensor = &interpreter->model->tensors[op->tensor];
    const void *weight = interpret_tensor(interpreter, op, op->tensor, err);
    const float *in =
        interpret_in(interpreter, op, op->a, (op->token_first + tokens) * op->columns, err);
    int64_t *sums = sums_out(interpreter, op, op->out, err);
    struct matmul matmul;

    if (weight == NULL || in == NULL || sums == NULL)
        return -1;
    matmul = whole(interpreter, tensor, weight);
    take_columns(interpreter, op, &matmul);
    sums += op->token_first * op->rows;
    memset(sums, 0, tokens * op->rows * sizeof *sums);
    interpreter->kernels->matmul(&matmul, in + op->token_first * op->columns, NULL, tokens, sums,
                                 op->rows);
    return 0;
}

/* ---- experts ---- */

static const struct program_route *routes(const struct interpreter *interpreter,
                                          const struct program_op *op, struct error *err)
{
    uint64_t count = (uint64_t)interpreter->program->tokens *
                     interpreter->model->layers[op->layer].n_expert_used;

    return memory_find(interpreter->memory, op->b, op->layer, count * sizeof(struct program_route),
                       err);
}

/* Rows of one expert: which (token, choice) pairs chose it. */
static uint32_t choices_of(const struct program_route *route, uint32_t count, uint32_t expert,
                           uint32_t *choices)
{
    uint32_t chosen = 0;

    for (uint32_t i = 0; i < count; i++)
        if (route[i].expert == expert)
            choices[chosen++] = i;
    return chosen;
}

struct gathering {
    uint32_t *choices;
    float *in, *out, *scales;
    int64_t *sums;
};

static void close_gathering(struct gathering *gathering)
{
    free(gathering->choices);
    free(gathering->in);
    free(gathering->out);
    free(gathering->scales);
    free(gathering->sums);
}

static int open_gathering(struct gathering *gathering, uint64_t count, uint64_t columns,
                          uint64_t rows, struct error *err)
{
    *gathering = (struct gathering){.choices = calloc(count + 1, sizeof(uint32_t)),
                                    .in = calloc(count * columns + 1, sizeof(float)),
                                    .out = calloc(count * rows + 1, sizeof(float)),
                                    .scales = calloc(count + 1, sizeof(float)),
                                    .sums = calloc(count * rows + 1, sizeof(int64_t))};
    if (gathering->choices != NULL && gathering->in != NULL && gathering->out != NULL &&
        gathering->scales != NULL && gathering->sums != NULL)
        return 0;
    close_gathering(gathering);
    return error_set(err, ERROR_MEMORY, "no memory to gather the tokens of experts");
}

static const char *expert_matrix(const struct model_tensor *tensor, const void *weight,
                                 uint32_t expert)
{
    return (const char *)weight +
           expert * tensor->ne[1] * tensor_type_row_bytes(tensor->type, tensor->ne[0]);
}

int interpret_experts(struct interpreter *interpreter, const struct program_op *op,
                      struct error *err)
{
    const struct model_layer *l = &interpreter->model->layers[op->layer];
    uint32_t tokens = interpreter->program->tokens, count = tokens * l->n_expert_used;
    const struct model_tensor *tensor = &interpreter->model->tensors[op->tensor];
    const void *weight = interpret_tensor(interpreter, op, op->tensor, err);
    const float *in = interpret_in(interpreter, op, op->a, tokens * op->columns, err);
    const struct program_route *route = routes(interpreter, op, err);
    float *out = interpret_out(interpreter, op, op->out, count * op->rows, err);
    struct gathering gathering;
    int status = 0;

    if (weight == NULL || in == NULL || route == NULL || out == NULL ||
        open_gathering(&gathering, count, op->columns, op->rows, err) != 0)
        return -1;
    for (uint32_t e = 0; e < l->n_expert && status == 0; e++) {
        uint32_t chosen = choices_of(route, count, e, gathering.choices);

        if (chosen == 0)
            continue;
        for (uint32_t i = 0; i < chosen; i++)
            memcpy(gathering.in + i * op->columns,
                   in + gathering.choices[i] / l->n_expert_used * op->columns,
                   op->columns * sizeof *in);
        status = product(interpreter, op, tensor, expert_matrix(tensor, weight, e), gathering.in,
                         chosen, gathering.out, err);
        for (uint32_t i = 0; i < chosen; i++)
            memcpy(out + gathering.choices[i] * op->rows, gathering.out + i * op->rows,
                   op->rows * sizeof *out);
    }
    close_gathering(&gathering);
    return status;
}

/* Experts of a token are terms of one sum, as devices and groups are. */
int interpret_experts_partial(struct interpreter *interpreter, const struct program_op *op,
                              struct error *err)
{
    const struct model_layer *l = &interpreter->model->layers[op->layer];
    uint32_t tokens = interpreter->program->tokens, count = tokens * l->n_expert_used;
    const struct model_tensor *tensor = &interpreter->model->tensors[op->tensor];
    const void *weight = interpret_tensor(interpreter, op, op->tensor, err);
    const float *in = interpret_in(interpreter, op, op->a, count * op->columns, err);
    const struct program_route *route = routes(interpreter, op, err);
    int64_t *sums = sums_out(interpreter, op, op->out, err);
    struct gathering gathering;

    if (weight == NULL || in == NULL || route == NULL || sums == NULL ||
        open_gathering(&gathering, count, op->columns, op->rows, err) != 0)
        return -1;
    memset(sums, 0, tokens * op->rows * sizeof *sums);
    for (uint32_t e = 0; e < l->n_expert; e++) {
        uint32_t chosen = choices_of(route, count, e, gathering.choices);
        struct matmul matmul = whole(interpreter, tensor, expert_matrix(tensor, weight, e));

        if (chosen == 0)
            continue;
        take_columns(interpreter, op, &matmul);
        matmul.groups_total *= l->n_expert_used;
        for (uint32_t i = 0; i < chosen; i++) {
            memcpy(gathering.in + i * op->columns, in + gathering.choices[i] * op->columns,
                   op->columns * sizeof *in);
            gathering.scales[i] = route[gathering.choices[i]].weight;
        }
        memset(gathering.sums, 0, chosen * op->rows * sizeof *gathering.sums);
        interpreter->kernels->matmul(&matmul, gathering.in, gathering.scales, chosen,
                                     gathering.sums, op->rows);
        for (uint32_t i = 0; i < chosen; i++) {
            int64_t *row = sums + gathering.choices[i] / l->n_expert_used * op->rows;

            for (uint64_t r = 0; r < op->rows; r++)
                row[r] = arith_fixed_add(row[r], gathering.sums[i * op->rows + r]);
        }
    }
    close_gathering(&gathering);
    return 0;
}

/* out = a sigmoid(b . w): the product is one of a matrix of one row. */
int interpret_shared_gate(struct interpreter *interpreter, const struct program_op *op,
                          struct error *err)
{
    uint32_t tokens = layout_rows(interpreter->program, op);
    uint64_t n = op->columns;
    const struct model_tensor *tensor = &interpreter->model->tensors[op->tensor];
    const void *weight = interpret_tensor(interpreter, op, op->tensor, err);
    const float *a = interpret_in(interpreter, op, op->a, tokens * n, err);
    const float *b = interpret_in(interpreter, op, op->b, tokens * n, err);
    float *out = interpret_out(interpreter, op, op->out, tokens * n, err);
    struct matmul matmul;
    int64_t *sums;

    if (weight == NULL || a == NULL || b == NULL || out == NULL)
        return -1;
    sums = new_sums(tokens, err);
    if (sums == NULL)
        return -1;
    matmul = whole(interpreter, tensor, weight);
    interpreter->kernels->matmul(&matmul, b, NULL, tokens, sums, 1);
    for (uint32_t t = 0; t < tokens; t++) {
        float gate = arith_sigmoid(arith_from_fixed(sums[t]));

        for (uint64_t i = 0; i < n; i++)
            out[t * n + i] = arith_canonical(a[t * n + i] * gate);
    }
    free(sums);
    return 0;
}

/* ---- router ---- */

/* Softmax in the order of experts; then the `used` largest, the lower index first among equals. */
static void choose(const float *logits, uint32_t count, uint32_t used, float *probabilities,
                   struct program_route *route)
{
    float maximum = logits[0], sum = 0;

    for (uint32_t e = 1; e < count; e++)
        maximum = logits[e] > maximum ? logits[e] : maximum;
    for (uint32_t e = 0; e < count; e++) {
        probabilities[e] = arith_exp(logits[e] - maximum);
        sum += probabilities[e];
    }
    for (uint32_t u = 0; u < used; u++) {
        uint32_t best = UINT32_MAX;

        for (uint32_t e = 0; e < count; e++)
            if (probabilities[e] != -1.0f &&
                (best == UINT32_MAX || probabilities[e] > probabilities[best]))
                best = e;
        route[u] = (struct program_route){best, probabilities[best] / sum};
        probabilities[best] = -1.0f; /* taken */
    }
}

int interpret_route(struct interpreter *interpreter, const struct program_op *op, struct error *err)
{
    const struct numbers *numbers = interpreter->numbers;
    uint32_t tokens = interpreter->program->tokens, used = (uint32_t)op->rows;
    const float *logits = interpret_in(interpreter, op, op->a, tokens * op->columns, err);
    struct program_route *route = memory_reserve(interpreter->memory, op->out, op->layer,
                                                 (uint64_t)tokens * used * sizeof *route, err);
    const float *scales = NULL;
    float *probabilities;

    if (logits == NULL || route == NULL)
        return -1;
    if (op->tensor >= 0) {
        scales = interpret_tensor(interpreter, op, op->tensor, err);
        if (scales == NULL)
            return -1;
    }
    probabilities = calloc(op->columns, sizeof *probabilities);
    if (probabilities == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for a router");
    for (uint32_t t = 0; t < tokens; t++) {
        struct program_route *chosen = route + (uint64_t)t * used;
        float sum = 0;

        choose(logits + t * op->columns, (uint32_t)op->columns, used, probabilities, chosen);
        for (uint32_t u = 0; u < used; u++)
            sum += chosen[u].weight;
        for (uint32_t u = 0; u < used; u++) {
            float weight = chosen[u].weight;

            if (numbers->router_normalised)
                weight = weight / sum;
            if (scales != NULL)
                weight = weight * scales[chosen[u].expert];
            chosen[u].weight = arith_canonical(weight * numbers->expert_scale);
        }
    }
    free(probabilities);
    return 0;
}

/* ---- sums ---- */

int interpret_finish(struct interpreter *interpreter, const struct program_op *op,
                     struct error *err)
{
    uint64_t n = layout_rows(interpreter->program, op) * op->columns;
    const int64_t *sums = memory_find(interpreter->memory, op->a, op->layer, n * sizeof *sums, err);
    float *out = interpret_out(interpreter, op, op->out, n, err);

    if (sums == NULL || out == NULL)
        return -1;
    for (uint64_t i = 0; i < n; i++)
        out[i] = arith_from_fixed(sums[i]);
    return 0;
}

/* What a broken rule would do: round each device's part, and add the parts in fp32. */
static int64_t float_sum(int64_t a, int64_t b, bool first)
{
    return first ? b : arith_to_fixed(arith_from_fixed(a) + arith_from_fixed(b), arith_limit(1));
}

/* As NCCL sums int64: plain addition, in any order. */
int interpret_reduce(struct interpreter *interpreter, const struct program_op *op,
                     struct error *err)
{
    uint32_t devices = interpreter->placement->device_count;
    uint64_t first = op->token_first * op->columns;
    uint64_t n = layout_rows(interpreter->program, op) * op->columns;
    int64_t *total = new_sums(n, err);
    bool begun = false;

    if (total == NULL)
        return -1;
    for (uint32_t d = 0; d < devices; d++) {
        struct program_operand part = op->a;
        const int64_t *sums;

        if ((op->members >> d & 1) == 0)
            continue;
        part.space = (int16_t)d;
        sums = memory_find(interpreter->memory, part, op->layer, (first + n) * sizeof *sums, err);
        if (sums == NULL) {
            free(total);
            return -1;
        }
        for (uint64_t i = 0; i < n; i++)
            total[i] = interpreter->fault == INTERPRET_FLOAT_SUMS
                           ? float_sum(total[i], sums[first + i], !begun)
                           : (int64_t)((uint64_t)total[i] + (uint64_t)sums[first + i]);
        begun = true;
    }
    for (uint32_t d = 0; d < devices; d++) {
        struct program_operand part = op->out;
        int64_t *sums;

        part.space = (int16_t)d;
        sums = sums_out(interpreter, op, part, err);
        if (sums == NULL) {
            free(total);
            return -1;
        }
        memcpy(sums + first, total, n * sizeof *sums);
    }
    free(total);
    return 0;
}
