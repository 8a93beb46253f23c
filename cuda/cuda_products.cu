/* Products with weights. Those of few tokens that follow each other with one input are one launch:
 * a product waits until another operation comes, or its task ends and the next one does not go on
 * with it. */
#include "cuda/cuda_private.h"

#include "cuda/matmul_fast.h"

extern "C" {
#include "ref/arith.h"
}

static const struct cuda_weight *weight_of(struct cuda_executor *executor,
                                           const struct program_op *op, struct error *err)
{
    return cuda_weights_part(executor->weights, op->out.space, op->tensor, op->slice, op->rows,
                             err);
}

/* ---- activations ---- */

static bool is_same(const struct cuda_quantised *a, const struct cuda_quantised *b)
{
    return a->x == b->x && a->bytes == b->bytes && a->tokens == b->tokens && a->group == b->group &&
           a->segments == b->segments && a->columns == b->columns;
}

/* The buffer for activations of a product with `weight`, and what it will hold. */
static int make_activations(struct cuda_executor *executor, int device,
                            const struct cuda_weight *weight, const float *x, uint32_t tokens,
                            struct cuda_quantised *to, struct error *err)
{
    to->x = x;
    to->tokens = tokens;
    to->group = weight->group;
    to->segments = weight->segments;
    to->columns = weight->columns;
    to->bytes = cuda_grow_scratch(&executor->activations[device], device,
                                  cuda_matmul_activation_bytes(weight, tokens), err);
    return to->bytes != nullptr ? 0 : -1;
}

static bool is_operand(struct program_operand a, struct program_operand b)
{
    return a.value == b.value && a.slot == b.slot && a.space == b.space;
}

int cuda_activations_ahead(struct cuda_executor *executor, const struct program_op *op,
                           const float *x, uint64_t columns, struct activations *to,
                           struct error *err)
{
    const struct program *program = executor->program;
    const struct program_op *next = op + 1;
    uint32_t tokens = layout_rows(program, op);
    const struct cuda_weight *weight;

    *to = {};
    if (executor->lockstep != nullptr || next == program->ops + program->op_count ||
        (next->kind != OP_MATMUL && next->kind != OP_PARTIAL) || !is_operand(next->a, op->out) ||
        next->out.space != op->out.space || op->token_first != 0 || next->token_first != 0 ||
        layout_rows(program, next) != tokens)
        return 0;
    weight = weight_of(executor, next, err);
    if (weight == nullptr)
        return -1;
    if (weight->packed == nullptr || weight->columns != columns ||
        columns / weight->segments % weight->group != 0)
        return 0;
    if (make_activations(executor, op->out.space, weight, x, tokens,
                         &executor->quantised[op->out.space], err) != 0)
        return -1;
    *to = cuda_matmul_activations(weight, tokens, executor->quantised[op->out.space].bytes);
    return 0;
}

/* ---- products that wait ---- */

static bool is_like(const struct cuda_product *a, const struct cuda_product *b)
{
    return a->x == b->x && a->tokens == b->tokens && a->weight->type == b->weight->type &&
           a->weight->columns == b->weight->columns && a->weight->segments == b->weight->segments &&
           a->weight->group == b->weight->group &&
           a->weight->groups_total == b->weight->groups_total;
}

int cuda_flush_products(struct cuda_executor *executor, int device, struct error *err)
{
    struct cuda_pending *pending = &executor->pending[device];
    const struct cuda_product *first = &pending->products[0];
    struct cuda_quantised wanted = {};
    uint32_t count = pending->count;
    size_t bytes = cuda_matmul_workspace(pending->products, count);
    void *workspace;

    if (count == 0)
        return 0;
    pending->count = 0;
    if (make_activations(executor, device, first->weight, first->x, first->tokens, &wanted, err) !=
        0)
        return -1;
    workspace = cuda_grow_scratch(&executor->workspaces[device], device, bytes, err);
    if (workspace == nullptr)
        return -1;
    if (!is_same(&wanted, &executor->quantised[device]) &&
        cuda_matmul_quantise(first, wanted.bytes, pending->stream, err) != 0)
        return -1;
    executor->quantised[device] = wanted;
    return cuda_matmul_packed(pending->products, count, wanted.bytes, workspace, pending->stream,
                              err);
}

bool cuda_products_go_on(const struct cuda_executor *executor, const struct program_op *last,
                         const struct program_op *next)
{
    return executor->pending[last->out.space].count > 0 && next->kind == OP_MATMUL &&
           next->out.space == last->out.space && is_operand(next->a, last->a);
}

static int multiply_packed(struct cuda_executor *executor, const struct program_op *op,
                           const struct cuda_product *product, cudaStream_t stream,
                           struct error *err)
{
    int device = op->out.space;
    struct cuda_pending *pending = &executor->pending[device];
    bool waits = product->tokens <= MATMUL_FAST_DECODE_TOKENS;

    if (product->tokens == 0 || product->weight->rows == 0)
        return 0;
    if (pending->count > 0 &&
        (!waits || pending->count == CUDA_PENDING_MAX || !is_like(product, pending->products)) &&
        cuda_flush_products(executor, device, err) != 0)
        return -1;
    pending->products[pending->count++] = *product;
    pending->stream = stream;
    return waits ? 0 : cuda_flush_products(executor, device, err);
}

/* `first` bytes of the scratch are the caller's. */
static int multiply(struct cuda_executor *executor, const struct program_op *op,
                    const struct cuda_product *product, size_t first, cudaStream_t stream,
                    struct error *err)
{
    size_t bytes = first + cuda_matmul_scratch(product);
    char *scratch;

    if (product->weight->packed != nullptr)
        return multiply_packed(executor, op, product, stream, err);
    if (cuda_flush_products(executor, op->out.space, err) != 0)
        return -1;
    executor->quantised[op->out.space].x = nullptr;
    scratch = (char *)cuda_scratch_of(executor, op->out.space, bytes, err);
    if (scratch == nullptr && bytes > 0)
        return -1;
    return cuda_matmul(product, scratch + first, stream, err);
}

int cuda_matmul_op(struct cuda_executor *executor, const struct program_op *op, cudaStream_t stream,
                   struct error *err)
{
    struct cuda_product product = {};

    product.tokens = layout_rows(executor->program, op);
    product.x_divide = 1;
    product.weight = weight_of(executor, op, err);
    product.x = cuda_in(executor, op, op->a,
                        product.tokens * executor->model->tensors[op->tensor].ne[0], err);
    product.out = cuda_out(executor, op, op->out, product.tokens * op->rows, err);
    if (product.weight == nullptr || product.x == nullptr || product.out == nullptr)
        return -1;
    product.limit = arith_limit(product.weight->groups_total);
    return multiply(executor, op, &product, 0, stream, err);
}

int cuda_partial_op(struct cuda_executor *executor, const struct program_op *op,
                    cudaStream_t stream, struct error *err)
{
    struct cuda_product product = {};

    product.tokens = layout_rows(executor->program, op);
    product.x_divide = 1;
    product.weight = weight_of(executor, op, err);
    product.x = cuda_in(executor, op, op->a, (op->token_first + product.tokens) * op->columns, err);
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

int cuda_experts_op(struct cuda_executor *executor, const struct program_op *op,
                    cudaStream_t stream, struct error *err)
{
    uint32_t used = executor->model->layers[op->layer].n_expert_used;
    uint32_t tokens = executor->program->tokens;
    struct cuda_product product = {};

    product.tokens = tokens * used;
    product.x_divide = used;
    product.weight = weight_of(executor, op, err);
    product.x = cuda_in(executor, op, op->a, tokens * op->columns, err);
    product.routes = routes_of(executor, op, err);
    product.out = cuda_out(executor, op, op->out, product.tokens * op->rows, err);
    if (product.weight == nullptr || product.x == nullptr || product.routes == nullptr ||
        product.out == nullptr)
        return -1;
    product.limit = arith_limit(product.weight->groups_total);
    return multiply(executor, op, &product, 0, stream, err);
}

/* Experts of a token are terms of one sum, as devices and groups are. */
int cuda_experts_partial_op(struct cuda_executor *executor, const struct program_op *op,
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
    product.x = cuda_in(executor, op, op->a, product.tokens * op->columns, err);
    product.routes = routes_of(executor, op, err);
    product.weighted = true;
    if (product.weight == nullptr || product.x == nullptr || product.routes == nullptr ||
        sums == nullptr)
        return -1;
    product.limit = arith_limit(product.weight->groups_total * used);
    parts = cuda_padded(product.tokens * op->rows * sizeof(int64_t));
    scratch = (char *)cuda_scratch_of(executor, op->out.space,
                                      parts + cuda_matmul_scratch(&product), err);
    if (scratch == nullptr)
        return -1;
    product.sums = (int64_t *)scratch;
    if (multiply(executor, op, &product, parts, stream, err) != 0 ||
        cuda_flush_products(executor, op->out.space, err) != 0)
        return -1;
    return cuda_sum_experts(product.sums, tokens, used, op->rows, sums, stream, err);
}

/* out = a sigmoid(b . w): the product is one of a matrix of one row. */
int cuda_shared_gate_op(struct cuda_executor *executor, const struct program_op *op,
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
    product.x = cuda_in(executor, op, op->b, product.tokens * n, err);
    a = cuda_in(executor, op, op->a, product.tokens * n, err);
    y = cuda_out(executor, op, op->out, product.tokens * n, err);
    if (product.weight == nullptr || product.x == nullptr || a == nullptr || y == nullptr)
        return -1;
    product.limit = arith_limit(product.weight->groups_total);
    gates = cuda_padded(product.tokens * sizeof(float));
    scratch = (char *)cuda_scratch_of(executor, op->out.space,
                                      gates + cuda_matmul_scratch(&product), err);
    if (scratch == nullptr)
        return -1;
    product.out = (float *)scratch;
    if (multiply(executor, op, &product, gates, stream, err) != 0 ||
        cuda_flush_products(executor, op->out.space, err) != 0)
        return -1;
    return cuda_shared_gate(a, product.out, n, product.tokens * n, y, stream, err);
}

int cuda_route_op(struct cuda_executor *executor, const struct program_op *op, cudaStream_t stream,
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
    r.logits = cuda_in(executor, op, op->a, r.tokens * op->columns, err);
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
