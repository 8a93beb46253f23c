/* Times for programs: gives each task of a program its duration on a machine,
 * and the engine its links and routes. */
#ifndef SIM_TIMING_H
#define SIM_TIMING_H

#include "sim/engine.h"
#include "sim/program.h"

struct timing; /* an engine and the routes of one placement */

/** Returns timing for timing_free(), or NULL with `err` set. The placement is borrowed. */
struct timing *timing_new(const struct placement *placement, struct error *err);
void timing_free(struct timing *timing);

/** The engine on which the steps run. */
struct engine *timing_engine(struct timing *timing);

/* A program with its schedule: one allocation for as many steps as share it. */
struct timed_program {
    struct program *program;          /* owned */
    struct engine_schedule *schedule; /* owned */
    uint32_t *windowed;               /* tasks whose time depends on the window */
    size_t windowed_count;
    struct program_cells cells; /* the window that the times are for */
};

/**
 * Lowers a step and times it for the given windows.
 *
 * @return a program for timed_program_free(), or NULL with `err` set
 */
struct timed_program *timed_program_new(const struct timing *timing, struct program_step step,
                                        struct program_cells cells, struct error *err);
void timed_program_free(struct timed_program *timed);

/** Times the tasks for other windows. */
void timed_program_set_cells(const struct timing *timing, struct timed_program *timed,
                             struct program_cells cells);

/* What limited a run: the resources that were busy for the largest shares of its time. */
struct timing_bound {
    char resource[48]; /* "CUDA1", "host>CUDA1", "all-reduce", "host thread" */
    double ratio;      /* of the elapsed time */
    char second[48];   /* likewise; "" when there is none */
    double second_ratio;
};

/* Busy seconds of every resource, for adding up over runs. */
enum { TIMING_RESOURCES_MAX = 2 + MACHINE_DEVICES_MAX + 2 * MACHINE_LINKS_MAX };

struct timing_busy {
    double elapsed_s;
    double busy_s[TIMING_RESOURCES_MAX];
};

/** Seconds since the engine's reset. */
void timing_read_busy(const struct timing *timing, struct timing_busy *busy);

/** Adds `times` times what was busy between two readings. */
void timing_add_busy(struct timing_busy *sum, const struct timing_busy *before,
                     const struct timing_busy *after, double times);

/** The busiest resources. */
struct timing_bound timing_bound(const struct timing *timing, const struct timing_busy *busy);

/** Directions of links, two for each link of the machine; their names are as "host>CUDA1". */
uint32_t timing_direction_count(const struct timing *timing);
void timing_direction_name(const struct timing *timing, uint32_t direction, char *name,
                           size_t size);

/** What the flows under way take of a direction, GB/s, packet headers included. */
double timing_direction_use_gbs(const struct timing *timing, uint32_t direction);

/** Bytes that a flow of a task carries over its links, packet headers included. */
double timing_flow_bytes(const struct timing *timing, const struct program_task *task,
                         double bytes);

#endif
