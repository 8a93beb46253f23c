/* Flows that share links: rates, progress and the next one to finish.
 *
 * Rates are max-min fair with weights: all flows grow alike until a link is
 * full; the flows of that link stay, the others go on growing. */
#ifndef SIM_FLOW_H
#define SIM_FLOW_H

#include <stddef.h>
#include <stdint.h>

#include "sim/engine.h"

struct flow {
    double remaining_bytes;
    double rate;        /* bytes per second */
    uint64_t sequence;  /* issue order; breaks ties */
    uint32_t run, task; /* the caller's own */
    uint16_t route;
};

struct flow_set {
    const double *link_rate; /* bytes per second; borrowed */
    size_t link_count;
    const struct engine_route *routes; /* borrowed */
    double time_s;                     /* up to when progress has been made */
    struct flow *flows;
    size_t count, capacity;
    double *spare;  /* per link: capacity not given away yet */
    double *weight; /* per link: weights of flows that still grow */
    double *busy_s; /* per link: time with at least one flow that counts */
};

int flow_set_init(struct flow_set *set, const double *link_rate, size_t link_count,
                  const struct engine_route *routes, struct error *err);
void flow_set_close(struct flow_set *set);
void flow_set_reset(struct flow_set *set);

/** Adds a flow that starts at `time_s`, not before the set's own time. */
int flow_set_start(struct flow_set *set, struct flow flow, double time_s, struct error *err);

/** When the next flow ends if none is added; INFINITY for an empty set. */
double flow_set_next_end_s(const struct flow_set *set);

/** Moves on to the next end and takes that flow out. The set is not empty. */
struct flow flow_set_finish_next(struct flow_set *set);

/** Shifts the set's clock by -`by_s`. */
void flow_set_rebase(struct flow_set *set, double by_s);

#endif
