/* A grid of plans that must all give the same output: every device count, split, ratio and
 * place of the cache, with the other choices of a plan, and the fork's schedule or our own,
 * taken in turn. */
#ifndef REF_PLAN_GRID_H
#define REF_PLAN_GRID_H

#include "ref/generate.h"
#include "sim/plan.h"

enum { PLAN_GRID_DEVICES = 8, PLAN_GRID_LAYERS_MAX = 256 };

/* One plan of the grid, and how it is run. */
struct plan_grid_entry {
    struct plan plan;
    uint32_t devices;
    bool shuffled; /* tasks in a random order that the program's edges allow */
    enum generate_drafter drafter;
    uint32_t resident[PLAN_GRID_LAYERS_MAX]; /* which the plan's kv_resident points to */
    char text[260];                          /* the flags of `lopside run` that give it */
};

/** From one plan to the next when few are to see all values of every axis: it shares no factor
 * with the grid's size. */
enum { PLAN_GRID_STEP = 355 };

/** Plans of the grid for any model. */
size_t plan_grid_count(void);

/**
 * The plan at `index`; 0 is one device, everything on it, tasks in order.
 *
 * @param base  cache types, slots and context that all plans share
 * @param entry set; it must not be moved, as the plan may point into it
 */
void plan_grid_entry(size_t index, const struct model *model, const struct plan *base,
                     struct plan_grid_entry *entry);

#endif
