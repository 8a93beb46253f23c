/* One checksum per model, cache types, workload and sampling, whatever the plan; and what a
 * broken rule does to it. */
#include <check.h>
#include <stdlib.h>

#include "ref/verify.h"

enum { PLANS = 320, FEW = 24 };

/* Every architecture of the small models but plain llama, which is run shorter. */
static const char *const models[] = {"tiny-qwen3", "tiny-qwen35", "tiny-qwen35moe", "tiny-gemma4",
                                     "tiny-muse-glimmer"};

static const uint32_t prompt_lengths[3] = {66, 17, 9};

/* Plans spread over the grid, the first one among them. */
static void choose(size_t *indices, size_t count)
{
    for (size_t i = 0; i < count; i++)
        indices[i] = i * PLAN_GRID_STEP % plan_grid_count();
}

struct tally {
    size_t different, failed, accepted;
    struct error error; /* of one that failed */
};

static struct tally run(const char *model, struct verify_job job, size_t count)
{
    struct error err = {0};
    struct source source;
    size_t *indices = calloc(count, sizeof *indices);
    struct verify_result *results = calloc(count, sizeof *results);
    struct tally tally = {0};

    ck_assert(indices != NULL && results != NULL);
    ck_assert_msg(source_open(&source, model, 1, &err) == 0, "%s: %s", model, err.text);
    job.source = &source;
    job.prompt_lengths = prompt_lengths;
    job.order_seed = 7;
    choose(indices, count);
    ck_assert_msg(verify_plans(&job, indices, count, results, &err) == 0, "%s", err.text);
    for (size_t i = 0; i < count; i++) {
        tally.failed += results[i].failed;
        tally.different += !results[i].failed && results[i].checksum != results[0].checksum;
        tally.accepted += results[i].accepted;
        if (results[i].failed)
            tally.error = results[i].error;
    }
    source_close(&source);
    free(indices);
    free(results);
    return tally;
}

static const struct verify_job plain = {
    .type_k = TENSOR_TYPE_F16, .type_v = TENSOR_TYPE_F16, .slots = 2, .tokens = 5};

START_TEST(three_hundred_plans_of_each_architecture_give_one_checksum)
{
    struct tally tally = run(models[_i], plain, PLANS);

    ck_assert_msg(tally.failed == 0, "%s: %zu plans failed: %s", models[_i], tally.failed,
                  tally.error.text);
    ck_assert_msg(tally.different == 0, "%s: %zu of %d plans differ", models[_i], tally.different,
                  PLANS);
    ck_assert_uint_gt(tally.accepted, 0);
}
END_TEST

/* Other workloads, on fewer plans: cache types, slots, sampling, a shifted context. */
static const struct verify_job others[] = {
    {.type_k = TENSOR_TYPE_Q8_0, .type_v = TENSOR_TYPE_Q8_0, .slots = 1, .tokens = 4},
    {.type_k = TENSOR_TYPE_Q4_0, .type_v = TENSOR_TYPE_Q4_0, .slots = 3, .tokens = 4},
    {.type_k = TENSOR_TYPE_F16,
     .type_v = TENSOR_TYPE_F16,
     .slots = 2,
     .tokens = 5,
     .sampling = {.temperature = 0.8f, .seed = 5}},
    {.type_k = TENSOR_TYPE_F16, .type_v = TENSOR_TYPE_F16, .slots = 2, .tokens = 8, .shift = true},
    {.type_k = TENSOR_TYPE_Q8_0,
     .type_v = TENSOR_TYPE_Q8_0,
     .slots = 1,
     .tokens = 8,
     .shift = true},
};

enum { MODELS = sizeof models / sizeof *models, OTHERS = sizeof others / sizeof *others };

START_TEST(other_workloads_have_a_checksum_of_their_own_for_all_plans)
{
    const char *model = models[_i % MODELS];
    struct tally tally = run(model, others[_i / MODELS], FEW);

    ck_assert_msg(tally.failed == 0, "%s, workload %d: %s", model, _i / MODELS, tally.error.text);
    ck_assert_msg(tally.different == 0, "%s, workload %d: %zu plans differ", model, _i / MODELS,
                  tally.different);
}
END_TEST

/* Weights of every type that is executed. */
static const char *const types[] = {"F32", "F16", "BF16", "Q4_0", "Q4_K", "Q5_K", "Q6_K"};

START_TEST(weights_of_every_type_give_one_checksum)
{
    struct verify_job job = plain;
    char model[64];
    struct tally tally;

    snprintf(model, sizeof model, "tiny-qwen35moe:%s", types[_i]);
    job.slots = 1;
    job.tokens = 2;
    tally = run(model, job, FEW / 2);
    ck_assert_msg(tally.failed == 0, "%s: %s", model, tally.error.text);
    ck_assert_msg(tally.different == 0, "%s: %zu plans differ", model, tally.different);
}
END_TEST

START_TEST(a_float_sum_over_devices_is_noticed)
{
    struct verify_job job = plain;

    job.fault = INTERPRET_FLOAT_SUMS;
    ck_assert_uint_gt(run(models[_i], job, FEW).different, 0);
}
END_TEST

START_TEST(groups_that_depend_on_the_device_are_noticed)
{
    struct verify_job job = plain;

    job.fault = INTERPRET_DEVICE_GROUPS;
    ck_assert_uint_gt(run(models[_i], job, FEW).different, 0);
}
END_TEST

/* Kernels of each instruction set on a few plans: equal to the best one's first plan. */
START_TEST(instruction_sets_do_not_change_a_checksum)
{
    static const char *const isas[] = {"base", "avx2", "avx512"};
    uint64_t checksums[3];
    size_t count = 0;

    for (int i = 0; i < 3; i++) {
        struct error err = {0};
        struct source source;
        struct verify_job job = plain;
        struct verify_result result;
        size_t index = 0;

        job.kernels = ref_kernels_find(isas[i]);
        if (job.kernels == NULL)
            continue;
        ck_assert(source_open(&source, models[_i], 1, &err) == 0);
        job.source = &source;
        job.prompt_lengths = prompt_lengths;
        ck_assert(verify_plans(&job, &index, 1, &result, &err) == 0);
        ck_assert_msg(!result.failed, "%s", result.error.text);
        checksums[count++] = result.checksum;
        source_close(&source);
    }
    for (size_t i = 1; i < count; i++)
        ck_assert_uint_eq(checksums[i], checksums[0]);
}
END_TEST

/* The checksums themselves: the same on every machine, with every compiler. */
static const uint64_t known[MODELS] = {
    UINT64_C(0xffc88473fc4e80c6), UINT64_C(0x52ed21137281eb4c), UINT64_C(0x954b1c54e320cfb0),
    UINT64_C(0x8773bc58340e4a6b), UINT64_C(0x716d4628215b0069),
};

START_TEST(the_checksum_is_that_of_every_machine)
{
    struct error err = {0};
    struct source source;
    struct verify_job job = plain;
    struct verify_result result;
    size_t index = 0;

    ck_assert(source_open(&source, models[_i], 1, &err) == 0);
    job.source = &source;
    job.prompt_lengths = prompt_lengths;
    ck_assert(verify_plans(&job, &index, 1, &result, &err) == 0);
    ck_assert_msg(result.checksum == known[_i], "%s: 0x%016llx", models[_i],
                  (unsigned long long)result.checksum);
    source_close(&source);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("verify");
    TCase *grid = tcase_create("grid"), *rules = tcase_create("rules");
    SRunner *runner;
    int failed;

    tcase_set_timeout(grid, 900);
    tcase_add_loop_test(grid, three_hundred_plans_of_each_architecture_give_one_checksum, 0,
                        MODELS);
    tcase_add_loop_test(grid, other_workloads_have_a_checksum_of_their_own_for_all_plans, 0,
                        OTHERS * MODELS);
    tcase_add_loop_test(grid, weights_of_every_type_give_one_checksum, 0,
                        (int)(sizeof types / sizeof *types));
    suite_add_tcase(suite, grid);
    tcase_set_timeout(rules, 120);
    tcase_add_loop_test(rules, a_float_sum_over_devices_is_noticed, 0, MODELS);
    tcase_add_loop_test(rules, groups_that_depend_on_the_device_are_noticed, 0, MODELS);
    tcase_add_loop_test(rules, instruction_sets_do_not_change_a_checksum, 0, MODELS);
    tcase_add_loop_test(rules, the_checksum_is_that_of_every_machine, 0, MODELS);
    suite_add_tcase(suite, rules);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
