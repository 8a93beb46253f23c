/* Products with weights of every type: every variant gives the same sums, also of what is not
 * finite. tests/test_arith.c compares them with plain loops. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "ref/arith.h"
#include "ref/synth.h"
#include "tests/kernel_cases.h"

static void seed(void)
{
    kernel_cases_seed(1);
}

static const enum tensor_type types[] = {
    TENSOR_TYPE_F32,  TENSOR_TYPE_F16,  TENSOR_TYPE_BF16, TENSOR_TYPE_Q8_0,
    TENSOR_TYPE_Q4_0, TENSOR_TYPE_Q4_K, TENSOR_TYPE_Q5_K, TENSOR_TYPE_Q6_K,
};

enum { PRODUCT_ROWS = 37, PRODUCT_COLUMNS = 768, PRODUCT_TOKENS_MAX = 19 };

static uint8_t *new_weight(enum tensor_type type)
{
    uint64_t bytes = PRODUCT_ROWS * tensor_type_row_bytes(type, PRODUCT_COLUMNS);
    struct model_tensor tensor = {.name = "blk.0.ffn_down.weight",
                                  .role = TENSOR_ROLE_FFN_DOWN,
                                  .type = type,
                                  .ne = {PRODUCT_COLUMNS, PRODUCT_ROWS, 1, 1},
                                  .bytes = bytes};
    uint8_t *weight = kernel_cases_new(bytes, 1);
    struct error err = {0};
    struct synth synth;

    ck_assert_msg(synth_init(&synth, &tensor, false, 1, &err) == 0, "%s", err.text);
    synth_bytes(&synth, 0, weight, bytes);
    return weight;
}

/* Bytes of ones are a NaN of F32, F16 and BF16, and a NaN scale of a quantised block. */
static void spoil_weight(enum tensor_type type, uint8_t *weight)
{
    uint32_t block_bytes = arith_type_bytes(type);
    uint64_t row_bytes = tensor_type_row_bytes(type, PRODUCT_COLUMNS);

    for (uint64_t row = 0; row < PRODUCT_ROWS; row += 5)
        memset(weight + row * row_bytes + row % 4 * block_bytes, 0xff, block_bytes);
}

static void assert_variants_agree(const struct matmul *matmul, const float *x, const float *scales,
                                  uint32_t tokens)
{
    size_t n = (size_t)tokens * PRODUCT_ROWS;
    int64_t *expected = kernel_cases_new(n, sizeof *expected);

    kernel_cases_variant(0)->matmul(matmul, x, scales, tokens, expected, PRODUCT_ROWS);
    for (size_t v = 1; v < KERNEL_VARIANTS; v++) {
        int64_t *sums = kernel_cases_new(n, sizeof *sums);

        if (kernel_cases_variant(v) != NULL) {
            kernel_cases_variant(v)->matmul(matmul, x, scales, tokens, sums, PRODUCT_ROWS);
            ck_assert_msg(memcmp(sums, expected, n * sizeof *sums) == 0, "%s, %u tokens: %s",
                          tensor_type_info(matmul->type)->name, (unsigned)tokens,
                          kernel_cases_variant(v)->isa);
        }
        free(sums);
    }
    for (size_t i = 0; i < n; i++) {
        float value = arith_from_fixed(expected[i]);

        kernel_cases_assert_canonical(&value, 1, "a product");
    }
    free(expected);
}

START_TEST(every_variant_gives_the_sums_of_products)
{
    static const uint32_t token_counts[] = {1, 2, PRODUCT_TOKENS_MAX};
    enum tensor_type type = types[_i / 2];
    uint8_t *weight = new_weight(type);
    float *x = kernel_cases_floats(KERNEL_INPUTS_NORMAL, PRODUCT_TOKENS_MAX * PRODUCT_COLUMNS);
    float *scales = kernel_cases_floats(KERNEL_INPUTS_NORMAL, PRODUCT_TOKENS_MAX);
    struct matmul matmul = {.type = type,
                            .weight = weight,
                            .row_bytes = tensor_type_row_bytes(type, PRODUCT_COLUMNS),
                            .rows = PRODUCT_ROWS,
                            .segment_columns = PRODUCT_COLUMNS,
                            .segments = 1,
                            .count = PRODUCT_COLUMNS,
                            .group = 256,
                            .groups_total = PRODUCT_COLUMNS / 256};

    if (_i % 2 == 1) {
        spoil_weight(type, weight);
        kernel_cases_spoil(x, PRODUCT_COLUMNS);
        kernel_cases_spoil(x, PRODUCT_TOKENS_MAX * PRODUCT_COLUMNS);
        kernel_cases_spoil(scales, PRODUCT_TOKENS_MAX);
    }
    for (size_t t = 0; t < COUNT(token_counts); t++) {
        assert_variants_agree(&matmul, x, NULL, token_counts[t]);
        assert_variants_agree(&matmul, x, scales, token_counts[t]);
    }
    free(weight);
    free(x);
    free(scales);
}
END_TEST

static Suite *matmul_suite(void)
{
    Suite *suite = suite_create("kernels: products");
    TCase *products = tcase_create("products");

    tcase_add_loop_test(products, every_variant_gives_the_sums_of_products, 0,
                        2 * (int)COUNT(types));
    tcase_add_checked_fixture(products, seed, NULL);
    tcase_set_timeout(products, 60);
    suite_add_tcase(suite, products);
    return suite;
}

int main(void)
{
    SRunner *runner = srunner_create(matmul_suite());
    int failed;

    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
