#include "sim/speculation.h"

#include <math.h>
#include <string.h>

double speculation_tokens_per_round(double acceptance, uint32_t n_max)
{
    double sum = 0, kept = 1, next = acceptance;

    for (uint32_t i = 0; i <= n_max; i++) {
        sum += kept;
        kept *= next;
        next *= SPECULATION_ACCEPTANCE_DECAY;
    }
    return sum;
}

/* Seconds of a step once it repeats: the second of two in a row. */
static int step_s(struct timing *timing, struct program_step step, struct program_cells cells,
                  double *time_s, struct error *err)
{
    struct timed_program *timed = timed_program_new(timing, step, cells, err);
    struct engine *engine = timing_engine(timing);
    int status = timed == NULL ? -1 : 0;

    engine_reset(engine);
    for (int run = 0; run < 2 && status == 0; run++) {
        double before_s = engine_time_s(engine);

        status = engine_run(engine, timed->schedule, err);
        *time_s = engine_time_s(engine) - before_s;
    }
    timed_program_free(timed);
    return status;
}

/* What the drafter does in a round: propose, then take the verified rows in. */
static int draft_s(const struct speculation *speculation, uint32_t used, double *time_s,
                   struct error *err)
{
    bool block = speculation->kind == SPECULATION_BLOCK;
    uint32_t proposed = block ? speculation->n_max + 1 : 1;
    struct program_step propose = {.tokens = proposed, .outputs = proposed, .sync = true};
    struct program_step take_in = {.tokens = speculation->n_max + 1, .sync = true};
    struct program_cells cells;
    struct timing *timing;
    double propose_s = 0, take_in_s = 0;
    int status = -1;

    *time_s = 0;
    if (speculation->draft == NULL)
        return 0;
    cells = program_cells_at(speculation->draft, used);
    timing = timing_new(speculation->draft, err);
    if (timing != NULL && step_s(timing, propose, cells, &propose_s, err) == 0 &&
        step_s(timing, take_in, cells, &take_in_s, err) == 0)
        status = 0;
    timing_free(timing);
    *time_s = (block ? 1 : speculation->n_max) * propose_s + take_in_s;
    return status;
}

int speculation_predict(struct timing *timing, const struct placement *placement,
                        const struct speculation *speculation, uint32_t depth, uint32_t tokens,
                        struct predict_options options, struct prediction *prediction,
                        struct error *err)
{
    double per_round = speculation_tokens_per_round(speculation->acceptance, speculation->n_max);
    struct program_step verify = {
        .tokens = speculation->n_max + 1,
        .outputs = speculation->n_max + 1,
        .snapshots = speculation->kind != SPECULATION_MODEL ? speculation->n_max : 0,
        .sample = options.tool != PREDICT_LLAMA_BENCH,
        .sync = true};

    const struct timing_busy nothing = {.elapsed_s = 0};
    struct timing_busy total = nothing, busy; /* of the target's steps; two were run */

    memset(prediction, 0, sizeof *prediction);
    for (double done = 0; done < tokens;) {
        struct program_cells cells =
            program_cells_at(placement, depth + (uint32_t)done + speculation->n_max + 1);
        uint32_t window_end = cells.base > speculation->n_max ? cells.base - speculation->n_max : 1;
        double here = fmax(per_round, fmin(tokens - done, window_end - (depth + done)));
        double round_s = 0, drafting_s = 0;

        if (step_s(timing, verify, cells, &round_s, err) != 0 ||
            draft_s(speculation, depth + (uint32_t)done, &drafting_s, err) != 0)
            return -1;
        prediction->time_s += here / per_round * (round_s + drafting_s);
        timing_read_busy(timing, &busy);
        timing_add_busy(&total, &nothing, &busy, here / per_round / 2);
        done += here;
    }
    total.elapsed_s = prediction->time_s;
    prediction->bound = timing_bound(timing, &total);
    prediction->tokens = tokens;
    prediction->tokens_per_s = tokens / prediction->time_s;
    return 0;
}
