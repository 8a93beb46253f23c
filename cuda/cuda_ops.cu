/* Operations of devices, but for products and gated delta nets: operands and kernels. */
#include "cuda/cuda_private.h"

#include <stdlib.h>

extern "C" {
#include "ref/arith.h"
}

/* ---- small operations ---- */

static int norm(struct cuda_executor *executor, const struct program_op *op, cudaStream_t stream,
                struct error *err)
{
    uint64_t rows = layout_rows(executor->program, op) * op->rows;
    struct cuda_norm norm = {};

    norm.x = cuda_in(executor, op, op->a, rows * op->columns, err);
    norm.y = cuda_out(executor, op, op->out, rows * op->columns, err);
    norm.n = op->columns;
    norm.eps = executor->numbers->norm_eps;
    if (norm.x == nullptr || norm.y == nullptr)
        return -1;
    if (op->tensor >= 0) {
        norm.weight = cuda_f32_tensor(executor, op, op->tensor, err);
        if (norm.weight == nullptr)
            return -1;
    }
    if (op->rows == 1 &&
        cuda_activations_ahead(executor, op, norm.y, op->columns, &norm.quantised, err) != 0)
        return -1;
    return cuda_rms_norm(&norm, rows, stream, err);
}

static int elementwise(struct cuda_executor *executor, const struct program_op *op,
                       cudaStream_t stream, struct error *err)
{
    uint64_t rows = layout_rows(executor->program, op) * (op->rows > 1 ? op->rows : 1);
    uint64_t first = op->token_first * op->columns, n = rows * op->columns;
    uint64_t width = op->columns * (op->rows > 1 ? op->rows : 1); /* of a token */
    const struct numbers *numbers = executor->numbers;
    struct activations to = {};
    const float *a = cuda_in(executor, op, op->a, first + n, err), *b = nullptr;
    float *y;

    if (a == nullptr)
        return -1;
    if (op->b.value != OP_VALUE_NONE) {
        b = cuda_in(executor, op, op->b, first + n, err);
        if (b == nullptr)
            return -1;
    }
    y = cuda_out(executor, op, op->out, first + n, err);
    if (y == nullptr)
        return -1;
    if ((op->kind == OP_GATE || op->kind == OP_GLU) &&
        cuda_activations_ahead(executor, op, y, width, &to, err) != 0)
        return -1;
    switch (op->kind) {
    case OP_JOIN:
        return cuda_join(a + first, b + first, n, y + first, stream, err);
    case OP_GATE:
        return cuda_gate(a + first, b + first, n, y + first, width, &to, stream, err);
    case OP_GLU:
        return cuda_glu(a + first, b + first, numbers->activation == NUMBERS_GELU_TANH, n,
                        y + first, width, &to, stream, err);
    default:
        return numbers->logit_softcap > 0
                   ? cuda_softcap(a, numbers->logit_softcap, n, y, stream, err)
                   : 0;
    }
}

static int scale(struct cuda_executor *executor, const struct program_op *op, cudaStream_t stream,
                 struct error *err)
{
    uint64_t n = op->columns, rows = layout_rows(executor->program, op);
    const float *x = cuda_in(executor, op, op->a, rows * n, err);
    float *y = cuda_out(executor, op, op->out, rows * n, err);
    const float *factors = cuda_f32_tensor(executor, op, op->tensor, err);

    if (x == nullptr || y == nullptr || factors == nullptr)
        return -1;
    return cuda_scale(x, factors, op->kind == OP_SCALE ? 0 : n, arith_rsqrt((float)n), rows * n, y,
                      stream, err);
}

static int split_gate(struct cuda_executor *executor, const struct program_op *op,
                      cudaStream_t stream, struct error *err)
{
    uint64_t heads = (uint64_t)layout_rows(executor->program, op) * op->heads, n = op->columns;
    const float *x = cuda_in(executor, op, op->a, 2 * heads * n, err);
    float *query = cuda_out(executor, op, op->out, heads * n, err);
    float *gate = cuda_out(executor, op, op->out2, heads * n, err);

    if (x == nullptr || query == nullptr || gate == nullptr)
        return -1;
    return cuda_split_gate(x, heads, n, query, gate, stream, err);
}

static int select_rows(struct cuda_executor *executor, const struct program_op *op,
                       cudaStream_t stream, struct error *err)
{
    uint32_t count = executor->program->tokens, outputs = executor->program->outputs, found = 0;
    const struct program_token *tokens = cuda_tokens_of(executor, op, err);
    const struct program_token *known = cuda_host_tokens(executor, err);
    const float *x = cuda_in(executor, op, op->a, count * op->columns, err);
    float *y = cuda_out(executor, op, op->out, outputs * op->columns, err);

    if (tokens == nullptr || known == nullptr || x == nullptr || y == nullptr)
        return -1;
    for (uint32_t t = 0; t < count; t++)
        found += known[t].output != 0;
    if (found != outputs)
        return error_set(err, ERROR_USAGE, "%u tokens have outputs, the program is for %u", found,
                         outputs);
    return cuda_select(x, tokens, count, op->columns, y, stream, err);
}

static int pick(struct cuda_executor *executor, const struct program_op *op, cudaStream_t stream,
                struct error *err)
{
    uint32_t rows = layout_rows(executor->program, op);
    const float *logits = cuda_in(executor, op, op->a, rows * op->columns, err);
    struct program_pick *picks = (struct program_pick *)cuda_memory_reserve(
        executor->memory, op->out, op->layer, rows * sizeof *picks, err);

    if (logits == nullptr || picks == nullptr)
        return -1;
    return cuda_pick(logits, rows, op->columns, op->slice.first, picks, stream, err);
}

static int finish(struct cuda_executor *executor, const struct program_op *op, cudaStream_t stream,
                  struct error *err)
{
    uint64_t n = layout_rows(executor->program, op) * op->columns;
    const int64_t *sums = (const int64_t *)cuda_memory_find(executor->memory, op->a, op->layer,
                                                            n * sizeof *sums, err);
    float *y = cuda_out(executor, op, op->out, n, err);

    if (sums == nullptr || y == nullptr)
        return -1;
    return cuda_finish(sums, n, y, stream, err);
}

/* ---- rotary embedding and caches ---- */

/* base^(-2 i / turned), divided by the model's own factors: computed once for a GPU. */
static int make_frequencies(struct cuda_executor *executor, const struct program_op *op,
                            struct cuda_frequencies *made, struct weights *weights,
                            struct error *err)
{
    const struct numbers *numbers = executor->numbers;
    double base = made->sliding ? numbers->rope_base_sliding : numbers->rope_base;
    size_t bytes = (made->turned / 2 + 1) * sizeof(double);
    const float *factors = nullptr;
    double *values;
    int status;

    if (made->tensor >= 0) {
        factors = (const float *)weights_tensor(weights, (size_t)made->tensor, err);
        if (factors == nullptr)
            return -1;
    }
    values = (double *)calloc(1, bytes);
    if (values == nullptr)
        return error_set(err, ERROR_MEMORY, "no memory for rotary frequencies");
    for (uint32_t i = 0; i < made->turned / 2; i++) {
        values[i] = arith_pow_double(base, -2.0 * i / made->turned) * numbers->rope_scale;
        if (factors != nullptr)
            values[i] /= (double)factors[i];
    }
    status = cuda_allocate((void **)&made->values, bytes, op->out.space, "rotary frequencies", err);
    if (status == 0)
        status = cuda_check(cudaMemcpy(made->values, values, bytes, cudaMemcpyHostToDevice),
                            "cudaMemcpy", err);
    if (status == 0)
        status = cuda_check(cudaStreamSynchronize(nullptr), "copying frequencies", err);
    free(values);
    return status;
}

const double *cuda_frequencies_of(struct cuda_executor *executor, const struct program_op *op,
                                  struct error *err)
{
    struct cuda_frequencies wanted = {};

    wanted.gpu = executor->device_gpus[op->out.space];
    wanted.sliding = op->sliding;
    wanted.turned = layout_turned(executor->numbers, op);
    wanted.tensor = op->tensor;
    for (uint32_t i = 0; i < executor->frequency_count; i++) {
        const struct cuda_frequencies *have = &executor->frequencies[i];

        if (have->gpu == wanted.gpu && have->sliding == wanted.sliding &&
            have->turned == wanted.turned && have->tensor == wanted.tensor)
            return have->values;
    }
    if (executor->frequency_count == CUDA_FREQUENCIES_MAX) {
        error_set(err, ERROR_UNSUPPORTED, "more than %d kinds of rotary frequencies",
                  (int)CUDA_FREQUENCIES_MAX);
        return nullptr;
    }
    if (make_frequencies(executor, op, &wanted, executor->host_weights, err) != 0) {
        cudaFree(wanted.values);
        return nullptr;
    }
    executor->frequencies[executor->frequency_count++] = wanted;
    return wanted.values;
}

static int rope_op(struct cuda_executor *executor, const struct program_op *op, cudaStream_t stream,
                   struct error *err)
{
    struct rope rope = {};
    float *x;

    rope.tokens = cuda_tokens_of(executor, op, err);
    rope.token_count = executor->program->tokens;
    rope.heads = op->heads;
    rope.dim = (uint32_t)op->columns;
    rope.turned = layout_turned(executor->numbers, op);
    rope.halves = executor->numbers->rope == NUMBERS_ROPE_HALVES;
    x = cuda_in(executor, op, op->a, (uint64_t)rope.token_count * op->heads * op->columns, err);
    if (rope.tokens == nullptr || x == nullptr)
        return -1;
    rope.frequencies = cuda_frequencies_of(executor, op, err);
    if (rope.frequencies == nullptr)
        return -1;
    return cuda_rope(&rope, x, stream, err);
}

static int check_blocks(const struct program_op *op, enum tensor_type type, struct error *err)
{
    if (op->columns % tensor_type_info(type)->block_elements == 0)
        return 0;
    return error_set(err, ERROR_UNSUPPORTED, "heads of %llu values do not fill blocks of %s",
                     (unsigned long long)op->columns, tensor_type_info(type)->name);
}

static int store_op(struct cuda_executor *executor, const struct program_op *op,
                    cudaStream_t stream, struct error *err)
{
    struct cuda_store store = {};
    const float *x;
    void *cache;

    store.type = layout_cache_type(executor->placement, op->out.value);
    store.tokens = cuda_tokens_of(executor, op, err);
    store.token_count = executor->program->tokens;
    store.sliding = op->sliding;
    store.width = op->kv_heads * op->columns;
    store.row = op->row_heads * op->columns;
    store.first = op->kv_first * op->columns;
    x = cuda_in(executor, op, op->a, store.token_count * store.width, err);
    cache = cuda_memory_reserve(executor->memory, op->out, op->layer,
                                layout_cache_bytes(executor->placement, &executor->room,
                                                   op->out.value, op->sliding, store.row),
                                err);
    if (store.tokens == nullptr || x == nullptr || cache == nullptr ||
        check_blocks(op, store.type, err) != 0)
        return -1;
    return cuda_store(&store, x, cache, stream, err);
}

static int shift_op(struct cuda_executor *executor, const struct program_op *op,
                    cudaStream_t stream, struct error *err)
{
    const struct layout_room *room = &executor->room;
    struct cuda_shift shift = {};
    void *cache;

    shift.type = layout_cache_type(executor->placement, op->out.value);
    shift.rows = (uint64_t)room->streams * room->cells[op->sliding];
    shift.shifts = (const uint32_t *)cuda_memory_find(executor->memory, op->a, -1,
                                                      shift.rows * sizeof(uint32_t), err);
    shift.row = op->row_heads * op->columns;
    shift.first = op->kv_first * op->columns;
    shift.heads = op->kv_heads;
    shift.dim = (uint32_t)op->columns;
    shift.turned = layout_turned(executor->numbers, op);
    shift.halves = executor->numbers->rope == NUMBERS_ROPE_HALVES;
    cache = cuda_memory_reserve(executor->memory, op->out, op->layer,
                                layout_cache_bytes(executor->placement, &executor->room,
                                                   op->out.value, op->sliding, shift.row),
                                err);
    if (shift.shifts == nullptr || cache == nullptr || check_blocks(op, shift.type, err) != 0)
        return -1;
    shift.frequencies = cuda_frequencies_of(executor, op, err);
    if (shift.frequencies == nullptr)
        return -1;
    return cuda_shift(&shift, cache, stream, err);
}

uint32_t cuda_attend_chunks_of(struct cuda_executor *executor, bool sliding)
{
    struct error ignored = {};
    const struct program_token *known = cuda_host_tokens(executor, &ignored);

    if (known == nullptr)
        return 0;
    return cuda_attend_chunks(known, executor->program->tokens,
                              sliding ? model_widest_window(executor->model) : 0);
}

static int attend_op(struct cuda_executor *executor, const struct program_op *op,
                     cudaStream_t stream, struct error *err)
{
    const struct layout_room *room = &executor->room;
    const struct program_token *known = cuda_host_tokens(executor, err);
    struct program_operand cells = {};
    struct attend attend = {};
    struct activations quantised = {};
    uint64_t rows = (uint64_t)executor->program->tokens * op->heads;
    uint32_t chunks;
    void *scratch;
    float *y;

    cells.value = OP_VALUE_CELLS;
    cells.slot = op->sliding;
    cells.space = op->a.space;
    attend.query = cuda_in(executor, op, op->a, rows * op->columns, err);
    attend.tokens = cuda_tokens_of(executor, op, err);
    attend.token_count = executor->program->tokens;
    attend.heads = op->heads;
    attend.kv_heads = op->kv_heads;
    attend.dim_k = (uint32_t)op->columns;
    attend.dim_v = (uint32_t)op->rows;
    attend.type_k = executor->placement->plan.type_k;
    attend.type_v = executor->placement->plan.type_v;
    attend.row_heads = op->row_heads;
    attend.kv_first = op->kv_first;
    attend.positions = room->positions;
    attend.window = executor->model->layers[op->layer].window;
    attend.scale = layout_attention_scale(executor->numbers, op->columns);
    y = cuda_out(executor, op, op->out, rows * op->rows, err);
    attend.cache_k =
        cuda_memory_find(executor->memory, op->b, op->layer,
                         layout_cache_bytes(executor->placement, &executor->room, op->b.value,
                                            op->sliding, op->row_heads * op->columns),
                         err);
    attend.cache_v =
        cuda_memory_find(executor->memory, op->c, op->layer,
                         layout_cache_bytes(executor->placement, &executor->room, op->c.value,
                                            op->sliding, op->row_heads * op->rows),
                         err);
    attend.cells = (const int32_t *)cuda_memory_find(
        executor->memory, cells, -1, (uint64_t)room->sequences * room->positions * sizeof(int32_t),
        err);
    if (known == nullptr || attend.query == nullptr || attend.tokens == nullptr || y == nullptr ||
        attend.cache_k == nullptr || attend.cache_v == nullptr || attend.cells == nullptr)
        return -1;
    chunks = cuda_attend_chunks(known, attend.token_count, attend.window);
    scratch = cuda_scratch_of(executor, op->out.space, cuda_attend_scratch(&attend, chunks), err);
    if (scratch == nullptr)
        return -1;
    if (attend.dim_v % ARITH_BLOCK == 0 &&
        cuda_activations_ahead(executor, op, y, op->heads * op->rows, &quantised, err) != 0)
        return -1;
    return cuda_attend(&attend, chunks, scratch, y, &quantised, stream, err);
}

/* ---- staged weights ---- */

static bool multiplies(const struct program_op *op)
{
    return op->kind == OP_MATMUL || op->kind == OP_PARTIAL || op->kind == OP_EXPERTS ||
           op->kind == OP_EXPERTS_PARTIAL;
}

/* All parts that later operations of the step take of the block come now, on the stream. */
static int stage(struct cuda_executor *executor, const struct program_op *op, cudaStream_t stream,
                 struct error *err)
{
    const struct program *program = executor->program;
    bool only_experts = op->rows != 0;

    cuda_weights_stage(executor->weights, op->out.space, op->layer, only_experts, stream);
    for (const struct program_op *next = op + 1; next < program->ops + program->op_count; next++) {
        if (next->layer != op->layer || next->out.space != op->out.space || next->tensor < 0 ||
            !multiplies(next))
            continue;
        if (only_experts && executor->model->tensors[next->tensor].ne[2] <= 1)
            continue;
        if (cuda_weights_part(executor->weights, next->out.space, next->tensor, next->slice,
                              next->rows, err) == nullptr)
            return -1;
    }
    return 0;
}

/* ---- dispatch ---- */

int cuda_run_op(struct cuda_executor *executor, const struct program_op *op, cudaStream_t stream,
                struct error *err)
{
    int device = op->out.space >= 0 ? op->out.space : op->a.space; /* a copy may end on the host */

    if (op->kind != OP_MATMUL && cuda_flush_products(executor, device, err) != 0)
        return -1;
    if (op->kind != OP_MATMUL && op->kind != OP_PARTIAL)
        executor->quantised[device].x = nullptr;
    switch (op->kind) {
    case OP_NORM:
        return norm(executor, op, stream, err);
    case OP_JOIN:
    case OP_GATE:
    case OP_GLU:
    case OP_SOFTCAP:
        return elementwise(executor, op, stream, err);
    case OP_SCALE:
    case OP_SCALE_ROW:
        return scale(executor, op, stream, err);
    case OP_PICK:
        return pick(executor, op, stream, err);
    case OP_FINISH:
        return finish(executor, op, stream, err);
    case OP_MATMUL:
        return cuda_matmul_op(executor, op, stream, err);
    case OP_PARTIAL:
        return cuda_partial_op(executor, op, stream, err);
    case OP_SPLIT_GATE:
        return split_gate(executor, op, stream, err);
    case OP_COPY:
        return cuda_copy(executor, op, stream, err);
    case OP_ROPE:
        return rope_op(executor, op, stream, err);
    case OP_STORE:
        return store_op(executor, op, stream, err);
    case OP_ATTEND:
        return attend_op(executor, op, stream, err);
    case OP_CONVOLVE:
        return cuda_convolve_op(executor, op, stream, err);
    case OP_DELTA:
        return cuda_delta_op(executor, op, stream, err);
    case OP_NORM_GATE:
        return cuda_norm_gate_op(executor, op, stream, err);
    case OP_ROUTE:
        return cuda_route_op(executor, op, stream, err);
    case OP_EXPERTS:
        return cuda_experts_op(executor, op, stream, err);
    case OP_EXPERTS_PARTIAL:
        return cuda_experts_partial_op(executor, op, stream, err);
    case OP_SHARED_GATE:
        return cuda_shared_gate_op(executor, op, stream, err);
    case OP_SELECT:
        return select_rows(executor, op, stream, err);
    case OP_SHIFT:
        return shift_op(executor, op, stream, err);
    case OP_STAGE:
        return stage(executor, op, stream, err);
    default:
        return error_set(err, ERROR_UNSUPPORTED, "a GPU does not compute %s",
                         program_op_name(op->kind));
    }
}
