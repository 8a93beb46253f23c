/* Times by a kernel table: at measured points, between them and beyond them. */
#include <check.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/kernel_times.h"

#define ck_near(actual, expected) ck_assert_double_eq_tol(actual, expected, 1e-12 * (expected))

static struct kernel_table table;

static void add_product(enum task_kind kind, enum tensor_type type, uint32_t tokens,
                        double launch_s, double gbs)
{
    const struct kernel_product row = {kind, type, KERNEL_GROUP, tokens, launch_s, gbs, 0, 0};

    ck_assert_int_eq(kernel_table_add_product(&table, row, NULL), 0);
}

static void add_attention(enum tensor_type type, uint32_t tokens, uint64_t cells, double time_s)
{
    const struct kernel_attention row = {type, 128, 32, 8, tokens, cells, time_s};

    ck_assert_int_eq(kernel_table_add_attention(&table, row, NULL), 0);
}

static void add_point(struct kernel_other row)
{
    ck_assert_int_eq(kernel_table_add_other(&table, row, NULL), 0);
}

/* Two points of a line: few bytes and many. */
static void add_heads(struct kernel_other row, double launch_s, double gbs)
{
    for (row.bytes = 1000; row.bytes <= 1000000000; row.bytes *= 1000000) {
        row.time_s = launch_s + (double)row.bytes / (gbs * 1e9);
        add_point(row);
    }
}

static void add_other(enum task_kind kind, uint32_t tokens, double launch_s, double gbs)
{
    add_heads((struct kernel_other){.kind = kind, .tokens = tokens}, launch_s, gbs);
}

static void add_sum(uint32_t devices, uint64_t bytes, double time_s)
{
    const struct kernel_sum row = {devices, bytes, time_s};

    ck_assert_int_eq(kernel_table_add_sum(&table, row, NULL), 0);
}

/* Out of order, so that whoever relies on the order of calls is wrong. */
static void fill_table(void)
{
    memset(&table, 0, sizeof table);
    add_product(TASK_MATMUL, TENSOR_TYPE_Q8_0, 512, 4e-6, 10);
    add_product(TASK_MATMUL, TENSOR_TYPE_Q8_0, 1, 2e-6, 400);
    add_product(TASK_EXPERTS, TENSOR_TYPE_Q8_0, 2, 3e-6, 300);
    add_product(TASK_MATMUL, TENSOR_TYPE_Q8_0, 8, 3e-6, 200);
    add_product(TASK_MATMUL, TENSOR_TYPE_F16, 1, 1e-6, 500);
    add_product(TASK_EXPERTS, TENSOR_TYPE_Q8_0, 1, 3e-6, 400);
    add_attention(TENSOR_TYPE_F16, 512, 4096, 4000e-6);
    add_attention(TENSOR_TYPE_F16, 1, 4096, 24e-6);
    add_attention(TENSOR_TYPE_F16, 1, 256, 8e-6);
    add_attention(TENSOR_TYPE_F16, 512, 1024, 1000e-6);
    add_attention(TENSOR_TYPE_F16, 8, 256, 16e-6);
    add_attention(TENSOR_TYPE_Q8_0, 1, 256, 7e-6);
    add_other(TASK_ROPE, 512, 5e-6, 200);
    add_other(TASK_NORM, 1, 2e-6, 100);
    add_other(TASK_ROPE, 1, 3e-6, 100);
    add_other(TASK_DELTA_NET, 1, 4e-6, 50);
    add_other(TASK_DELTA_NET, 4, 4e-6, 25);
    add_sum(2, 1000000, 30e-6);
    add_sum(3, 1000, 20e-6);
    add_sum(2, 1000, 10e-6);
    add_sum(2, 2000000, 50e-6);
}

static void clear_table(void)
{
    kernel_table_clear(&table);
}

/* ---- products ---- */

/* 4096 x 4096 in Q8_0: 17.8 MB. */
static const double weight_bytes = 4096.0 * 4096 * 34 / 32;

static struct program_task product(uint32_t tokens, uint32_t kernels)
{
    return (struct program_task){.kind = TASK_MATMUL,
                                 .type = TENSOR_TYPE_Q8_0,
                                 .rows = 4096,
                                 .columns = 4096,
                                 .tokens = tokens,
                                 .kernels = kernels,
                                 .experts = 1,
                                 .bytes = weight_bytes + 4.0 * 4096 * tokens,
                                 .flops = 2.0 * 4096 * 4096 * tokens};
}

static double time_of(struct program_task task, double cells)
{
    return kernel_table_s(&table, &task, cells, NULL);
}

START_TEST(a_product_takes_its_launch_and_reads_its_weights)
{
    ck_near(time_of(product(1, 1), 0), 2e-6 + weight_bytes / 400e9);
    ck_near(time_of(product(8, 1), 0), 3e-6 + weight_bytes / 200e9);
    ck_near(time_of(product(512, 1), 0), 4e-6 + weight_bytes / 10e9);
}
END_TEST

START_TEST(between_numbers_of_tokens_time_grows_evenly)
{
    double at_8 = 3e-6 + weight_bytes / 200e9, at_512 = 4e-6 + weight_bytes / 10e9;

    ck_near(time_of(product(134, 1), 0), at_8 + (at_512 - at_8) / 4);
    ck_near(time_of(product(260, 1), 0), (at_8 + at_512) / 2);
}
END_TEST

START_TEST(beyond_the_last_tokens_a_product_takes_whole_waves)
{
    struct program_task task = product(1, 1);

    ck_near(time_of(product(2048, 1), 0), 4 * (4e-6 + weight_bytes / 10e9));
    task.type = TENSOR_TYPE_F16; /* a single row */
    task.tokens = 3;
    ck_near(time_of(task, 0), 3 * (1e-6 + 2 * 4096.0 * 4096 / 500e9));
}
END_TEST

START_TEST(below_the_first_tokens_a_product_takes_its_time)
{
    kernel_table_clear(&table);
    add_product(TASK_MATMUL, TENSOR_TYPE_Q8_0, 8, 3e-6, 200);
    ck_near(time_of(product(1, 1), 0), 3e-6 + weight_bytes / 200e9);
}
END_TEST

START_TEST(a_product_that_shares_a_launch_does_not_pay_for_it)
{
    ck_near(time_of(product(1, 0), 0), weight_bytes / 400e9);
    ck_near(time_of(product(8, 0), 0), weight_bytes / 200e9);
}
END_TEST

START_TEST(products_go_by_rows_of_their_group_where_there_are_some)
{
    const struct kernel_product narrow = {TASK_MATMUL, TENSOR_TYPE_Q8_0, 128, 1, 3e-6, 200, 0, 0};
    const struct kernel_product alone = {TASK_MATMUL, TENSOR_TYPE_Q6_K, 64, 1, 3e-6, 50, 0, 0};
    struct program_task task = product(1, 1);

    ck_assert_int_eq(kernel_table_add_product(&table, narrow, NULL), 0);
    ck_assert_int_eq(kernel_table_add_product(&table, alone, NULL), 0);
    for (task.group = 64; task.group <= 256; task.group *= 2)
        ck_near(time_of(task, 0),
                task.group == 128 ? 3e-6 + weight_bytes / 200e9 : 2e-6 + weight_bytes / 400e9);
    task.type = TENSOR_TYPE_Q6_K;
    ck_assert_double_gt(time_of(task, 0), 3e-6);
}
END_TEST

START_TEST(quantising_the_activations_is_a_small_kernel_before)
{
    struct program_task task = product(1, 2);

    task.input_bytes = 1e6;
    ck_near(time_of(task, 0), 2e-6 + weight_bytes / 400e9 + 2e-6 + 1e6 / 100e9);
    task.kernels = 1; /* it shares the launch of a product */
    ck_near(time_of(task, 0), weight_bytes / 400e9 + 2e-6 + 1e6 / 100e9);
    kernel_table_clear(&table);
    add_product(TASK_MATMUL, TENSOR_TYPE_Q8_0, 1, 2e-6, 400);
    ck_assert_double_lt(time_of(task, 0), 0);
}
END_TEST

START_TEST(experts_have_the_rows_that_each_touched_one_gets)
{
    struct program_task task = product(8, 1);

    task.kind = TASK_EXPERTS;
    task.experts = 4; /* 8 tokens choose one expert each: two rows an expert */
    ck_near(time_of(task, 0), 3e-6 + 4 * weight_bytes / 300e9);
    task.experts = 8;
    ck_near(time_of(task, 0), 3e-6 + 8 * weight_bytes / 400e9);
    task.experts = 16.0 / 3; /* one and a half */
    ck_near(time_of(task, 0), 3e-6 + task.experts * weight_bytes * (1 / 400e9 + 1 / 300e9) / 2);
}
END_TEST

/* Products of one token that load 10 MB ahead at 400 GB/s, 25 us of it. */
static void load_ahead(void)
{
    const struct kernel_product row = {
        TASK_MATMUL, TENSOR_TYPE_Q8_0, KERNEL_GROUP, 1, 2e-6, 400, 10e6, 0};

    ck_assert_int_eq(kernel_table_add_product(&table, row, NULL), 0);
}

static double time_behind(struct kernel_gap *gap, uint32_t kernels)
{
    struct program_task task = product(1, kernels);

    return kernel_table_s(&table, &task, 0, gap);
}

START_TEST(weights_come_while_other_kernels_run)
{
    double full_s = 2e-6 + weight_bytes / 400e9;
    struct kernel_gap gap = {.s = 0};

    load_ahead();
    ck_near(time_behind(&gap, 1), full_s); /* behind nothing */
    ck_near(time_behind(&gap, 1), full_s); /* behind a product */
    kernel_gap_pass(&gap, 5e-6, 0);
    kernel_gap_pass(&gap, 6e-6, 0);
    ck_near(time_behind(&gap, 1), full_s - 11e-6);
    kernel_gap_pass(&gap, 400e-6, 0); /* more than there is room for */
    ck_near(time_behind(&gap, 1), full_s - 25e-6);
    ck_near(time_of(product(1, 1), 0), full_s); /* where kernels do not overlap */
}
END_TEST

START_TEST(a_product_takes_its_launch_at_least)
{
    struct kernel_gap gap = {.s = 0};
    struct program_task task = product(1, 1);

    load_ahead();
    task.rows = 1024; /* 4.5 MB */
    kernel_gap_pass(&gap, 20e-6, 0);
    ck_near(kernel_table_s(&table, &task, 0, &gap), 2e-6);
    task.kernels = 0; /* one of its launch has the 8.9 us that are left */
    task.rows = 4096;
    ck_near(kernel_table_s(&table, &task, 0, &gap),
            weight_bytes / 400e9 - 20e-6 + weight_bytes / 4 / 400e9);
}
END_TEST

/* However it is divided: the rate at which a launch computes what is there bounds all of it. */
START_TEST(products_of_a_launch_take_what_one_of_all_their_rows_takes)
{
    const struct kernel_product row = {
        TASK_MATMUL, TENSOR_TYPE_Q8_0, KERNEL_GROUP, 1, 2e-6, 400, 10e6, 1000};
    struct kernel_gap gap = {.s = 0};
    double whole_s, parts_s = 0;

    ck_assert_int_eq(kernel_table_add_product(&table, row, NULL), 0);
    kernel_gap_pass(&gap, 22e-6, 0);
    whole_s = time_behind(&gap, 1);
    gap = (struct kernel_gap){.s = 0};
    kernel_gap_pass(&gap, 22e-6, 0);
    for (uint32_t part = 0; part < 4; part++) {
        struct program_task task = product(1, part == 0 ? 1 : 0);

        task.rows /= 4;
        parts_s += kernel_table_s(&table, &task, 0, &gap);
    }
    ck_near(parts_s, whole_s);
    ck_near(whole_s, 2e-6 + fmax(weight_bytes / 400e9 - 22e-6, weight_bytes / 1000e9));
}
END_TEST

START_TEST(weights_come_late_and_not_beside_all_of_attention)
{
    double full_s = 2e-6 + weight_bytes / 400e9;
    struct program_task rope = {.kind = TASK_ROPE, .kernels = 1, .tokens = 1, .bytes = 0};
    struct kernel_gap gap = {.s = 0};
    double rope_s;

    load_ahead();
    table.ahead_lag_s = 1.5e-6;
    kernel_gap_pass(&gap, 1e-6, 0);
    ck_near(time_behind(&gap, 1), full_s); /* nothing has come yet */
    kernel_gap_pass(&gap, 11e-6, 0);
    ck_near(time_behind(&gap, 1), full_s - 9.5e-6);
    kernel_gap_pass(&gap, 11e-6, 0.5);
    ck_near(time_behind(&gap, 1), full_s - 4e-6);
    table.attention_alone = 0.75; /* with what heads go through before */
    table.ahead_lag_s = 0;
    rope_s = kernel_table_s(&table, &rope, 0, &gap);
    ck_assert_double_gt(rope_s, 0);
    ck_near(time_behind(&gap, 1), full_s - rope_s / 4);
}
END_TEST

START_TEST(weights_that_are_there_take_their_time_too)
{
    const struct kernel_product row = {
        TASK_MATMUL, TENSOR_TYPE_Q8_0, KERNEL_GROUP, 1, 2e-6, 400, 10e6, 1000};
    struct kernel_gap gap = {.s = 0};
    struct program_task task = product(1, 1);

    ck_assert_int_eq(kernel_table_add_product(&table, row, NULL), 0);
    kernel_gap_pass(&gap, 400e-6, 0);
    ck_near(time_behind(&gap, 1), 2e-6 + (weight_bytes - 10e6) / 400e9);
    task.rows = 1024;
    kernel_gap_pass(&gap, 400e-6, 0);
    ck_near(kernel_table_s(&table, &task, 0, &gap), 2e-6 + weight_bytes / 4 / 1000e9);
}
END_TEST

START_TEST(products_that_load_nothing_ahead_are_as_other_kernels)
{
    struct program_task floats = product(1, 1);
    struct kernel_gap gap = {.s = 0};
    double floats_s;

    load_ahead();
    floats.type = TENSOR_TYPE_F16;
    floats.rows = 16;
    floats_s = kernel_table_s(&table, &floats, 0, &gap);
    ck_near(gap.s, floats_s);
    ck_near(time_behind(&gap, 1), 2e-6 + weight_bytes / 400e9 - floats_s);
}
END_TEST

/* ---- attention ---- */

static struct program_task attention(uint32_t tokens, uint32_t heads, uint32_t kv_heads,
                                     uint32_t head_dim)
{
    return (struct program_task){.kind = TASK_ATTENTION,
                                 .kernels = 2,
                                 .tokens = tokens,
                                 .heads = heads,
                                 .kv_heads = kv_heads,
                                 .head_dim = head_dim,
                                 .sequences = 1,
                                 .cache_type = TENSOR_TYPE_F16};
}

START_TEST(attention_of_the_measured_shape_takes_the_measured_time)
{
    struct program_task quantised = attention(1, 32, 8, 128);

    ck_assert_double_eq(time_of(attention(1, 32, 8, 128), 256), 8e-6);
    ck_assert_double_eq(time_of(attention(1, 32, 8, 128), 4096), 24e-6);
    ck_assert_double_eq(time_of(attention(8, 32, 8, 128), 256), 16e-6);
    ck_assert_double_eq(time_of(attention(512, 32, 8, 128), 1024), 1000e-6);
    quantised.cache_type = TENSOR_TYPE_Q8_0;
    ck_assert_double_eq(time_of(quantised, 256), 7e-6);
}
END_TEST

START_TEST(between_windows_and_tokens_time_goes_evenly)
{
    /* half way: 2176 between 256 and 4096, 2560 between 1024 and 4096, 260 between 8 and 512 */
    ck_near(time_of(attention(1, 32, 8, 128), 2176), 16e-6);
    ck_near(time_of(attention(512, 32, 8, 128), 2560), 2500e-6);
    ck_near(time_of(attention(260, 32, 8, 128), 1024), (4 * 16e-6 + 1000e-6) / 2);
    ck_near(time_of(attention(260, 32, 8, 128), 2560), (10 * 16e-6 + 2500e-6) / 2);
}
END_TEST

START_TEST(beyond_the_largest_window_and_tokens_attention_grows_with_them)
{
    ck_near(time_of(attention(1, 32, 8, 128), 16384), 4 * 24e-6);
    ck_near(time_of(attention(1024, 32, 8, 128), 4096), 2 * 4000e-6);
    ck_near(time_of(attention(1024, 32, 8, 128), 8192), 4 * 4000e-6);
}
END_TEST

START_TEST(below_the_smallest_window_attention_takes_its_time)
{
    ck_assert_double_eq(time_of(attention(1, 32, 8, 128), 0), 8e-6);
    ck_assert_double_eq(time_of(attention(1, 32, 8, 128), 32), 8e-6);
    ck_assert_double_eq(time_of(attention(512, 32, 8, 128), 512), 1000e-6);
}
END_TEST

START_TEST(attention_multiplies_for_each_head_and_value)
{
    ck_near(time_of(attention(1, 64, 16, 128), 2048), 24e-6);
    ck_near(time_of(attention(1, 16, 4, 256), 4096), 24e-6);
    ck_near(time_of(attention(512, 64, 16, 128), 512), 1000e-6);
    ck_near(time_of(attention(512, 16, 2, 256), 1024), 1000e-6);
    ck_near(time_of(attention(512, 16, 4, 128), 8192), 4000e-6);
}
END_TEST

/* Four times as many KV heads take 40 us more. */
START_TEST(between_numbers_of_kv_heads_time_goes_evenly)
{
    const struct kernel_attention all = {TENSOR_TYPE_F16, 128, 32, 32, 1, 4096, 64e-6};

    ck_near(time_of(attention(1, 32, 32, 128), 4096), 24e-6); /* one number was measured */
    ck_assert_int_eq(kernel_table_add_attention(&table, all, NULL), 0);
    ck_near(time_of(attention(1, 32, 32, 128), 4096), 64e-6);
    ck_near(time_of(attention(1, 32, 20, 128), 4096), 44e-6);
    ck_near(time_of(attention(1, 16, 10, 128), 8192), 44e-6); /* as many of a query head */
    ck_near(time_of(attention(1, 32, 8, 128), 4096), 24e-6);
    ck_near(time_of(attention(1, 32, 4, 128), 4096), 24e-6);
    ck_near(time_of(attention(1, 32, 32, 128), 8192), 128e-6);
}
END_TEST

/* Heads of 256 values take 60 us where as many multiply-adds with heads of 128 take 24. */
START_TEST(the_nearest_head_dimension_counts)
{
    const struct kernel_attention wide = {TENSOR_TYPE_F16, 256, 32, 8, 1, 4096, 60e-6};

    ck_near(time_of(attention(1, 32, 8, 256), 2048), 24e-6);
    ck_assert_int_eq(kernel_table_add_attention(&table, wide, NULL), 0);
    ck_near(time_of(attention(1, 32, 8, 256), 4096), 60e-6);
    ck_near(time_of(attention(1, 32, 8, 512), 2048), 60e-6);
    ck_near(time_of(attention(1, 32, 8, 192), 4096), 60e-6); /* the first row's, below it */
    ck_near(time_of(attention(1, 32, 8, 128), 4096), 24e-6);
    ck_near(time_of(attention(1, 32, 8, 64), 8192), 24e-6);
}
END_TEST

/* Half of the heads over 4096 cells: 24 us by multiply-adds where 2048 cells of all take 16. */
START_TEST(a_part_of_the_heads_takes_longer_by_what_was_measured_of_such_a_part)
{
    const struct kernel_attention half = {TENSOR_TYPE_F16, 128, 16, 8, 1, 4096, 20e-6};
    struct program_task task = attention(1, 16, 4, 128);
    double all_s = 8e-6 + (2048 - 256) * 16e-6 / 3840;

    task.heads_all = 32;
    ck_near(time_of(task, 4096), all_s);
    ck_assert_int_eq(kernel_table_add_attention(&table, half, NULL), 0);
    ck_near(time_of(task, 4096), 20e-6);
    task.heads = 24; /* half-way to all of them */
    task.kv_heads = 6;
    ck_near(time_of(task, 4096), (8e-6 + (3072 - 256) * 16e-6 / 3840) * (1 + 20e-6 / all_s) / 2);
    task.heads = 8; /* as much longer as a half */
    task.kv_heads = 2;
    ck_near(time_of(task, 4096), (8e-6 + (1024 - 256) * 16e-6 / 3840) * 20e-6 / all_s);
    task.heads = task.heads_all = 16; /* a model of as many heads has all of them */
    task.kv_heads = 4;
    ck_near(time_of(task, 4096), all_s);
}
END_TEST

START_TEST(sequences_run_side_by_side_as_one_long_window)
{
    struct program_task four = attention(4, 32, 8, 128), eight = attention(4096, 32, 8, 128);

    four.sequences = four.streams = 4;
    eight.sequences = eight.streams = 8;
    ck_near(time_of(four, 1024), 24e-6);
    ck_near(time_of(eight, 128), 1000e-6);
    four.tokens = 32; /* 8 of a sequence */
    ck_near(time_of(four, 64), 16e-6);
    four.tokens = 4; /* one cache, whose window has all sequences' cells */
    four.streams = 1;
    ck_near(time_of(four, 4096), 24e-6);
}
END_TEST

/* ---- other kernels ---- */

static struct program_task other(enum task_kind kind, uint32_t tokens, double bytes)
{
    return (struct program_task){.kind = kind, .kernels = 1, .tokens = tokens, .bytes = bytes};
}

/* Those that have norms as the wanted ones do come first, then the nearest dimension. */
START_TEST(heads_that_are_rotated_go_by_rows_of_heads_like_them)
{
    static const struct {
        uint32_t head_dim;
        bool normed;
        double gbs;
    } rows[] = {{256, false, 200}, {128, false, 100}, {64, true, 50}};
    struct program_task rope = {.kind = TASK_ROPE, .kernels = 1, .tokens = 1, .bytes = 1e6};

    kernel_table_clear(&table);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        add_heads((struct kernel_other){.kind = TASK_ROPE,
                                        .head_dim = rows[i].head_dim,
                                        .normed = rows[i].normed,
                                        .tokens = 1},
                  2e-6, rows[i].gbs);
    for (rope.head_dim = 64; rope.head_dim <= 512; rope.head_dim *= 2) {
        rope.normed = false;
        ck_near(time_of(rope, 0), 2e-6 + 1e6 / (rope.head_dim < 256 ? 100e9 : 200e9));
        rope.normed = true;
        ck_near(time_of(rope, 0), 2e-6 + 1e6 / 50e9);
    }
}
END_TEST

START_TEST(a_norm_goes_by_what_it_follows_where_that_was_measured)
{
    struct program_task norm = other(TASK_NORM, 1, 1e5);
    struct kernel_gap gap = {.last = TASK_ALL_REDUCE};
    double usual_s = 2e-6 + 1e5 / 100e9, behind_s = 1e-6 + 1e5 / 100e9;

    ck_near(kernel_table_s(&table, &norm, 0, &gap), usual_s);
    ck_assert_int_eq(gap.last, TASK_NORM);
    add_heads((struct kernel_other){.kind = TASK_NORM, .behind = TASK_ALL_REDUCE, .tokens = 1},
              1e-6, 100);
    gap.last = TASK_ALL_REDUCE;
    ck_near(kernel_table_s(&table, &norm, 0, &gap), behind_s);
    gap.last = TASK_EXPERTS;
    ck_near(kernel_table_s(&table, &norm, 0, &gap), usual_s);
    gap.last = TASK_ALL_REDUCE;
    norm.kind = TASK_GLU; /* no norm, but timed as one */
    ck_near(kernel_table_s(&table, &norm, 0, &gap), usual_s);
    ck_near(time_of(other(TASK_NORM, 1, 1e5), 0), usual_s);
}
END_TEST

START_TEST(other_kernels_take_what_is_between_measured_sizes)
{
    ck_near(time_of(other(TASK_ROPE, 1, 1e5), 0), 3e-6 + 1e5 / 100e9);
    ck_near(time_of(other(TASK_ROPE, 512, 1e8), 0), 5e-6 + 1e8 / 200e9);
    ck_near(time_of(other(TASK_ROPE, 512, 3e9), 0), 5e-6 + 3e9 / 200e9); /* beyond the last */
    add_point(
        (struct kernel_other){.kind = TASK_ROPE, .tokens = 1, .bytes = 101000, .time_s = 9e-6});
    ck_near(time_of(other(TASK_ROPE, 1, 51000), 0), (9e-6 + 3e-6 + 1000 / 100e9) / 2);
    ck_near(
        time_of(other(TASK_ROPE, 1, 500), 0), /* below the first: half of it at least */
        fmax((3e-6 + 1000 / 100e9) / 2, 3e-6 + 1000 / 100e9 - 500 * (6e-6 - 1000 / 100e9) / 1e5));
}
END_TEST

/* Of a measured 12.5 us a launch is 2.5. */
START_TEST(of_a_single_size_a_part_is_the_launch)
{
    kernel_table_clear(&table);
    add_point(
        (struct kernel_other){.kind = TASK_GLU, .tokens = 1, .bytes = 1000, .time_s = 12.5e-6});
    add_point((struct kernel_other){.kind = TASK_WAIT, .tokens = 1, .time_s = 7e-6});
    ck_near(time_of(other(TASK_GLU, 1, 1000), 0), 12.5e-6);
    ck_near(time_of(other(TASK_GLU, 1, 500), 0), 7.5e-6);
    ck_near(time_of(other(TASK_GLU, 1, 3000), 0), 32.5e-6);
    ck_near(kernel_table_plain_s(&table, TASK_WAIT, 1, 0), 7e-6);
}
END_TEST

START_TEST(between_tokens_other_kernels_move_as_many_bytes_of_each)
{
    double few = 3e-6 + 1e6 / 100e9, many = 5e-6 + 512e6 / 200e9;

    ck_near(time_of(other(TASK_ROPE, 74, 74e6), 0), few + (many - few) / 7);
    ck_near(time_of(other(TASK_ROPE, 1024, 1024e6), 0), 2 * many);
}
END_TEST

START_TEST(kinds_without_rows_are_like_norms)
{
    ck_near(time_of(other(TASK_GLU, 1, 1e5), 0), 2e-6 + 1e5 / 100e9);
    ck_near(time_of(other(TASK_ADD, 7, 7e5), 0), 7 * (2e-6 + 1e5 / 100e9));
}
END_TEST

START_TEST(a_delta_net_steps_through_the_tokens_of_one_sequence)
{
    struct program_task task = other(TASK_DELTA_NET, 4, 1e5);

    ck_near(time_of(task, 0), 4e-6 + 1e5 / 25e9);
    task.sequences = 4;
    ck_near(time_of(task, 0), 4e-6 + 1e5 / 50e9);
}
END_TEST

START_TEST(what_was_not_measured_has_no_time)
{
    struct program_task task = product(1, 1), cached = attention(1, 32, 8, 128);

    task.type = TENSOR_TYPE_Q4_K;
    cached.cache_type = TENSOR_TYPE_Q4_0;
    ck_assert_double_lt(time_of(task, 0), 0);
    ck_assert_double_lt(time_of(cached, 256), 0);
    task.kind = TASK_EXPERTS;
    task.type = TENSOR_TYPE_F16;
    ck_assert_double_lt(time_of(task, 0), 0);
    kernel_table_clear(&table);
    ck_assert_double_lt(time_of(product(1, 1), 0), 0);
    ck_assert_double_lt(time_of(attention(1, 32, 8, 128), 256), 0);
    ck_assert_double_lt(time_of(other(TASK_NORM, 1, 1e5), 0), 0);
    add_other(TASK_ROPE, 1, 3e-6, 100);
    ck_assert_double_lt(time_of(other(TASK_NORM, 1, 1e5), 0), 0);
    ck_assert_double_lt(time_of(other(TASK_GLU, 1, 1e5), 0), 0);
}
END_TEST

/* ---- sums ---- */

START_TEST(sums_are_pieces_of_straight_lines)
{
    ck_assert_double_eq(kernel_table_sum_s(&table, 2, 1000), 10e-6);
    ck_assert_double_eq(kernel_table_sum_s(&table, 2, 1000000), 30e-6);
    ck_near(kernel_table_sum_s(&table, 2, 500500), 20e-6);
    ck_near(kernel_table_sum_s(&table, 2, 1500000), 40e-6);
    ck_assert_double_eq(kernel_table_sum_s(&table, 2, 8), 10e-6);
    ck_near(kernel_table_sum_s(&table, 2, 5000000), 110e-6);
}
END_TEST

START_TEST(a_sum_beyond_the_last_never_gets_shorter)
{
    add_sum(2, 3000000, 45e-6); /* by chance faster than the one before */
    ck_assert_double_eq(kernel_table_sum_s(&table, 2, 9000000), 45e-6);
}
END_TEST

START_TEST(a_single_sum_grows_with_its_bytes)
{
    ck_assert_double_eq(kernel_table_sum_s(&table, 3, 10), 20e-6);
    ck_near(kernel_table_sum_s(&table, 3, 4000), 80e-6);
}
END_TEST

START_TEST(sums_of_other_numbers_of_devices_are_unknown)
{
    ck_assert_double_lt(kernel_table_sum_s(&table, 4, 1000), 0);
    ck_assert_double_lt(kernel_table_sum_s(&table, 1, 1000), 0);
}
END_TEST

static Suite *suite(void)
{
    Suite *all = suite_create("kernel_times");
    TCase *kernels = tcase_create("kernels"), *sums = tcase_create("sums");

    tcase_add_checked_fixture(kernels, fill_table, clear_table);
    tcase_add_test(kernels, a_product_takes_its_launch_and_reads_its_weights);
    tcase_add_test(kernels, between_numbers_of_tokens_time_grows_evenly);
    tcase_add_test(kernels, beyond_the_last_tokens_a_product_takes_whole_waves);
    tcase_add_test(kernels, below_the_first_tokens_a_product_takes_its_time);
    tcase_add_test(kernels, a_product_that_shares_a_launch_does_not_pay_for_it);
    tcase_add_test(kernels, products_go_by_rows_of_their_group_where_there_are_some);
    tcase_add_test(kernels, quantising_the_activations_is_a_small_kernel_before);
    tcase_add_test(kernels, experts_have_the_rows_that_each_touched_one_gets);
    tcase_add_test(kernels, weights_come_while_other_kernels_run);
    tcase_add_test(kernels, a_product_takes_its_launch_at_least);
    tcase_add_test(kernels, products_of_a_launch_take_what_one_of_all_their_rows_takes);
    tcase_add_test(kernels, products_that_load_nothing_ahead_are_as_other_kernels);
    tcase_add_test(kernels, weights_come_late_and_not_beside_all_of_attention);
    tcase_add_test(kernels, weights_that_are_there_take_their_time_too);
    tcase_add_test(kernels, the_nearest_head_dimension_counts);
    tcase_add_test(kernels, attention_of_the_measured_shape_takes_the_measured_time);
    tcase_add_test(kernels, between_windows_and_tokens_time_goes_evenly);
    tcase_add_test(kernels, beyond_the_largest_window_and_tokens_attention_grows_with_them);
    tcase_add_test(kernels, below_the_smallest_window_attention_takes_its_time);
    tcase_add_test(kernels, attention_multiplies_for_each_head_and_value);
    tcase_add_test(kernels, between_numbers_of_kv_heads_time_goes_evenly);
    tcase_add_test(kernels, a_part_of_the_heads_takes_longer_by_what_was_measured_of_such_a_part);
    tcase_add_test(kernels, sequences_run_side_by_side_as_one_long_window);
    tcase_add_test(kernels, heads_that_are_rotated_go_by_rows_of_heads_like_them);
    tcase_add_test(kernels, a_norm_goes_by_what_it_follows_where_that_was_measured);
    tcase_add_test(kernels, other_kernels_take_what_is_between_measured_sizes);
    tcase_add_test(kernels, of_a_single_size_a_part_is_the_launch);
    tcase_add_test(kernels, between_tokens_other_kernels_move_as_many_bytes_of_each);
    tcase_add_test(kernels, kinds_without_rows_are_like_norms);
    tcase_add_test(kernels, a_delta_net_steps_through_the_tokens_of_one_sequence);
    tcase_add_test(kernels, what_was_not_measured_has_no_time);
    suite_add_tcase(all, kernels);
    tcase_add_checked_fixture(sums, fill_table, clear_table);
    tcase_add_test(sums, sums_are_pieces_of_straight_lines);
    tcase_add_test(sums, a_sum_beyond_the_last_never_gets_shorter);
    tcase_add_test(sums, a_single_sum_grows_with_its_bytes);
    tcase_add_test(sums, sums_of_other_numbers_of_devices_are_unknown);
    suite_add_tcase(all, sums);
    return all;
}

int main(void)
{
    SRunner *runner = srunner_create(suite());
    int failed;

    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
