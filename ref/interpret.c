/* The interpreter's frame: operands, tensors, the order of tasks, and the operations that are
 * a line or two. */
#include "ref/interpret_private.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ref/arith.h"
#include "ref/stream.h"

/* ---- made and freed ---- */

/* Kernels keep a head's values, and its rotary pairs, in arrays of this size. */
static int check_heads(const struct model *model, struct error *err)
{
    for (uint32_t layer = 0; layer < model->n_layer; layer++) {
        const struct model_layer *l = &model->layers[layer];

        if (l->head_dim_k > REF_HEAD_DIM_MAX || l->head_dim_v > REF_HEAD_DIM_MAX)
            return error_set(err, ERROR_UNSUPPORTED,
                             "block %u has heads of %u and %u values; %d are the most", layer,
                             l->head_dim_k, l->head_dim_v, REF_HEAD_DIM_MAX);
    }
    return 0;
}

struct interpreter *interpreter_new(const struct placement *placement, struct weights *weights,
                                    const struct numbers *numbers,
                                    const struct ref_kernels *kernels, struct layout_room room,
                                    struct error *err)
{
    struct interpreter *interpreter;

    if (check_heads(placement->model, err) != 0)
        return NULL;
    interpreter = calloc(1, sizeof *interpreter);

    if (interpreter == NULL) {
        error_set(err, ERROR_MEMORY, "no memory for an interpreter");
        return NULL;
    }
    interpreter->placement = placement;
    interpreter->model = placement->model;
    interpreter->weights = weights;
    interpreter->numbers = numbers;
    interpreter->kernels = kernels;
    interpreter->room = room;
    interpreter->memory = memory_new(placement->device_count, placement->layer_count, err);
    if (interpreter->memory == NULL) {
        interpreter_free(interpreter);
        return NULL;
    }
    return interpreter;
}

void interpreter_free(struct interpreter *interpreter)
{
    if (interpreter == NULL)
        return;
    memory_free(interpreter->memory);
    free(interpreter->frequencies);
    free(interpreter);
}

void interpreter_break_rule(struct interpreter *interpreter, enum interpret_fault fault)
{
    interpreter->fault = fault;
}

void interpreter_watch(struct interpreter *interpreter, interpret_watch *watch, void *context)
{
    interpreter->watch = watch;
    interpreter->watch_context = context;
}

struct memory *interpreter_memory(struct interpreter *interpreter)
{
    return interpreter->memory;
}

/* ---- operands ---- */

const float *interpret_in(const struct interpreter *interpreter, const struct program_op *op,
                          struct program_operand operand, uint64_t values, struct error *err)
{
    return memory_find(interpreter->memory, operand, op->layer, values * sizeof(float), err);
}

float *interpret_out(const struct interpreter *interpreter, const struct program_op *op,
                     struct program_operand operand, uint64_t values, struct error *err)
{
    return memory_reserve(interpreter->memory, operand, op->layer, values * sizeof(float), err);
}

const struct program_token *interpret_tokens(const struct interpreter *interpreter,
                                             const struct program_op *op, struct error *err)
{
    struct program_operand tokens = {.value = OP_VALUE_TOKENS, .space = op->a.space};

    return memory_find(interpreter->memory, tokens, -1,
                       interpreter->program->tokens * sizeof(struct program_token), err);
}

/* ---- tensors ---- */

/* Whether device `d` has a tensor: its share by the placement, or staged for a large batch. */
static bool has_tensor(const struct interpreter *interpreter, int d,
                       const struct model_tensor *tensor)
{
    const struct placement *placement = interpreter->placement;

    if (tensor->layer < 0)
        return true; /* norms and factors are everywhere; the head's rows are the placement's */
    if (placement->owner[tensor->layer] < 0)
        return interpreter->staged[d].block == tensor->layer;
    if (tensor->ne[2] > 1 && placement_has_experts_on_host(placement, (uint32_t)tensor->layer))
        return interpreter->staged[d].experts == tensor->layer;
    return placement_has_layer(placement, (uint32_t)tensor->layer, (uint32_t)d);
}

const void *interpret_tensor(const struct interpreter *interpreter, const struct program_op *op,
                             int32_t tensor, struct error *err)
{
    const struct model_tensor *info = &interpreter->model->tensors[tensor];

    if (op->out.space >= 0 && !has_tensor(interpreter, op->out.space, info)) {
        error_set(err, ERROR_USAGE, "device %d has no %s", op->out.space, info->name);
        return NULL;
    }
    return weights_tensor(interpreter->weights, (size_t)tensor, err);
}

static const float *f32_tensor(const struct interpreter *interpreter, const struct program_op *op,
                               int32_t tensor, struct error *err)
{
    const struct model_tensor *info = &interpreter->model->tensors[tensor];

    if (info->type != TENSOR_TYPE_F32) {
        error_set(err, ERROR_UNSUPPORTED, "%s is %s; it has to be F32", info->name,
                  tensor_type_info(info->type)->name);
        return NULL;
    }
    return interpret_tensor(interpreter, op, tensor, err);
}

const float *interpret_role(const struct interpreter *interpreter, const struct program_op *op,
                            enum tensor_role role, struct error *err)
{
    const struct model_tensor *tensor = model_find_tensor(interpreter->model, op->layer, role);

    if (tensor == NULL) {
        error_set(err, ERROR_INPUT, "block %d has no %s", op->layer, tensor_role_name(role));
        return NULL;
    }
    return f32_tensor(interpreter, op, (int32_t)(tensor - interpreter->model->tensors), err);
}

/* ---- small operations ---- */

/* A row on its way to devices. */
static void stream_embedding(const struct interpreter *interpreter, enum tensor_type type,
                             const char *row, uint64_t n, float *out)
{
    enum { PIECE = 1024 };
    float piece[PIECE];

    for (uint64_t first = 0; first < n; first += PIECE) {
        const uint64_t count = n - first < PIECE ? n - first : PIECE;

        interpreter->kernels->embed(type, row + tensor_type_row_bytes(type, first), count,
                                    interpreter->numbers->embedding_scale, piece);
        stream_floats(piece, count, out + first);
    }
    stream_end();
}

static int embed(struct interpreter *interpreter, const struct program_op *op, struct error *err)
{
    const struct program_token *tokens = interpret_tokens(interpreter, op, err);
    uint64_t n = op->columns;
    float *out = interpret_out(interpreter, op, op->out, n * interpreter->program->tokens, err);
    const bool many = interpreter->program->tokens >= INTERPRET_MANY_TOKENS;
    const bool streams = many && n % 4 == 0 && memory_has_room(interpreter->memory);
    const struct model_tensor *tensor;
    const char *table;

    if (tokens == NULL || out == NULL)
        return -1;
    if (op->tensor < 0)
        return error_set(err, ERROR_INPUT, "the model has no token embeddings");
    tensor = &interpreter->model->tensors[op->tensor];
    table = interpret_tensor(interpreter, op, op->tensor, err);
    if (table == NULL)
        return -1;
#ifdef _OPENMP
#pragma omp parallel for schedule(static) if (many)
#endif
    for (uint32_t t = 0; t < interpreter->program->tokens; t++) {
        const char *row = table + tokens[t].token * tensor_type_row_bytes(tensor->type, n);

        if (streams)
            stream_embedding(interpreter, tensor->type, row, n, out + t * n);
        else
            interpreter->kernels->embed(tensor->type, row, n, interpreter->numbers->embedding_scale,
                                        out + t * n);
    }
    return 0;
}

static int norm(struct interpreter *interpreter, const struct program_op *op, struct error *err)
{
    uint64_t rows = layout_rows(interpreter->program, op) * op->rows;
    const float *in = interpret_in(interpreter, op, op->a, rows * op->columns, err);
    float *out = interpret_out(interpreter, op, op->out, rows * op->columns, err);
    const float *weight = NULL;

    if (in == NULL || out == NULL)
        return -1;
    if (op->tensor >= 0) {
        weight = f32_tensor(interpreter, op, op->tensor, err);
        if (weight == NULL)
            return -1;
    }
    interpreter->kernels->rms_norm(in, weight, interpreter->numbers->norm_eps, rows, op->columns,
                                   out);
    return 0;
}

/* Operations whose result is a function of the same element of one or two operands. */
static int elementwise(struct interpreter *interpreter, const struct program_op *op,
                       struct error *err)
{
    uint64_t rows = layout_rows(interpreter->program, op) * (op->rows > 1 ? op->rows : 1);
    uint64_t first = op->token_first * op->columns, n = rows * op->columns;
    const struct ref_kernels *kernels = interpreter->kernels;
    const float *a = interpret_in(interpreter, op, op->a, first + n, err), *b = NULL;
    float *out;

    if (a == NULL)
        return -1;
    if (op->b.value != OP_VALUE_NONE) {
        b = interpret_in(interpreter, op, op->b, first + n, err);
        if (b == NULL)
            return -1;
    }
    out = interpret_out(interpreter, op, op->out, first + n, err);
    if (out == NULL)
        return -1;
    switch (op->kind) {
    case OP_JOIN:
        for (uint64_t i = first; i < first + n; i++)
            out[i] = arith_canonical(a[i] + b[i]);
        return 0;
    case OP_GATE:
        kernels->gate(a + first, b + first, n, out + first);
        return 0;
    case OP_GLU:
        kernels->glu(a + first, b + first, interpreter->numbers->activation == NUMBERS_GELU_TANH, n,
                     out + first);
        return 0;
    default:
        if (interpreter->numbers->logit_softcap > 0)
            kernels->softcap(a, interpreter->numbers->logit_softcap, n, out);
        return 0;
    }
}

/* One factor for all, or one a column times 1 / sqrt(columns). */
static int scale(struct interpreter *interpreter, const struct program_op *op, struct error *err)
{
    uint64_t n = op->columns, rows = layout_rows(interpreter->program, op);
    const float *in = interpret_in(interpreter, op, op->a, rows * n, err);
    float *out = interpret_out(interpreter, op, op->out, rows * n, err);
    const float *factors = f32_tensor(interpreter, op, op->tensor, err);
    float root = arith_rsqrt((float)n);

    if (in == NULL || out == NULL || factors == NULL)
        return -1;
    for (uint64_t i = 0; i < rows * n; i++)
        out[i] = arith_canonical(op->kind == OP_SCALE ? in[i] * factors[0]
                                                      : in[i] * factors[i % n] * root);
    return 0;
}

static int norm_gate(struct interpreter *interpreter, const struct program_op *op,
                     struct error *err)
{
    uint64_t rows = (uint64_t)layout_rows(interpreter->program, op) * op->heads,
             n = rows * op->columns;
    const float *in = interpret_in(interpreter, op, op->a, n, err);
    const float *gate = interpret_in(interpreter, op, op->b, n, err);
    float *out = interpret_out(interpreter, op, op->out, n, err);
    const float *weight = f32_tensor(interpreter, op, op->tensor, err);

    if (in == NULL || gate == NULL || out == NULL || weight == NULL)
        return -1;
    interpreter->kernels->rms_norm(in, weight, interpreter->numbers->norm_eps, rows, op->columns,
                                   out);
    interpreter->kernels->silu_gate(out, gate, n, out);
    return 0;
}

/* Heads of a query and its gate, one behind the other. */
static int split_gate(struct interpreter *interpreter, const struct program_op *op,
                      struct error *err)
{
    uint64_t heads = (uint64_t)layout_rows(interpreter->program, op) * op->heads, n = op->columns;
    const float *in = interpret_in(interpreter, op, op->a, 2 * heads * n, err);
    float *query = interpret_out(interpreter, op, op->out, heads * n, err);
    float *gate = interpret_out(interpreter, op, op->out2, heads * n, err);

    if (in == NULL || query == NULL || gate == NULL)
        return -1;
    for (uint64_t h = 0; h < heads; h++) {
        memcpy(query + h * n, in + 2 * h * n, n * sizeof *in);
        memcpy(gate + h * n, in + (2 * h + 1) * n, n * sizeof *in);
    }
    return 0;
}

static int select_rows(struct interpreter *interpreter, const struct program_op *op,
                       struct error *err)
{
    uint32_t tokens = interpreter->program->tokens, outputs = interpreter->program->outputs;
    const struct program_token *token = interpret_tokens(interpreter, op, err);
    const float *in = interpret_in(interpreter, op, op->a, tokens * op->columns, err);
    float *out = interpret_out(interpreter, op, op->out, outputs * op->columns, err);
    uint32_t row = 0;

    if (token == NULL || in == NULL || out == NULL)
        return -1;
    for (uint32_t t = 0; t < tokens && row < outputs; t++)
        if (token[t].output != 0)
            memcpy(out + row++ * op->columns, in + t * op->columns, op->columns * sizeof *in);
    if (row != outputs)
        return error_set(err, ERROR_USAGE, "%u tokens have outputs, the program is for %u", row,
                         outputs);
    return 0;
}

static int stage(struct interpreter *interpreter, const struct program_op *op)
{
    struct staged *staged = &interpreter->staged[op->out.space];

    *(op->rows != 0 ? &staged->experts : &staged->block) = op->layer;
    return 0;
}

static int pick(struct interpreter *interpreter, const struct program_op *op, struct error *err)
{
    uint32_t rows = layout_rows(interpreter->program, op);
    uint64_t n = op->columns;
    const float *logits =
        memory_find(interpreter->memory, op->a, op->layer, rows * n * sizeof *logits, err);
    struct program_pick *picks = logits != NULL
                                     ? memory_reserve(interpreter->memory, op->out, op->layer,
                                                      (size_t)rows * op->rows * sizeof *picks, err)
                                     : NULL;

    if (picks == NULL)
        return -1;
    for (uint32_t row = 0; row < rows; row++, logits += n) {
        uint64_t best = arith_largest(logits, n);

        picks[row * op->rows] =
            (struct program_pick){(uint32_t)(op->slice.first + best), logits[best]};
    }
    return 0;
}

/* ---- watching ---- */

/* Words of a row of the output; 0 where it is not of rows of words. */
static uint64_t words_of_row(const struct interpreter *interpreter, const struct program_op *op)
{
    switch (op->kind) {
    case OP_EMBED:
    case OP_JOIN:
    case OP_FINISH:
    case OP_SCALE:
    case OP_SCALE_ROW:
    case OP_SELECT:
    case OP_SHARED_GATE:
    case OP_SOFTCAP:
    case OP_GATE:
    case OP_CONVOLVE:
        return op->columns;
    case OP_NORM:
        return op->rows * op->columns;
    case OP_GLU:
        return (op->rows > 1 ? op->rows : 1) * op->columns;
    case OP_MATMUL:
        return op->rows;
    case OP_SPLIT_GATE:
    case OP_ROPE:
    case OP_NORM_GATE:
    case OP_DELTA:
        return op->heads * op->columns;
    case OP_ATTEND:
        return op->heads * op->rows;
    case OP_EXPERTS:
        return interpreter->model->layers[op->layer].n_expert_used * op->rows;
    case OP_ROUTE:
        return op->rows * sizeof(struct program_route) / sizeof(uint32_t);
    default:
        return 0;
    }
}

static void show_op(const struct interpreter *interpreter, const struct program_op *op)
{
    struct program_operand tokens = {.value = OP_VALUE_TOKENS, .space = PROGRAM_AT_HOST};
    struct interpret_seen seen = {.program = interpreter->program,
                                  .op = op,
                                  .step = interpreter->steps - 1,
                                  .width = words_of_row(interpreter, op)};
    struct error absent = {0};

    seen.tokens = memory_find(interpreter->memory, tokens, -1,
                              interpreter->program->tokens * sizeof *seen.tokens, &absent);
    if (seen.width > 0) {
        size_t first = op->token_first * seen.width * sizeof(uint32_t);
        const char *output;

        seen.rows = op->kind == OP_SELECT ? interpreter->program->outputs
                                          : layout_rows(interpreter->program, op);
        output = memory_find(interpreter->memory, op->out, op->layer,
                             first + seen.rows * seen.width * sizeof(uint32_t), &absent);
        seen.output = output != NULL ? output + first : NULL;
    }
    interpreter->watch(interpreter->watch_context, &seen);
}

/* ---- running ---- */

int interpreter_run_op(struct interpreter *interpreter, const struct program_op *op,
                       struct error *err)
{
    switch (op->kind) {
    case OP_EMBED:
        return embed(interpreter, op, err);
    case OP_PICK:
        return pick(interpreter, op, err);
    case OP_NORM:
        return norm(interpreter, op, err);
    case OP_JOIN:
    case OP_GATE:
    case OP_GLU:
    case OP_SOFTCAP:
        return elementwise(interpreter, op, err);
    case OP_SCALE:
    case OP_SCALE_ROW:
        return scale(interpreter, op, err);
    case OP_FINISH:
        return interpret_finish(interpreter, op, err);
    case OP_MATMUL:
        return interpret_matmul(interpreter, op, err);
    case OP_PARTIAL:
        return interpret_partial(interpreter, op, err);
    case OP_SPLIT_GATE:
        return split_gate(interpreter, op, err);
    case OP_COPY:
        return interpret_copy(interpreter, op, err);
    case OP_ROPE:
        return interpret_rope(interpreter, op, err);
    case OP_STORE:
        return interpret_store(interpreter, op, err);
    case OP_ATTEND:
        return interpret_attend(interpreter, op, err);
    case OP_CONVOLVE:
        return interpret_convolve(interpreter, op, err);
    case OP_DELTA:
        return interpret_delta(interpreter, op, err);
    case OP_NORM_GATE:
        return norm_gate(interpreter, op, err);
    case OP_ROUTE:
        return interpret_route(interpreter, op, err);
    case OP_EXPERTS:
        return interpret_experts(interpreter, op, err);
    case OP_EXPERTS_PARTIAL:
        return interpret_experts_partial(interpreter, op, err);
    case OP_SHARED_GATE:
        return interpret_shared_gate(interpreter, op, err);
    case OP_SELECT:
        return select_rows(interpreter, op, err);
    case OP_SHIFT:
        return interpret_shift(interpreter, op, err);
    case OP_STAGE:
        return stage(interpreter, op);
    case OP_REDUCE:
        return interpret_reduce(interpreter, op, err);
    default:
        return error_set(err, ERROR_UNSUPPORTED, "no such operation");
    }
}

static int run_task(struct interpreter *interpreter, size_t index, struct error *err)
{
    const struct program_task *task = &interpreter->program->tasks[index];

    for (uint32_t i = 0; i < task->op_count; i++) {
        const struct program_op *op = &interpreter->program->ops[task->op_first + i];
        struct error inner = {0};

        if (interpreter_run_op(interpreter, op, &inner) == 0) {
            if (interpreter->watch != NULL)
                show_op(interpreter, op);
            continue;
        }
        return error_set(err, inner.code, "task %zu (%s), block %d, operation %s: %s", index,
                         program_task_name(task->kind), op->layer, program_op_name(op->kind),
                         inner.text);
    }
    return 0;
}

/* A state that lies on the host comes to the device anew each step. */
static void forget_visitors(struct interpreter *interpreter)
{
    const struct placement *placement = interpreter->placement;

    for (uint32_t layer = 0; layer < interpreter->model->n_layer; layer++) {
        if (!placement_has_state_on_host(placement, layer))
            continue;
        for (uint32_t d = 0; d < placement->device_count; d++) {
            struct program_operand state = {.value = OP_VALUE_STATE, .space = (int16_t)d};

            memory_forget(interpreter->memory, state, (int)layer);
            state.value = OP_VALUE_CONV;
            memory_forget(interpreter->memory, state, (int)layer);
        }
    }
}

int interpreter_begin(struct interpreter *interpreter, const struct program *program,
                      struct interpret_step step, struct error *err)
{
    if (program->not_executable != NULL)
        return error_set(err, ERROR_UNSUPPORTED, "%s cannot be executed: %s",
                         interpreter->model->arch, program->not_executable);
    interpreter->program = program;
    interpreter->step = step;
    interpreter->steps++;
    forget_visitors(interpreter);
    for (uint32_t d = 0; d < MACHINE_DEVICES_MAX; d++)
        interpreter->staged[d] = (struct staged){-1, -1};
    return 0;
}

int interpreter_run(struct interpreter *interpreter, const struct program *program,
                    struct interpret_step step, struct error *err)
{
    if (interpreter_begin(interpreter, program, step, err) != 0)
        return -1;
    for (size_t i = 0; i < program->task_count; i++)
        if (run_task(interpreter, i, err) != 0)
            return -1;
    return 0;
}

/* ---- another order ---- */

struct shuffle {
    const struct program *program;
    size_t issued; /* tasks that the host thread has issued */
    bool *done;
    uint64_t random;
};

static uint64_t next_random(struct shuffle *shuffle)
{
    /* Steele, Lea, Flood 2014: SplitMix64. */
    uint64_t z = shuffle->random += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* Whether the host thread waits for an issued task before it issues more. */
static bool host_waits(const struct shuffle *shuffle)
{
    return shuffle->issued > 0 && shuffle->program->tasks[shuffle->issued - 1].blocking &&
           !shuffle->done[shuffle->issued - 1];
}

static bool can_start(const struct shuffle *shuffle, size_t index, uint64_t busy)
{
    const struct program *program = shuffle->program;
    const struct program_task *task = &program->tasks[index];

    if (shuffle->done[index] || (task->queues & busy) != 0)
        return false;
    for (uint32_t i = 0; i < task->dependency_count; i++)
        if (!shuffle->done[program->dependencies[task->dependency_first + i]])
            return false;
    return true;
}

/* One of the tasks that may run now, or the program's size when there is none. */
static size_t choose(struct shuffle *shuffle, size_t oldest)
{
    uint64_t busy = 0, count = 0;
    size_t chosen = shuffle->program->task_count;

    for (size_t i = oldest; i < shuffle->issued; i++) {
        if (can_start(shuffle, i, busy) && next_random(shuffle) % ++count == 0)
            chosen = i;
        if (!shuffle->done[i])
            busy |= shuffle->program->tasks[i].queues;
    }
    return chosen;
}

int interpreter_run_shuffled(struct interpreter *interpreter, const struct program *program,
                             struct interpret_step step, uint64_t seed, struct error *err)
{
    struct shuffle shuffle = {.program = program, .random = seed};
    size_t oldest = 0, chosen;
    int status = interpreter_begin(interpreter, program, step, err);

    if (status != 0)
        return -1;
    shuffle.done = calloc(program->task_count + 1, sizeof *shuffle.done);
    if (shuffle.done == NULL)
        return error_set(err, ERROR_MEMORY, "no memory to order %zu tasks", program->task_count);
    while (oldest < program->task_count && status == 0) {
        /* Mostly the host runs ahead, so that as many tasks as possible are free to swap. */
        while (shuffle.issued < program->task_count && !host_waits(&shuffle) &&
               (shuffle.issued == oldest || next_random(&shuffle) % 8 != 0))
            shuffle.issued++;
        chosen = choose(&shuffle, oldest);
        if (chosen < program->task_count) {
            status = run_task(interpreter, chosen, err);
            shuffle.done[chosen] = true;
        }
        while (oldest < shuffle.issued && shuffle.done[oldest])
            oldest++;
    }
    free(shuffle.done);
    return status;
}
