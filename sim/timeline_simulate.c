/* The engine's watcher fills in a timeline: when each task was issued, started and ended, and at
 * which rates copies went. */
#include "sim/timeline_simulate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sim/predict.h"

struct recorder {
    struct timeline *timeline;
    struct timing *timing;
    const struct placement *placement;
    struct timed_program **programs; /* those that differ by more than windows; the engine may */
    struct program_step *steps;      /* have tasks of each under way until it has finished */
    size_t program_count;
    uint64_t skipped; /* runs before the first step that is kept */
    double *use_gbs;  /* of each direction, as told last */
    struct error *err;
    bool failed; /* within a watcher; `err` says why */
};

/* ---- what the engine tells ---- */

static struct timeline_task *task_at(const struct recorder *recorder, uint64_t run, uint32_t task,
                                     double *start_s)
{
    struct timeline_step *step;

    if (run < recorder->skipped)
        return NULL;
    step = &recorder->timeline->steps[run - recorder->skipped];
    *start_s = step->start_s;
    return &step->tasks[task];
}

static void note_issued(void *context, uint64_t run, uint32_t index, double from_s, double to_s)
{
    double start_s;
    struct timeline_task *task = task_at(context, run, index, &start_s);

    if (task != NULL) {
        task->issue_from_s = from_s - start_s;
        task->issue_to_s = to_s - start_s;
    }
}

static void note_timed(void *context, uint64_t run, uint32_t index, double from_s, double to_s)
{
    double start_s;
    struct timeline_task *task = task_at(context, run, index, &start_s);

    if (task != NULL) {
        task->start_s = from_s - start_s;
        task->end_s = to_s - start_s;
    }
}

static void note_rates(void *context, double time_s)
{
    struct recorder *recorder = context;

    for (uint32_t d = 0; d < recorder->timeline->direction_count && !recorder->failed; d++) {
        struct timeline_rate rate = {
            .direction = d, .time_s = time_s, .gbs = timing_direction_use_gbs(recorder->timing, d)};

        if (rate.gbs == recorder->use_gbs[d])
            continue;
        recorder->use_gbs[d] = rate.gbs;
        recorder->failed = timeline_add_rate(recorder->timeline, rate, recorder->err) != 0;
    }
}

/* ---- steps ---- */

static void recorder_close(struct recorder *recorder)
{
    engine_watch(timing_engine(recorder->timing), NULL);
    engine_reset(timing_engine(recorder->timing));
    for (size_t i = 0; i < recorder->program_count; i++)
        timed_program_free(recorder->programs[i]);
    free(recorder->programs);
    free(recorder->steps);
    free(recorder->use_gbs);
}

static int recorder_open(struct recorder *recorder, struct timing *timing,
                         const struct placement *placement, struct error *err)
{
    struct engine_watcher watcher = {.issued = note_issued,
                                     .timed = note_timed,
                                     .rates_changed = note_rates,
                                     .context = recorder};
    uint32_t directions = timing_direction_count(timing);
    struct timeline *timeline;

    *recorder = (struct recorder){
        .timing = timing, .placement = placement, .err = err, .timeline = timeline_new(err)};
    timeline = recorder->timeline;
    if (timeline == NULL)
        return -1;
    timeline->directions = calloc(directions + 1, sizeof *timeline->directions);
    recorder->use_gbs = calloc(directions + 1, sizeof *recorder->use_gbs);
    if (timeline->directions == NULL || recorder->use_gbs == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for %u links", directions);
    timeline_set_placement(timeline, placement);
    snprintf(timeline->source, sizeof timeline->source, "simulation");
    timeline->direction_count = directions;
    for (uint32_t d = 0; d < directions; d++)
        timing_direction_name(timing, d, timeline->directions[d], sizeof *timeline->directions);
    engine_reset(timing_engine(timing));
    engine_watch(timing_engine(timing), &watcher);
    return 0;
}

static bool is_same(const struct program_step *a, const struct program_step *b)
{
    return a->tokens == b->tokens && a->outputs == b->outputs && a->sequences == b->sequences &&
           a->snapshots == b->snapshots && a->rebuild == b->rebuild && a->hidden == b->hidden &&
           a->sample == b->sample && a->sync == b->sync;
}

static struct timed_program *add_program(struct recorder *recorder, struct program_step step,
                                         struct program_cells cells)
{
    size_t count = recorder->program_count + 1;
    struct timed_program **programs = realloc(recorder->programs, count * sizeof(void *));
    struct program_step *steps = realloc(recorder->steps, count * sizeof *steps);
    struct timed_program *timed;

    recorder->programs = programs != NULL ? programs : recorder->programs;
    recorder->steps = steps != NULL ? steps : recorder->steps;
    if (programs == NULL || steps == NULL) {
        error_set(recorder->err, ERROR_MEMORY, "no memory for %zu programs", count);
        return NULL;
    }
    timed = timed_program_new(recorder->timing, step, cells, recorder->err);
    if (timed == NULL)
        return NULL;
    programs[recorder->program_count] = timed;
    steps[recorder->program_count++] = step;
    return timed;
}

/* Steps that differ in their windows only share a program. */
static struct timed_program *program_for(struct recorder *recorder, struct program_step step,
                                         struct program_cells cells)
{
    for (size_t i = 0; i < recorder->program_count; i++)
        if (is_same(&recorder->steps[i], &step)) {
            timed_program_set_cells(recorder->timing, recorder->programs[i], cells);
            return recorder->programs[i];
        }
    return add_program(recorder, step, cells);
}

static int run_step(struct recorder *recorder, struct program_step step, uint32_t depth,
                    struct program_cells cells)
{
    struct engine *engine = timing_engine(recorder->timing);
    struct timed_program *timed = program_for(recorder, step, cells);
    struct timeline_step *added;

    if (timed == NULL)
        return -1;
    added = timeline_add_step(recorder->timeline, timed->program, cells, recorder->err);
    if (added == NULL)
        return -1;
    added->step = step;
    added->depth = depth;
    added->start_s = engine_time_s(engine);
    return engine_run(engine, timed->schedule, recorder->err) != 0 || recorder->failed ? -1 : 0;
}

/* The host's own work is what it issues: the engine has it end where its issue ends. */
static void widen_host_tasks(struct timeline_step *step)
{
    for (size_t i = 0; i < step->task_count; i++) {
        struct timeline_task *task = &step->tasks[i];

        if (program_task_class(task->kind) == TASK_CLASS_HOST)
            task->start_s = fmin(task->start_s, task->issue_from_s);
    }
}

static const struct program *program_of(const struct recorder *recorder,
                                        const struct timeline_step *step)
{
    size_t i = 0;

    while (!is_same(&recorder->steps[i], &step->step)) /* each step has one */
        i++;
    return recorder->programs[i]->program;
}

/* Products that are one launch end together. */
static void share_launches(const struct program *program, struct timeline_step *step)
{
    size_t end;

    for (size_t i = 0; i < step->task_count; i = end) {
        for (end = i + 1; end < step->task_count && program->tasks[end].kind == TASK_MATMUL &&
                          program->tasks[end].kernels == 0 &&
                          step->tasks[end].queues == step->tasks[i].queues;)
            end++;
        timeline_share_launch(&step->tasks[i], end - i);
    }
}

/* Waits for everything; times then count from the first step's start. */
static int finish(struct recorder *recorder)
{
    struct timeline *timeline = recorder->timeline;
    double first_s = timeline->steps[0].start_s;

    if (engine_finish(timing_engine(recorder->timing), recorder->err) != 0 || recorder->failed)
        return -1;
    for (size_t i = 0; i < timeline->step_count; i++) {
        timeline->steps[i].start_s -= first_s;
        widen_host_tasks(&timeline->steps[i]);
        share_launches(program_of(recorder, &timeline->steps[i]), &timeline->steps[i]);
    }
    for (size_t i = 0; i < timeline->rate_count; i++)
        timeline->rates[i].time_s = fmax(timeline->rates[i].time_s - first_s, 0);
    return 0;
}

/* Hands the timeline over, or frees it where `status` is not 0. */
static struct timeline *close_with(struct recorder *recorder, int status)
{
    struct timeline *timeline = recorder->timeline;

    recorder_close(recorder);
    if (status == 0)
        return timeline;
    timeline_free(timeline);
    return NULL;
}

struct timeline *timeline_simulate_step(struct timing *timing, const struct placement *placement,
                                        struct program_step step, uint32_t depth,
                                        struct program_cells cells, struct error *err)
{
    struct recorder recorder;
    int status = recorder_open(&recorder, timing, placement, err);
    const struct timed_program *timed;

    recorder.skipped = 1;
    timed = status == 0 ? program_for(&recorder, step, cells) : NULL;
    if (timed == NULL || engine_run(timing_engine(timing), timed->schedule, err) != 0 ||
        run_step(&recorder, step, depth, cells) != 0 || finish(&recorder) != 0)
        status = -1;
    return close_with(&recorder, status);
}

static int run_prompt(struct recorder *recorder, struct timeline_workload workload)
{
    const struct placement *placement = recorder->placement;

    for (uint32_t done = 0; done < workload.prompt;) {
        struct program_step step =
            predict_prompt_step(placement, workload.prompt, done, PREDICT_LLAMA_BENCH);
        uint32_t depth = workload.depth + done;

        if (run_step(recorder, step, depth, program_cells_at(placement, depth + step.tokens)) != 0)
            return -1;
        done += step.tokens;
    }
    return engine_finish(timing_engine(recorder->timing), recorder->err);
}

/* The graph is built anew where a window grows. */
static int run_generation(struct recorder *recorder, struct timeline_workload workload)
{
    const struct placement *placement = recorder->placement;
    uint32_t depth = workload.depth + workload.prompt;
    struct program_cells before = {0, 0};

    for (uint32_t i = 0; i < workload.generated; i++) {
        struct program_cells cells = predict_decode_cells(placement, depth, i, false);
        bool rebuild = i == 0 || cells.base != before.base || cells.sliding != before.sliding;

        if (run_step(recorder, predict_decode_step(placement, workload.sample, rebuild), depth + i,
                     cells) != 0)
            return -1;
        before = cells;
    }
    return 0;
}

struct timeline *timeline_simulate_workload(struct timing *timing,
                                            const struct placement *placement,
                                            struct timeline_workload workload, struct error *err)
{
    struct recorder recorder;
    int status = recorder_open(&recorder, timing, placement, err);

    if (status != 0 || run_prompt(&recorder, workload) != 0 ||
        run_generation(&recorder, workload) != 0 || finish(&recorder) != 0)
        status = -1;
    return close_with(&recorder, status);
}

struct timeline *timeline_simulate_like(struct timing *timing, const struct placement *placement,
                                        const struct timeline *like, struct error *err)
{
    struct recorder recorder;
    int status = recorder_open(&recorder, timing, placement, err);

    for (size_t i = 0; i < like->step_count && status == 0; i++)
        status =
            run_step(&recorder, like->steps[i].step, like->steps[i].depth, like->steps[i].cells);
    if (status == 0)
        status = finish(&recorder);
    return close_with(&recorder, status);
}
