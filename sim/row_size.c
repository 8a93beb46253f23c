#include "sim/row_size.h"

#include <stdio.h>
#include <string.h>

#include "sim/graph_split.h"

static const double mib = 1 << 20;

/* ---- devices that a row means ---- */

enum { EVERY_DEVICE = -1 };

/* "CUDA1", "first printed device", "each of 2" (any of them), "both"; a row of a machine
 * with one device need not name it. */
static int find_devices(const struct row_case *c, const struct machine *machine, int *device,
                        struct error *err)
{
    static const struct {
        const char *words;
        int device;
    } phrases[] = {{"first printed device", 0},
                   {"second printed device", 1},
                   {"each of 2", 0},
                   {"both", EVERY_DEVICE}};
    const char *words = c->row->device;

    *device = machine_find_device(machine, words);
    if (words[0] == '\0' && machine->device_count == 1)
        *device = 0;
    if (*device >= 0)
        return 0;
    for (size_t i = 0; i < sizeof phrases / sizeof *phrases; i++) {
        if (strcmp(phrases[i].words, words) == 0 &&
            phrases[i].device < (int)machine->device_count) {
            *device = phrases[i].device;
            return 0;
        }
    }
    return words[0] == '\0'
               ? error_set(err, ERROR_USAGE, "no device stated")
               : error_set(err, ERROR_USAGE, "%s is not a device of %s", words, machine->name);
}

enum part { PART_TOTAL, PART_BUFFER, PART_RECURRENT };

/* Bytes of a part of the account under a plan, on one device or on all. */
static int count_bytes(const struct row_case *c, const struct model *model,
                       const struct machine *machine, const struct plan *plan, enum part part,
                       int device, double *bytes, struct error *err)
{
    struct placement *placement = placement_new(model, machine, plan, c->context_needed, err);
    struct memory_account account;

    if (placement == NULL)
        return -1;
    memory_count(placement, &account);
    *bytes = 0;
    for (uint32_t d = 0; d < placement->device_count; d++) {
        const struct memory_device *counted = &account.devices[d];

        if (device != EVERY_DEVICE && (uint32_t)device != placement->devices[d])
            continue;
        *bytes += (double)(part == PART_TOTAL    ? counted->total
                           : part == PART_BUFFER ? counted->buffer
                                                 : counted->recurrent);
    }
    placement_free(placement);
    return 0;
}

/* ---- sizes ---- */

static int predict_buffer(const struct row_case *c, const struct model *model,
                          const struct machine *machine, double *value, struct error *err)
{
    struct plan plan = c->plan;
    double bytes, less = 0;
    int device;

    if (find_devices(c, machine, &device, err) != 0)
        return -1;
    if (c->minus == ROW_MINUS_LAYER_SPLIT) {
        plan.split = PLAN_SPLIT_LAYER;
        if (count_bytes(c, model, machine, &plan, PART_BUFFER, device, &less, err) != 0)
            return -1;
        plan.split = PLAN_SPLIT_TENSOR;
    }
    if (count_bytes(c, model, machine, &plan, PART_BUFFER, device, &bytes, err) != 0)
        return -1;
    *value = (bytes - less) / mib;
    return 0;
}

/* From one ubatch to four times that, with room for the larger one. */
static int predict_buffer_slope(const struct row_case *c, const struct model *model,
                                const struct machine *machine, double *value, struct error *err)
{
    struct plan plan = c->plan;
    uint32_t n_ubatch = plan.n_ubatch;
    double small, large;
    int device;

    if (plan.n_ctx < 4 * n_ubatch)
        plan.n_ctx = 4 * n_ubatch;
    if (find_devices(c, machine, &device, err) != 0 ||
        count_bytes(c, model, machine, &plan, PART_BUFFER, device, &small, err) != 0)
        return -1;
    plan.n_ubatch = 4 * n_ubatch;
    if (plan.n_batch < plan.n_ubatch)
        plan.n_batch = plan.n_ubatch;
    if (count_bytes(c, model, machine, &plan, PART_BUFFER, device, &large, err) != 0)
        return -1;
    *value = (large - small) / (3.0 * n_ubatch) / mib;
    return 0;
}

/* What a choice adds: resident layers, a mirrored head, or pipelining. */
static int predict_delta(const struct row_case *c, const struct model *model,
                         const struct machine *machine, double *value, struct error *err)
{
    struct plan with = c->plan, without = c->plan;
    double more, less;
    int device;

    if (c->plan.n_ctx == 0 && c->context_needed == 0)
        return error_set(err, ERROR_USAGE, "no context length stated");
    if (c->minus == ROW_MINUS_SPLIT_HEAD) {
        with.output_mirrored = PLAN_ON;
        without.output_mirrored = PLAN_OFF;
    } else if (c->plan.kv_gpu_layers > 0) {
        without.kv_gpu_layers = 0;
    } else if (c->plan.pipeline == PLAN_ON) {
        without.pipeline = PLAN_OFF;
    } else {
        return error_set(err, ERROR_USAGE, "not stated what the increment is over");
    }
    if (find_devices(c, machine, &device, err) != 0 ||
        count_bytes(c, model, machine, &with, PART_TOTAL, device, &more, err) != 0 ||
        count_bytes(c, model, machine, &without, PART_TOTAL, device, &less, err) != 0)
        return -1;
    *value = (more - less) / mib;
    return 0;
}

/* The state of all layers, wherever it lies. */
static int predict_state(const struct row_case *c, const struct model *model,
                         const struct machine *machine, double *value, struct error *err)
{
    struct plan plan = c->plan;
    double bytes;

    plan.recurrent_on_device = true;
    if (count_bytes(c, model, machine, &plan, PART_RECURRENT, EVERY_DEVICE, &bytes, err) != 0)
        return -1;
    *value = bytes / mib;
    return 0;
}

/* Bytes that one more token of context takes in the layers whose cache still grows. */
static double growing_row_bytes(const struct model *model, const struct plan *plan)
{
    double sum = 0;

    for (uint32_t layer = 0; layer < model->n_layer; layer++) {
        const struct model_layer *l = &model->layers[layer];

        if (model_layer_has_kv(l) && l->window == 0)
            sum += (double)(tensor_type_row_bytes(plan->type_k, model_layer_k_row(l)) +
                            tensor_type_row_bytes(plan->type_v, model_layer_v_row(l)));
    }
    return sum;
}

/* ---- counts ---- */

static double payload_bytes(const struct program *program)
{
    for (size_t i = 0; i < program->task_count; i++)
        if (program->tasks[i].kind == TASK_ALL_REDUCE)
            return program->tasks[i].bytes;
    return 0;
}

/* Splits of a decode step, or the payload of a boundary for a batch, ubatch by ubatch. */
static int predict_count(const struct row_case *c, const struct model *model,
                         const struct machine *machine, double *value, struct error *err)
{
    struct placement *placement = placement_new(model, machine, &c->plan, c->context_needed, err);
    struct program_step step = {.tokens = 1, .outputs = 1, .sync = true};
    struct program *program;
    double ubatches;

    if (placement == NULL)
        return -1;
    ubatches = (double)placement->plan.n_batch / placement->plan.n_ubatch;
    if (c->metric == ROW_ALL_REDUCE_BYTES)
        step = (struct program_step){.tokens = placement->plan.n_ubatch, .rebuild = true};
    program = program_lower(placement, step, err);
    if (program != NULL)
        *value = c->metric == ROW_GRAPH_SPLITS ? graph_split_count(program)
                                               : payload_bytes(program) / mib * ubatches;
    program_free(program);
    placement_free(placement);
    if (program == NULL)
        return -1;
    return *value > 0 ? 0 : error_set(err, ERROR_USAGE, "the plan has no all-reduce");
}

int row_size_predict(const struct row_case *c, const struct model *model,
                     const struct machine *machine, double *value, struct error *err)
{
    switch (c->metric) {
    case ROW_COMPUTE_BUFFER:
        return predict_buffer(c, model, machine, value, err);
    case ROW_COMPUTE_BUFFER_SLOPE:
        return predict_buffer_slope(c, model, machine, value, err);
    case ROW_VRAM_DELTA:
        return predict_delta(c, model, machine, value, err);
    case ROW_RECURRENT_STATE:
        return predict_state(c, model, machine, value, err);
    case ROW_LOGITS_PER_TOKEN:
        *value = 4.0 * model->n_vocab / mib;
        return 0;
    case ROW_KV_PER_TOKEN:
        *value = growing_row_bytes(model, &c->plan);
        return 0;
    case ROW_KV_PER_WINDOW:
        *value = 256 * growing_row_bytes(model, &c->plan) / mib;
        return 0;
    default:
        return predict_count(c, model, machine, value, err);
    }
}
