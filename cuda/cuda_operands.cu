/* Operands of devices, as ref/interpret*.c finds them, and memory that operations use meanwhile. */
#include "cuda/cuda_private.h"

float *cuda_in(struct cuda_executor *executor, const struct program_op *op,
               struct program_operand operand, uint64_t values, struct error *err)
{
    return (float *)cuda_memory_find(executor->memory, operand, op->layer, values * sizeof(float),
                                     err);
}

float *cuda_out(struct cuda_executor *executor, const struct program_op *op,
                struct program_operand operand, uint64_t values, struct error *err)
{
    return (float *)cuda_memory_reserve(executor->memory, operand, op->layer,
                                        values * sizeof(float), err);
}

const struct program_token *cuda_tokens_of(struct cuda_executor *executor,
                                           const struct program_op *op, struct error *err)
{
    struct program_operand tokens = {};

    tokens.value = OP_VALUE_TOKENS;
    tokens.space = op->a.space;
    return (const struct program_token *)cuda_memory_find(
        executor->memory, tokens, -1, executor->program->tokens * sizeof(struct program_token),
        err);
}

const struct program_token *cuda_host_tokens(struct cuda_executor *executor, struct error *err)
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

void *cuda_grow_scratch(struct cuda_scratch *scratch, int device, size_t bytes, struct error *err)
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

void *cuda_scratch_of(struct cuda_executor *executor, int device, size_t bytes, struct error *err)
{
    return cuda_grow_scratch(&executor->scratch[device], device, bytes, err);
}

/* ---- tensors ---- */

const float *cuda_f32_tensor(struct cuda_executor *executor, const struct program_op *op,
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

const float *cuda_role_tensor(struct cuda_executor *executor, const struct program_op *op,
                              enum tensor_role role, struct error *err)
{
    const struct model_tensor *tensor = model_find_tensor(executor->model, op->layer, role);

    if (tensor == nullptr) {
        error_set(err, ERROR_INPUT, "block %d has no %s", op->layer, tensor_role_name(role));
        return nullptr;
    }
    return cuda_f32_tensor(executor, op, (int32_t)(tensor - executor->model->tensors), err);
}
