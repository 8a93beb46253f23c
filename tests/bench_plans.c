/* How many plans a second are predicted: what a search over plans costs. Each plan is
 * placed, lowered, timed and simulated anew, as 'lopside bench' does it. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "sim/predict.h"

#define MACHINE "rtx4070-gen4x16+rtx3060-gen3x4"
#define MODEL "qwen3.8-27b:UD-Q5_K_M"

enum { PLANS = 100, ROUNDS = 3 };

struct tally {
    double time_s;
    uint64_t tasks, steps, simulated_steps;
};

static double now_s(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* Two splits, five shares, five residencies, two cache types. */
static struct plan plan_at(unsigned index)
{
    static const float shares[] = {50, 54, 57, 60, 62};
    static const int32_t layers[] = {0, 4, 8, 12, 16};
    static const enum tensor_type types[] = {TENSOR_TYPE_F16, TENSOR_TYPE_Q8_0};
    struct plan plan = plan_default();

    plan.split = index % 2 == 0 ? PLAN_SPLIT_LAYER : PLAN_SPLIT_TENSOR;
    plan.tensor_split[0] = shares[index / 2 % 5];
    plan.tensor_split[1] = 100 - plan.tensor_split[0];
    plan.tensor_split_count = 2;
    plan.kv_gpu_layers = layers[index / 10 % 5];
    plan.type_k = plan.type_v = types[index / 50];
    plan.kv_on_host = plan.kv_pinned = plan.recurrent_on_device = true;
    return plan;
}

static void fail(const struct error *err)
{
    fprintf(stderr, "bench_plans: %s\n", err->text);
    exit(EXIT_FAILURE);
}

static void count(struct tally *tally, const struct prediction *prediction)
{
    tally->tasks += prediction->tasks;
    tally->steps += prediction->steps;
    tally->simulated_steps += prediction->simulated_steps;
}

static void predict_plan(const struct model *model, const struct machine *machine,
                         const struct plan *plan, uint32_t n_prompt, uint32_t n_gen,
                         struct tally *tally)
{
    struct error err = {0};
    struct predict_options options = {.tool = PREDICT_LLAMA_BENCH};
    struct placement *placement =
        placement_new(model, machine, plan, n_prompt > n_gen ? n_prompt : n_gen, &err);
    struct timing *timing = placement != NULL ? timing_new(placement, &err) : NULL;
    struct prediction prediction;

    if (timing == NULL)
        fail(&err);
    if (n_prompt > 0) {
        if (predict_prompt(timing, placement, 0, n_prompt, options, &prediction, &err) != 0)
            fail(&err);
        count(tally, &prediction);
    }
    if (n_gen > 0) {
        if (predict_generation(timing, placement, 0, n_gen, options, &prediction, &err) != 0)
            fail(&err);
        count(tally, &prediction);
    }
    timing_free(timing);
    placement_free(placement);
}

/* The best of some rounds: whatever else the computer does only adds. */
static struct tally predict_all(const struct model *model, const struct machine *machine,
                                uint32_t n_prompt, uint32_t n_gen)
{
    struct tally best = {0};

    for (int round = 0; round < ROUNDS; round++) {
        struct tally tally = {0};
        double begin_s = now_s();

        for (unsigned p = 0; p < PLANS; p++) {
            struct plan plan = plan_at(p);

            predict_plan(model, machine, &plan, n_prompt, n_gen, &tally);
        }
        tally.time_s = now_s() - begin_s;
        if (round == 0 || tally.time_s < best.time_s)
            best = tally;
    }
    return best;
}

int main(void)
{
    static const struct {
        const char *name;
        uint32_t n_prompt, n_gen;
    } works[] = {{"pp512", 512, 0},
                 {"tg128", 0, 128},
                 {"pp512 and tg128", 512, 128},
                 {"pp58466", 58466, 0},
                 {"pp58466 and tg128", 58466, 128}};
    struct error err = {0};
    struct machine *machine = machine_open(MACHINE, NULL, &err);
    struct model *model = model_from_catalogue(MODEL, &err);

    if (machine == NULL || model == NULL)
        fail(&err);
    printf("%d plans of %s on %s\n\n", PLANS, MODEL, MACHINE);
    printf("%-18s %9s %9s %8s %10s %10s %9s\n", "workload", "seconds", "plans/s", "steps",
           "simulated", "tasks", "Mtasks/s");
    for (size_t w = 0; w < sizeof works / sizeof *works; w++) {
        struct tally tally = predict_all(model, machine, works[w].n_prompt, works[w].n_gen);

        printf("%-18s %9.3f %9.1f %8llu %10llu %10llu %9.2f\n", works[w].name, tally.time_s,
               PLANS / tally.time_s, (unsigned long long)tally.steps,
               (unsigned long long)tally.simulated_steps, (unsigned long long)tally.tasks,
               1e-6 * (double)tally.tasks / tally.time_s);
    }
    model_free(model);
    machine_free(machine);
    return EXIT_SUCCESS;
}
