/* Gated delta nets: operands and kernels. Where no sequence has more than one token, the
 * convolution is part of the delta rule's kernel, and the gated norm brings its state up to date.
 */
#include "cuda/cuda_private.h"

extern "C" {
#include "ref/arith.h"
}

/* ---- operands ---- */

/* @param x what is convolved, where it lies */
static int find_convolve(struct cuda_executor *executor, const struct program_op *op,
                         struct convolve *convolve, float **x, struct error *err)
{
    const struct model_layer *l = &executor->model->layers[op->layer];
    uint64_t rows = layout_state_rows(executor->model, &executor->room, OP_VALUE_CONV, op->layer);

    convolve->tokens = cuda_tokens_of(executor, op, err);
    convolve->token_count = executor->program->tokens;
    convolve->channels = op->columns;
    convolve->taps = l->gdn_conv_kernel;
    convolve->weight = cuda_role_tensor(executor, op, TENSOR_ROLE_SSM_CONV1D, err);
    convolve->segment_channels = (uint64_t)l->gdn_k_heads * l->gdn_state_dim;
    convolve->first = op->slice.first;
    convolve->count = op->slice.count;
    convolve->planes = executor->room.planes;
    *x = cuda_in(executor, op, op->a, convolve->token_count * op->columns, err);
    convolve->state = cuda_out(executor, op, op->b, rows * op->columns, err);
    return convolve->tokens != nullptr && convolve->weight != nullptr && *x != nullptr &&
                   convolve->state != nullptr
               ? 0
               : -1;
}

/* A delta rule, the part of the layer's heads that it has, and where its result goes. */
struct found_delta {
    struct delta delta;
    struct cuda_delta_heads heads;
    float *out;
};

static int find_delta(struct cuda_executor *executor, const struct program_op *op,
                      struct found_delta *found, struct error *err)
{
    const struct model_layer *l = &executor->model->layers[op->layer];
    struct delta *delta = &found->delta;
    uint64_t tokens = executor->program->tokens, n = op->columns;
    uint64_t values =
        layout_state_rows(executor->model, &executor->room, OP_VALUE_STATE, op->layer) * op->heads *
        n * n;

    found->heads = {l->gdn_k_heads, op->slice.first, op->slice.count};
    delta->dt = cuda_role_tensor(executor, op, TENSOR_ROLE_SSM_DT, err);
    delta->a = cuda_role_tensor(executor, op, TENSOR_ROLE_SSM_A, err);
    delta->mix = cuda_in(executor, op, op->a, tokens * (2 * op->kv_heads + op->heads) * n, err);
    delta->beta = cuda_in(executor, op, op->b, tokens * op->heads, err);
    delta->alpha = cuda_in(executor, op, op->c, tokens * op->heads, err);
    delta->tokens = cuda_tokens_of(executor, op, err);
    delta->token_count = (uint32_t)tokens;
    delta->k_heads = op->kv_heads;
    delta->v_heads = op->heads;
    delta->dim = (uint32_t)n;
    delta->eps = executor->numbers->norm_eps;
    delta->planes = executor->room.planes;
    delta->state = cuda_out(executor, op, op->out2, values, err);
    found->out = cuda_out(executor, op, op->out, tokens * op->heads * n, err);
    return delta->dt != nullptr && delta->a != nullptr && delta->mix != nullptr &&
                   delta->beta != nullptr && delta->alpha != nullptr && delta->tokens != nullptr &&
                   delta->state != nullptr && found->out != nullptr
               ? 0
               : -1;
}

static int find_norm_gate(struct cuda_executor *executor, const struct program_op *op,
                          struct cuda_norm_gate *norm, struct error *err)
{
    uint64_t rows = (uint64_t)layout_rows(executor->program, op) * op->heads,
             n = rows * op->columns;

    norm->x = cuda_in(executor, op, op->a, n, err);
    norm->gate = cuda_in(executor, op, op->b, n, err);
    norm->y = cuda_out(executor, op, op->out, n, err);
    norm->weight = cuda_f32_tensor(executor, op, op->tensor, err);
    norm->eps = executor->numbers->norm_eps;
    norm->rows = rows;
    norm->n = op->columns;
    if (norm->x == nullptr || norm->gate == nullptr || norm->y == nullptr ||
        norm->weight == nullptr)
        return -1;
    if (op->columns % ARITH_BLOCK != 0)
        return 0;
    return cuda_activations_ahead(executor, op, norm->y, op->heads * op->columns, &norm->quantised,
                                  err);
}

/* ---- one by one ---- */

int cuda_convolve_op(struct cuda_executor *executor, const struct program_op *op,
                     cudaStream_t stream, struct error *err)
{
    struct convolve convolve = {};
    float *x;

    if (find_convolve(executor, op, &convolve, &x, err) != 0)
        return -1;
    return cuda_convolve(&convolve, executor->room.sequences, x, stream, err);
}

int cuda_delta_op(struct cuda_executor *executor, const struct program_op *op, cudaStream_t stream,
                  struct error *err)
{
    struct found_delta found = {};
    void *scratch;

    if (find_delta(executor, op, &found, err) != 0)
        return -1;
    scratch = cuda_scratch_of(executor, op->out.space, cuda_delta_scratch(&found.delta), err);
    if (scratch == nullptr)
        return -1;
    return cuda_delta(&found.delta, found.heads, executor->room.sequences, scratch, found.out,
                      stream, err);
}

int cuda_norm_gate_op(struct cuda_executor *executor, const struct program_op *op,
                      cudaStream_t stream, struct error *err)
{
    struct cuda_norm_gate norm = {};

    if (find_norm_gate(executor, op, &norm, err) != 0)
        return -1;
    return cuda_norm_gate(&norm, stream, err);
}

/* ---- a step of one token a sequence ---- */

bool cuda_has_one_each(struct cuda_executor *executor)
{
    struct error ignored = {};
    uint32_t count = executor->program->tokens;
    const struct program_token *known;

    if (count > CUDA_DELTA_STEP_TOKENS)
        return false;
    known = cuda_host_tokens(executor, &ignored);
    if (known == nullptr)
        return false;
    for (uint32_t t = 1; t < count; t++)
        for (uint32_t before = 0; before < t; before++)
            if (known[before].sequence == known[t].sequence)
                return false;
    return true;
}

static bool is_same_value(struct program_operand a, struct program_operand b)
{
    return a.value == b.value && a.slot == b.slot && a.space == b.space;
}

bool cuda_is_delta_step(struct cuda_executor *executor, const struct program_op *op, uint32_t left)
{
    const struct program_op *delta = op + 1, *norm = op + 2;

    return left >= CUDA_DELTA_STEP_OPS && op->kind == OP_CONVOLVE && delta->kind == OP_DELTA &&
           norm->kind == OP_NORM_GATE && is_same_value(delta->a, op->a) &&
           is_same_value(norm->a, delta->out) && delta->layer == op->layer &&
           norm->layer == op->layer && cuda_has_one_each(executor);
}

int cuda_delta_step_ops(struct cuda_executor *executor, const struct program_op *op,
                        cudaStream_t stream, bool *fits, struct error *err)
{
    struct convolve convolve = {};
    struct found_delta found = {};
    struct cuda_norm_gate norm = {};
    float *x;

    if (find_convolve(executor, op, &convolve, &x, err) != 0 ||
        find_delta(executor, op + 1, &found, err) != 0)
        return -1;
    *fits = cuda_delta_step_fits(&convolve, &found.delta);
    if (!*fits)
        return 0;
    if (find_norm_gate(executor, op + 2, &norm, err) != 0)
        return -1;
    norm.convolve = convolve;
    norm.mix = x;
    if (cuda_delta_step(&convolve, &found.delta, found.heads, found.out, stream, err) != 0)
        return -1;
    return cuda_norm_gate(&norm, stream, err);
}
