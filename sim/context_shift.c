#include "sim/context_shift.h"

/* One layer's part on one device. */
static double layer_rotation_s(const struct placement *placement, uint32_t layer, uint32_t d,
                               double cells)
{
    const struct machine *machine = placement->machine;
    const struct machine_device *device = &machine->devices[placement->devices[d]];
    double bytes, cpu_s, memory_s;
    uint64_t k, v;

    placement_kv_row(placement, layer, d, &k, &v);
    bytes = 2 * cells * (double)tensor_type_row_bytes(placement->plan.type_k, k);
    if ((placement->kv_resident[layer] >> d & 1) != 0)
        return bytes / (device->memory_gbs * 1e9 * machine->families[device->family].memory_ratio);
    cpu_s = cells * (double)k * machine->host.rope_s;
    memory_s = bytes / (machine->host.memory_gbs * 1e9);
    return cpu_s > memory_s ? cpu_s : memory_s;
}

/* Parts on the host follow each other; devices of a tensor split work side by side. */
double context_shift_rotation_s(const struct placement *placement, uint32_t cells)
{
    double sum_s = 0;

    for (uint32_t layer = 0; layer < placement->model->n_layer; layer++) {
        double slowest_s = 0;

        if (!model_layer_has_kv(&placement->model->layers[layer]))
            continue;
        for (uint32_t d = 0; d < placement->device_count; d++) {
            double part_s = layer_rotation_s(placement, layer, d, cells);

            if ((placement->kv_resident[layer] >> d & 1) == 0)
                sum_s += part_s;
            else if (part_s > slowest_s)
                slowest_s = part_s;
        }
        sum_s += slowest_s;
    }
    return sum_s;
}

uint32_t context_shift_cells(const struct placement *placement, uint32_t used, bool whole_cache)
{
    const struct plan *plan = &placement->plan;

    return whole_cache || (plan->n_slots > 1 && !plan->kv_unified)
               ? placement->n_ctx
               : program_cells_at(placement, used).base;
}

/* Seconds of one step, alone on idle devices. */
static int run_step(struct timing *timing, const struct placement *placement, uint32_t used,
                    bool rebuild, double *time_s, struct error *err)
{
    uint32_t slots = placement->plan.n_slots > 1 ? placement->plan.n_slots : 1;
    struct program_step step = {.tokens = slots,
                                .outputs = slots,
                                .sequences = slots,
                                .sync = true,
                                .sample = true,
                                .rebuild = rebuild};
    struct timed_program *timed =
        timed_program_new(timing, step, program_cells_at(placement, used + slots), err);
    struct timing_busy busy;
    int status = -1;

    if (timed == NULL)
        return -1;
    engine_reset(timing_engine(timing));
    if (engine_run(timing_engine(timing), timed->schedule, err) == 0 &&
        engine_finish(timing_engine(timing), err) == 0) {
        timing_read_busy(timing, &busy);
        *time_s = busy.elapsed_s;
        status = 0;
    }
    timed_program_free(timed);
    return status;
}

int context_shift_cost(struct timing *timing, const struct placement *placement, uint32_t used,
                       bool whole_cache, double *cost_s, struct error *err)
{
    const struct machine_host *host = &placement->machine->host;
    double fresh_s, replayed_s;

    if (run_step(timing, placement, used, true, &fresh_s, err) != 0 ||
        run_step(timing, placement, used, false, &replayed_s, err) != 0)
        return -1;
    *cost_s =
        context_shift_rotation_s(placement, context_shift_cells(placement, used, whole_cache)) +
        host->build_s + host->reserve_s + fresh_s - replayed_s;
    return 0;
}
