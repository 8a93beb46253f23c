/* Which plans are refused and why, and where everything of the others lies. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "tests/plan_cases.h"

#define QWEN "qwen3.8-27b:UD-IQ2_M"
#define GEMMA "gemma-4-26b-a4b:Q8_0"
#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

/* ---- defaults and names ---- */

START_TEST(a_plan_without_flags_is_what_llama_bench_does)
{
    struct plan plan = plan_default();

    ck_assert_int_eq(plan.schedule, PLAN_SCHEDULE_LLAMA_CPP_FORK);
    ck_assert_int_eq(plan.split, PLAN_SPLIT_LAYER);
    ck_assert_uint_eq(plan.tensor_split_count, 0);
    ck_assert_uint_eq(plan.attn_split_count, 0);
    ck_assert(!plan.kv_on_host && !plan.kv_pinned && !plan.recurrent_on_device);
    ck_assert_int_eq(plan.kv_gpu_layers, -1);
    ck_assert_int_eq(plan.kv_policy, PLAN_KV_SLOWEST_FIRST);
    ck_assert_ptr_null(plan.kv_resident);
    ck_assert_int_eq(plan.type_k, TENSOR_TYPE_F16);
    ck_assert_int_eq(plan.type_v, TENSOR_TYPE_F16);
    ck_assert_int_eq(plan.flash_attn, PLAN_AUTO);
    ck_assert_int_lt(plan.n_gpu_layers, 0);
    ck_assert_uint_eq(plan.n_ctx, 0);
    ck_assert_uint_eq(plan.n_batch, 2048);
    ck_assert_uint_eq(plan.n_ubatch, 512);
}
END_TEST

START_TEST(names_are_the_words_of_the_flags)
{
    ck_assert_str_eq(plan_split_name(PLAN_SPLIT_NONE), "none");
    ck_assert_str_eq(plan_split_name(PLAN_SPLIT_LAYER), "layer");
    ck_assert_str_eq(plan_split_name(PLAN_SPLIT_TENSOR), "tensor");
    ck_assert_str_eq(plan_kv_policy_name(PLAN_KV_LAYER_ORDER), "layer-order");
    ck_assert_str_eq(plan_kv_policy_name(PLAN_KV_ROUND_ROBIN), "round-robin");
    ck_assert_str_eq(plan_kv_policy_name(PLAN_KV_SLOWEST_FIRST), "slowest-first");
    ck_assert_str_eq(plan_schedule_name(PLAN_SCHEDULE_LLAMA_CPP), "llama.cpp");
    ck_assert_str_eq(plan_schedule_name(PLAN_SCHEDULE_LLAMA_CPP_FORK), "llama.cpp-fork");
    ck_assert_str_eq(plan_schedule_name(PLAN_SCHEDULE_LOPSIDE), "lopside");
}
END_TEST

/* ---- refusals ---- */

/* On two devices, for 1000 tokens: the text says why and what would work. */
static const struct {
    const char *model, *flags;
    enum error_code code;
    const char *why, *remedy;
} refusals[] = {
    {QWEN, "-ts 1/1/1", ERROR_USAGE, "-ts has 3 shares, but there are 2 devices",
     "one share a device"},
    {QWEN, "-sm tensor -as 1/1/1", ERROR_USAGE, "-as has 3 shares, but there are 2 devices",
     "one share a device"},
    {QWEN, "-as 1/0", ERROR_USAGE, "which -sm layer does not", "-sm tensor"},
    {QWEN, "-sm none -as 1/0", ERROR_USAGE, "which -sm none does not", "-sm tensor"},
    {QWEN, "-ts 0/0", ERROR_USAGE, "all shares of -ts are 0", "above 0"},
    {QWEN, "-sm tensor -ts 0/0", ERROR_USAGE, "all shares of -ts are 0", "above 0"},
    {QWEN, "-sm tensor -ts 1/1 -as 0/0", ERROR_USAGE, "all shares of -as are 0", "above 0"},
    {QWEN, "-sm tensor -as 0/0", ERROR_USAGE, "all shares of -as are 0", "above 0"},
    {QWEN, "-sm none -mg 2", ERROR_USAGE, "-mg 2: no such device", "there are 2, numbered from 0"},
    {QWEN, "-ctk q8_0 -fa 0", ERROR_USAGE, "(-ctv Q8_0) needs flash attention", "-fa 1"},
    {QWEN, "-sm tensor -fa 0", ERROR_USAGE, "needs flash attention", "leave -fa 0 away"},
    {"deepseek-v3:Q4_K_M", "-sm tensor", ERROR_USAGE, "deepseek2", "-sm layer"},
    {QWEN, "-engine llama.cpp -kvgl 0", ERROR_USAGE, "only in the fork", "llama.cpp-fork"},
    {QWEN, "-engine llama.cpp -nkvo -kvcp", ERROR_USAGE, "only in the fork", "llama.cpp-fork"},
    {QWEN, "-engine llama.cpp -sm tensor -as 1/0", ERROR_USAGE, "only in the fork",
     "llama.cpp-fork"},
    {QWEN, "-engine llama.cpp -sm tensor -nkvo", ERROR_USAGE, "-sm tensor and -nkvo",
     "llama.cpp-fork"},
    {QWEN, "-ctk q4_k", ERROR_USAGE, "cannot be Q4_K", "q8_0"},
    {QWEN, "-ctk f16 -ctv q2_k", ERROR_USAGE, "cannot be Q2_K", "q8_0"},
    {QWEN, "-ctk q8_0 -ctv f16", ERROR_UNSUPPORTED, "K in Q8_0 and V in F16", "the same type"},
    {QWEN, "-ctk f16 -ctv q4_0", ERROR_UNSUPPORTED, "K in F16 and V in Q4_0", "the same type"},
    {QWEN, "-c 999", ERROR_USAGE, "-c 999 holds fewer tokens than the 1000", "use -c 1000"},
    {QWEN, "-b 0", ERROR_USAGE, "-b and -ub", "above 0"},
    {QWEN, "-ub 0", ERROR_USAGE, "-b and -ub", "above 0"},
};

START_TEST(a_refusal_says_why_and_what_would_work)
{
    struct error err = plan_cases_refusal(refusals[_i].model, refusals[_i].flags, 1000);

    ck_assert_msg(err.code == refusals[_i].code, "%s: code %d: %s", refusals[_i].flags, err.code,
                  err.text);
    ck_assert_msg(strstr(err.text, refusals[_i].why) != NULL, "%s: no '%s' in: %s",
                  refusals[_i].flags, refusals[_i].why, err.text);
    ck_assert_msg(strstr(err.text, refusals[_i].remedy) != NULL, "%s: no '%s' in: %s",
                  refusals[_i].flags, refusals[_i].remedy, err.text);
}
END_TEST

/* The neighbours of refusals. */
static const struct {
    const char *model, *flags;
} accepted[] = {
    {QWEN, "-ts 1"},
    {QWEN, "-ts 0/1"},
    {QWEN, "-sm tensor -ts 1"},
    {QWEN, "-sm none -mg 1"},
    {QWEN, "-fa 0"},
    {QWEN, "-sm tensor -fa 1"},
    {QWEN, "-c 1000"},
    {QWEN, "-ctk bf16"},
    {QWEN, "-ctk iq4_nl -nkvo"},
    {QWEN, "-engine llama.cpp -nkvo"},
    {QWEN, "-sm tensor -nkvo -as 1/0 -kvgl 0 -kvcp"},
    {"deepseek-v3:Q4_K_M", ""},
};

START_TEST(what_is_just_possible_is_placed)
{
    struct plan_case c =
        plan_cases_open(accepted[_i].model, PLAN_CASES_DESKTOP, accepted[_i].flags, 1000);

    ck_assert_uint_eq(c.placement->n_ctx, 1024);
    plan_cases_close(&c);
}
END_TEST

/* ---- owners ---- */

static const struct {
    const char *flags;
    uint32_t devices, first; /* machine device of the placement's first */
    int first_owner, last_owner, head_owner;
    bool pipeline;
} owner_cases[] = {
    {"", 2, 0, 0, 1, 1, true},
    {"-ts 1/0", 2, 0, 0, 0, 0, true},
    {"-ts 0/1", 2, 0, 1, 1, 1, true},
    {"-nkvo", 2, 0, 0, 1, 1, false},
    {"-engine llama.cpp", 2, 0, 0, 1, 1, true},
    {"-sm none", 1, 0, 0, 0, 0, false},
    {"-sm none -mg 1", 1, 1, 0, 0, 0, false},
    {"-sm none -ts 0/1", 1, 0, 0, 0, 0, false},
    {"-sm tensor", 2, 0, 0, 0, 0, false},
    {"-sm tensor -ts 0/1", 2, 0, 0, 0, 0, false},
    {"-ngl 66", 2, 0, 0, 1, 1, true},
    {"-ngl 999", 2, 0, 0, 1, 1, true},
    {"-ngl 65", 2, 0, SHARE_ON_HOST, 1, 1, false},
    {"-ngl 1", 2, 0, SHARE_ON_HOST, SHARE_ON_HOST, 0, false},
    {"-ngl 0", 2, 0, SHARE_ON_HOST, SHARE_ON_HOST, SHARE_ON_HOST, false},
};

START_TEST(layers_the_head_and_pipelining_follow_the_split)
{
    struct plan_case c = plan_cases_open(QWEN, PLAN_CASES_DESKTOP, owner_cases[_i].flags, 512);
    const struct placement *placement = c.placement;

    ck_assert_uint_eq(placement->layer_count, 65);
    ck_assert_uint_eq(placement->device_count, owner_cases[_i].devices);
    ck_assert_uint_eq(placement->devices[0], owner_cases[_i].first);
    ck_assert_int_eq(placement->owner[0], owner_cases[_i].first_owner);
    ck_assert_int_eq(placement->owner[63], owner_cases[_i].last_owner);
    ck_assert_int_eq(placement->owner[65], owner_cases[_i].head_owner);
    ck_assert_int_eq(placement->pipeline, owner_cases[_i].pipeline);
    plan_cases_close(&c);
}
END_TEST

START_TEST(one_device_needs_no_pipeline)
{
    struct plan_case c = plan_cases_open(QWEN, "rtx4070-gen4x16", "", 512);

    ck_assert_uint_eq(c.placement->device_count, 1);
    ck_assert(!c.placement->pipeline);
    plan_cases_close(&c);
}
END_TEST

START_TEST(layers_go_by_memory_where_no_ratio_is_given)
{
    struct plan_case c = plan_cases_open(QWEN, "RTX 4070@gen4x16", "", 512), two;
    const char *const unlike[] = {"RTX 4090@gen4x16", "RTX 4070@gen4x16"};
    struct error err = {0};
    struct machine *machine = machine_compose(unlike, 2, &err);
    struct plan plan = plan_default();

    two.placement = placement_new(c.model, machine, &plan, 512, &err);
    ck_assert_ptr_nonnull(two.placement);
    /* 24 GiB beside 12 GiB: two thirds of 66 entries. */
    ck_assert_int_eq(two.placement->owner[43], 0);
    ck_assert_int_eq(two.placement->owner[44], 1);
    placement_free(two.placement);
    machine_free(machine);
    plan_cases_close(&c);
}
END_TEST

START_TEST(a_device_takes_part_in_its_own_layers_or_in_all)
{
    struct plan_case layer = plan_cases_open(QWEN, PLAN_CASES_DESKTOP, "-ts 60/40", 512);
    struct plan_case tensor = plan_cases_open(QWEN, PLAN_CASES_DESKTOP, "-sm tensor", 512);

    for (uint32_t i = 0; i < 64; i++) {
        ck_assert_int_eq(placement_has_layer(layer.placement, i, 0), i < 40);
        ck_assert_int_eq(placement_has_layer(layer.placement, i, 1), i >= 40);
        ck_assert(placement_has_layer(tensor.placement, i, 0));
        ck_assert(placement_has_layer(tensor.placement, i, 1));
    }
    plan_cases_close(&tensor);
    plan_cases_close(&layer);
}
END_TEST

START_TEST(no_device_holds_anything_of_a_layer_on_the_host)
{
    struct plan_case c = plan_cases_open(QWEN, PLAN_CASES_DESKTOP, "-ngl 20 -sm tensor", 512);
    const struct model_tensor *of_layer_0 = &c.model->tensors[c.model->layers[0].tensor_first];

    for (uint32_t d = 0; d < 2; d++) {
        ck_assert(!placement_has_layer(c.placement, 0, d));
        ck_assert_uint_eq(placement_tensor_bytes(c.placement, of_layer_0, d), 0);
    }
    plan_cases_close(&c);
}
END_TEST

/* ---- the output head ---- */

static const struct {
    const char *model, *flags;
    uint64_t rows[2];
} head_cases[] = {
    {QWEN, "", {0, 248320}},
    {QWEN, "-ts 1/0", {248320, 0}},
    {QWEN, "-sm none -mg 1", {248320, 0}},
    {QWEN, "-sm tensor", {124160, 124160}},
    {QWEN, "-sm tensor -ts 60/40", {148992, 99328}},
    {QWEN, "-sm tensor -ts 60/40 -engine llama.cpp", {148992, 99328}},
    {QWEN, "-sm tensor -ts 60/40 -as 1/0", {148992, 99328}},
    {GEMMA, "", {0, 262144}},
    {GEMMA, "-sm tensor", {131072, 131072}},
    {GEMMA, "-sm tensor -engine llama.cpp", {262144, 262144}},
    {GEMMA, "-sm tensor -ts 60/40 -engine llama.cpp", {262144, 262144}},
};

START_TEST(the_head_is_whole_split_or_when_tied_in_llama_cpp_mirrored)
{
    struct plan_case c =
        plan_cases_open(head_cases[_i].model, PLAN_CASES_DESKTOP, head_cases[_i].flags, 512);

    for (int d = 0; d < 2; d++)
        ck_assert_msg(c.placement->output_rows[d] == head_cases[_i].rows[d],
                      "%s %s: device %d has %llu rows", head_cases[_i].model, head_cases[_i].flags,
                      d, (unsigned long long)c.placement->output_rows[d]);
    plan_cases_close(&c);
}
END_TEST

/* ---- recurrent state, sizes ---- */

static const struct {
    const char *flags;
    bool on_device;
} recurrent_cases[] = {
    {"", true},
    {"-engine llama.cpp", true},
    {"-nkvo", false},
    {"-nkvo -kvgl 16", false},
    {"-nkvo -engine llama.cpp", false},
    {"-nkvo -rso", true},
    {"-nkvo -rso -sm none", true},
    {"-nkvo -sm none", false},
    {"-nkvo -sm tensor", true},
};

START_TEST(a_recurrent_state_follows_nkvo_unless_the_fork_or_the_split_keeps_it)
{
    struct plan_case c = plan_cases_open(QWEN, PLAN_CASES_DESKTOP, recurrent_cases[_i].flags, 512);

    ck_assert_msg(c.placement->recurrent_on_device == recurrent_cases[_i].on_device, "%s",
                  recurrent_cases[_i].flags);
    plan_cases_close(&c);
}
END_TEST

static const struct {
    const char *flags;
    uint32_t needed, n_ctx, n_ubatch;
} size_cases[] = {
    {"", 0, 256, 512},
    {"", 1, 256, 512},
    {"", 256, 256, 512},
    {"", 257, 512, 512},
    {"-c 1000", 1000, 1024, 512},
    {"-c 4096", 10, 4096, 512},
    {"-b 128", 10, 256, 128},
    {"-b 512 -ub 2048", 10, 256, 512},
    {"-b 4096 -ub 2048", 10, 256, 2048},
};

START_TEST(the_context_is_padded_to_256_and_a_ubatch_is_at_most_a_batch)
{
    struct plan_case c =
        plan_cases_open(QWEN, PLAN_CASES_DESKTOP, size_cases[_i].flags, size_cases[_i].needed);

    ck_assert_uint_eq(c.placement->n_ctx, size_cases[_i].n_ctx);
    ck_assert_uint_eq(c.placement->plan.n_ubatch, size_cases[_i].n_ubatch);
    plan_cases_close(&c);
}
END_TEST

/* Values of K and of V a cell on each device, in layer `layer`. */
static const struct {
    const char *model, *flags;
    uint32_t layer;
    uint64_t k[2], v[2];
} row_cases[] = {
    {QWEN, "", 3, {1024, 0}, {1024, 0}},
    {QWEN, "", 35, {0, 1024}, {0, 1024}},
    {QWEN, "", 0, {0, 0}, {0, 0}},
    {QWEN, "-sm tensor", 3, {512, 512}, {512, 512}},
    {QWEN, "-sm tensor", 0, {0, 0}, {0, 0}},
    {QWEN, "-sm tensor -as 75/25", 3, {768, 256}, {768, 256}},
    {QWEN, "-sm tensor -as 1/0", 7, {1024, 0}, {1024, 0}},
    {GEMMA, "-sm tensor -ts 60/40", 5, {512, 512}, {512, 512}},
    {GEMMA, "-sm tensor -ts 60/40", 11, {1024, 0}, {1024, 0}},
    {"deepseek-v3:Q4_K_M", "-ts 1/0", 0, {576, 0}, {0, 0}},
};

START_TEST(cache_rows_hold_the_heads_of_the_device)
{
    struct plan_case c =
        plan_cases_open(row_cases[_i].model, PLAN_CASES_DESKTOP, row_cases[_i].flags, 512);

    for (uint32_t d = 0; d < 2; d++) {
        uint64_t k, v;

        placement_kv_row(c.placement, row_cases[_i].layer, d, &k, &v);
        ck_assert_uint_eq(k, row_cases[_i].k[d]);
        ck_assert_uint_eq(v, row_cases[_i].v[d]);
    }
    plan_cases_close(&c);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("plan");
    TCase *refused = tcase_create("refusals"), *placed = tcase_create("placements");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_set_timeout(refused, 60);
    tcase_set_timeout(placed, 60);
    tcase_add_test(refused, a_plan_without_flags_is_what_llama_bench_does);
    tcase_add_test(refused, names_are_the_words_of_the_flags);
    tcase_add_loop_test(refused, a_refusal_says_why_and_what_would_work, 0, COUNT(refusals));
    tcase_add_loop_test(refused, what_is_just_possible_is_placed, 0, COUNT(accepted));
    tcase_add_loop_test(placed, layers_the_head_and_pipelining_follow_the_split, 0,
                        COUNT(owner_cases));
    tcase_add_test(placed, one_device_needs_no_pipeline);
    tcase_add_test(placed, layers_go_by_memory_where_no_ratio_is_given);
    tcase_add_test(placed, a_device_takes_part_in_its_own_layers_or_in_all);
    tcase_add_test(placed, no_device_holds_anything_of_a_layer_on_the_host);
    tcase_add_loop_test(placed, the_head_is_whole_split_or_when_tied_in_llama_cpp_mirrored, 0,
                        COUNT(head_cases));
    tcase_add_loop_test(placed,
                        a_recurrent_state_follows_nkvo_unless_the_fork_or_the_split_keeps_it, 0,
                        COUNT(recurrent_cases));
    tcase_add_loop_test(placed, the_context_is_padded_to_256_and_a_ubatch_is_at_most_a_batch, 0,
                        COUNT(size_cases));
    tcase_add_loop_test(placed, cache_rows_hold_the_heads_of_the_device, 0, COUNT(row_cases));
    suite_add_tcase(suite, refused);
    suite_add_tcase(suite, placed);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
