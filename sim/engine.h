/* The discrete-event engine: when does each task of a schedule start and end?
 *
 * The engine knows queues, dependencies, the host thread and flows over shared
 * links, and nothing of models, devices or plans.
 *
 * Rules, in order of use:
 * 1. The host thread issues the tasks of a schedule one after the other; issuing
 *    task i takes issue_s. After a blocking task it waits until the task has ended.
 * 2. A task starts when it is issued, its dependencies have ended and every task
 *    issued before it on each of its queues has ended.
 * 3. A started task holds its queues for work_s and then, if it has flow_bytes,
 *    until that many bytes have crossed all links of its route.
 * 4. Flows share links max-min fairly; a flow's own limit is one more link.
 * 5. Schedules follow each other without a gap: what one leaves unfinished goes on
 *    while the host thread issues the next.
 * Ties in time break by issue order. There is no randomness. */
#ifndef SIM_ENGINE_H
#define SIM_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/error.h"

#define ENGINE_QUEUES_MAX 64
#define ENGINE_ROUTE_LINKS_MAX 48
#define ENGINE_NO_ROUTE UINT16_MAX

struct engine_task {
    double issue_s;    /* the host thread's time to issue it */
    double work_s;     /* fixed part: compute time of a kernel, latency of a copy */
    double flow_bytes; /* 0 for a task that moves nothing over links */
    uint64_t queues;   /* bit q: the task holds queue q; at least one */
    uint32_t dependency_first, dependency_count; /* into schedule.dependencies */
    uint16_t route; /* into the engine's routes; ENGINE_NO_ROUTE without a flow */
    bool blocking;  /* the host thread waits for its end */
};

/** What a flow crosses; `limit_gbs` 0 means that only the links limit it. */
struct engine_route {
    double limit_gbs;
    bool uncounted; /* its flows are accounted for elsewhere: not in engine_link_busy_s */
    uint32_t link_count;
    uint16_t links[ENGINE_ROUTE_LINKS_MAX];
    double weights[ENGINE_ROUTE_LINKS_MAX]; /* bytes on the link per byte of the flow; usually 1 */
};

struct engine_schedule; /* tasks with their successors; see engine_schedule_new */
struct engine;

/**
 * Prepares tasks for running. Dependencies are indices of earlier tasks of the
 * same schedule. The arrays are copied. The schedule has to outlive its last run;
 * engine_run() trusts its route numbers.
 *
 * @return a schedule for engine_schedule_free(), or NULL with `err` set (a
 *         dependency on a later task, a task without queue)
 */
struct engine_schedule *engine_schedule_new(const struct engine_task *tasks, size_t task_count,
                                            const uint32_t *dependencies, size_t dependency_count,
                                            struct error *err);
void engine_schedule_free(struct engine_schedule *schedule);

/** The schedule's own tasks; their times may be changed between runs, nothing else. */
struct engine_task *engine_schedule_tasks(struct engine_schedule *schedule);
size_t engine_schedule_task_count(const struct engine_schedule *schedule);

/**
 * An idle engine at time 0.
 *
 * @param link_gbs one capacity a link, above 0
 * @return an engine for engine_free(), or NULL with `err` set
 */
struct engine *engine_new(const double *link_gbs, size_t link_count,
                          const struct engine_route *routes, size_t route_count, struct error *err);
void engine_free(struct engine *engine);

/** Back to an idle engine at time 0; memory is kept. */
void engine_reset(struct engine *engine);

/**
 * Lets the host thread issue a whole schedule. Returns when the host thread is
 * through; tasks that nobody waited for may still be unfinished.
 *
 * @return 0, or -1 with `err` set (ERROR_MEMORY)
 */
int engine_run(struct engine *engine, const struct engine_schedule *schedule, struct error *err);

/** Waits for everything, as a host thread that synchronises all devices would. */
int engine_finish(struct engine *engine, struct error *err);

/** The host thread's clock, seconds since the engine was new or reset. */
double engine_time_s(const struct engine *engine);

/**
 * End of each task of the last schedule run, relative to the host thread's
 * clock at its start; NAN where a task is not finished yet. The array is
 * borrowed and valid until the next call that changes the engine.
 */
const double *engine_last_ends(const struct engine *engine, size_t *count);

/** As engine_last_ends: when each task started to hold its queues. */
const double *engine_last_starts(const struct engine *engine, size_t *count);

/* Told what happens as soon as it is known, in seconds since the engine was new or reset. `run`
 * counts the engine_run() calls since then, from 0. Members may be NULL. */
struct engine_watcher {
    /* The host thread issues a task. */
    void (*issued)(void *context, uint64_t run, uint32_t task, double from_s, double to_s);
    /* When a task holds its queues: known once it has ended, or surely will then. */
    void (*timed)(void *context, uint64_t run, uint32_t task, double start_s, double end_s);
    /* Flows go at other rates from now on: engine_link_use_gbs(). */
    void (*rates_changed)(void *context, double time_s);
    void *context;
};

/** Has `watcher` told from now on, or nobody (NULL). It is copied. */
void engine_watch(struct engine *engine, const struct engine_watcher *watcher);

/** What the flows under way take of a link, GB/s; those that do not count are in it, too. */
double engine_link_use_gbs(const struct engine *engine, unsigned link);

/** Seconds for which a queue was held, summed over tasks since the reset. */
double engine_queue_busy_s(const struct engine *engine, unsigned queue);

/** Seconds for which the host thread was issuing (not waiting), since the reset. */
double engine_host_busy_s(const struct engine *engine);

/** Seconds for which at least one flow that counts crossed the link, since the reset. */
double engine_link_busy_s(const struct engine *engine, unsigned link);

#endif
