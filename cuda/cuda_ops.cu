/* Operations of devices: their operands, as ref/interpret*.c finds them, and the kernels. */
#include "cuda/cuda_private.h"

#include <stdlib.h>

extern "C" {
#include "ref/arith.h"
}

/* ---- operands ---- */

static float *in(struct cuda_executor *executor, const struct program_op *op,
                 struct program_operand operand, uint64_t values, struct error *err)
{
    return (float *)cuda_memory_find(executor->memory, operand, op->layer, values * sizeof(float),
                                     err);
}

static float *out(struct cuda_executor *executor, const struct program_op *op,
                  struct program_operand operand, uint64_t values, struct error *err)
{
    return (float *)cuda_memory_reserve(executor->memory, operand, op->layer,
                                        values * sizeof(float), err);
}

static const struct program_token *tokens_of(struct cuda_executor *executor,
                                             const struct program_op *op, struct error *err)
{
    struct program_operand tokens = {};

    tokens.value = OP_VALUE_TOKENS;
    tokens.space = op->a.space;
    return (const struct program_token *)cuda_memory_find(
        executor->memory, tokens, -1, executor->program->tokens * sizeof(struct program_token),
        err);
}

/* The same in the host's memory, for sizes of launches. */
static const struct program_token *host_tokens(struct cuda_executor *executor, struct error *err)
{
    struct program_operand tokens = {};

    tokens.value = OP_VALUE_TOKENS;
    tokens.space = PROGRAM_AT_HOST;
    return (const struct program_token *)memory_find(
        interpreter_memory(executor->host), tokens, -1,
        executor->program->tokens * sizeof(struct program_token), err);
}

int64_t *cuda_sums_out(struct cuda_executor *executor, struct program_operand operand,
                       const struct program_op *op, struct error *err)
{
    uint64_t n = (uint64_t)executor->program->tokens * executor->model->n_embd;

    return (int64_t *)cuda_memory_reserve(executor->memory, operand, op->layer, n * sizeof(int64_t),
                                          err);
}

static void *grow_scratch(struct cuda_scratch *scratch, int device, size_t bytes, struct error *err)
{
    void *grown;

    if (bytes <= scratch->capacity)
        return scratch->bytes;
    bytes = (bytes + bytes / 4 + 65535) / 65536 * 65536;
    if (cuda_check(cudaDeviceSynchronize(), "waiting for the GPU", err) != 0)
        return nullptr;
    cudaFree(scratch->bytes);
    scratch->bytes = nullptr;
    scratch->capacity = 0;
    if (cuda_allocate(&grown, bytes, device, "scratch", err) != 0)
        return nullptr;
    scratch->bytes = grown;
    if (cuda_check(cudaMemset(grown, 0, bytes), "cudaMemset", err) != 0 ||
        cuda_check(cudaDeviceSynchronize(), "waiting for the GPU", err) != 0)
        return nullptr;
    scratch->capacity = bytes;
    return grown;
}

static void *scratch_of(struct cuda_executor *executor, int device, size_t bytes, struct error *err)
{
    return grow_scratch(&executor->scratch[device], device, bytes, err);
}

/* ---- tensors ---- */

static const float *f32_tensor(struct cuda_executor *executor, const struct program_op *op,
                               int32_t tensor, struct error *err)
{
    const struct model_tensor *info = &executor->model->tensors[tensor];

    if (info->type != TENSOR_TYPE_F32) {
        error_set(err, ERROR_UNSUPPORTED, "%s is %s; it has to be F32", info->name,
                  tensor_type_info(info->type)->name);
        return nullptr;
    }
    return (const float *)cuda_weights_whole(executor->weights, op->out.space, tensor, err);
}

static const float *role_tensor(struct cuda_executor *executor, const struct program_op *op,
                                enum tensor_role role, struct error *err)
{
    const struct model_tensor *tensor = model_find_tensor(executor->model, op->layer, role);

    if (tensor == nullptr) {
        error_set(err, ERROR_INPUT, "block %d has no %s", op->layer, tensor_role_name(role));
        return nullptr;
    }
    return f32_tensor(executor, op, (int32_t)(tensor - executor->model->tensors), err);
}

/* ---- small operations ---- */

static int norm(struct cuda_executor *executor, const struct program_op *op, cudaStream_t stream,
                struct error *err)
{
    uint64_t rows = layout_rows(executor->program, op) * op->rows;
    const float *x = in(executor, op, op->a, rows * op->columns, err);
    float *y = out(executor, op, op->out, rows * op->columns, err);
    const float *weight = nullptr;

    if (x == nullptr || y == nullptr)
        return -1;
    if (op->tensor >= 0) {
        weight = f32_tensor(executor, op, op->tensor, err);
        if (weight == nullptr)
            return -1;
    }
    return cuda_rms_norm(x, weight, nullptr, executor->numbers->norm_eps, rows, op->columns, y,
                         stream, err);
}

static int elementwise(struct cuda_executor *executor, const struct program_op *op,
                       cudaStream_t stream, struct error *err)
{
    uint64_t rows = layout_rows(executor->program, op) * (op->rows > 1 ? op->rows : 1);
    uint64_t first = op->token_first * op->columns, n = rows * op->columns;
    const struct numbers *numbers = executor->numbers;
    const float *a = in(executor, op, op->a, first + n, err), *b = nullptr;
    float *y;

    if (a == nullptr)
        return -1;
    if (op->b.value != OP_VALUE_NONE) {
        b = in(executor, op, op->b, first + n, err);
        if (b == nullptr)
            return -1;
    }
    y = out(executor, op, op->out, first + n, err);
    if (y == nullptr)
        return -1;
    switch (op->kind) {
    case OP_JOIN:
        return cuda_join(a + first, b + first, n, y + first, stream, err);
    case OP_GATE:
        return cuda_gate(a + first, b + first, n, y + first, stream, err);
    case OP_GLU:
        return cuda_glu(a + first, b + first, numbers->activation == NUMBERS_GELU_TANH, n,
                        y + first, stream, err);
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
    const float *x = in(executor, op, op->a, rows * n, err);
    float *y = out(executor, op, op->out, rows * n, err);
    const float *factors = f32_tensor(executor, op, op->tensor, err);

    if (x == nullptr || y == nullptr || factors == nullptr)
        return -1;
    return cuda_scale(x, factors, op->kind == OP_SCALE ? 0 : n, arith_rsqrt((float)n), rows * n, y,
                      stream, err);
}

static int norm_gate(struct cuda_executor *executor, const struct program_op *op,
                     cudaStream_t stream, struct error *err)
{
    uint64_t rows = (uint64_t)layout_rows(executor->program, op) * op->heads,
             n = rows * op->columns;
    const float *x = in(executor, op, op->a, n, err);
    const float *gate = in(executor, op, op->b, n, err);
    float *y = out(executor, op, op->out, n, err);
    const float *weight = f32_tensor(executor, op, op->tensor, err);

    if (x == nullptr || gate == nullptr || y == nullptr || weight == nullptr)
        return -1;
    return cuda_rms_norm(x, weight, gate, executor->numbers->norm_eps, rows, op->columns, y, stream,
                         err);
}

static int split_gate(struct cuda_executor *executor, const struct program_op *op,
                      cudaStream_t stream, struct error *err)
{
    uint64_t heads = (uint64_t)layout_rows(executor->program, op) * op->heads, n = op->columns;
    const float *x = in(executor, op, op->a, 2 * heads * n, err);
    float *query = out(executor, op, op->out, heads * n, err);
    float *gate = out(executor, op, op->out2, heads * n, err);

    if (x == nullptr || query == nullptr || gate == nullptr)
        return -1;
    return cuda_split_gate(x, heads, n, query, gate, stream, err);
}

static int select_rows(struct cuda_executor *executor, const struct program_op *op,
                       cudaStream_t stream, struct error *err)
{
    uint32_t count = executor->program->tokens, outputs = executor->program->outputs, found = 0;
    const struct program_token *tokens = tokens_of(executor, op, err);
    const struct program_token *known = host_tokens(executor, err);
    const float *x = in(executor, op, op->a, count * op->columns, err);
    float *y = out(executor, op, op->out, outputs * op->columns, err);

    if (tokens == nullptr || known == nullptr || x == nullptr || y == nullptr)
        return -1;
    for (uint32_t t = 0; t < count; t++)
        found += known[t].output != 0;
    if (found != outputs)
        return error_set(err, ERROR_USAGE, "%u tokens have outputs, the program is for %u", found,
                         outputs);
    return cuda_select(x, tokens, count, op->columns, y, stream, err);
}

static int finish(struct cuda_executor *executor, const struct program_op *op, cudaStream_t stream,
                  struct error *err)
{
    uint64_t n = layout_rows(executor->program, op) * op->columns;
    const int64_t *sums = (const int64_t *)cuda_memory_find(executor->memory, op->a, op->layer,
                                                            n * sizeof *sums, err);
    float *y = out(executor, op, op->out, n, err);

    if (sums == nullptr || y == nullptr)
        return -1;
    return cuda_finish(sums, n, y, stream, err);
}

/* ---- products ---- */

static size_t padded(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

static const struct cuda_weight *weight_of(struct cuda_executor *executor,
                                           const struct program_op *op, struct error *err)
{
    return cuda_weights_part(executor->weights, op->out.space, op->tensor, op->slice, op->rows,
                             err);
}

/* `first` bytes of the scratch are the caller's. */
/* Whether the product before left the activations of this one; then notes what it leaves.
 * cuda_run_op() forgets it where another operation comes between. */
static bool is_quantised(struct cuda_executor *executor, const struct program_op *op,
                         const struct cuda_product *product, const void *scratch)
{
    struct cuda_quantised *last = &executor->quantised[op->out.space], now = {};
    bool same;

    if (product->weight->packed == nullptr || product->routes != nullptr) {
        *last = now;
        return false;
    }
    now.x = product->x;
    now.scratch = scratch;
    now.tokens = product->tokens;
    now.group = product->weight->group;
    now.segments = product->weight->segments;
    now.columns = product->weight->columns;
    same = last->x == now.x && last->scratch == scratch && last->tokens == now.tokens &&
           last->group == now.group && last->segments == now.segments &&
           last->columns == now.columns;
    *last = now;
    return same;
}

static int multiply(struct cuda_executor *executor, const struct program_op *op,
                    struct cuda_product *product, size_t first, cudaStream_t stream,
                    struct error *err)
{
    size_t bytes = cuda_matmul_workspace(product);
    char *scratch =
        (char *)scratch_of(executor, op->out.space, first + cuda_matmul_scratch(product), err);

    if (scratch == nullptr && first + cuda_matmul_scratch(product) > 0)
        return -1;
    if (bytes > 0) {
        product->workspace =
            grow_scratch(&executor->workspaces[op->out.space], op->out.space, bytes, err);
        if (product->workspace == nullptr)
            return -1;
    }
    product->quantised = first == 0 && is_quantised(executor, op, product, scratch);
    return cuda_matmul(product, scratch + first, stream, err);
}

static int matmul_op(struct cuda_executor *executor, const struct program_op *op,
                     cudaStream_t stream, struct error *err)
{
    struct cuda_product product = {};

    product.tokens = layout_rows(executor->program, op);
    product.x_divide = 1;
    product.weight = weight_of(executor, op, err);
    product.x =
        in(executor, op, op->a, product.tokens * executor->model->tensors[op->tensor].ne[0], err);
    product.out = out(executor, op, op->out, product.tokens * op->rows, err);
    if (product.weight == nullptr || product.x == nullptr || product.out == nullptr)
        return -1;
    product.limit = arith_limit(product.weight->groups_total);
    return multiply(executor, op, &product, 0, stream, err);
}

static int partial(struct cuda_executor *executor, const struct program_op *op, cudaStream_t stream,
                   struct error *err)
{
    struct cuda_product product = {};

    product.tokens = layout_rows(executor->program, op);
    product.x_divide = 1;
    product.weight = weight_of(executor, op, err);
    product.x = in(executor, op, op->a, (op->token_first + product.tokens) * op->columns, err);
    product.sums = cuda_sums_out(executor, op->out, op, err);
    if (product.weight == nullptr || product.x == nullptr || product.sums == nullptr)
        return -1;
    product.x += op->token_first * op->columns;
    product.sums += op->token_first * op->rows;
    product.limit = arith_limit(product.weight->groups_total);
    return multiply(executor, op, &product, 0, stream, err);
}

static const struct program_route *routes_of(struct cuda_executor *executor,
                                             const struct program_op *op, struct error *err)
{
    uint64_t count =
        (uint64_t)executor->program->tokens * executor->model->layers[op->layer].n_expert_used;

    return (const struct program_route *)cuda_memory_find(
        executor->memory, op->b, op->layer, count * sizeof(struct program_route), err);
}

static int experts(struct cuda_executor *executor, const struct program_op *op, cudaStream_t stream,
                   struct error *err)
{
    uint32_t used = executor->model->layers[op->layer].n_expert_used;
    uint32_t tokens = executor->program->tokens;
    struct cuda_product product = {};

    product.tokens = tokens * used;
    product.x_divide = used;
    product.weight = weight_of(executor, op, err);
    product.x = in(executor, op, op->a, tokens * op->columns, err);
    product.routes = routes_of(executor, op, err);
    product.out = out(executor, op, op->out, product.tokens * op->rows, err);
    if (product.weight == nullptr || product.x == nullptr || product.routes == nullptr ||
        product.out == nullptr)
        return -1;
    product.limit = arith_limit(product.weight->groups_total);
    return multiply(executor, op, &product, 0, stream, err);
}

/* Experts of a token are terms of one sum, as devices and groups are. */
static int experts_partial(struct cuda_executor *executor, const struct program_op *op,
                           cudaStream_t stream, struct error *err)
{
    uint32_t used = executor->model->layers[op->layer].n_expert_used;
    uint32_t tokens = executor->program->tokens;
    int64_t *sums = cuda_sums_out(executor, op->out, op, err);
    struct cuda_product product = {};
    size_t parts;
    char *scratch;

    product.tokens = tokens * used;
    product.x_divide = 1;
    product.weight = weight_of(executor, op, err);
    product.x = in(executor, op, op->a, product.tokens * op->columns, err);
    product.routes = routes_of(executor, op, err);
    product.weighted = true;
    if (product.weight == nullptr || product.x == nullptr || product.routes == nullptr ||
        sums == nullptr)
        return -1;
    product.limit = arith_limit(product.weight->groups_total * used);
    parts = padded(product.tokens * op->rows * sizeof(int64_t));
    scratch =
        (char *)scratch_of(executor, op->out.space, parts + cuda_matmul_scratch(&product), err);
    if (scratch == nullptr)
        return -1;
    product.sums = (int64_t *)scratch;
    if (multiply(executor, op, &product, parts, stream, err) != 0)
        return -1;
    return cuda_sum_experts(product.sums, tokens, used, op->rows, sums, stream, err);
}

/* out = a sigmoid(b . w): the product is one of a matrix of one row. */
static int shared_gate(struct cuda_executor *executor, const struct program_op *op,
                       cudaStream_t stream, struct error *err)
{
    uint64_t n = op->columns;
    struct cuda_product product = {};
    struct program_slice all = {};
    const float *a;
    float *y;
    size_t gates;
    char *scratch;

    all.axis = 1;
    product.tokens = layout_rows(executor->program, op);
    product.x_divide = 1;
    product.weight = cuda_weights_part(executor->weights, op->out.space, op->tensor, all, 1, err);
    product.x = in(executor, op, op->b, product.tokens * n, err);
    a = in(executor, op, op->a, product.tokens * n, err);
    y = out(executor, op, op->out, product.tokens * n, err);
    if (product.weight == nullptr || product.x == nullptr || a == nullptr || y == nullptr)
        return -1;
    product.limit = arith_limit(product.weight->groups_total);
    gates = padded(product.tokens * sizeof(float));
    scratch =
        (char *)scratch_of(executor, op->out.space, gates + cuda_matmul_scratch(&product), err);
    if (scratch == nullptr)
        return -1;
    product.out = (float *)scratch;
    if (multiply(executor, op, &product, gates, stream, err) != 0)
        return -1;
    return cuda_shared_gate(a, product.out, n, product.tokens * n, y, stream, err);
}

static int route(struct cuda_executor *executor, const struct program_op *op, cudaStream_t stream,
                 struct error *err)
{
    const struct numbers *numbers = executor->numbers;
    struct cuda_route r = {};
    struct program_route *routes;

    r.tokens = executor->program->tokens;
    r.experts = (uint32_t)op->columns;
    r.used = (uint32_t)op->rows;
    r.normalised = numbers->router_normalised;
    r.expert_scale = numbers->expert_scale;
    r.logits = in(executor, op, op->a, r.tokens * op->columns, err);
    routes = (struct program_route *)cuda_memory_reserve(
        executor->memory, op->out, op->layer, (uint64_t)r.tokens * r.used * sizeof *routes, err);
    if (r.logits == nullptr || routes == nullptr)
        return -1;
    if (op->tensor >= 0) {
        r.scales =
            (const float *)cuda_weights_whole(executor->weights, op->out.space, op->tensor, err);
        if (r.scales == nullptr)
            return -1;
    }
    return cuda_route(&r, routes, stream, err);
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

static const double *frequencies_of(struct cuda_executor *executor, const struct program_op *op,
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

    rope.tokens = tokens_of(executor, op, err);
    rope.token_count = executor->program->tokens;
    rope.heads = op->heads;
    rope.dim = (uint32_t)op->columns;
    rope.turned = layout_turned(executor->numbers, op);
    rope.halves = executor->numbers->rope == NUMBERS_ROPE_HALVES;
    x = in(executor, op, op->a, (uint64_t)rope.token_count * op->heads * op->columns, err);
    if (rope.tokens == nullptr || x == nullptr)
        return -1;
    rope.frequencies = frequencies_of(executor, op, err);
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
    store.tokens = tokens_of(executor, op, err);
    store.token_count = executor->program->tokens;
    store.sliding = op->sliding;
    store.width = op->kv_heads * op->columns;
    store.row = op->row_heads * op->columns;
    store.first = op->kv_first * op->columns;
    x = in(executor, op, op->a, store.token_count * store.width, err);
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
    shift.frequencies = frequencies_of(executor, op, err);
    if (shift.frequencies == nullptr)
        return -1;
    return cuda_shift(&shift, cache, stream, err);
}

uint32_t cuda_attend_chunks_of(struct cuda_executor *executor, bool sliding)
{
    struct error ignored = {};
    const struct program_token *known = host_tokens(executor, &ignored);

    if (known == nullptr)
        return 0;
    return cuda_attend_chunks(known, executor->program->tokens,
                              sliding ? model_widest_window(executor->model) : 0);
}

static int attend_op(struct cuda_executor *executor, const struct program_op *op,
                     cudaStream_t stream, struct error *err)
{
    const struct layout_room *room = &executor->room;
    const struct program_token *known = host_tokens(executor, err);
    struct program_operand cells = {};
    struct attend attend = {};
    uint64_t rows = (uint64_t)executor->program->tokens * op->heads;
    uint32_t chunks;
    void *scratch;
    float *y;

    cells.value = OP_VALUE_CELLS;
    cells.slot = op->sliding;
    cells.space = op->a.space;
    attend.query = in(executor, op, op->a, rows * op->columns, err);
    attend.tokens = tokens_of(executor, op, err);
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
    y = out(executor, op, op->out, rows * op->rows, err);
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
    scratch = scratch_of(executor, op->out.space, cuda_attend_scratch(&attend, chunks), err);
    if (scratch == nullptr)
        return -1;
    return cuda_attend(&attend, chunks, scratch, y, stream, err);
}

/* ---- recurrent layers ---- */

static int convolve_op(struct cuda_executor *executor, const struct program_op *op,
                       cudaStream_t stream, struct error *err)
{
    const struct model_layer *l = &executor->model->layers[op->layer];
    uint64_t rows = layout_state_rows(executor->model, &executor->room, OP_VALUE_CONV, op->layer);
    struct convolve convolve = {};
    float *x;

    convolve.tokens = tokens_of(executor, op, err);
    convolve.token_count = executor->program->tokens;
    convolve.channels = op->columns;
    convolve.taps = l->gdn_conv_kernel;
    convolve.weight = role_tensor(executor, op, TENSOR_ROLE_SSM_CONV1D, err);
    convolve.segment_channels = (uint64_t)l->gdn_k_heads * l->gdn_state_dim;
    convolve.first = op->slice.first;
    convolve.count = op->slice.count;
    convolve.planes = executor->room.planes;
    x = in(executor, op, op->a, convolve.token_count * op->columns, err);
    convolve.state = out(executor, op, op->b, rows * op->columns, err);
    if (convolve.tokens == nullptr || convolve.weight == nullptr || x == nullptr ||
        convolve.state == nullptr)
        return -1;
    return cuda_convolve(&convolve, executor->room.sequences, x, stream, err);
}

static int delta_op(struct cuda_executor *executor, const struct program_op *op,
                    cudaStream_t stream, struct error *err)
{
    const struct model_layer *l = &executor->model->layers[op->layer];
    uint64_t tokens = executor->program->tokens, n = op->columns;
    uint64_t values =
        layout_state_rows(executor->model, &executor->room, OP_VALUE_STATE, op->layer) * op->heads *
        n * n;
    struct cuda_delta_heads heads = {l->gdn_k_heads, op->slice.first, op->slice.count};
    struct delta delta = {};
    void *scratch;
    float *y;

    delta.dt = role_tensor(executor, op, TENSOR_ROLE_SSM_DT, err);
    delta.a = role_tensor(executor, op, TENSOR_ROLE_SSM_A, err);
    delta.mix = in(executor, op, op->a, tokens * (2 * op->kv_heads + op->heads) * n, err);
    delta.beta = in(executor, op, op->b, tokens * op->heads, err);
    delta.alpha = in(executor, op, op->c, tokens * op->heads, err);
    delta.tokens = tokens_of(executor, op, err);
    delta.token_count = (uint32_t)tokens;
    delta.k_heads = op->kv_heads;
    delta.v_heads = op->heads;
    delta.dim = (uint32_t)n;
    delta.eps = executor->numbers->norm_eps;
    delta.planes = executor->room.planes;
    delta.state = out(executor, op, op->out2, values, err);
    y = out(executor, op, op->out, tokens * op->heads * n, err);
    if (delta.dt == nullptr || delta.a == nullptr || delta.mix == nullptr ||
        delta.beta == nullptr || delta.alpha == nullptr || delta.tokens == nullptr ||
        delta.state == nullptr || y == nullptr)
        return -1;
    scratch = scratch_of(executor, op->out.space, cuda_delta_scratch(&delta), err);
    if (scratch == nullptr)
        return -1;
    return cuda_delta(&delta, heads, executor->room.sequences, scratch, y, stream, err);
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
        if (weight_of(executor, next, err) == nullptr)
            return -1;
    }
    return 0;
}

/* ---- dispatch ---- */

int cuda_run_op(struct cuda_executor *executor, const struct program_op *op, cudaStream_t stream,
                struct error *err)
{
    if (op->kind != OP_MATMUL && op->kind != OP_PARTIAL)
        executor->quantised[op->out.space].x = nullptr;
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
    case OP_FINISH:
        return finish(executor, op, stream, err);
    case OP_MATMUL:
        return matmul_op(executor, op, stream, err);
    case OP_PARTIAL:
        return partial(executor, op, stream, err);
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
        return convolve_op(executor, op, stream, err);
    case OP_DELTA:
        return delta_op(executor, op, stream, err);
    case OP_NORM_GATE:
        return norm_gate(executor, op, stream, err);
    case OP_ROUTE:
        return route(executor, op, stream, err);
    case OP_EXPERTS:
        return experts(executor, op, stream, err);
    case OP_EXPERTS_PARTIAL:
        return experts_partial(executor, op, stream, err);
    case OP_SHARED_GATE:
        return shared_gate(executor, op, stream, err);
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
