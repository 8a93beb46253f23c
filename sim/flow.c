#include "sim/flow.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

int flow_set_init(struct flow_set *set, const double *link_rate, size_t link_count,
                  const struct engine_route *routes, struct error *err)
{
    *set = (struct flow_set){.link_rate = link_rate, .link_count = link_count, .routes = routes};
    set->spare = calloc(3 * (link_count + 1), sizeof *set->spare);
    if (set->spare == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for %zu links", link_count);
    set->weight = set->spare + link_count;
    set->busy_s = set->weight + link_count;
    return 0;
}

void flow_set_close(struct flow_set *set)
{
    free(set->spare);
    free(set->flows);
}

void flow_set_reset(struct flow_set *set)
{
    set->count = 0;
    set->time_s = 0;
    memset(set->busy_s, 0, set->link_count * sizeof *set->busy_s);
}

/* The rate of a flow that is alone: what the tightest of its links gives. */
static double lone_rate(const struct flow_set *set, const struct engine_route *route)
{
    double rate = route->limit_gbs > 0 ? route->limit_gbs * 1e9 : INFINITY;

    for (uint32_t i = 0; i < route->link_count; i++)
        rate = fmin(rate, set->link_rate[route->links[i]] / route->weights[i]);
    return rate;
}

/* How much the growing flows can still grow before a link or a limit stops one of them. */
static double growth(const struct flow_set *set, double level)
{
    double step = INFINITY;

    for (size_t link = 0; link < set->link_count; link++)
        if (set->weight[link] > 0)
            step = fmin(step, set->spare[link] / set->weight[link]);
    for (size_t i = 0; i < set->count; i++) {
        double limit = set->routes[set->flows[i].route].limit_gbs * 1e9;

        if (set->flows[i].rate < 0 && limit > 0)
            step = fmin(step, limit - level);
    }
    return fmax(step, 0);
}

static bool is_stopped(const struct flow_set *set, const struct flow *flow, double level)
{
    const struct engine_route *route = &set->routes[flow->route];

    if (route->limit_gbs > 0 && level >= route->limit_gbs * 1e9 * (1 - 1e-12))
        return true;
    for (uint32_t i = 0; i < route->link_count; i++)
        if (set->spare[route->links[i]] <= set->link_rate[route->links[i]] * 1e-12)
            return true;
    return false;
}

/* Progressive filling; a negative rate marks a flow that still grows. */
static void share_links(struct flow_set *set)
{
    size_t growing = set->count;
    double level = 0;

    if (set->count == 1) {
        set->flows[0].rate = lone_rate(set, &set->routes[set->flows[0].route]);
        return;
    }
    memcpy(set->spare, set->link_rate, set->link_count * sizeof *set->spare);
    for (size_t i = 0; i < set->count; i++)
        set->flows[i].rate = -1;
    while (growing > 0) {
        double step;

        memset(set->weight, 0, set->link_count * sizeof *set->weight);
        for (size_t i = 0; i < set->count; i++) {
            const struct engine_route *route = &set->routes[set->flows[i].route];

            for (uint32_t l = 0; set->flows[i].rate < 0 && l < route->link_count; l++)
                set->weight[route->links[l]] += route->weights[l];
        }
        step = growth(set, level);
        level += step;
        for (size_t link = 0; link < set->link_count; link++)
            set->spare[link] -= step * set->weight[link];
        for (size_t i = 0; i < set->count; i++) {
            if (set->flows[i].rate < 0 && is_stopped(set, &set->flows[i], level)) {
                set->flows[i].rate = level;
                growing--;
            }
        }
    }
}

static void progress(struct flow_set *set, double time_s)
{
    double elapsed_s = time_s - set->time_s;

    if (elapsed_s > 0 && set->count > 0) {
        memset(set->weight, 0, set->link_count * sizeof *set->weight);
        for (size_t i = 0; i < set->count; i++) {
            const struct engine_route *route = &set->routes[set->flows[i].route];

            set->flows[i].remaining_bytes -= elapsed_s * set->flows[i].rate;
            for (uint32_t l = 0; !route->uncounted && l < route->link_count; l++)
                set->weight[route->links[l]] = 1;
        }
        for (size_t link = 0; link < set->link_count; link++)
            if (set->weight[link] > 0)
                set->busy_s[link] += elapsed_s;
    }
    set->time_s = fmax(set->time_s, time_s);
}

int flow_set_start(struct flow_set *set, struct flow flow, double time_s, struct error *err)
{
    progress(set, time_s);
    if (set->count == set->capacity) {
        size_t capacity = set->capacity > 0 ? 2 * set->capacity : 8;
        struct flow *flows = realloc(set->flows, capacity * sizeof *flows);

        if (flows == NULL)
            return error_set(err, ERROR_MEMORY, "no memory for %zu flows", capacity);
        set->flows = flows;
        set->capacity = capacity;
    }
    set->flows[set->count++] = flow;
    share_links(set);
    return 0;
}

/* Index of the flow that ends first; equal ends leave in issue order. */
static size_t next_to_end(const struct flow_set *set, double *left_s)
{
    size_t first = 0;
    double least = INFINITY;

    for (size_t i = 0; i < set->count; i++) {
        double left = fmax(set->flows[i].remaining_bytes, 0) / set->flows[i].rate;

        if (left < least ||
            (left == least && set->flows[i].sequence < set->flows[first].sequence)) {
            least = left;
            first = i;
        }
    }
    *left_s = least;
    return first;
}

double flow_set_next_end_s(const struct flow_set *set)
{
    double left_s;

    next_to_end(set, &left_s);
    return set->time_s + left_s;
}

struct flow flow_set_finish_next(struct flow_set *set)
{
    double left_s;
    size_t index = next_to_end(set, &left_s);
    struct flow flow;

    assert(set->count > 0);
    progress(set, set->time_s + left_s);
    flow = set->flows[index];
    set->flows[index] = set->flows[--set->count];
    if (set->count > 0)
        share_links(set);
    return flow;
}

void flow_set_rebase(struct flow_set *set, double by_s)
{
    set->time_s -= by_s;
}
