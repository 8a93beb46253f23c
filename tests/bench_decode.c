/* How fast a decode step of the reference reads weights, against the rate at which the same
 * threads read memory. The model is a 7B in Q8_0 with synthetic weights, or the one
 * named; the step is a whole one: attention, norms and head included. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ref/host_probe.h"
#include "ref/session.h"
#include "ref/source.h"

#define MODEL "llama-2-7b:Q8_0"

enum { ROUNDS = 5, WARM_UP = 2 };

/* Reads all weights once. */
static double read_s(struct weights *weights, const struct model *model, int64_t streams)
{
    double sum_s = 0;

    for (size_t i = 0; i < model->tensor_count; i++)
        sum_s += host_probe_read_s(weights_tensor(weights, i, NULL), model->tensors[i].bytes,
                                   streams, false);
    return sum_s;
}

static void fail(const struct error *err)
{
    fprintf(stderr, "bench_decode: %s\n", err->text);
    exit(1);
}

int main(int argc, char **argv)
{
    static const char *const gpus[] = {"RTX 4090"};
    static const char *const variants[] = {"base", "avx2", "avx512"};
    struct error err = {0};
    struct source source;
    struct machine *machine = machine_compose(gpus, 1, &err);
    struct plan plan = plan_default();
    struct placement *placement;
    static const int64_t streams[] = {1, 8, 16};
    double bytes = 0, best_read_s = 1e9;

    if (machine == NULL || source_open(&source, argc > 1 ? argv[1] : MODEL, 1, &err) != 0)
        fail(&err);
    plan.split = PLAN_SPLIT_NONE;
    placement = placement_new(source.model, machine, &plan, 256, &err);
    if (placement == NULL)
        fail(&err);
    /* Synthetic weights are made when they are first asked for. */
    for (size_t i = 0; i < source.model->tensor_count; i++)
        if (weights_tensor(source.weights, i, &err) == NULL)
            fail(&err);
    /* The embeddings' table is not read whole. */
    for (size_t i = 0; i < source.model->tensor_count; i++)
        if (source.model->tensors[i].role != TENSOR_ROLE_TOKEN_EMBD ||
            source.model->tied_embeddings)
            bytes += (double)source.model->tensors[i].bytes;
    for (int round = 0; round < 2 * ROUNDS; round++) {
        double time_s = read_s(source.weights, source.model, streams[round % 3]);

        if (time_s < best_read_s)
            best_read_s = time_s;
    }
    printf("%s, %.2f GB of weights a step; memory is read at %.1f GB/s\n",
           argc > 1 ? argv[1] : MODEL, bytes / 1e9,
           (double)source.model->tensor_bytes / best_read_s / 1e9);
    printf("| kernels |  ms/token |   GB/s | of memory's rate |\n");
    printf("| ------- | --------: | -----: | ---------------: |\n");
    for (size_t v = 0; v < sizeof variants / sizeof *variants; v++) {
        const struct ref_kernels *kernels = ref_kernels_find(variants[v]);
        struct session *session;
        double best_s = 1e9;

        if (kernels == NULL)
            continue;
        session = session_new(placement, source.weights, &source.numbers, kernels,
                              (struct session_options){.undo_max = 0}, &err);
        if (session == NULL)
            fail(&err);
        for (int round = 0; round < WARM_UP + ROUNDS; round++) {
            struct session_token token = {(uint32_t)round, 0, true};
            double start_s = host_probe_now_s();

            if (session_decode(session, &token, 1, &err) != 0)
                fail(&err);
            if (round >= WARM_UP && host_probe_now_s() - start_s < best_s)
                best_s = host_probe_now_s() - start_s;
        }
        printf("| %-7s | %9.1f | %6.1f | %16.2f |\n", variants[v], best_s * 1e3,
               bytes / best_s / 1e9,
               bytes / best_s / ((double)source.model->tensor_bytes / best_read_s));
        session_free(session);
    }
    placement_free(placement);
    machine_free(machine);
    source_close(&source);
    return 0;
}
