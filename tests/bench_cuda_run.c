/* Speed of the GPU runtime on whole models with synthetic weights: a prompt of one ubatch, and
 * generated tokens behind a depth. Weights are uploaded and all kernels have run before.
 *
 *     bench_cuda_run MODEL none|layer|tensor DEVICES DEPTH device|host|pipelined [ubatch]
 *
 * Ends with 77 where there is no GPU. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/cuda_executor.h"
#include "ref/host_probe.h"
#include "ref/session.h"
#include "ref/source.h"

enum { PROMPT = 512, GENERATED = 32, BATCH_MAX = 16384 };

static struct error err;

static void fail(void)
{
    fprintf(stderr, "bench_cuda_run: %s\n", err.text);
    exit(1);
}

/* Tokens of a slot; the last has an output. */
static double decode_s(struct session *session, uint32_t slot, uint32_t count)
{
    static struct session_token tokens[BATCH_MAX];
    double start_s = host_probe_now_s();

    for (uint32_t i = 0; i < count; i++)
        tokens[i] = (struct session_token){(i * 7919 + 11) % 30000, slot, i + 1 == count};
    if (session_decode(session, tokens, count, &err) != 0)
        fail();
    return host_probe_now_s() - start_s;
}

static struct plan plan_of(char **argv, uint32_t ubatch)
{
    struct plan plan = plan_default();

    plan.schedule = PLAN_SCHEDULE_LOPSIDE;
    plan.split = strcmp(argv[2], "none") == 0    ? PLAN_SPLIT_NONE
                 : strcmp(argv[2], "layer") == 0 ? PLAN_SPLIT_LAYER
                                                 : PLAN_SPLIT_TENSOR;
    plan.n_ubatch = ubatch;
    plan.n_batch = BATCH_MAX;
    plan.n_slots = 2;
    plan.kv_unified = false;
    plan.tensor_split_count = (uint32_t)atoi(argv[3]);
    for (uint32_t d = 0; d < plan.tensor_split_count; d++)
        plan.tensor_split[d] = 1;
    plan.kv_on_host = strcmp(argv[5], "device") != 0;
    plan.kv_pinned = plan.recurrent_on_device = plan.kv_on_host;
    plan.delivery_depth = strcmp(argv[5], "pipelined") == 0;
    return plan;
}

int main(int argc, char **argv)
{
    static const char *const gpus[MACHINE_DEVICES_MAX] = {"H200 SXM", "H200 SXM", "H200 SXM",
                                                          "H200 SXM", "H200 SXM", "H200 SXM",
                                                          "H200 SXM", "H200 SXM"};
    uint32_t depth, ubatch;
    struct source source;
    struct machine *machine;
    struct plan plan;
    struct placement *placement;
    struct session *session;
    double start_s, prompt_s = 1e9, token_s = 1e9;

    if (argc < 6) {
        fprintf(stderr, "bench_cuda_run MODEL none|layer|tensor DEVICES DEPTH "
                        "device|host|pipelined [UBATCH]\n");
        return 2;
    }
    if (cuda_gpu_count(&err) == 0) {
        printf("SKIP: %s\n", err.text);
        return 77;
    }
    depth = (uint32_t)atoi(argv[4]);
    ubatch = argc > 6 ? (uint32_t)atoi(argv[6]) : PROMPT;
    start_s = host_probe_now_s();
    machine = machine_compose(gpus, (size_t)atoi(argv[3]), &err);
    if (machine == NULL || source_open(&source, argv[1], 1, &err) != 0)
        fail();
    plan = plan_of(argv, ubatch);
    placement =
        placement_new(source.model, machine, &plan, depth + 3 * PROMPT + GENERATED + 64, &err);
    if (placement == NULL)
        fail();
    session = session_new(placement, source.weights, &source.numbers, NULL,
                          (struct session_options){.open = cuda_executor_open}, &err);
    if (session == NULL)
        fail();
    decode_s(session, 0, PROMPT);
    decode_s(session, 0, 1);
    fprintf(stderr, "  (set up in %.1f s)\n", host_probe_now_s() - start_s);
    for (uint32_t done = 0; done < depth; done += ubatch)
        decode_s(session, 1, depth - done < ubatch ? depth - done : ubatch);
    for (int i = 0; i < 2; i++) {
        double time_s = decode_s(session, 1, PROMPT);

        prompt_s = time_s < prompt_s ? time_s : prompt_s;
    }
    for (int i = 0; i < GENERATED; i++) {
        double time_s = decode_s(session, 1, 1);

        token_s = time_s < token_s ? time_s : token_s;
    }
    printf("| %-20s | %-6s | %2s | %6u | %-9s | pp%d %9.1f t/s | tg %8.2f t/s | %7.1f GB/s |\n",
           argv[1], argv[2], argv[3], depth, argv[5], PROMPT, PROMPT / prompt_s, 1 / token_s,
           (double)source.model->tensor_bytes / token_s / 1e9);
    session_free(session);
    placement_free(placement);
    machine_free(machine);
    source_close(&source);
    return 0;
}
