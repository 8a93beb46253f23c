/* Finds where the GPUs leave the reference: an interpreter computes each operation behind them,
 * and all operands that lie on devices are compared. For people who look for a fault, so it may
 * print. */
#include "cuda/cuda_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern "C" {
#include "ref/arith.h"
}

struct cuda_lockstep {
    struct interpreter *twin;
    bool go_on; /* differences are told on stderr, and mended */
    bool told[OP_KIND_COUNT];
    uint64_t steps;
    char *bytes; /* a value of a device */
    size_t capacity;
};

struct cuda_lockstep *cuda_lockstep_new(const struct executor_setting *setting, bool go_on,
                                        struct error *err)
{
    struct cuda_lockstep *lockstep = (struct cuda_lockstep *)calloc(1, sizeof *lockstep);

    if (lockstep == nullptr) {
        error_set(err, ERROR_MEMORY, "no memory to compare operations");
        return nullptr;
    }
    lockstep->go_on = go_on;
    lockstep->twin = interpreter_new(setting->placement, setting->weights, setting->numbers,
                                     setting->kernels, setting->room, err);
    if (lockstep->twin == nullptr) {
        free(lockstep);
        return nullptr;
    }
    return lockstep;
}

void cuda_lockstep_free(struct cuda_lockstep *lockstep)
{
    if (lockstep == nullptr)
        return;
    interpreter_free(lockstep->twin);
    free(lockstep->bytes);
    free(lockstep);
}

void cuda_lockstep_forget_step(struct cuda_lockstep *lockstep)
{
    if (lockstep != nullptr)
        memory_forget_step(interpreter_memory(lockstep->twin));
}

/* ---- the host's values ---- */

static int give(struct cuda_executor *executor, enum op_value value, uint8_t slot, size_t bytes,
                struct error *err)
{
    struct program_operand operand = {};
    struct error absent = {};
    const void *from;
    void *to;

    operand.value = (uint8_t)value;
    operand.slot = slot;
    operand.space = PROGRAM_AT_HOST;
    from = memory_find(interpreter_memory(executor->host), operand, -1, bytes, &absent);
    if (from == nullptr)
        return 0; /* not of this kind of step */
    to = memory_reserve(interpreter_memory(executor->lockstep->twin), operand, -1, bytes, err);
    if (to == nullptr)
        return -1;
    memcpy(to, from, bytes);
    return 0;
}

int cuda_lockstep_begin(struct cuda_executor *executor, struct error *err)
{
    const struct layout_room *room = &executor->room;
    uint32_t tokens = executor->program->tokens;
    size_t cells = (size_t)room->sequences * room->positions * sizeof(int32_t);

    executor->lockstep->steps++;
    if (give(executor, OP_VALUE_TOKENS, 0, tokens * sizeof(struct program_token), err) != 0 ||
        give(executor, OP_VALUE_HIDDEN, 0, (size_t)tokens * executor->model->n_embd * sizeof(float),
             err) != 0)
        return -1;
    for (uint8_t kind = 0; kind < 2; kind++)
        if (give(executor, OP_VALUE_CELLS, kind, cells, err) != 0 ||
            give(executor, OP_VALUE_SHIFTS, kind,
                 (size_t)room->streams * room->cells[kind] * sizeof(uint32_t), err) != 0)
            return -1;
    return interpreter_begin(executor->lockstep->twin, executor->program, executor->step, err);
}

/* ---- comparing ---- */

static int fetch(struct cuda_lockstep *lockstep, const void *from, size_t bytes, struct error *err)
{
    if (bytes > lockstep->capacity) {
        char *grown = (char *)realloc(lockstep->bytes, bytes);

        if (grown == nullptr)
            return error_set(err, ERROR_MEMORY, "no memory to compare %zu bytes", bytes);
        lockstep->bytes = grown;
        lockstep->capacity = bytes;
    }
    return cuda_check(cudaMemcpy(lockstep->bytes, from, bytes, cudaMemcpyDeviceToHost),
                      "cudaMemcpy", err);
}

/* Of a flagged sum only the flag is the same everywhere. */
static bool same_sums(const void *a, const void *b)
{
    int64_t x, y;

    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return x == y || (arith_fixed_is_flagged(x) && arith_fixed_is_flagged(y));
}

static int tell(const struct cuda_executor *executor, const struct program_op *op,
                struct program_operand operand, size_t element, const char *gpu, const char *cpu,
                struct error *err)
{
    const char *value = program_value_name((enum op_value)operand.value);
    uint32_t bits[2];
    float floats[2];

    if (operand.value == OP_VALUE_SUMS) {
        int64_t sums[2];

        memcpy(&sums[0], gpu, sizeof sums[0]);
        memcpy(&sums[1], cpu, sizeof sums[1]);
        return error_set(err, ERROR_INPUT,
                         "lockstep, step %llu: %s of device %d differs at %zu after %s: GPU %lld, "
                         "CPU %lld",
                         (unsigned long long)executor->lockstep->steps, value, operand.space,
                         element, program_op_name(op->kind), (long long)sums[0],
                         (long long)sums[1]);
    }
    memcpy(&bits[0], gpu, sizeof bits[0]);
    memcpy(&bits[1], cpu, sizeof bits[1]);
    memcpy(floats, bits, sizeof floats);
    return error_set(err, ERROR_INPUT,
                     "lockstep, step %llu: %s of device %d differs at %zu after %s: GPU %08x (%g), "
                     "CPU %08x (%g)",
                     (unsigned long long)executor->lockstep->steps, value, operand.space, element,
                     program_op_name(op->kind), bits[0], (double)floats[0], bits[1],
                     (double)floats[1]);
}

/* The difference is the error; or it is told, once for each kind of operation, and the device gets
 * the right value. */
static int differ(struct cuda_executor *executor, const struct program_op *op,
                  struct program_operand operand, size_t element, const char *expected,
                  size_t bytes, size_t size, struct error *err)
{
    struct cuda_lockstep *lockstep = executor->lockstep;
    struct error told = {};

    tell(executor, op, operand, element, lockstep->bytes + element * size,
         expected + element * size, &told);
    if (!lockstep->go_on)
        return error_set(err, told.code, "%s", told.text);
    if (!lockstep->told[op->kind])
        fprintf(stderr, "block %d: %s\n", op->layer, told.text);
    lockstep->told[op->kind] = true;
    return cuda_check(cudaMemcpy(cuda_memory_find(executor->memory, operand, op->layer, bytes, err),
                                 expected, bytes, cudaMemcpyHostToDevice),
                      "cudaMemcpy", err);
}

static int compare(struct cuda_executor *executor, const struct program_op *op,
                   struct program_operand operand, struct error *err)
{
    struct cuda_lockstep *lockstep = executor->lockstep;
    struct error absent = {};
    size_t bytes, size = operand.value == OP_VALUE_SUMS ? sizeof(int64_t) : sizeof(uint32_t);
    const char *expected;

    if (operand.value == OP_VALUE_NONE || operand.space < 0)
        return 0;
    bytes = cuda_memory_size(executor->memory, operand, op->layer) / size * size;
    if (bytes == 0)
        return 0;
    expected = (const char *)memory_find(interpreter_memory(lockstep->twin), operand, op->layer,
                                         bytes, &absent);
    if (expected == nullptr)
        return error_set(err, ERROR_INPUT, "lockstep: %s, which the GPU has", absent.text);
    if (fetch(lockstep, cuda_memory_find(executor->memory, operand, op->layer, bytes, err), bytes,
              err) != 0)
        return -1;
    if (memcmp(expected, lockstep->bytes, bytes) == 0)
        return 0;
    for (size_t at = 0; at < bytes; at += size)
        if (operand.value == OP_VALUE_SUMS ? !same_sums(expected + at, lockstep->bytes + at)
                                           : memcmp(expected + at, lockstep->bytes + at, size) != 0)
            return differ(executor, op, operand, at / size, expected, bytes, size, err);
    return 0;
}

int cuda_lockstep_op(struct cuda_executor *executor, const struct program_op *op, struct error *err)
{
    struct program_operand operands[] = {op->a, op->b, op->c, op->out, op->out2};

    for (uint32_t g = 0; g < executor->gpu_count; g++)
        if (cuda_check(cudaSetDevice(executor->gpus[g]), "cudaSetDevice", err) != 0 ||
            cuda_check(cudaDeviceSynchronize(), "waiting for the GPU", err) != 0)
            return -1;
    if (interpreter_run_op(executor->lockstep->twin, op, err) != 0)
        return -1;
    for (size_t i = 0; i < sizeof operands / sizeof *operands; i++)
        if (compare(executor, op, operands[i], err) != 0)
            return -1;
    for (uint32_t d = 0; op->kind == OP_REDUCE && d < executor->placement->device_count; d++) {
        operands[3].space = (int16_t)d;
        if (compare(executor, op, operands[3], err) != 0)
            return -1;
    }
    return 0;
}
