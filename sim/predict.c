#include "sim/predict.h"

#include <stdlib.h>
#include <string.h>

/* `more` is what was busy in steps that were not simulated. */
static void finish_prediction(struct timing *timing, uint32_t tokens,
                              const struct timing_busy *more, struct prediction *prediction)
{
    const struct timing_busy nothing = {.elapsed_s = 0};
    struct timing_busy busy;

    timing_read_busy(timing, &busy);
    timing_add_busy(&busy, &nothing, more, 1);
    prediction->time_s = busy.elapsed_s;
    prediction->tokens = tokens;
    prediction->tokens_per_s = prediction->time_s > 0 ? tokens / prediction->time_s : 0;
    prediction->bound = timing_bound(timing, &busy);
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

struct program_step predict_prompt_step(const struct placement *placement, uint32_t tokens,
                                        uint32_t done, enum predict_tool tool)
{
    uint32_t n_batch = placement->plan.n_batch, n_ubatch = placement->plan.n_ubatch;
    uint32_t batch_left = n_batch - done % n_batch;
    uint32_t left = tokens - done < batch_left ? tokens - done : batch_left;
    uint32_t now = left < n_ubatch ? left : n_ubatch;
    bool batch_ends = now == left, ends = done + now == tokens;

    return (struct program_step){
        .tokens = now,
        .outputs = ends || (batch_ends && tool == PREDICT_LLAMA_BENCH),
        .rebuild = true,
        .sync = placement->plan.schedule == PLAN_SCHEDULE_LOPSIDE, /* it ends each ubatch so */
    };
}

/* The host thread's run over all ubatches. */
static int run_prompt(struct timing *timing, const struct placement *placement, uint32_t depth,
                      uint32_t tokens, struct predict_options options,
                      struct prompt_programs *programs, struct prediction *prediction,
                      struct error *err)
{
    for (uint32_t done = 0; done < tokens;) {
        struct program_step step = predict_prompt_step(placement, tokens, done, options.tool);
        struct timed_program *timed = program_for(
            programs, timing, step, program_cells_at(placement, depth + done + step.tokens), err);

        if (timed == NULL || engine_run(timing_engine(timing), timed->schedule, err) != 0)
            return -1;
        prediction->steps++;
        prediction->simulated_steps++;
        prediction->tasks += timed->program->task_count;
        done += step.tokens;
    }
    return engine_finish(timing_engine(timing), err);
}

int predict_prompt(struct timing *timing, const struct placement *placement, uint32_t depth,
                   uint32_t tokens, struct predict_options options, struct prediction *prediction,
                   struct error *err)
{
    const struct timing_busy nothing = {.elapsed_s = 0};
    struct prompt_programs programs = {.count = 0};
    int status;

    memset(prediction, 0, sizeof *prediction);
    engine_reset(timing_engine(timing));
    status = run_prompt(timing, placement, depth, tokens, options, &programs, prediction, err);
    if (status == 0)
        finish_prediction(timing, tokens, &nothing, prediction);
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
    uint32_t depth;
    bool shared_prompt;
    struct timed_program *first, *steady; /* of a window: graph built anew, and replayed */
    struct last_step kept;
    struct prediction *prediction;
    struct timing_busy skipped; /* of the steps that were not simulated */
};

static int run_step(struct generation *generation, struct timed_program *timed, struct error *err)
{
    if (engine_run(timing_engine(generation->timing), timed->schedule, err) != 0)
        return -1;
    generation->prediction->simulated_steps++;
    generation->prediction->tasks += timed->program->task_count;
    return 0;
}

struct program_cells predict_decode_cells(const struct placement *placement, uint32_t depth,
                                          uint32_t step, bool shared_prompt)
{
    const struct plan *plan = &placement->plan;
    uint32_t slots = plan->n_slots > 1 ? plan->n_slots : 1;
    uint32_t used = depth + step + 1;

    if (slots > 1 && plan->kv_unified)
        used = shared_prompt ? depth + slots * (step + 1) : slots * used;
    return program_cells_at(placement, used);
}

static struct program_cells cells_of_step(const struct generation *generation, uint32_t step)
{
    return predict_decode_cells(generation->placement, generation->depth, step,
                                generation->shared_prompt);
}

struct program_step predict_decode_step(const struct placement *placement, bool sample,
                                        bool rebuild)
{
    uint32_t slots = placement->plan.n_slots > 1 ? placement->plan.n_slots : 1;

    return (struct program_step){.tokens = slots,
                                 .outputs = slots,
                                 .sequences = slots,
                                 .sample = sample,
                                 .rebuild = rebuild,
                                 .sync = true};
}

/* Whether the last step ran like the one before it, which is then kept for the next. */
static int repeats(struct generation *generation, bool *same, struct error *err)
{
    struct engine *engine = timing_engine(generation->timing);
    size_t count;
    const double *ends = engine_last_ends(engine, &count);

    /* The clock's own rounding differs from step to step; the ends are relative to it. */
    *same = same_step(&generation->kept, engine, ends[count - 1]);
    return *same ? 0 : keep_step(&generation->kept, engine, ends[count - 1], err);
}

/* All steps of one padded window. Once two steps are the same to the bit, so are the rest. */
static int run_window(struct generation *generation, struct program_cells cells, uint32_t steps,
                      bool full_stepping, struct error *err)
{
    struct timing_busy before, after;
    bool same = false;

    timed_program_set_cells(generation->timing, generation->first, cells);
    timed_program_set_cells(generation->timing, generation->steady, cells);
    generation->kept.count = 0;
    generation->prediction->steps += steps;
    if (run_step(generation, generation->first, err) != 0)
        return -1;
    for (uint32_t step = 1; step < steps; step++) {
        timing_read_busy(generation->timing, &before);
        if (run_step(generation, generation->steady, err) != 0 ||
            repeats(generation, &same, err) != 0)
            return -1;
        if (!same || full_stepping)
            continue;
        timing_read_busy(generation->timing, &after);
        timing_add_busy(&generation->skipped, &before, &after, steps - step - 1);
        break;
    }
    return 0;
}

static int run_generation(struct generation *generation, uint32_t tokens, bool full_stepping,
                          struct error *err)
{
    for (uint32_t done = 0; done < tokens;) {
        struct program_cells cells = cells_of_step(generation, done);
        uint32_t steps = 1;

        while (done + steps < tokens) {
            struct program_cells next = cells_of_step(generation, done + steps);

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
    bool sample = options.tool != PREDICT_LLAMA_BENCH;
    struct program_step steady = predict_decode_step(placement, sample, false);
    struct program_step first = predict_decode_step(placement, sample, true);
    struct generation generation = {.timing = timing,
                                    .placement = placement,
                                    .depth = depth,
                                    .shared_prompt = options.shared_prompt,
                                    .prediction = prediction};
    struct program_cells cells = cells_of_step(&generation, 0);
    int status = -1;

    memset(prediction, 0, sizeof *prediction);
    engine_reset(timing_engine(timing));
    generation.first = timed_program_new(timing, first, cells, err);
    generation.steady = timed_program_new(timing, steady, cells, err);
    if (generation.first != NULL && generation.steady != NULL)
        status = run_generation(&generation, tokens, options.full_stepping, err);
    if (status == 0)
        finish_prediction(timing, steady.tokens * tokens, &generation.skipped, prediction);
    timed_program_free(generation.first);
    timed_program_free(generation.steady);
    free(generation.kept.ends);
    return status;
}

uint32_t predict_context(const struct plan *plan, uint32_t n_prompt, uint32_t n_gen,
                         uint32_t n_depth)
{
    uint32_t slots = plan->n_slots > 1 ? plan->n_slots : 1;

    return slots * (n_gen + n_depth) + (plan->kv_unified ? n_prompt : slots * n_prompt);
}
