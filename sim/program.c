#include "sim/program.h"

#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    enum task_class class;
} kinds[TASK_KIND_COUNT] = {
#define TASK_KIND_ROW(kind, name, class) [TASK_##kind] = {name, TASK_CLASS_##class},
    TASK_KINDS(TASK_KIND_ROW)
#undef TASK_KIND_ROW
};

static const char *const op_names[OP_KIND_COUNT] = {
#define OP_KIND_ROW(kind, name) [OP_##kind] = name,
    OP_KINDS(OP_KIND_ROW)
#undef OP_KIND_ROW
};

static const struct {
    const char *name;
    bool layered;
} values[OP_VALUE_COUNT] = {
#define OP_VALUE_ROW(value, name, layered) [OP_VALUE_##value] = {name, layered},
    OP_VALUES(OP_VALUE_ROW)
#undef OP_VALUE_ROW
};

const char *program_op_name(enum op_kind kind)
{
    return op_names[kind];
}

const char *program_value_name(enum op_value value)
{
    return values[value].name;
}

bool program_value_is_layered(enum op_value value)
{
    return values[value].layered;
}

const char *program_task_name(enum task_kind kind)
{
    return kinds[kind].name;
}

enum task_class program_task_class(enum task_kind kind)
{
    return kinds[kind].class;
}

const char *program_class_name(enum task_class which)
{
    static const char *const names[] = {[TASK_CLASS_HOST] = "host",
                                        [TASK_CLASS_WAIT] = "wait",
                                        [TASK_CLASS_COPY] = "copy",
                                        [TASK_CLASS_KERNEL] = "kernel",
                                        [TASK_CLASS_COLLECTIVE] = "collective"};

    return names[which];
}

void program_free(struct program *program)
{
    if (program == NULL)
        return;
    free(program->tasks);
    free(program->dependencies);
    free(program->ops);
    free(program);
}

uint32_t program_sliding_cache_cells(const struct placement *placement, uint32_t window)
{
    uint32_t cells = window + placement->plan.n_ubatch;

    return plan_pad_cells(cells < placement->n_ctx ? cells : placement->n_ctx);
}

uint32_t program_window_cells(const struct placement *placement, uint32_t cells, uint32_t used)
{
    uint32_t unit = placement->plan.schedule == PLAN_SCHEDULE_LOPSIDE ? PROGRAM_WINDOW_UNIT : 256;
    uint32_t padded = used > unit ? (used + unit - 1) / unit * unit : unit;

    return padded < cells ? padded : cells;
}

struct program_cells program_cells_at(const struct placement *placement, uint32_t used)
{
    struct program_cells cells = {.base = program_window_cells(placement, placement->n_ctx, used)};

    for (uint32_t layer = 0; layer < placement->model->n_layer; layer++) {
        uint32_t window = placement->model->layers[layer].window;

        if (window > 0) {
            cells.sliding = program_window_cells(
                placement, program_sliding_cache_cells(placement, window), used);
            break;
        }
    }
    return cells;
}

/* ---- printing ---- */

void program_queue_name(const struct program_task *task, const struct placement *placement,
                        char *text, size_t size)
{
    enum task_class class = program_task_class(task->kind);
    const char *device = "";

    if (task->device >= 0)
        device = placement->machine->devices[placement->devices[task->device]].name;
    if (class == TASK_CLASS_HOST)
        snprintf(text, size, "host");
    else if (class == TASK_CLASS_COLLECTIVE)
        snprintf(text, size, "all devices");
    else if (class == TASK_CLASS_COPY &&
             task->queues >> program_queue_copy_in((uint32_t)task->device) & 1)
        snprintf(text, size, "%s copy in", device);
    else if (class == TASK_CLASS_COPY &&
             task->queues >> program_queue_copy_out((uint32_t)task->device) & 1)
        snprintf(text, size, "%s copy out", device);
    else
        snprintf(text, size, "%s", device);
}

static void print_queues(const struct program_task *task, const struct placement *placement,
                         FILE *out)
{
    char text[64];

    program_queue_name(task, placement, text, sizeof text);
    fprintf(out, "%-15s", text);
}

void program_what_text(enum task_kind kind, char part, const char *tensor, int32_t layer,
                       const char *peer, char *text, size_t size)
{
    char which[3] = {' ', part, '\0'}, block[16] = "";

    if (tensor == NULL && layer >= 0)
        snprintf(block, sizeof block, " blk.%d", layer);
    snprintf(text, size, "%s%s%s%s%s%s%s", program_task_name(kind), part != 0 ? which : "",
             tensor != NULL ? " " : "", tensor != NULL ? tensor : "", block,
             peer != NULL ? " to " : "", peer != NULL ? peer : "");
}

static void print_what(const struct program_task *task, const struct placement *placement,
                       FILE *out)
{
    const char *tensor = NULL, *peer = NULL;
    char text[96];

    if (task->tensor >= 0)
        tensor = placement->model->tensors[task->tensor].name;
    if (task->kind == TASK_PEER)
        peer = placement->machine->devices[placement->devices[task->peer]].name;
    program_what_text(task->kind, task->part, tensor, task->layer, peer, text, sizeof text);
    fprintf(out, " %-34s", text);
}

/* Columns are padded before what follows, so that no line ends in blanks. */
static void print_work(const struct program_task *task, struct program_cells cells, FILE *out)
{
    double n = program_task_cells(task, cells);
    double bytes = task->bytes + n * task->bytes_per_cell;
    double flops = task->flops + n * task->flops_per_cell;

    if (bytes > 0)
        fprintf(out, " %10.3f MB", bytes / 1e6);
    else
        fprintf(out, " %13s", "-");
    if (flops > 0)
        fprintf(out, " %10.4f GFLOP", flops / 1e9);
    else
        fprintf(out, " %16s", "-");
}

static void print_operands(const struct program_task *task, const struct placement *placement,
                           FILE *out)
{
    if (task->tensor >= 0) {
        fprintf(out, "  %s %llux%llu x %u", tensor_type_info(task->type)->name,
                (unsigned long long)task->rows, (unsigned long long)task->columns, task->tokens);
        if (task->slice.count > 0 && placement->plan.split == PLAN_SPLIT_TENSOR)
            fprintf(out, ", %s %llu+%llu%s", task->slice.axis == 1 ? "rows" : "columns",
                    (unsigned long long)task->slice.first, (unsigned long long)task->slice.count,
                    task->slice.segments > 1 ? " of each segment" : "");
        if (task->kind == TASK_EXPERTS)
            fprintf(out, ", %.1f experts", task->experts);
    }
    if (task->kind == TASK_ATTENTION)
        fprintf(out, "  %u:%u heads of %u, %s", task->heads, task->kv_heads, task->head_dim,
                tensor_type_info(task->cache_type)->name);
    if (task->row_bytes > 0)
        fprintf(out, "  rows of %.0f B", task->row_bytes);
    if (task->pageable)
        fprintf(out, "  pageable");
    if (task->blocking)
        fprintf(out, "  host waits");
}

static void print_operand(const struct program_operand *operand, const struct placement *placement,
                          const char *before, FILE *out)
{
    if (operand->value == OP_VALUE_NONE)
        return;
    fprintf(out, "%s%s", before, program_value_name(operand->value));
    if (operand->slot > 0)
        fprintf(out, "[%u]", operand->slot);
    fprintf(out, "@%s",
            operand->space < 0
                ? "host"
                : placement->machine->devices[placement->devices[operand->space]].name);
}

static void print_operation(const struct program_op *op, const struct placement *placement,
                            FILE *out)
{
    fprintf(out, "        %s", program_op_name(op->kind));
    if (op->kind == OP_REDUCE) {
        const char *before = " ";

        for (uint32_t d = 0; d < placement->device_count; d++)
            if ((op->members >> d & 1) != 0) {
                struct program_operand part = op->a;

                part.space = (int16_t)d;
                print_operand(&part, placement, before, out);
                before = " + ";
            }
        if (op->token_first > 0 || op->tokens > 0)
            fprintf(out, " tokens %u+%u", op->token_first, op->tokens);
        fprintf(out, " -> %s@each\n", program_value_name(op->out.value));
        return;
    }
    print_operand(&op->a, placement, " ", out);
    print_operand(&op->b, placement, ", ", out);
    print_operand(&op->c, placement, ", ", out);
    if (op->tensor >= 0)
        fprintf(out, " x %s", placement->model->tensors[op->tensor].name);
    if (op->slice.count > 0)
        fprintf(out, " %s %llu+%llu%s", op->slice.axis == 1 ? "rows" : "columns",
                (unsigned long long)op->slice.first, (unsigned long long)op->slice.count,
                op->slice.segments > 1 ? " of each segment" : "");
    if (op->tokens > 0)
        fprintf(out, " tokens %u+%u", op->token_first, op->tokens);
    print_operand(&op->out, placement, " -> ", out);
    print_operand(&op->out2, placement, ", ", out);
    fputc('\n', out);
}

void program_print_operations(const struct program *program, size_t task, FILE *out)
{
    for (uint32_t i = 0; i < program->tasks[task].op_count; i++)
        print_operation(&program->ops[program->tasks[task].op_first + i], program->placement, out);
}

void program_print(const struct program *program, struct program_cells cells, FILE *out)
{
    fprintf(out, "# %u token%s, %u row%s of logits, window %u cells", program->tokens,
            program->tokens == 1 ? "" : "s", program->outputs, program->outputs == 1 ? "" : "s",
            cells.base);
    if (cells.sliding > 0)
        fprintf(out, " (sliding %u)", cells.sliding);
    fprintf(out, ", %zu tasks\n", program->task_count);
    for (size_t i = 0; i < program->task_count; i++) {
        const struct program_task *task = &program->tasks[i];

        fprintf(out, "%5zu ", i);
        print_queues(task, program->placement, out);
        print_what(task, program->placement, out);
        print_work(task, cells, out);
        print_operands(task, program->placement, out);
        for (uint32_t d = 0; d < task->dependency_count; d++)
            fprintf(out, "%s%u", d == 0 ? "  after " : ",",
                    program->dependencies[task->dependency_first + d]);
        fputc('\n', out);
    }
}

double program_task_weight_bytes(const struct program_task *task)
{
    return (double)task->rows * (double)tensor_type_row_bytes(task->type, task->columns) *
           task->experts;
}

double program_task_product_tokens(const struct program_task *task)
{
    double weights = (double)task->rows * (double)task->columns * task->experts;

    return task->kind == TASK_EXPERTS && weights > 0 ? task->flops / (2 * weights) : task->tokens;
}
