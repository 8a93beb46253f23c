/* Drafters beside their target: which are refused, where they lie, their memory and time. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "sim/draft.h"

#define PAIR "rtx4070-gen4x16+rtx3060-gen3x4"
#define HYBRID "qwen3.8-27b:UD-IQ2_M"

static struct machine *machine; /* PAIR, opened before each test */
static struct model *target;
static struct placement *placement; /* of the target, by its default plan */
static struct draft draft;

static void open_target(const char *name, enum plan_split split)
{
    struct error err = {0};
    struct plan plan = plan_default();

    plan.split = split;
    target = model_open(name, &err);
    ck_assert_msg(target != NULL, "%s", err.text);
    placement = placement_new(target, machine, &plan, 1024, &err);
    ck_assert_msg(placement != NULL, "%s", err.text);
}

static void open_all(void)
{
    struct error err = {0};

    machine = machine_open(PAIR, NULL, &err);
    ck_assert_msg(machine != NULL, "%s", err.text);
    target = NULL;
    placement = NULL;
    memset(&draft, 0, sizeof draft);
}

static void close_all(void)
{
    draft_close(&draft);
    placement_free(placement);
    model_free(target);
    machine_free(machine);
}

static struct placement *place(const char *name)
{
    struct error err = {0};
    struct placement *placed;

    ck_assert_msg(draft_open(&draft, name, target, &err) == 0, "%s", err.text);
    placed = draft_place(&draft, placement, &err);
    ck_assert_msg(placed != NULL, "%s", err.text);
    return placed;
}

static void expect_refused(const char *name, const char *reason, const char *instead)
{
    struct error err = {0};

    ck_assert_int_eq(draft_open(&draft, name, target, &err), -1);
    ck_assert_int_eq(err.code, ERROR_USAGE);
    ck_assert_msg(strstr(err.text, reason) != NULL, "%s", err.text);
    ck_assert_msg(strstr(err.text, instead) != NULL, "%s", err.text);
    ck_assert_ptr_null(draft.model);
}

/* Tokens per second of 128 tokens behind an empty cache. */
static double speed(const char *name, uint32_t n_max, double acceptance)
{
    struct error err = {0};
    struct placement *placed = place(name);
    struct timing *timing = timing_new(placement, &err);
    struct speculation speculation = {
        .kind = draft.kind, .draft = placed, .n_max = n_max, .acceptance = acceptance};
    struct predict_options options = {.tool = PREDICT_LLAMA_BENCH};
    struct prediction prediction;

    ck_assert_msg(timing != NULL, "%s", err.text);
    ck_assert_msg(speculation_predict(timing, placement, &speculation, 0, 128, options, &prediction,
                                      &err) == 0,
                  "%s", err.text);
    timing_free(timing);
    placement_free(placed);
    draft_close(&draft);
    return prediction.tokens_per_s;
}

/* ---- which ---- */

START_TEST(a_draft_of_another_vocabulary_is_refused)
{
    open_target(HYBRID, PLAN_SPLIT_LAYER);
    expect_refused("qwen3-0.6b:q8_0", "a vocabulary of 151936 tokens", "own block");
}
END_TEST

START_TEST(a_sidecar_of_another_target_is_refused)
{
    open_target(HYBRID, PLAN_SPLIT_LAYER);
    expect_refused("Muse-Glimmer-30B-DFlash", "hidden rows of 6656 values", "DFlash2");
}
END_TEST

START_TEST(a_model_without_prediction_block_needs_a_draft_model)
{
    open_target("qwen3-8b:q4_k_m", PLAN_SPLIT_LAYER);
    expect_refused(NULL, "no next-token-prediction block", "-md");
}
END_TEST

START_TEST(a_name_with_and_without_a_mix_is_a_sidecar)
{
    struct error err = {0};

    open_target(HYBRID, PLAN_SPLIT_LAYER);
    ck_assert_int_eq(draft_open(&draft, "qwen3.8-27b-dflash2", target, &err), 0);
    ck_assert_int_eq(draft.kind, SPECULATION_BLOCK);
    draft_close(&draft);
    ck_assert_int_eq(draft_open(&draft, "qwen3.8-27b-dflash2:q8_0", target, &err), 0);
    ck_assert_int_eq(draft.kind, SPECULATION_BLOCK);
}
END_TEST

/* ---- where ---- */

START_TEST(the_own_block_lies_on_the_device_of_the_head)
{
    struct placement *placed;
    int head;

    open_target(HYBRID, PLAN_SPLIT_LAYER);
    placed = place(NULL);
    head = placement->owner[placement->layer_count];
    ck_assert_int_eq(placed->owner[0], head);
    ck_assert_int_eq(placed->owner[1], head);
    ck_assert_uint_eq(placed->layer_count, 1);
    ck_assert_uint_eq(placed->n_ctx, placement->n_ctx);
    placement_free(placed);
}
END_TEST

START_TEST(the_own_block_is_cut_where_the_target_is)
{
    struct placement *placed;

    open_target(HYBRID, PLAN_SPLIT_TENSOR);
    placed = place(NULL);
    ck_assert_int_eq(placed->plan.split, PLAN_SPLIT_TENSOR);
    ck_assert_uint_gt(placed->output_rows[0], 0);
    ck_assert_uint_gt(placed->output_rows[1], 0);
    placement_free(placed);
}
END_TEST

/* ---- memory ---- */

START_TEST(a_draft_model_adds_all_its_tensors_but_the_embedding)
{
    struct memory_account before, after;
    struct placement *placed;
    uint64_t added = 0;

    open_target("qwen3-8b:q4_k_m", PLAN_SPLIT_LAYER);
    placed = place("qwen3-0.6b:q8_0");
    memory_count(placement, &before);
    after = before;
    draft_add_memory(&draft, placement, placed, 3, &after);
    for (uint32_t d = 0; d < after.device_count; d++) {
        added += after.devices[d].weights - before.devices[d].weights;
        ck_assert_uint_eq(after.devices[d].overhead, before.devices[d].overhead);
        ck_assert_uint_eq(after.devices[d].recurrent, 0);
        ck_assert_uint_eq(after.devices[d].weights + after.devices[d].kv +
                              after.devices[d].recurrent + after.devices[d].compute +
                              after.devices[d].overhead,
                          after.devices[d].total);
    }
    ck_assert_uint_eq(added, draft.model->tensor_bytes); /* tied: the table is the head */
    placement_free(placed);
}
END_TEST

START_TEST(the_own_block_adds_no_second_head_and_a_snapshot_a_drafted_token)
{
    struct memory_account before, after;
    struct placement *placed;
    uint64_t added = 0, head, embeddings;

    open_target(HYBRID, PLAN_SPLIT_LAYER);
    placed = place(NULL);
    head = model_find_tensor(draft.model, -1, TENSOR_ROLE_OUTPUT)->bytes;
    embeddings = model_find_tensor(draft.model, -1, TENSOR_ROLE_TOKEN_EMBD)->bytes; /* the host's */
    memory_count(placement, &before);
    after = before;
    draft_add_memory(&draft, placement, placed, 3, &after);
    for (uint32_t d = 0; d < after.device_count; d++) {
        added += after.devices[d].weights - before.devices[d].weights;
        ck_assert_uint_eq(after.devices[d].recurrent, 4 * before.devices[d].recurrent);
    }
    ck_assert_uint_eq(added, draft.model->tensor_bytes - head - embeddings);
    placement_free(placed);
}
END_TEST

START_TEST(a_draft_that_does_not_fit_beside_its_target_changes_the_verdict)
{
    struct memory_account account;
    struct placement *placed;

    open_target(HYBRID, PLAN_SPLIT_LAYER);
    placed = place(NULL);
    memory_count(placement, &account);
    ck_assert(account.fits);
    draft_add_memory(&draft, placement, placed, 200, &account); /* 200 snapshots: 29 GiB */
    ck_assert(!account.fits);
    ck_assert_uint_gt(account.short_bytes, 0);
    placement_free(placed);
}
END_TEST

/* ---- time ---- */

START_TEST(more_acceptance_is_faster)
{
    open_target(HYBRID, PLAN_SPLIT_LAYER);
    ck_assert_double_lt(speed(NULL, 3, 0.3), speed(NULL, 3, 0.6));
    ck_assert_double_lt(speed(NULL, 3, 0.6), speed(NULL, 3, 0.9));
}
END_TEST

START_TEST(nothing_accepted_is_slower_than_no_draft)
{
    struct error err = {0};
    struct predict_options options = {.tool = PREDICT_LLAMA_BENCH};
    struct prediction plain;
    struct timing *timing;

    open_target("qwen3-8b:q4_k_m", PLAN_SPLIT_LAYER);
    timing = timing_new(placement, &err);
    ck_assert_ptr_nonnull(timing);
    ck_assert_int_eq(predict_generation(timing, placement, 0, 128, options, &plain, &err), 0);
    timing_free(timing);
    ck_assert_double_lt(speed("qwen3-0.6b:q8_0", 4, 0), plain.tokens_per_s);
    ck_assert_double_gt(speed("qwen3-0.6b:q8_0", 4, 1), plain.tokens_per_s);
}
END_TEST

/* One step of the drafter a token, where a block takes one step in all. */
START_TEST(drafting_token_by_token_costs_a_step_a_token)
{
    struct error err = {0};
    struct predict_options options = {.tool = PREDICT_LLAMA_BENCH};
    double time_s[3];

    open_target("qwen3-8b:q4_k_m", PLAN_SPLIT_LAYER);
    for (uint32_t i = 0; i < 3; i++) {
        struct placement *placed = place("qwen3-0.6b:q8_0");
        struct timing *timing = timing_new(placement, &err);
        struct speculation speculation = {
            .kind = i == 0 ? SPECULATION_BLOCK : SPECULATION_MODEL, .draft = placed, .n_max = 4};
        struct prediction prediction;

        if (i == 2)
            speculation.draft = NULL; /* as an n-gram draft: nothing but the verify step */
        ck_assert_int_eq(
            speculation_predict(timing, placement, &speculation, 0, 16, options, &prediction, &err),
            0);
        time_s[i] = prediction.time_s;
        timing_free(timing);
        placement_free(placed);
        draft_close(&draft);
    }
    ck_assert_double_gt(time_s[1] - time_s[2], 2 * (time_s[0] - time_s[2]));
    ck_assert_double_gt(time_s[0], time_s[2]);
}
END_TEST

static Suite *draft_suite(void)
{
    Suite *suite = suite_create("draft");
    TCase *tcase = tcase_create("draft");

    tcase_add_checked_fixture(tcase, open_all, close_all);
    tcase_add_test(tcase, a_draft_of_another_vocabulary_is_refused);
    tcase_add_test(tcase, a_sidecar_of_another_target_is_refused);
    tcase_add_test(tcase, a_model_without_prediction_block_needs_a_draft_model);
    tcase_add_test(tcase, a_name_with_and_without_a_mix_is_a_sidecar);
    tcase_add_test(tcase, the_own_block_lies_on_the_device_of_the_head);
    tcase_add_test(tcase, the_own_block_is_cut_where_the_target_is);
    tcase_add_test(tcase, a_draft_model_adds_all_its_tensors_but_the_embedding);
    tcase_add_test(tcase, the_own_block_adds_no_second_head_and_a_snapshot_a_drafted_token);
    tcase_add_test(tcase, a_draft_that_does_not_fit_beside_its_target_changes_the_verdict);
    tcase_add_test(tcase, more_acceptance_is_faster);
    tcase_add_test(tcase, nothing_accepted_is_slower_than_no_draft);
    tcase_add_test(tcase, drafting_token_by_token_costs_a_step_a_token);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    SRunner *runner = srunner_create(draft_suite());
    int failed;

    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
