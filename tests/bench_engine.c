/* How many tasks a second the engine runs, and how that compares with a plain loop
 * that does nothing but push and pop one event a task on a binary heap. Each figure
 * is the best of several rounds, since whatever else the computer does only adds. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "sim/engine.h"

#define ON(queue) (UINT64_C(1) << (queue))
#define ROUNDS 7
#define ROUND_TASKS 2000000 /* tasks, or events, that a round runs at least */
#define TASKS_MAX 4096
#define YARDSTICK_PENDING 64 /* events in the heap: a few per queue */

struct graph {
    const char *name;
    struct engine_task tasks[TASKS_MAX];
    uint32_t dependencies[TASKS_MAX];
    uint32_t task_count, dependency_count;
    double link_gbs[4];
    struct engine_route routes[4];
    uint32_t link_count, route_count;
};

static double now_s(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* ---- graphs ---- */

static struct engine_task *add_task(struct graph *graph, uint64_t queues, double work_s)
{
    struct engine_task *task = &graph->tasks[graph->task_count++];

    *task = (struct engine_task){.queues = queues,
                                 .issue_s = 2e-6,
                                 .work_s = work_s,
                                 .route = ENGINE_NO_ROUTE,
                                 .dependency_first = graph->dependency_count};
    return task;
}

static void depend(struct graph *graph, uint32_t on)
{
    graph->dependencies[graph->dependency_count++] = on;
    graph->tasks[graph->task_count - 1].dependency_count++;
}

/* One token on two devices, 32 layers: kernels on one queue a device, two collectives of a
 * layer on both, and a copy to the other device every other layer. About 2500 tasks. */
static void make_decode(struct graph *graph)
{
    *graph = (struct graph){.name = "decode-like", .link_count = 1, .route_count = 1};
    graph->link_gbs[0] = 25;
    graph->routes[0] = (struct engine_route){.link_count = 1, .weights = {1}};
    for (uint32_t layer = 0; layer < 32; layer++) {
        for (uint32_t half = 0; half < 2; half++) {
            for (uint32_t kernel = 0; kernel < 19; kernel++)
                for (unsigned device = 0; device < 2; device++)
                    add_task(graph, ON(device), 3e-6 + 1e-7 * (kernel % 5));
            add_task(graph, ON(0) | ON(1), 9e-6);
        }
        if (layer % 2 == 1) {
            struct engine_task *copy = add_task(graph, ON(2), 4e-6);

            copy->flow_bytes = 16384;
            copy->route = 0;
            depend(graph, graph->task_count - 2);
            add_task(graph, ON(1), 3e-6);
            depend(graph, graph->task_count - 2);
        }
    }
    add_task(graph, ON(0) | ON(1) | ON(2), 5e-6)->blocking = true;
}

/* Eight queues, three flows in five tasks, and four links of which each route takes two. */
static void make_flows(struct graph *graph)
{
    *graph = (struct graph){.name = "flow-heavy", .link_count = 4, .route_count = 4};
    for (uint16_t r = 0; r < 4; r++) {
        graph->link_gbs[r] = 16 + 4 * r;
        graph->routes[r] = (struct engine_route){
            .link_count = 2, .links = {r, (uint16_t)((r + 1) % 4)}, .weights = {1, 1}};
    }
    for (uint32_t i = 0; i < 2500; i++) {
        struct engine_task *task = add_task(graph, ON(i % 8), 5e-6);

        if (i % 5 < 3) {
            task->flow_bytes = 65536 * (1 + i % 7);
            task->route = (uint16_t)(i % 4);
        }
        if (i >= 20 && i % 3 == 0)
            depend(graph, i - 13);
    }
    add_task(graph, 0xff, 1e-6)->blocking = true;
}

/* ---- measurements ---- */

static double engine_tasks_per_s(const struct graph *graph, double *step_s)
{
    struct error err = {0};
    struct engine_schedule *schedule = engine_schedule_new(
        graph->tasks, graph->task_count, graph->dependencies, graph->dependency_count, &err);
    struct engine *engine =
        engine_new(graph->link_gbs, graph->link_count, graph->routes, graph->route_count, &err);
    uint32_t runs = ROUND_TASKS / graph->task_count + 1;
    double best = 0;

    for (int round = 0; schedule != NULL && engine != NULL && round < ROUNDS; round++) {
        double begin_s = now_s(), rate;

        for (uint32_t i = 0; i < runs; i++)
            if (engine_run(engine, schedule, &err) != 0)
                break;
        rate = runs * (double)graph->task_count / (now_s() - begin_s);
        best = rate > best ? rate : best;
    }
    if (err.code != ERROR_NONE) {
        fprintf(stderr, "bench_engine: %s\n", err.text);
        exit(EXIT_FAILURE);
    }
    *step_s = engine_time_s(engine) / (ROUNDS * (double)runs);
    engine_free(engine);
    engine_schedule_free(schedule);
    return best;
}

struct event {
    double time_s;
    uint32_t task;
};

static void sift_up(struct event *heap, uint32_t at, struct event event)
{
    while (at > 0 && event.time_s < heap[(at - 1) / 2].time_s) {
        heap[at] = heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    heap[at] = event;
}

static void sift_down(struct event *heap, uint32_t count, struct event event)
{
    uint32_t at = 0;

    for (uint32_t child = 1; child < count; child = 2 * at + 1) {
        if (child + 1 < count && heap[child + 1].time_s < heap[child].time_s)
            child++;
        if (heap[child].time_s >= event.time_s)
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = event;
}

/* Pops the earliest event and pushes one that follows it, over and over. */
static double yardstick_events_per_s(void)
{
    struct event heap[YARDSTICK_PENDING + 1];
    double best = 0;

    for (int round = 0; round < ROUNDS; round++) {
        double begin_s = now_s(), rate, last_s = 0;
        uint32_t count = 0, random = 1;

        for (uint32_t i = 0; i < YARDSTICK_PENDING; i++, count++)
            sift_up(heap, count, (struct event){.time_s = i, .task = i});
        for (uint32_t i = 0; i < ROUND_TASKS; i++) {
            struct event first = heap[0];

            count--;
            sift_down(heap, count, heap[count]);
            random = random * 1664525 + 1013904223; /* Numerical Recipes, "ranqd1" */
            last_s = first.time_s;
            first.time_s += random * 0x1p-26; /* 0 to 64: anywhere among the others */
            sift_up(heap, count++, first);
        }
        rate = ROUND_TASKS / (now_s() - begin_s);
        if (last_s > 0) /* uses the result, so that the loop stays */
            best = rate > best ? rate : best;
    }
    return best;
}

int main(void)
{
    static void (*const makers[])(struct graph *) = {make_decode, make_flows};
    double yardstick = yardstick_events_per_s();

    printf("%-12s %6s %8s %12s %10s\n", "graph", "tasks", "flows", "Mtasks/s", "ratio");
    printf("%-12s %6s %8s %12.2f %10.2f\n", "heap alone", "-", "-", 1e-6 * yardstick, 1.0);
    for (size_t m = 0; m < sizeof makers / sizeof *makers; m++) {
        static struct graph graph;
        uint32_t flows = 0;
        double rate, step_s;

        makers[m](&graph);
        for (uint32_t i = 0; i < graph.task_count; i++)
            flows += graph.tasks[i].flow_bytes > 0;
        rate = engine_tasks_per_s(&graph, &step_s);
        printf("%-12s %6u %8u %12.2f %10.2f   a run simulates %.3f ms\n", graph.name,
               graph.task_count, flows, 1e-6 * rate, rate / yardstick, 1e3 * step_s);
    }
    return EXIT_SUCCESS;
}
