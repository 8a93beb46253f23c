/* Copies between memories, as interpret_copy(): values whole, windows of caches, rows of a state or
 * of a plain value. */
#include "cuda/cuda_private.h"

/* Of recurrent layers. */
static bool is_state(unsigned value)
{
    return value == OP_VALUE_STATE || value == OP_VALUE_CONV;
}

bool cuda_copy_is_hosts(const struct program_op *op)
{
    return op->a.space == PROGRAM_AT_HOST && op->out.space == PROGRAM_AT_HOST;
}

static void *reserve(struct cuda_executor *executor, struct program_operand operand, int layer,
                     size_t bytes, struct error *err)
{
    if (operand.space == PROGRAM_AT_HOST)
        return memory_reserve(interpreter_memory(executor->host), operand, layer, bytes, err);
    return cuda_memory_reserve(executor->memory, operand, layer, bytes, err);
}

static void *find(struct cuda_executor *executor, struct program_operand operand, int layer,
                  size_t bytes, struct error *err)
{
    if (operand.space == PROGRAM_AT_HOST)
        return memory_find(interpreter_memory(executor->host), operand, layer, bytes, err);
    return cuda_memory_find(executor->memory, operand, layer, bytes, err);
}

/* ---- memory of the host ---- */

bool cuda_copy_is_pinned(const struct cuda_executor *executor, const struct program_op *op)
{
    struct program_operand host = op->a.space == PROGRAM_AT_HOST ? op->a : op->out;

    if (is_state(host.value))
        return false;
    return !layout_is_cache((enum op_value)host.value) || executor->placement->plan.kv_pinned;
}

int cuda_copy_expect(struct cuda_executor *executor, const struct program_op *op, struct error *err)
{
    size_t size = layout_element_bytes(op->a.value);

    return reserve(executor, op->out, op->layer,
                   layout_rows(executor->program, op) * op->to.row * size, err) != nullptr
               ? 0
               : -1;
}

/* A cache of the host stays where it is, so it is registered once. A failure is no error: the
 * copy is then one from pageable memory. */
static void pin(struct cuda_executor *executor, void *bytes, size_t size)
{
    for (uint32_t i = 0; i < executor->pinned_count; i++)
        if (executor->pinned[i] == bytes)
            return;
    if (executor->pinned_count == CUDA_PINNED_MAX ||
        cudaHostRegister(bytes, size, cudaHostRegisterPortable) != cudaSuccess) {
        cudaGetLastError();
        return;
    }
    executor->pinned[executor->pinned_count++] = bytes;
}

/* ---- copies ---- */

static int gpu_of(const struct cuda_executor *executor, struct program_operand operand)
{
    return executor->device_gpus[operand.space];
}

/* Rows of `width` bytes. */
static int copy_rows(struct cuda_executor *executor, const struct program_op *op, char *to,
                     uint64_t to_row, const char *from, uint64_t from_row, uint64_t width,
                     uint64_t rows, cudaStream_t stream, struct error *err)
{
    bool together = width == to_row && width == from_row;
    bool apart = op->a.space >= 0 && op->out.space >= 0 &&
                 gpu_of(executor, op->a) != gpu_of(executor, op->out);

    if (width == 0 || rows == 0)
        return 0;
    if (apart && together)
        return cuda_check(cudaMemcpyPeerAsync(to, gpu_of(executor, op->out), from,
                                              gpu_of(executor, op->a), width * rows, stream),
                          "cudaMemcpyPeerAsync", err);
    if (together)
        return cuda_check(cudaMemcpyAsync(to, from, width * rows, cudaMemcpyDefault, stream),
                          "cudaMemcpyAsync", err);
    return cuda_check(
        cudaMemcpy2DAsync(to, to_row, from, from_row, width, rows, cudaMemcpyDefault, stream),
        "cudaMemcpy2DAsync", err);
}

/* Of an input that is copied whole. */
static size_t whole_bytes(const struct cuda_executor *executor, const struct program_op *op)
{
    const struct layout_room *room = &executor->room;

    if (op->a.value == OP_VALUE_TOKENS)
        return executor->program->tokens * sizeof(struct program_token);
    if (op->a.value == OP_VALUE_SHIFTS)
        return (size_t)room->streams * room->cells[op->sliding] * sizeof(uint32_t);
    return (size_t)room->sequences * room->positions * sizeof(int32_t);
}

/* Where a whole value, or the first segment of its rows, is and goes. */
static int find_part(struct cuda_executor *executor, const struct program_op *op,
                     struct cuda_copy_part *part, struct error *err)
{
    bool whole = op->width == 0;
    size_t size = whole ? whole_bytes(executor, op) : layout_element_bytes(op->a.value);
    uint32_t rows = whole ? 1 : layout_rows(executor->program, op);
    struct program_layout from = op->from, to = op->to;

    if (whole)
        from.row = to.row = 1;
    if (is_state(op->a.value))
        rows = layout_state_rows(executor->model, &executor->room, op->a.value, op->layer);
    /* Before the first step the host's state is not there yet; it is zero. */
    if (is_state(op->a.value) && op->a.space == PROGRAM_AT_HOST &&
        reserve(executor, op->a, op->layer, rows * from.row * size, err) == nullptr)
        return -1;
    part->from = (const char *)find(executor, op->a, op->layer, rows * from.row * size, err);
    part->to = part->from != nullptr
                   ? (char *)reserve(executor, op->out, op->layer, rows * to.row * size, err)
                   : nullptr;
    if (part->to == nullptr)
        return -1;
    part->from += from.first * size;
    part->to += to.first * size;
    part->from_row = from.row * size;
    part->to_row = to.row * size;
    part->width = (whole ? 1 : op->width) * size;
    part->rows = rows;
    return 0;
}

/* The cells that a window covers, of each stream. */
static int copy_cells(struct cuda_executor *executor, const struct program_op *op,
                      cudaStream_t stream, struct error *err)
{
    const struct layout_room *room = &executor->room;
    enum tensor_type type = layout_cache_type(executor->placement, op->a.value);
    uint64_t from_row = tensor_type_row_bytes(type, op->from.row);
    uint64_t to_row = tensor_type_row_bytes(type, op->to.row);
    uint64_t width = tensor_type_row_bytes(type, op->width);
    size_t from_bytes = layout_cache_bytes(executor->placement, &executor->room, op->a.value,
                                           op->sliding, op->from.row);
    /* A window that is sent ahead may leave before the first rows came. */
    char *in = (char *)reserve(executor, op->a, op->layer, from_bytes, err);
    char *out = in != nullptr
                    ? (char *)reserve(executor, op->out, op->layer,
                                      layout_cache_bytes(executor->placement, &executor->room,
                                                         op->out.value, op->sliding, op->to.row),
                                      err)
                    : nullptr;

    if (out == nullptr)
        return -1;
    if (executor->placement->plan.kv_pinned && op->a.space == PROGRAM_AT_HOST)
        pin(executor, in, from_bytes);
    for (uint32_t s = 0; s < room->streams; s++) {
        uint64_t row = (uint64_t)s * room->cells[op->sliding];

        if (copy_rows(executor, op, out + row * to_row + tensor_type_row_bytes(type, op->to.first),
                      to_row, in + row * from_row + tensor_type_row_bytes(type, op->from.first),
                      from_row, width, executor->step.used[op->sliding], stream, err) != 0)
            return -1;
    }
    return 0;
}

int cuda_copy(struct cuda_executor *executor, const struct program_op *op, cudaStream_t stream,
              struct error *err)
{
    size_t size = layout_element_bytes(op->a.value);
    struct cuda_copy_part part;

    if (layout_is_cache(op->a.value))
        return copy_cells(executor, op, stream, err);
    if (find_part(executor, op, &part, err) != 0)
        return -1;
    for (uint32_t s = 0; s < (op->width == 0 ? 1 : op->segments); s++)
        if (copy_rows(executor, op, part.to + s * op->to.segment * size, part.to_row,
                      part.from + s * op->from.segment * size, part.from_row, part.width, part.rows,
                      stream, err) != 0)
            return -1;
    return 0;
}

/* ---- small copies ---- */

static bool is_small(const struct program_op *op, bool to_host)
{
    bool from_host = op->a.space == PROGRAM_AT_HOST;

    return op->kind == OP_COPY && from_host != to_host &&
           (op->out.space == PROGRAM_AT_HOST) == to_host && !layout_is_cache(op->a.value) &&
           !is_state(op->a.value) && op->segments <= 1;
}

bool cuda_copies_by_kernel(const struct program *program, const struct program_task *task)
{
    static const double most_to_host = 2 << 20, most_from_host = 512 << 10;
    const struct program_op *ops = &program->ops[task->op_first];
    bool to_host;

    if (program_task_class(task->kind) != TASK_CLASS_COPY || !program_task_is_on_compute(task) ||
        task->pageable || task->op_count == 0)
        return false;
    to_host = ops[0].out.space == PROGRAM_AT_HOST;
    for (uint32_t i = 0; i < task->op_count; i++)
        if (!is_small(&ops[i], to_host))
            return false;
    return task->bytes <= (to_host ? most_to_host : most_from_host);
}

int cuda_copy_task(struct cuda_executor *executor, const struct program_task *task,
                   cudaStream_t stream, struct error *err)
{
    const struct program_op *ops = &executor->program->ops[task->op_first];
    struct cuda_copies copies = {};
    const bool to_host = ops[0].out.space == PROGRAM_AT_HOST;

    if (cuda_flush_products(executor, task->device, err) != 0)
        return -1;
    executor->quantised[task->device].x = nullptr;
    for (uint32_t i = 0; i < task->op_count; i++) {
        struct cuda_copy_part *part = &copies.parts[copies.count++];

        if (find_part(executor, &ops[i], part, err) != 0)
            return -1;
        if (part->width == part->from_row && part->width == part->to_row) {
            part->width = part->from_row = part->to_row = part->width * part->rows;
            part->rows = 1;
        }
        if (copies.count < CUDA_COPY_PARTS && i + 1 < task->op_count)
            continue;
        if (cuda_copy_small(&copies, to_host, stream, err) != 0)
            return -1;
        copies.count = 0;
    }
    return 0;
}
