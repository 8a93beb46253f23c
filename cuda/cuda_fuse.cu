/* Operations that follow each other in a task and share kernels: the end of a part with the norm
 * behind it, what heads go through between their products and attention, and a gated delta net of
 * one token a sequence. Values that only pass between them (OP_VALUE_RESULT, a convolved
 * OP_VALUE_MIX) are not written. */
#include "cuda/cuda_private.h"

/* ---- finish, join, norm ---- */

static bool is_end(const struct program *program, const struct program_op *op, uint32_t left)
{
    const struct program_op *join = op + 1, *norm = op + 2;
    uint32_t tokens = layout_rows(program, op);

    return left >= 3 && op->kind == OP_FINISH && join->kind == OP_JOIN && norm->kind == OP_NORM &&
           op->out.value == OP_VALUE_RESULT && join->b.value == OP_VALUE_RESULT &&
           join->a.value == OP_VALUE_RESIDUAL && join->out.value == OP_VALUE_RESIDUAL &&
           norm->a.value == OP_VALUE_RESIDUAL && norm->rows == 1 && op->token_first == 0 &&
           join->token_first == 0 && norm->token_first == 0 && !norm->outputs &&
           layout_rows(program, join) == tokens && layout_rows(program, norm) == tokens &&
           join->columns == op->columns && norm->columns == op->columns;
}

static int end(struct cuda_executor *executor, const struct program_op *op, cudaStream_t stream,
               struct error *err)
{
    const struct program_op *join = op + 1, *last = op + 2;
    uint64_t rows = layout_rows(executor->program, op), n = rows * op->columns;
    struct cuda_norm norm = {};

    norm.sums = (const int64_t *)cuda_memory_find(executor->memory, op->a, op->layer,
                                                  n * sizeof *norm.sums, err);
    norm.x = cuda_in(executor, join, join->a, n, err);
    norm.joined = cuda_out(executor, join, join->out, n, err);
    norm.y = cuda_out(executor, last, last->out, n, err);
    norm.n = op->columns;
    norm.eps = executor->numbers->norm_eps;
    if (norm.sums == nullptr || norm.x == nullptr || norm.joined == nullptr || norm.y == nullptr)
        return -1;
    if (last->tensor >= 0) {
        norm.weight = cuda_f32_tensor(executor, last, last->tensor, err);
        if (norm.weight == nullptr)
            return -1;
    }
    if (cuda_activations_ahead(executor, last, norm.y, last->columns, &norm.quantised, err) != 0)
        return -1;
    return cuda_rms_norm(&norm, rows, stream, err);
}

/* ---- heads ---- */

/* Which operations of a task are there, in this order. */
struct head_ops {
    const struct program_op *split, *norm_value, *norm_query, *norm_key;
    const struct program_op *rope_query, *rope_key, *store_key, *store_value;
};

/* New rows of K and V may be kept until the end of the step. */
static unsigned kind_of_rows(unsigned value)
{
    return value == OP_VALUE_ROWS_K   ? OP_VALUE_KEY
           : value == OP_VALUE_ROWS_V ? OP_VALUE_VALUE
                                      : value;
}

/* The next operation if it is of this kind and works on that value. */
static const struct program_op *next_is(const struct program_op **op, const struct program_op *end,
                                        enum op_kind kind, enum op_value value)
{
    const struct program_op *this_one = *op;

    if (this_one == end || this_one->kind != kind || kind_of_rows(this_one->a.value) != value ||
        this_one->token_first != 0 || this_one->outputs)
        return nullptr;
    if (kind == OP_NORM && this_one->out.value != this_one->a.value)
        return nullptr;
    ++*op;
    return this_one;
}

static bool is_head_dim(uint64_t dim)
{
    return dim % 32 == 0 && dim <= CUDA_HEADS_DIM_MAX;
}

/* @return how many operations they are; 0: not these */
static uint32_t find_head_ops(const struct program_op *first, uint32_t left, struct head_ops *ops)
{
    const struct program_op *op = first, *end = first + left;

    ops->split = next_is(&op, end, OP_SPLIT_GATE, OP_VALUE_QUERY_GATE);
    ops->norm_value = next_is(&op, end, OP_NORM, OP_VALUE_VALUE);
    ops->norm_query = next_is(&op, end, OP_NORM, OP_VALUE_QUERY);
    ops->norm_key = next_is(&op, end, OP_NORM, OP_VALUE_KEY);
    ops->rope_query = next_is(&op, end, OP_ROPE, OP_VALUE_QUERY);
    ops->rope_key = next_is(&op, end, OP_ROPE, OP_VALUE_KEY);
    ops->store_key = next_is(&op, end, OP_STORE, OP_VALUE_KEY);
    ops->store_value = next_is(&op, end, OP_STORE, OP_VALUE_VALUE);
    if (ops->rope_query == nullptr || ops->rope_key == nullptr ||
        !is_head_dim(ops->rope_query->columns) || !is_head_dim(ops->rope_key->columns) ||
        (ops->norm_value != nullptr && ops->store_value == nullptr) ||
        (ops->store_value != nullptr && !is_head_dim(ops->store_value->columns)) ||
        (ops->store_key == nullptr) != (ops->store_value == nullptr) ||
        ops->rope_query->sliding != ops->rope_key->sliding ||
        ops->rope_query->tensor != ops->rope_key->tensor)
        return 0;
    return (uint32_t)(op - first);
}

static int norm_rows(struct cuda_executor *executor, const struct program_op *norm,
                     struct cuda_head_rows *rows, struct error *err)
{
    rows->normed = norm != nullptr;
    if (norm == nullptr || norm->tensor < 0)
        return 0;
    rows->norm = cuda_f32_tensor(executor, norm, norm->tensor, err);
    return rows->norm != nullptr ? 0 : -1;
}

/* Heads that stay where they are. */
static int find_rows(struct cuda_executor *executor, const struct program_op *op, uint32_t heads,
                     struct cuda_head_rows *rows, struct error *err)
{
    uint64_t n = (uint64_t)executor->program->tokens * heads * op->columns;

    rows->heads = heads;
    rows->dim = rows->step = (uint32_t)op->columns;
    rows->in = rows->out = cuda_in(executor, op, op->a, n, err);
    return rows->in != nullptr ? 0 : -1;
}

static int find_cache(struct cuda_executor *executor, const struct program_op *store,
                      struct cuda_head_rows *rows, struct error *err)
{
    rows->cache_type = layout_cache_type(executor->placement, store->out.value);
    rows->cache_row = store->row_heads * store->columns;
    rows->cache_first = store->kv_first * store->columns;
    rows->cache =
        cuda_memory_reserve(executor->memory, store->out, store->layer,
                            layout_cache_bytes(executor->placement, &executor->room,
                                               store->out.value, store->sliding, rows->cache_row),
                            err);
    return rows->cache != nullptr ? 0 : -1;
}

/* The query's heads, and their gates where they come with them. */
static int find_query(struct cuda_executor *executor, const struct head_ops *ops,
                      struct cuda_heads *heads, struct error *err)
{
    const struct program_op *split = ops->split;
    struct cuda_head_rows *query = &heads->query;
    uint64_t n;

    if (norm_rows(executor, ops->norm_query, query, err) != 0)
        return -1;
    if (split == nullptr)
        return find_rows(executor, ops->rope_query, ops->rope_query->heads, query, err);
    n = (uint64_t)executor->program->tokens * split->heads * split->columns;
    query->heads = split->heads;
    query->dim = (uint32_t)split->columns;
    query->step = 2 * query->dim;
    query->in = cuda_in(executor, split, split->a, 2 * n, err);
    query->out = cuda_out(executor, split, split->out, n, err);
    heads->gate = cuda_out(executor, split, split->out2, n, err);
    return query->in != nullptr && query->out != nullptr && heads->gate != nullptr ? 0 : -1;
}

static int run_heads(struct cuda_executor *executor, const struct head_ops *ops,
                     cudaStream_t stream, struct error *err)
{
    const struct program_op *rope = ops->rope_query;
    struct cuda_heads heads = {};

    heads.tokens = cuda_tokens_of(executor, rope, err);
    heads.token_count = executor->program->tokens;
    heads.eps = executor->numbers->norm_eps;
    heads.turned = layout_turned(executor->numbers, rope);
    heads.halves = executor->numbers->rope == NUMBERS_ROPE_HALVES;
    heads.sliding = rope->sliding;
    if (heads.tokens == nullptr || find_query(executor, ops, &heads, err) != 0 ||
        find_rows(executor, ops->rope_key, ops->rope_key->heads, &heads.key, err) != 0 ||
        norm_rows(executor, ops->norm_key, &heads.key, err) != 0)
        return -1;
    if (ops->store_key != nullptr &&
        (find_cache(executor, ops->store_key, &heads.key, err) != 0 ||
         find_rows(executor, ops->store_value, ops->store_value->kv_heads, &heads.value, err) !=
             0 ||
         norm_rows(executor, ops->norm_value, &heads.value, err) != 0 ||
         find_cache(executor, ops->store_value, &heads.value, err) != 0))
        return -1;
    heads.frequencies = cuda_frequencies_of(executor, rope, err);
    if (heads.frequencies == nullptr)
        return -1;
    return cuda_heads(&heads, stream, err);
}

/* ---- which ---- */

int cuda_fuse(struct cuda_executor *executor, const struct program_op *op, uint32_t left,
              cudaStream_t stream, uint32_t *taken, struct error *err)
{
    bool is_the_end = is_end(executor->program, op, left);
    bool is_step = cuda_is_delta_step(executor, op, left), fits = false;
    struct head_ops ops;

    *taken = is_the_end ? 3 : is_step ? CUDA_DELTA_STEP_OPS : find_head_ops(op, left, &ops);
    if (*taken == 0)
        return 0;
    if (cuda_flush_products(executor, op->out.space, err) != 0)
        return -1;
    executor->quantised[op->out.space].x = nullptr;
    if (!is_step)
        return is_the_end ? end(executor, op, stream, err) : run_heads(executor, &ops, stream, err);
    if (cuda_delta_step_ops(executor, op, stream, &fits, err) != 0)
        return -1;
    *taken = fits ? *taken : 0;
    return 0;
}
