#include "sim/predict.h"

#include <stdlib.h>
#include <string.h>

static void finish_prediction(struct timing *timing, uint32_t tokens, struct prediction *prediction)
{
    prediction->tokens = tokens;
    prediction->tokens_per_s = prediction->time_s > 0 ? tokens / prediction->time_s : 0;
    prediction->bound = timing_bound(timing, engine_time_s(timing_engine(timing)));
}

/* ---- prompts ---- */

/* Programs of a prompt: full ubatches and the last one, with and without outputs. */
struct prompt_programs {
    struct timed_program *entries[4];
    size_t count;
};

static struct timed_program *program_for(struct prompt_programs *programs,
                                         const struct timing *timing, struct program_step step,
                                         struct program_cells cells, struct error *err)
{
    struct timed_program *timed;

    for (size_t i = 0; i < programs->count; i++) {
        const struct program *program = programs->entries[i]->program;

        if (program->tokens == step.tokens && program->outputs == step.outputs) {
            timed_program_set_cells(timing, programs->entries[i], cells);
            return programs->entries[i];
        }
    }
    timed = timed_program_new(timing, step, cells, err);
    if (timed != NULL)
        programs->entries[programs->count++] = timed;
    return timed;
}

/* The host thread's run over all ubatches; batches of -b tokens are cut into ubatches. */
static int run_prompt(struct timing *timing, const struct placement *placement, uint32_t depth,
                      uint32_t tokens, struct predict_options options,
                      struct prompt_programs *programs, struct prediction *prediction,
                      struct error *err)
{
    uint32_t n_batch = placement->plan.n_batch, n_ubatch = placement->plan.n_ubatch;

    for (uint32_t done = 0; done < tokens;) {
        uint32_t batch_left = n_batch - done % n_batch;
        uint32_t left = tokens - done < batch_left ? tokens - done : batch_left;
        uint32_t now = left < n_ubatch ? left : n_ubatch;
        bool batch_ends = now == left, ends = done + now == tokens;
        struct program_step step = {
            .tokens = now,
            .outputs = ends || (batch_ends && options.tool == PREDICT_LLAMA_BENCH),
            .rebuild = true,
        };
        struct timed_program *timed = program_for(
            programs, timing, step, program_cells_at(placement, depth + done + now), err);

        if (timed == NULL || engine_run(timing_engine(timing), timed->schedule, err) != 0)
            return -1;
        prediction->steps++;
        prediction->simulated_steps++;
        prediction->tasks += timed->program->task_count;
        done += now;
    }
    return engine_finish(timing_engine(timing), err);
}

int predict_prompt(struct timing *timing, const struct placement *placement, uint32_t depth,
                   uint32_t tokens, struct predict_options options, struct prediction *prediction,
                   struct error *err)
{
    struct prompt_programs programs = {.count = 0};
    int status;

    memset(prediction, 0, sizeof *prediction);
    engine_reset(timing_engine(timing));
    status = run_prompt(timing, placement, depth, tokens, options, &programs, prediction, err);
    if (status == 0) {
        prediction->time_s = engine_time_s(timing_engine(timing));
        finish_prediction(timing, tokens, prediction);
    }
    for (size_t i = 0; i < programs.count; i++)
        timed_program_free(programs.entries[i]);
    return status;
}

/* ---- generation ---- */

/* Ends of the last step's tasks, to see whether the next one is the same. */
struct last_step {
    double *ends;
    size_t count, capacity;
    double time_s;
};

static int keep_step(struct last_step *kept, const struct engine *engine, double time_s,
                     struct error *err)
{
    size_t count;
    const double *ends = engine_last_ends(engine, &count);

    if (count > kept->capacity) {
        double *grown = realloc(kept->ends, count * sizeof *grown);

        if (grown == NULL)
            return error_set(err, ERROR_MEMORY, "no memory for %zu tasks", count);
        kept->ends = grown;
        kept->capacity = count;
    }
    memcpy(kept->ends, ends, count * sizeof *ends);
    kept->count = count;
    kept->time_s = time_s;
    return 0;
}

static bool same_step(const struct last_step *kept, const struct engine *engine, double time_s)
{
    size_t count;
    const double *ends = engine_last_ends(engine, &count);

    return kept->count == count && kept->time_s == time_s &&
           memcmp(kept->ends, ends, count * sizeof *ends) == 0;
}

struct generation {
    struct timing *timing;
    const struct placement *placement;
    struct timed_program *first, *steady; /* of a window: graph built anew, and replayed */
    struct last_step kept;
    struct prediction *prediction;
    double skipped_s; /* time of the steps that were not simulated */
};

static int run_step(struct generation *generation, struct timed_program *timed, double *time_s,
                    struct error *err)
{
    struct engine *engine = timing_engine(generation->timing);
    double before_s = engine_time_s(engine);

    if (engine_run(engine, timed->schedule, err) != 0)
        return -1;
    *time_s = engine_time_s(engine) - before_s;
    generation->prediction->simulated_steps++;
    generation->prediction->tasks += timed->program->task_count;
    return 0;
}

/* All steps of one padded window. Once two steps are the same to the bit, so are the rest. */
static int run_window(struct generation *generation, struct program_cells cells, uint32_t steps,
                      bool full_stepping, struct error *err)
{
    struct engine *engine = timing_engine(generation->timing);
    double time_s;

    timed_program_set_cells(generation->timing, generation->first, cells);
    timed_program_set_cells(generation->timing, generation->steady, cells);
    generation->kept.count = 0;
    if (run_step(generation, generation->first, &time_s, err) != 0)
        return -1;
    for (uint32_t step = 1; step < steps; step++) {
        if (run_step(generation, generation->steady, &time_s, err) != 0)
            return -1;
        /* The clock's own rounding differs from step to step; the ends are relative to it. */
        size_t count;
        double last_s = engine_last_ends(engine, &count)[count - 1];

        if (!full_stepping && same_step(&generation->kept, engine, last_s)) {
            generation->skipped_s += (steps - step - 1) * time_s;
            break;
        }
        if (keep_step(&generation->kept, engine, last_s, err) != 0)
            return -1;
    }
    generation->prediction->steps += steps;
    return 0;
}

static int run_generation(struct generation *generation, uint32_t depth, uint32_t tokens,
                          bool full_stepping, struct error *err)
{
    const struct placement *placement = generation->placement;

    for (uint32_t done = 0; done < tokens;) {
        struct program_cells cells = program_cells_at(placement, depth + done + 1);
        uint32_t steps = 1;

        while (done + steps < tokens) {
            struct program_cells next = program_cells_at(placement, depth + done + steps + 1);

            if (next.base != cells.base || next.sliding != cells.sliding)
                break;
            steps++;
        }
        if (run_window(generation, cells, steps, full_stepping, err) != 0)
            return -1;
        done += steps;
    }
    return 0;
}

int predict_generation(struct timing *timing, const struct placement *placement, uint32_t depth,
                       uint32_t tokens, struct predict_options options,
                       struct prediction *prediction, struct error *err)
{
    struct program_cells cells = program_cells_at(placement, depth + 1);
    struct program_step first = {.tokens = 1, .outputs = 1, .rebuild = true, .sync = true};
    struct program_step steady = {.tokens = 1, .outputs = 1, .sync = true};
    struct generation generation = {
        .timing = timing, .placement = placement, .prediction = prediction};
    int status = -1;

    memset(prediction, 0, sizeof *prediction);
    engine_reset(timing_engine(timing));
    generation.first = timed_program_new(timing, first, cells, err);
    generation.steady = timed_program_new(timing, steady, cells, err);
    if (generation.first != NULL && generation.steady != NULL)
        status = run_generation(&generation, depth, tokens, options.full_stepping, err);
    if (status == 0) {
        prediction->time_s = engine_time_s(timing_engine(timing)) + generation.skipped_s;
        finish_prediction(timing, tokens, prediction);
    }
    timed_program_free(generation.first);
    timed_program_free(generation.steady);
    free(generation.kept.ends);
    return status;
}
