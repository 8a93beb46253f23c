/* Attention: neither cells, batches, sequences nor a split of heads change a bit of the result;
 * the order of positions does. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ref/arith.h"
#include "tests/kernel_cases.h"

static const struct ref_kernels *best;

static void find_best(void)
{
    best = ref_kernels_find(NULL);
    kernel_cases_seed(1);
}

#define F16 TENSOR_TYPE_F16
#define Q8_0 TENSOR_TYPE_Q8_0
#define Q4_0 TENSOR_TYPE_Q4_0

enum { BATCH = 5, POSITIONS = 515 };

static const struct kernel_scene_shape split_shapes[] = {
    {6, 3, 64, 64, POSITIONS, F16, F16, 0},     {3, 3, 64, 96, POSITIONS, F16, F16, 100},
    {6, 3, 32, 64, POSITIONS, F16, F16, 300},   {6, 3, 64, 64, POSITIONS, Q8_0, Q8_0, 0},
    {3, 3, 64, 96, POSITIONS, Q8_0, F16, 100},  {3, 3, 96, 64, POSITIONS, Q8_0, Q4_0, 300},
    {6, 3, 64, 64, POSITIONS, Q4_0, Q4_0, 0},   {3, 3, 64, 96, POSITIONS, Q4_0, Q8_0, 100},
    {3, 3, 96, 64, POSITIONS, Q4_0, Q4_0, 300},
};

/* A batch of the last tokens of sequence 0. */
struct batch {
    struct kernel_scene scene;
    struct program_token tokens[BATCH];
    float *query, *out;
    size_t count; /* results of all tokens */
};

static void batch_init(struct batch *batch, int index)
{
    const struct kernel_scene_shape *shape = &split_shapes[index];

    *batch = (struct batch){.count = kernel_scene_out_count(shape, BATCH)};
    kernel_scene_init(&batch->scene, shape, 2, KERNEL_INPUTS_NORMAL);
    for (uint32_t t = 0; t < BATCH; t++)
        batch->tokens[t].position = POSITIONS - BATCH + t;
    batch->query = kernel_scene_new_query(shape, BATCH, KERNEL_INPUTS_NORMAL);
    batch->out = kernel_scene_result(&batch->scene, best, batch->tokens, BATCH, batch->query);
}

static void batch_close(struct batch *batch)
{
    free(batch->query);
    free(batch->out);
    kernel_scene_close(&batch->scene);
}

static void assert_batch_gives_the_same(const struct batch *batch, const char *what)
{
    float *out = kernel_scene_result(&batch->scene, best, batch->tokens, BATCH, batch->query);

    kernel_cases_assert_same(out, batch->out, batch->count, what);
    free(out);
}

START_TEST(the_cells_of_positions_do_not_matter)
{
    struct batch batch;

    batch_init(&batch, _i);
    for (int trial = 0; trial < 3; trial++) {
        kernel_scene_scatter(&batch.scene);
        kernel_scene_store(&batch.scene);
        assert_batch_gives_the_same(&batch, "other cells");
    }
    for (uint32_t i = 0; i < 2 * POSITIONS; i++)
        batch.scene.cells[i] = (int32_t)i;
    kernel_scene_store(&batch.scene);
    assert_batch_gives_the_same(&batch, "cells in order");
    batch_close(&batch);
}
END_TEST

START_TEST(the_number_of_a_sequence_does_not_matter)
{
    struct batch batch;
    size_t row_k, row_v;

    batch_init(&batch, _i);
    row_k = (size_t)POSITIONS * split_shapes[_i].kv_heads * split_shapes[_i].dim_k;
    row_v = (size_t)POSITIONS * split_shapes[_i].kv_heads * split_shapes[_i].dim_v;
    memcpy(batch.scene.k + row_k, batch.scene.k, row_k * sizeof *batch.scene.k);
    memcpy(batch.scene.v + row_v, batch.scene.v, row_v * sizeof *batch.scene.v);
    kernel_cases_fill(KERNEL_INPUTS_NORMAL, batch.scene.k, row_k);
    kernel_cases_fill(KERNEL_INPUTS_NORMAL, batch.scene.v, row_v);
    kernel_scene_store(&batch.scene);
    for (uint32_t t = 0; t < BATCH; t++)
        batch.tokens[t].sequence = 1;
    assert_batch_gives_the_same(&batch, "another sequence");
    batch_close(&batch);
}
END_TEST

/* As tokens come one by one: later positions have no cells yet. */
START_TEST(tokens_one_at_a_time_give_what_a_batch_gives)
{
    struct batch batch;
    size_t row, row_q;

    batch_init(&batch, _i);
    row = batch.count / BATCH;
    row_q = (size_t)split_shapes[_i].heads * split_shapes[_i].dim_k;
    for (int later_cells = 1; later_cells >= 0; later_cells--)
        for (uint32_t t = BATCH; t-- > 0;) {
            float *out = kernel_scene_result(&batch.scene, best, &batch.tokens[t], 1,
                                             batch.query + t * row_q);

            kernel_cases_assert_same(out, batch.out + t * row, row, "one token");
            if (later_cells == 0)
                batch.scene.cells[batch.tokens[t].position] = -1;
            free(out);
        }
    batch_close(&batch);
}
END_TEST

/* Heads `head` of all tokens' results or queries. */
static float *take_heads(const float *all, const struct kernel_scene_shape *shape, uint32_t dim,
                         uint32_t kv_first, uint32_t kv_heads)
{
    uint32_t group = shape->heads / shape->kv_heads, own = kv_heads * group;
    float *part = kernel_cases_new((size_t)BATCH * own * dim, sizeof *part);

    for (uint32_t t = 0; t < BATCH; t++)
        memcpy(part + (size_t)t * own * dim,
               all + ((size_t)t * shape->heads + kv_first * group) * dim,
               (size_t)own * dim * sizeof *part);
    return part;
}

static void assert_heads_alone(struct batch *batch, uint32_t first, uint32_t count, bool own_cache)
{
    const struct kernel_scene_shape *shape = &batch->scene.shape;
    float *query = take_heads(batch->query, shape, shape->dim_k, first, count);
    float *expected = take_heads(batch->out, shape, shape->dim_v, first, count);
    uint8_t *k = kernel_scene_new_cache(&batch->scene, shape->type_k, batch->scene.k, shape->dim_k,
                                        first, count);
    uint8_t *v = kernel_scene_new_cache(&batch->scene, shape->type_v, batch->scene.v, shape->dim_v,
                                        first, count);
    struct attend attend = kernel_scene_attend(&batch->scene, batch->tokens, BATCH, query);
    size_t n = batch->count / shape->kv_heads * count;
    float *out = kernel_cases_new(n, sizeof *out);

    attend.heads = shape->heads / shape->kv_heads * count;
    attend.kv_heads = count;
    attend.kv_first = own_cache ? 0 : first;
    if (own_cache) {
        attend.cache_k = k;
        attend.cache_v = v;
        attend.row_heads = count;
    }
    ck_assert_int_eq(best->attend(&attend, out), 0);
    kernel_cases_assert_same(out, expected, n, "some heads");
    free(query);
    free(expected);
    free(k);
    free(v);
    free(out);
}

START_TEST(heads_split_over_calls_give_what_one_call_gives)
{
    struct batch batch;

    batch_init(&batch, _i);
    for (int own_cache = 0; own_cache < 2; own_cache++)
        for (uint32_t first = 0; first < 3; first++)
            for (uint32_t count = 1; first + count <= 3; count++)
                assert_heads_alone(&batch, first, count, own_cache);
    batch_close(&batch);
}
END_TEST

START_TEST(several_sequences_in_one_call_give_what_one_call_each_gives)
{
    struct batch batch;
    size_t row, row_q;
    float *out;

    batch_init(&batch, _i);
    row = batch.count / BATCH;
    row_q = (size_t)split_shapes[_i].heads * split_shapes[_i].dim_k;
    for (uint32_t t = 0; t < BATCH; t++) {
        batch.tokens[t].sequence = t % 3 == 1;
        batch.tokens[t].position = t % 3 == 1 ? 254 + t : POSITIONS - BATCH + t;
    }
    out = kernel_scene_result(&batch.scene, best, batch.tokens, BATCH, batch.query);
    for (uint32_t t = 0; t < BATCH; t++) {
        float *one =
            kernel_scene_result(&batch.scene, best, &batch.tokens[t], 1, batch.query + t * row_q);

        kernel_cases_assert_same(one, out + t * row, row, "a sequence alone");
        if (batch.tokens[t].sequence == 0)
            kernel_cases_assert_same(one, batch.out + t * row, row, "without the other");
        free(one);
    }
    free(out);
    batch_close(&batch);
}
END_TEST

START_TEST(positions_out_of_the_window_need_no_cells)
{
    uint32_t window = split_shapes[_i].window;
    struct batch batch;

    batch_init(&batch, _i);
    if (window > 0)
        for (uint32_t p = 0; p + window <= batch.tokens[0].position; p++)
            batch.scene.cells[p] = -1;
    assert_batch_gives_the_same(&batch, "old cells gone");
    batch_close(&batch);
}
END_TEST

START_TEST(a_window_gives_what_the_absence_of_older_positions_gives)
{
    struct batch batch;
    size_t row, row_q;

    batch_init(&batch, _i);
    row = batch.count / BATCH;
    row_q = (size_t)split_shapes[_i].heads * split_shapes[_i].dim_k;
    for (uint32_t t = 0; t < BATCH && split_shapes[_i].window > 0; t++) {
        float *out;

        batch.scene.shape.window = 0;
        for (uint32_t p = 0; p + split_shapes[_i].window <= batch.tokens[t].position; p++)
            batch.scene.cells[p] = -1;
        out = kernel_scene_result(&batch.scene, best, &batch.tokens[t], 1, batch.query + t * row_q);
        kernel_cases_assert_same(out, batch.out + t * row, row, "absent positions");
        free(out);
    }
    batch_close(&batch);
}
END_TEST

START_TEST(a_token_without_positions_gets_zeros)
{
    struct batch batch;
    float *out;

    batch_init(&batch, _i);
    for (uint32_t p = 0; p < POSITIONS; p++)
        batch.scene.cells[p] = -1;
    out = kernel_scene_result(&batch.scene, best, batch.tokens, BATCH, batch.query);
    for (size_t i = 0; i < batch.count; i++)
        HOLDS(arith_bits(out[i]) == 0);
    free(out);
    batch_close(&batch);
}
END_TEST

/* ---- what does matter ---- */

/* Keys and values change places with their positions. The mean is the same but for rounding, so
 * a kernel that added in the order of cells would fail the tests above. */
START_TEST(the_order_of_positions_matters)
{
    enum { TRIALS = 4 };
    size_t changed = 0;
    struct batch batch;

    batch_init(&batch, _i);
    batch.scene.shape.window = 0;
    batch.tokens[0].position = POSITIONS - 1;
    for (int trial = 0; trial < TRIALS; trial++) {
        float *before = kernel_scene_result(&batch.scene, best, batch.tokens, 1, batch.query),
              *after;
        size_t row = batch.count / BATCH;

        for (uint32_t i = POSITIONS; i > 1; i--) {
            uint32_t other = kernel_cases_below(i);
            int32_t kept = batch.scene.cells[i - 1];

            batch.scene.cells[i - 1] = batch.scene.cells[other];
            batch.scene.cells[other] = kept;
        }
        after = kernel_scene_result(&batch.scene, best, batch.tokens, 1, batch.query);
        changed += kernel_cases_differ(before, after, row);
        for (size_t i = 0; i < row; i++)
            HOLDS(fabsf(before[i] - after[i]) < 1e-4f);
        free(before);
        free(after);
    }
    ck_assert_uint_gt(changed, 0);
    batch_close(&batch);
}
END_TEST

static Suite *attend_suite(void)
{
    Suite *suite = suite_create("kernels: attention in parts");
    TCase *attention = tcase_create("attention");
    int count = (int)COUNT(split_shapes);

    tcase_add_loop_test(attention, the_cells_of_positions_do_not_matter, 0, count);
    tcase_add_loop_test(attention, the_number_of_a_sequence_does_not_matter, 0, count);
    tcase_add_loop_test(attention, tokens_one_at_a_time_give_what_a_batch_gives, 0, count);
    tcase_add_loop_test(attention, heads_split_over_calls_give_what_one_call_gives, 0, count);
    tcase_add_loop_test(attention, several_sequences_in_one_call_give_what_one_call_each_gives, 0,
                        count);
    tcase_add_loop_test(attention, positions_out_of_the_window_need_no_cells, 0, count);
    tcase_add_loop_test(attention, a_window_gives_what_the_absence_of_older_positions_gives, 0,
                        count);
    tcase_add_loop_test(attention, a_token_without_positions_gets_zeros, 0, count);
    tcase_add_loop_test(attention, the_order_of_positions_matters, 0, count);
    tcase_add_checked_fixture(attention, find_best, NULL);
    tcase_set_timeout(attention, 60);
    suite_add_tcase(suite, attention);
    return suite;
}

int main(void)
{
    SRunner *runner = srunner_create(attend_suite());
    int failed;

    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
