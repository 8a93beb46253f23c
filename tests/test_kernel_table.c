/* Rows of a kernel table: each in its place, whatever the order in which they come. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "sim/kernel_table.h"

/* In order, by one field after the other. */
static const struct kernel_product products[] = {
    {TASK_MATMUL, TENSOR_TYPE_F16, 256, 1, 1e-6, 500, 0, 0},
    {TASK_MATMUL, TENSOR_TYPE_Q8_0, 128, 8, 1e-6, 500, 0, 0},
    {TASK_MATMUL, TENSOR_TYPE_Q8_0, 256, 1, 2e-6, 400, 0, 0},
    {TASK_MATMUL, TENSOR_TYPE_Q8_0, 256, 8, 3e-6, 200, 0, 0},
    {TASK_EXPERTS, TENSOR_TYPE_Q8_0, 256, 1, 3e-6, 400, 0, 0},
};

static const struct kernel_attention attentions[] = {
    {TENSOR_TYPE_F16, 128, 16, 8, 1, 256, 4e-6},  {TENSOR_TYPE_F16, 128, 32, 4, 1, 4096, 20e-6},
    {TENSOR_TYPE_F16, 128, 32, 8, 1, 256, 8e-6},  {TENSOR_TYPE_F16, 128, 32, 8, 1, 4096, 24e-6},
    {TENSOR_TYPE_F16, 128, 32, 8, 8, 256, 16e-6}, {TENSOR_TYPE_F16, 256, 32, 8, 1, 256, 9e-6},
    {TENSOR_TYPE_Q8_0, 128, 32, 8, 1, 256, 7e-6},
};

static const struct kernel_other others[] = {
    {.kind = TASK_NORM, .tokens = 1, .bytes = 1000, .time_s = 1e-6},
    {.kind = TASK_NORM, .tokens = 1, .bytes = 2000, .time_s = 2e-6},
    {.kind = TASK_NORM, .tokens = 8, .bytes = 1000, .time_s = 1e-6},
    {.kind = TASK_NORM, .behind = TASK_EXPERTS, .tokens = 1, .bytes = 1000, .time_s = 3e-6},
    {.kind = TASK_ROPE, .head_dim = 128, .tokens = 1, .bytes = 1000, .time_s = 1e-6},
    {.kind = TASK_ROPE, .head_dim = 256, .tokens = 1, .bytes = 1000, .time_s = 1e-6},
    {.kind = TASK_ROPE, .head_dim = 64, .normed = true, .tokens = 1, .bytes = 1, .time_s = 1e-6},
};

static const struct kernel_sum sums[] = {
    {2, 1000, 10e-6}, {2, 1000000, 30e-6}, {2, 2000000, 50e-6}, {3, 1000, 20e-6}};

enum {
    PRODUCTS = sizeof products / sizeof *products,
    ATTENTIONS = sizeof attentions / sizeof *attentions,
    OTHERS = sizeof others / sizeof *others,
    SUMS = sizeof sums / sizeof *sums,
};

static struct kernel_table table;

/* Every third row, so that all come in another order; both counts have no factor in common. */
static void fill_table(void)
{
    memset(&table, 0, sizeof table);
    for (size_t i = 0; i < PRODUCTS; i++)
        ck_assert_int_eq(kernel_table_add_product(&table, products[(3 * i + 2) % PRODUCTS], NULL),
                         0);
    for (size_t i = 0; i < ATTENTIONS; i++)
        ck_assert_int_eq(
            kernel_table_add_attention(&table, attentions[(3 * i + 2) % ATTENTIONS], NULL), 0);
    for (size_t i = 0; i < OTHERS; i++)
        ck_assert_int_eq(kernel_table_add_other(&table, others[(3 * i + 2) % OTHERS], NULL), 0);
    for (size_t i = 0; i < SUMS; i++)
        ck_assert_int_eq(kernel_table_add_sum(&table, sums[(3 * i + 2) % SUMS], NULL), 0);
}

static void clear_table(void)
{
    kernel_table_clear(&table);
}

START_TEST(rows_are_kept_in_order)
{
    ck_assert_uint_eq(table.product_count, PRODUCTS);
    ck_assert_uint_eq(table.attention_count, ATTENTIONS);
    ck_assert_uint_eq(table.other_count, OTHERS);
    ck_assert_uint_eq(table.sum_count, SUMS);
    for (size_t i = 0; i < PRODUCTS; i++) {
        ck_assert_int_eq(table.products[i].kind, products[i].kind);
        ck_assert_int_eq(table.products[i].type, products[i].type);
        ck_assert_uint_eq(table.products[i].group, products[i].group);
        ck_assert_uint_eq(table.products[i].tokens, products[i].tokens);
        ck_assert_uint_eq(kernel_table_place_product(&table, &products[i]), i);
    }
    for (size_t i = 0; i < ATTENTIONS; i++) {
        ck_assert_double_eq(table.attentions[i].time_s, attentions[i].time_s);
        ck_assert_uint_eq(kernel_table_place_attention(&table, &attentions[i]), i);
    }
    for (size_t i = 0; i < OTHERS; i++) {
        ck_assert_int_eq(table.others[i].behind, others[i].behind);
        ck_assert_uint_eq(table.others[i].head_dim, others[i].head_dim);
        ck_assert_uint_eq(table.others[i].tokens, others[i].tokens);
        ck_assert_uint_eq(kernel_table_place_other(&table, &others[i]), i);
    }
    for (size_t i = 0; i < SUMS; i++) {
        ck_assert_double_eq(table.sums[i].time_s, sums[i].time_s);
        ck_assert_uint_eq(kernel_table_place_sum(&table, &sums[i]), i);
    }
}
END_TEST

START_TEST(a_row_that_is_not_there_has_a_place_all_the_same)
{
    const struct kernel_product first = {.kind = TASK_MATMUL}, last = {.kind = TASK_ADD};
    const struct kernel_sum between = {2, 1500000, 0};

    ck_assert_uint_eq(kernel_table_place_product(&table, &first), 0);
    ck_assert_uint_eq(kernel_table_place_product(&table, &last), PRODUCTS);
    ck_assert_uint_eq(kernel_table_place_sum(&table, &between), 2);
}
END_TEST

START_TEST(a_row_measured_again_replaces_the_former)
{
    struct kernel_product product = products[3];
    struct kernel_attention attention = attentions[3];
    struct kernel_other other = others[5];
    struct kernel_sum sum = sums[0];

    product.gbs = attention.time_s = other.time_s = sum.time_s = 77;
    ck_assert_int_eq(kernel_table_add_product(&table, product, NULL), 0);
    ck_assert_int_eq(kernel_table_add_attention(&table, attention, NULL), 0);
    ck_assert_int_eq(kernel_table_add_other(&table, other, NULL), 0);
    ck_assert_int_eq(kernel_table_add_sum(&table, sum, NULL), 0);
    ck_assert_uint_eq(table.product_count, PRODUCTS);
    ck_assert_uint_eq(table.attention_count, ATTENTIONS);
    ck_assert_uint_eq(table.other_count, OTHERS);
    ck_assert_uint_eq(table.sum_count, SUMS);
    ck_assert_double_eq(table.products[3].gbs, 77);
    ck_assert_double_eq(table.attentions[3].time_s, 77);
    ck_assert_double_eq(table.others[5].time_s, 77);
    ck_assert_double_eq(table.sums[0].time_s, 77);
}
END_TEST

START_TEST(a_cleared_table_keeps_its_name_and_takes_rows_again)
{
    memcpy(table.gpu, "G", 2);
    kernel_table_clear(&table);
    ck_assert_uint_eq(table.product_count + table.attention_count, 0);
    ck_assert_uint_eq(table.other_count + table.sum_count, 0);
    ck_assert_str_eq(table.gpu, "G");
    ck_assert_int_eq(kernel_table_add_sum(&table, sums[0], NULL), 0);
    ck_assert_uint_eq(table.sum_count, 1);
}
END_TEST

START_TEST(kernels_are_copied_without_sums)
{
    struct kernel_table copy = {.gpu = "another"};

    table.copy_s = 5e-6;
    ck_assert_int_eq(kernel_table_copy_kernels(&copy, &table, NULL), 0);
    ck_assert_str_eq(copy.gpu, "another");
    ck_assert_uint_eq(copy.product_count, PRODUCTS);
    ck_assert_uint_eq(copy.attention_count, ATTENTIONS);
    ck_assert_uint_eq(copy.other_count, OTHERS);
    ck_assert_uint_eq(copy.sum_count, 0);
    ck_assert_double_eq(copy.copy_s, 5e-6);
    kernel_table_clear(&copy);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("kernel_table");
    TCase *tcase = tcase_create("rows");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_add_checked_fixture(tcase, fill_table, clear_table);
    tcase_add_test(tcase, rows_are_kept_in_order);
    tcase_add_test(tcase, a_row_that_is_not_there_has_a_place_all_the_same);
    tcase_add_test(tcase, a_row_measured_again_replaces_the_former);
    tcase_add_test(tcase, a_cleared_table_keeps_its_name_and_takes_rows_again);
    tcase_add_test(tcase, kernels_are_copied_without_sums);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
