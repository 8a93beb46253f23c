/* Throughput of workloads: skipping equal steps, delivery of a host cache, and what overlaps. */
#include <check.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/cost.h"
#include "sim/memory.h"
#include "sim/predict.h"

#define PAIR "rtx4070-gen4x16+rtx3060-gen3x4"
#define MODEL "qwen3.8-27b:UD-Q5_K_M"

enum { CUDA0, CUDA1, KV_LAYERS = 16, KV_HEADS = 4 };

static struct machine *machine; /* PAIR, opened before each test */
static struct model *model;

static void open_all(void)
{
    struct error err = {0};

    machine = machine_open(PAIR, NULL, &err);
    ck_assert_msg(machine != NULL, "%s", err.text);
    model = model_from_catalogue(MODEL, &err);
    ck_assert_msg(model != NULL, "%s", err.text);
}

static void close_all(void)
{
    model_free(model);
    machine_free(machine);
}

/* A plan on a machine, ready to be predicted. */
struct bench {
    struct placement *placement;
    struct timing *timing;
};

static struct bench open_bench(const struct machine *on, struct plan plan)
{
    struct error err = {0};
    struct bench bench = {.placement = placement_new(model, on, &plan, 66000, &err)};

    ck_assert_msg(bench.placement != NULL, "%s", err.text);
    bench.timing = timing_new(bench.placement, &err);
    ck_assert_msg(bench.timing != NULL, "%s", err.text);
    return bench;
}

static void close_bench(struct bench *bench)
{
    timing_free(bench->timing);
    placement_free(bench->placement);
}

static struct prediction generate(const struct bench *bench, uint32_t depth, uint32_t tokens,
                                  bool full_stepping)
{
    struct error err = {0};
    struct prediction prediction;
    struct predict_options options = {.full_stepping = full_stepping};

    ck_assert_msg(predict_generation(bench->timing, bench->placement, depth, tokens, options,
                                     &prediction, &err) == 0,
                  "%s", err.text);
    ck_assert_uint_eq(prediction.tokens, tokens);
    ck_assert_uint_eq(prediction.steps, tokens);
    return prediction;
}

static struct prediction read_prompt(const struct bench *bench, uint32_t depth, uint32_t tokens)
{
    struct error err = {0};
    struct prediction prediction;
    struct predict_options options = {.tool = PREDICT_LLAMA_COMPLETION};

    ck_assert_msg(predict_prompt(bench->timing, bench->placement, depth, tokens, options,
                                 &prediction, &err) == 0,
                  "%s", err.text);
    ck_assert_uint_eq(prediction.tokens, tokens);
    return prediction;
}

static double token_s(struct plan plan, uint32_t depth)
{
    struct bench bench = open_bench(machine, plan);
    struct prediction prediction = generate(&bench, depth, 64, false);

    close_bench(&bench);
    return prediction.time_s / 64;
}

static double prompt_s(const struct machine *on, struct plan plan, uint32_t tokens)
{
    struct bench bench = open_bench(on, plan);
    struct prediction prediction = read_prompt(&bench, 0, tokens);

    close_bench(&bench);
    return prediction.time_s;
}

/* -nkvo 1 -kvcp 1 -rso 1 -kvgl `layers` */
static struct plan host_cache(enum plan_split split, int layers, enum tensor_type type)
{
    struct plan plan = plan_default();

    plan.split = split;
    plan.kv_on_host = plan.kv_pinned = plan.recurrent_on_device = true;
    plan.kv_gpu_layers = layers;
    plan.type_k = plan.type_v = type;
    return plan;
}

static struct plan device_cache(enum plan_split split)
{
    struct plan plan = plan_default();

    plan.split = split;
    return plan;
}

static void set_shares(float *shares, uint32_t *count, float first, float second)
{
    shares[0] = first;
    shares[1] = second;
    *count = 2;
}

/* ---- steps ---- */

/* Residency: -1 all on devices without -nkvo, else -kvgl. */
static const struct {
    enum plan_split split;
    int kv_gpu_layers;
} stepping_cases[] = {
    {PLAN_SPLIT_NONE, -1},  {PLAN_SPLIT_NONE, 0},   {PLAN_SPLIT_NONE, 8},
    {PLAN_SPLIT_NONE, 16},  {PLAN_SPLIT_LAYER, -1}, {PLAN_SPLIT_LAYER, 0},
    {PLAN_SPLIT_LAYER, 8},  {PLAN_SPLIT_LAYER, 16}, {PLAN_SPLIT_TENSOR, -1},
    {PLAN_SPLIT_TENSOR, 0}, {PLAN_SPLIT_TENSOR, 8}, {PLAN_SPLIT_TENSOR, 16},
};

static struct plan stepping_plan(int index)
{
    enum plan_split split = stepping_cases[index].split;

    return stepping_cases[index].kv_gpu_layers < 0
               ? device_cache(split)
               : host_cache(split, stepping_cases[index].kv_gpu_layers, TENSOR_TYPE_Q8_0);
}

START_TEST(skipping_equal_steps_gives_the_time_of_all_steps)
{
    /* The second and third cross a boundary of windows, the last one two. */
    static const struct {
        uint32_t depth, tokens;
    } cases[] = {{0, 40}, {240, 40}, {8180, 30}, {30000, 3}, {65000, 1}, {500, 300}};
    struct bench bench = open_bench(machine, stepping_plan(_i));

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct prediction some = generate(&bench, cases[i].depth, cases[i].tokens, false);
        struct prediction all = generate(&bench, cases[i].depth, cases[i].tokens, true);

        ck_assert_msg(fabs(some.time_s / all.time_s - 1) < 1e-9,
                      "depth %u, %u tokens: %.17g s, all steps take %.17g s", cases[i].depth,
                      cases[i].tokens, some.time_s, all.time_s);
        ck_assert_uint_eq(all.simulated_steps, cases[i].tokens);
        ck_assert_uint_le(some.simulated_steps, all.simulated_steps);
        if (cases[i].tokens >= 30)
            ck_assert_uint_lt(some.simulated_steps, all.simulated_steps);
    }
    close_bench(&bench);
}
END_TEST

START_TEST(the_same_call_gives_the_same_bits)
{
    struct bench bench = open_bench(machine, stepping_plan(_i));
    struct bench other = open_bench(machine, stepping_plan(_i));
    struct prediction tg = generate(&bench, 1000, 64, false);
    struct prediction pp = read_prompt(&bench, 0, 1500);
    double tg_s = generate(&bench, 1000, 64, false).time_s;
    double pp_s = read_prompt(&other, 0, 1500).time_s;

    ck_assert_mem_eq(&tg.time_s, &tg_s, sizeof tg_s);
    ck_assert_mem_eq(&pp.time_s, &pp_s, sizeof pp_s);
    close_bench(&bench);
    close_bench(&other);
}
END_TEST

START_TEST(a_generation_is_the_sum_of_its_windows)
{
    struct bench bench = open_bench(machine, stepping_plan(_i));
    double whole_s = generate(&bench, 100, 156 + 256 + 50, false).time_s;
    double parts_s = generate(&bench, 100, 156, false).time_s +
                     generate(&bench, 256, 256, false).time_s +
                     generate(&bench, 512, 50, false).time_s;

    ck_assert_double_eq_tol(whole_s, parts_s, 1e-9 * whole_s);
    close_bench(&bench);
}
END_TEST

START_TEST(a_prompt_and_its_generation_in_turn_share_an_engine)
{
    struct bench bench = open_bench(machine, device_cache(PLAN_SPLIT_LAYER));
    struct bench other = open_bench(machine, device_cache(PLAN_SPLIT_LAYER));
    double pp_s = read_prompt(&bench, 0, 512).time_s;
    double tg_s = generate(&bench, 512, 128, false).time_s;

    ck_assert_double_eq(generate(&other, 512, 128, false).time_s, tg_s);
    ck_assert_double_eq(read_prompt(&other, 0, 512).time_s, pp_s);
    close_bench(&bench);
    close_bench(&other);
}
END_TEST

START_TEST(speed_is_tokens_over_time)
{
    struct bench bench = open_bench(machine, device_cache(PLAN_SPLIT_LAYER));
    struct prediction pp = read_prompt(&bench, 0, 700);

    ck_assert_double_eq(pp.tokens_per_s, 700 / pp.time_s);
    ck_assert_uint_eq(pp.steps, 2); /* 512 and 188 tokens */
    ck_assert_double_eq(read_prompt(&bench, 0, 0).tokens_per_s, 0);
    ck_assert_double_eq(generate(&bench, 0, 0, false).tokens_per_s, 0);
    close_bench(&bench);
}
END_TEST

/* ---- decode with a cache on the host ---- */

START_TEST(layers_on_the_host_add_their_delivery)
{
    enum { DEPTH = 58466, CELLS = 58624 };
    double bytes = CELLS * 4096.0, split_s = 2 * machine->host.split_s;
    double slow_s = bytes / (machine->links[CUDA1].down_gbs * 1e9) + split_s;
    double fast_s = bytes / (machine->links[CUDA0].down_gbs * 1e9) + split_s;
    double last_s = token_s(host_cache(PLAN_SPLIT_LAYER, 0, TENSOR_TYPE_F16), DEPTH);

    /* Slowest first: eight layers of CUDA1, then eight of CUDA0. */
    for (int layers = 2; layers <= KV_LAYERS; layers += 2) {
        double now_s = token_s(host_cache(PLAN_SPLIT_LAYER, layers, TENSOR_TYPE_F16), DEPTH);
        double expected_s = 2 * (layers <= KV_LAYERS / 2 ? slow_s : fast_s);

        ck_assert_double_eq_tol(last_s - now_s, expected_s, 0.01 * expected_s);
        last_s = now_s;
    }
}
END_TEST

/* What delivering all layers costs a token under a tensor split. */
static double tensor_delivery_s(struct plan plan, uint32_t depth)
{
    double without_s;

    plan.kv_gpu_layers = KV_LAYERS;
    without_s = token_s(plan, depth);
    plan.kv_gpu_layers = 0;
    return token_s(plan, depth) - without_s;
}

static double rows_s(uint32_t device, double cells, double row_bytes, bool headers)
{
    const struct machine_link *link = &machine->links[device];
    double ratio = headers ? cost_row_ratio(link, row_bytes) : 1;

    return cells * KV_LAYERS * 2 * row_bytes / (link->down_gbs * 1e9 * ratio) +
           (headers ? cells * KV_LAYERS * 2 * link->row_s : 0);
}

START_TEST(deliveries_of_a_tensor_split_add_over_devices)
{
    double sum_s = rows_s(CUDA0, 58624, 544, true) + rows_s(CUDA1, 58624, 544, true);
    double actual_s = tensor_delivery_s(host_cache(PLAN_SPLIT_TENSOR, 0, TENSOR_TYPE_Q8_0), 58466);

    ck_assert_double_eq_tol(actual_s, sum_s, 0.02 * sum_s);
    ck_assert_double_gt(actual_s, 1.1 * rows_s(CUDA1, 58624, 544, true));
}
END_TEST

START_TEST(narrow_rows_are_slower_than_their_bytes)
{
    struct plan plan = host_cache(PLAN_SPLIT_TENSOR, 0, TENSOR_TYPE_Q8_0);
    double plain_s = rows_s(CUDA0, 58624, 816, false) + rows_s(CUDA1, 58624, 272, false);
    double actual_s;

    set_shares(plan.attn_split, &plan.attn_split_count, 0.75f, 0.25f);
    actual_s = tensor_delivery_s(plan, 58466);
    ck_assert_double_gt(actual_s, 1.04 * plain_s);
    ck_assert_double_lt(actual_s, 1.12 * plain_s);
}
END_TEST

START_TEST(whole_rows_are_as_fast_as_their_bytes)
{
    struct plan plan = host_cache(PLAN_SPLIT_TENSOR, 0, TENSOR_TYPE_Q8_0);
    double plain_s = rows_s(CUDA0, 58624, 1088, false);

    set_shares(plan.attn_split, &plan.attn_split_count, 1, 0);
    ck_assert_double_eq_tol(tensor_delivery_s(plan, 58466), plain_s, 0.02 * plain_s);
}
END_TEST

/* ---- prompts ---- */

START_TEST(host_layers_on_the_last_device_make_a_prompt_serial)
{
    struct plan plan = host_cache(PLAN_SPLIT_LAYER, 8, TENSOR_TYPE_F16);
    double seconds[2], totals[2];

    for (int i = 0; i < 2; i++) {
        struct bench bench;
        struct memory_account account;

        plan.kv_policy = i == 0 ? PLAN_KV_ROUND_ROBIN : PLAN_KV_SLOWEST_FIRST;
        bench = open_bench(machine, plan);
        memory_count(bench.placement, &account);
        totals[i] = 0;
        for (uint32_t d = 0; d < account.device_count; d++)
            totals[i] += (double)(account.devices[d].weights + account.devices[d].kv +
                                  account.devices[d].recurrent);
        seconds[i] = read_prompt(&bench, 0, 15216).time_s;
        close_bench(&bench);
    }
    ck_assert_double_eq(totals[0], totals[1]);
    ck_assert_double_ge(seconds[0] / seconds[1], 1.35);
    ck_assert_double_le(seconds[0] / seconds[1], 1.65);
}
END_TEST

static double compute_busy_s(const struct bench *bench)
{
    double sum_s = 0;

    for (uint32_t d = 0; d < bench->placement->device_count; d++)
        sum_s += engine_queue_busy_s(timing_engine(bench->timing), program_queue_compute(d));
    return sum_s;
}

START_TEST(a_single_ubatch_does_not_overlap)
{
    struct bench bench = open_bench(machine, device_cache(PLAN_SPLIT_LAYER));
    double one_s = read_prompt(&bench, 0, 512).time_s, eight_s;

    ck_assert_double_ge(one_s, compute_busy_s(&bench) * (1 - 1e-9));
    eight_s = read_prompt(&bench, 0, 8 * 512).time_s;
    ck_assert_double_lt(eight_s, 0.9 * compute_busy_s(&bench));
    ck_assert_double_lt(eight_s, 0.9 * 8 * one_s);
    close_bench(&bench);
}
END_TEST

START_TEST(a_tensor_split_does_not_overlap_ubatches)
{
    double one_s = prompt_s(machine, device_cache(PLAN_SPLIT_TENSOR), 512);
    double eight_s = prompt_s(machine, device_cache(PLAN_SPLIT_TENSOR), 8 * 512);

    ck_assert_double_ge(eight_s, 0.98 * 8 * one_s);
}
END_TEST

/* Seconds that one more ubatch takes once the pipeline is full. */
static double cycle_s(const struct machine *on, struct plan plan)
{
    return (prompt_s(on, plan, 20 * 512) - prompt_s(on, plan, 12 * 512)) / 8;
}

START_TEST(three_devices_need_a_pipeline_to_overlap_fully)
{
    const char *gpus[] = {"RTX 3060 12GB@gen4x16", "RTX 3060 12GB@gen4x16",
                          "RTX 3060 12GB@gen4x16"};
    struct error err = {0};
    struct machine *three = machine_compose(gpus, 3, &err);
    struct plan plan = device_cache(PLAN_SPLIT_NONE);
    double stage_s, pipelined_s, waiting_s;

    ck_assert_msg(three != NULL, "%s", err.text);
    plan.split = PLAN_SPLIT_NONE;
    stage_s = cycle_s(three, plan) / 3;
    pipelined_s = cycle_s(three, device_cache(PLAN_SPLIT_LAYER));
    waiting_s = cycle_s(three, host_cache(PLAN_SPLIT_LAYER, KV_LAYERS, TENSOR_TYPE_F16));
    ck_assert_double_eq_tol(pipelined_s, stage_s, 0.12 * stage_s);
    ck_assert_double_eq_tol(waiting_s, 2 * stage_s, 0.12 * 2 * stage_s);
    machine_free(three);
}
END_TEST

START_TEST(two_devices_overlap_with_and_without_a_pipeline)
{
    double pipelined_s = cycle_s(machine, device_cache(PLAN_SPLIT_LAYER));
    double waiting_s = cycle_s(machine, host_cache(PLAN_SPLIT_LAYER, KV_LAYERS, TENSOR_TYPE_F16));

    ck_assert_double_eq_tol(waiting_s, pipelined_s, 0.05 * pipelined_s);
}
END_TEST

/* ---- depth and shares ---- */

START_TEST(depth_makes_every_plan_slower)
{
    static const uint32_t depths[] = {0, 512, 4096, 16384, 60000};
    struct bench bench = open_bench(machine, stepping_plan(_i));
    double last_tg = INFINITY, last_pp = INFINITY;

    for (size_t i = 0; i < sizeof depths / sizeof *depths; i++) {
        double tg = generate(&bench, depths[i], 16, false).tokens_per_s;
        double pp = read_prompt(&bench, depths[i], 512).tokens_per_s;

        ck_assert_double_lt(tg, last_tg);
        ck_assert_double_lt(pp, last_pp);
        last_tg = tg;
        last_pp = pp;
    }
    close_bench(&bench);
}
END_TEST

/* The share of CUDA0, in percent, at which a tensor split is fastest. */
static int best_share(bool prompt)
{
    static const int measured[] = {50, 55, 58, 60, 62}; /* 64 does not fit */
    int best = 0;
    double most = 0;

    for (size_t i = 0; i < sizeof measured / sizeof *measured; i++) {
        int share = measured[i];
        struct plan plan = device_cache(PLAN_SPLIT_TENSOR);
        struct bench bench;
        double speed;

        set_shares(plan.tensor_split, &plan.tensor_split_count, (float)share, (float)(100 - share));
        bench = open_bench(machine, plan);
        speed = prompt ? read_prompt(&bench, 0, 512).tokens_per_s
                       : generate(&bench, 0, 128, false).tokens_per_s;
        if (speed > most) {
            most = speed;
            best = share;
        }
        close_bench(&bench);
    }
    return best;
}

/* Measured: 28.91, 29.19 and 28.75 t/s at 58, 60 and 62 (s000-ts-qwen-06 to -10). */
START_TEST(generation_is_fastest_with_about_60_percent_on_the_faster_device)
{
    int best = best_share(false);

    ck_assert_msg(best >= 58 && best <= 62, "tg is best at %d", best);
}
END_TEST

/* Measured: 652.46, 660.10 and 657.86 t/s at 58, 60 and 62 (s000-ts-qwen-05 to -09). */
START_TEST(a_prompt_is_fastest_with_about_60_percent_on_the_faster_device)
{
    int best = best_share(true);

    ck_assert_msg(best >= 58 && best <= 62, "pp is best at %d", best);
}
END_TEST

static void add_cases(Suite *suite)
{
    static const int plans = sizeof stepping_cases / sizeof *stepping_cases;
    TCase *steps = tcase_create("steps"), *delivery = tcase_create("delivery");
    TCase *prompts = tcase_create("prompts"), *choices = tcase_create("depth and shares");
    TCase *all[] = {steps, delivery, prompts, choices};

    tcase_add_loop_test(steps, skipping_equal_steps_gives_the_time_of_all_steps, 0, plans);
    tcase_add_loop_test(steps, the_same_call_gives_the_same_bits, 0, plans);
    tcase_add_loop_test(steps, a_generation_is_the_sum_of_its_windows, 0, plans);
    tcase_add_test(steps, a_prompt_and_its_generation_in_turn_share_an_engine);
    tcase_add_test(steps, speed_is_tokens_over_time);
    tcase_add_test(delivery, layers_on_the_host_add_their_delivery);
    tcase_add_test(delivery, deliveries_of_a_tensor_split_add_over_devices);
    tcase_add_test(delivery, narrow_rows_are_slower_than_their_bytes);
    tcase_add_test(delivery, whole_rows_are_as_fast_as_their_bytes);
    tcase_add_test(prompts, host_layers_on_the_last_device_make_a_prompt_serial);
    tcase_add_test(prompts, a_single_ubatch_does_not_overlap);
    tcase_add_test(prompts, a_tensor_split_does_not_overlap_ubatches);
    tcase_add_test(prompts, three_devices_need_a_pipeline_to_overlap_fully);
    tcase_add_test(prompts, two_devices_overlap_with_and_without_a_pipeline);
    tcase_add_loop_test(choices, depth_makes_every_plan_slower, 0, plans);
    tcase_add_test(choices, generation_is_fastest_with_about_60_percent_on_the_faster_device);
    tcase_add_test(choices, a_prompt_is_fastest_with_about_60_percent_on_the_faster_device);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        tcase_add_checked_fixture(all[i], open_all, close_all);
        tcase_set_timeout(all[i], 60);
        suite_add_tcase(suite, all[i]);
    }
}

int main(void)
{
    Suite *suite = suite_create("predict");
    SRunner *runner = srunner_create(suite);
    int failed;

    add_cases(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
