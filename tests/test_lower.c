/* What a step of a plan consists of: numbers of tasks, bytes, order, windows. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lowered.h"

#define QWEN "qwen3.8-27b:UD-IQ2_M"
#define GEMMA "gemma-4-26b-a4b:Q8_0"
#define MUSE "muse-glimmer-30b:Q5_K_M"
#define LLAMA "llama-3.1-8b:Q4_K_M"
#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

static const struct program_step decode = {.tokens = 1, .outputs = 1, .sync = true};
static const struct program_step prefill = {.tokens = 512, .rebuild = true};

/* ---- collectives ---- */

static const struct {
    const char *model, *machine, *flags;
    int count;
} reduce_counts[] = {
    {QWEN, PLAN_CASES_DESKTOP, "-sm tensor", 128},
    {QWEN, PLAN_CASES_DESKTOP, "-sm tensor -as 1/0 -nkvo", 128},
    {QWEN, PLAN_CASES_DESKTOP, "-sm tensor -ts 1/0", 128},
    {GEMMA, PLAN_CASES_DESKTOP, "-sm tensor", 90},
    {"gemma-4-31b:Q4_K_M", PLAN_CASES_DESKTOP, "-sm tensor", 120},
    {"qwen3.6-35b-a3b:Q4_K_M", PLAN_CASES_DESKTOP, "-sm tensor", 80},
    {"glm-4.5-air:Q4_K_M", PLAN_CASES_DESKTOP, "-sm tensor", 92},
    {"gpt-oss-20b:MXFP4", "4x RTX 3090@gen4x8", "-sm tensor", 48},
    {QWEN, PLAN_CASES_DESKTOP, "", 0},
    {QWEN, PLAN_CASES_DESKTOP, "-sm none", 0},
    {QWEN, "rtx4070-gen4x16", "-sm tensor", 0},
};

START_TEST(each_partial_result_is_reduced_once)
{
    for (int pass = 0; pass < 2; pass++) {
        struct lowered l = lowered_open(reduce_counts[_i].model, reduce_counts[_i].machine,
                                        reduce_counts[_i].flags, pass == 0 ? decode : prefill);

        ck_assert_int_eq(lowered_count(l.program, TASK_ALL_REDUCE), reduce_counts[_i].count);
        lowered_close(&l);
    }
}
END_TEST

/* Tokens up to which the payload is f32. */
static const struct {
    const char *model, *machine;
    uint32_t n_embd, f32_tokens;
} payloads[] = {
    {QWEN, PLAN_CASES_DESKTOP, 5120, 6},     {GEMMA, PLAN_CASES_DESKTOP, 2816, 11},
    {LLAMA, PLAN_CASES_DESKTOP, 4096, 7},    {"qwen3-30b-a3b:Q4_K_M", PLAN_CASES_DESKTOP, 2048, 15},
    {LLAMA, "3x RTX 3090@gen4x8", 4096, 31}, {LLAMA, "4x RTX 3090@gen4x8", 4096, 63},
};

START_TEST(a_reduction_carries_f32_below_the_threshold_and_bf16_from_it)
{
    for (uint32_t more = 0; more < 2; more++) {
        uint32_t tokens = payloads[_i].f32_tokens + more;
        struct program_step step = {.tokens = tokens, .outputs = 1};
        struct lowered l =
            lowered_open(payloads[_i].model, payloads[_i].machine, "-sm tensor", step);

        for (size_t i = 0; i < l.program->task_count; i++) {
            const struct program_task *task = &l.program->tasks[i];

            if (task->kind != TASK_ALL_REDUCE)
                continue;
            ck_assert_double_eq(task->bytes,
                                (double)payloads[_i].n_embd * tokens * (more == 0 ? 4 : 2));
            /* to bf16 and back */
            ck_assert_uint_eq(task->kernels, more == 0 ? 0 : 2);
        }
        lowered_close(&l);
    }
}
END_TEST

/* ---- from device to device ---- */

static const struct {
    const char *machine, *flags;
    int peers;
} peer_cases[] = {
    {"rtx4070-gen4x16", "", 0},
    {PLAN_CASES_DESKTOP, "", 1},
    {PLAN_CASES_DESKTOP, "-nkvo", 1},
    {PLAN_CASES_DESKTOP, "-ts 1/0", 0},
    {PLAN_CASES_DESKTOP, "-ts 0/1", 0},
    {PLAN_CASES_DESKTOP, "-sm none -mg 1", 0},
    {PLAN_CASES_DESKTOP, "-sm tensor", 0},
    {"3x RTX 3090@gen4x8", "", 2},
    {"3x RTX 3090@gen4x8", "-ts 1/0/1", 1},
    {"8x RTX 3090@gen4x8", "", 7},
    {"8x RTX 3090@gen4x8", "-sm tensor", 0},
};

START_TEST(the_residual_stream_moves_once_between_neighbours_of_a_layer_split)
{
    struct lowered l = lowered_open(LLAMA, peer_cases[_i].machine, peer_cases[_i].flags, decode);
    int count = 0;

    for (size_t i = 0; i < l.program->task_count; i++) {
        const struct program_task *task = &l.program->tasks[i];

        if (task->kind != TASK_PEER)
            continue;
        count++;
        ck_assert_int_gt(task->peer, task->device);
        ck_assert_double_eq(task->bytes, 4.0 * 4096);
        ck_assert(!task->blocking);
        /* the receiving stream waits for it at once */
        ck_assert_int_eq(task[1].kind, TASK_WAIT);
        ck_assert_int_eq(task[1].device, task->peer);
        ck_assert_uint_eq(task[1].dependency_count, 1);
        ck_assert_uint_eq(l.program->dependencies[task[1].dependency_first], i);
    }
    ck_assert_int_eq(count, peer_cases[_i].peers);
    lowered_close(&l);
}
END_TEST

/* ---- windows ---- */

/* Of each K and of each V window on each device, in layer 3 of the 27B. */
static const struct {
    const char *flags;
    double bytes_per_cell[2], row_bytes[2];
    bool pageable;
} window_cases[] = {
    {"-nkvo", {2048, 0}, {0, 0}, true},
    {"-nkvo -engine llama.cpp -ctk q8_0", {1088, 0}, {0, 0}, true},
    {"-nkvo -kvcp -ctk q8_0", {1088, 0}, {0, 0}, false},
    {"-nkvo -kvcp -ctk q4_0", {576, 0}, {0, 0}, false},
    {"-nkvo -kvcp -ctk q8_0 -sm tensor", {544, 544}, {544, 544}, false},
    {"-nkvo -kvcp -ctk q8_0 -sm tensor -as 75/25", {816, 272}, {816, 272}, false},
    {"-nkvo -kvcp -ctk q8_0 -sm tensor -as 1/0", {1088, 0}, {0, 0}, false},
    {"-nkvo -kvcp -ctk q8_0 -sm tensor -as 0/1", {0, 1088}, {0, 0}, false},
};

START_TEST(a_window_has_the_rows_of_the_devices_heads_and_only_parts_of_rows_are_strided)
{
    struct lowered l = lowered_open(QWEN, PLAN_CASES_DESKTOP, window_cases[_i].flags, decode);
    double seen[2][2] = {{0}};

    for (size_t i = 0; i < l.program->task_count; i++) {
        const struct program_task *task = &l.program->tasks[i];

        if (task->kind != TASK_KV_WINDOW || task->layer != 3)
            continue;
        ck_assert(task->part == 'k' || task->part == 'v');
        ck_assert(task->blocking);
        ck_assert_int_eq(task->window, PROGRAM_WINDOW_BASE);
        ck_assert_int_eq(task->pageable, window_cases[_i].pageable);
        ck_assert_double_eq(task->bytes, 0);
        ck_assert_double_eq(task->row_bytes, window_cases[_i].row_bytes[task->device]);
        seen[task->device][task->part == 'v'] += task->bytes_per_cell;
    }
    for (int d = 0; d < 2; d++)
        for (int part = 0; part < 2; part++)
            ck_assert_double_eq(seen[d][part], window_cases[_i].bytes_per_cell[d]);
    lowered_close(&l);
}
END_TEST

/* Rows of K and V that one prefill ubatch of 512 sends to the host, in layer 3. */
static const struct {
    const char *flags;
    double bytes[2];
} row_cases[] = {
    {"-nkvo", {512 * 4096, 0}},
    {"-nkvo -ctk q8_0", {512 * 1088, 0}},
    {"-nkvo -ctk q8_0 -engine llama.cpp", {512 * 4096, 0}},
    {"-nkvo -ctk bf16", {512 * 4096, 0}},
    {"-nkvo -ctk q8_0 -sm tensor", {512 * 544, 512 * 544}},
    {"-nkvo -sm tensor -as 75/25", {512 * 3072, 512 * 1024}},
};

START_TEST(new_rows_are_cast_before_only_in_the_fork_and_only_when_quantised)
{
    struct lowered l = lowered_open(QWEN, PLAN_CASES_DESKTOP, row_cases[_i].flags, prefill);
    double seen[2][2] = {{0}};

    for (size_t i = 0; i < l.program->task_count; i++) {
        const struct program_task *task = &l.program->tasks[i];

        if (task->kind == TASK_KV_ROWS && task->layer == 3)
            seen[task->device][task->part == 'v'] += task->bytes;
    }
    for (int d = 0; d < 2; d++)
        for (int part = 0; part < 2; part++)
            ck_assert_double_eq(seen[d][part], row_cases[_i].bytes[d]);
    lowered_close(&l);
}
END_TEST

static const struct {
    const char *model, *flags;
    int windows;
} window_counts[] = {
    {QWEN, "", 0},
    {QWEN, "-nkvo", 32},
    {QWEN, "-nkvo -kvgl 8", 16},
    {QWEN, "-nkvo -kvgl 16", 0},
    {QWEN, "-nkvo -sm tensor", 64},
    {QWEN, "-nkvo -sm tensor -kvgl 12", 16},
    {QWEN, "-nkvo -sm tensor -as 1/0", 32},
    {MUSE, "-nkvo", 104},
    {GEMMA, "-nkvo", 60},
    /* Full-attention layers: both devices in even ones, one in odd ones. */
    {GEMMA, "-nkvo -sm tensor -ts 60/40", 2 * (25 * 2 + 3 * 2 + 2 * 1)},
    {"deepseek-v3:Q4_K_M", "-nkvo", 61},
};

START_TEST(a_host_layer_delivers_two_windows_to_each_device_with_heads)
{
    struct lowered l =
        lowered_open(window_counts[_i].model, PLAN_CASES_DESKTOP, window_counts[_i].flags, decode);

    ck_assert_int_eq(lowered_count(l.program, TASK_KV_WINDOW), window_counts[_i].windows);
    ck_assert_int_eq(lowered_count(l.program, TASK_KV_ROWS), window_counts[_i].windows);
    lowered_close(&l);
}
END_TEST

/* The tasks of layer 3 between K and V and attention, as "kind part device". */
START_TEST(a_visit_to_the_host_serves_k_then_v_and_one_device_after_the_other)
{
    static const struct {
        enum task_kind kind;
        char part;
        int device;
    } order[] = {
        {TASK_SPLIT, 0, PROGRAM_AT_HOST},
        {TASK_SYNC, 0, 0},
        {TASK_SYNC, 0, 1},
        {TASK_KV_ROWS, 'k', 0},
        {TASK_KV_ROWS, 'k', 1},
        {TASK_KV_ROWS, 'v', 0},
        {TASK_KV_ROWS, 'v', 1},
        {TASK_KV_STORE, 0, PROGRAM_AT_HOST},
        {TASK_KV_WINDOW, 'k', 0},
        {TASK_KV_WINDOW, 'k', 1},
        {TASK_KV_WINDOW, 'v', 0},
        {TASK_KV_WINDOW, 'v', 1},
        {TASK_ATTENTION, 0, 0},
    };
    struct lowered l = lowered_open(QWEN, PLAN_CASES_DESKTOP, "-sm tensor -nkvo", decode);
    const struct program_task *task = l.program->tasks;

    while (task->kind != TASK_SPLIT)
        task++;
    for (int i = 0; i < COUNT(order); i++, task++) {
        ck_assert_int_eq(task->kind, order[i].kind);
        ck_assert_int_eq(task->part, order[i].part);
        ck_assert_int_eq(task->device, order[i].device);
        ck_assert(task->blocking || order[i].kind == TASK_ATTENTION);
    }
    lowered_close(&l);
}
END_TEST

/* ---- parts and launches ---- */

/* Splits beside the two that every graph has; launches of graphs on each device. */
static const struct {
    const char *machine, *flags;
    uint32_t splits, launches[2];
} part_cases[] = {
    {"rtx4070-gen4x16", "", 0, {1}},
    {"rtx4070-gen4x16", "-nkvo -rso", 32, {17}},
    {"rtx4070-gen4x16", "-nkvo -rso -kvgl 10", 12, {7}},
    {"rtx4070-gen4x16", "-nkvo", 32 + 288, {17 + 96}},
    {PLAN_CASES_DESKTOP, "", 0, {1, 1}},
    {PLAN_CASES_DESKTOP, "-nkvo -rso", 32, {9, 9}},
    {PLAN_CASES_DESKTOP, "-nkvo -rso -kvgl 8", 16, {9, 1}},
    {PLAN_CASES_DESKTOP, "-sm tensor", 0, {129, 129}},
    {PLAN_CASES_DESKTOP, "-sm tensor -nkvo", 32, {145, 145}},
};

START_TEST(decode_launches_one_graph_a_part)
{
    struct lowered l = lowered_open(QWEN, part_cases[_i].machine, part_cases[_i].flags, decode);
    uint32_t splits = 0, launches[2] = {0};

    for (size_t i = 0; i < l.program->task_count; i++) {
        const struct program_task *task = &l.program->tasks[i];

        if (task->kind == TASK_SPLIT)
            splits += task->launches;
        if (program_task_class(task->kind) == TASK_CLASS_KERNEL)
            launches[task->device] += task->launches;
    }
    ck_assert_uint_eq(splits, part_cases[_i].splits);
    for (int d = 0; d < 2; d++)
        ck_assert_uint_eq(launches[d], part_cases[_i].launches[d]);
    lowered_close(&l);
}
END_TEST

START_TEST(a_recurrent_state_on_the_host_comes_and_goes_once_a_layer)
{
    struct lowered host = lowered_open(QWEN, PLAN_CASES_DESKTOP, "-nkvo", decode);
    struct lowered kept = lowered_open(QWEN, PLAN_CASES_DESKTOP, "-nkvo -rso", decode);
    double bytes = 0;

    for (size_t i = 0; i < host.program->task_count; i++)
        if (host.program->tasks[i].kind == TASK_STATE_IN) {
            bytes += host.program->tasks[i].bytes;
            ck_assert(host.program->tasks[i].pageable);
        }
    ck_assert_int_eq(lowered_count(host.program, TASK_STATE_IN), 48);
    ck_assert_int_eq(lowered_count(host.program, TASK_STATE_OUT), 48);
    ck_assert_double_eq(bytes / (1 << 20), 149.625);
    ck_assert_int_eq(lowered_count(kept.program, TASK_STATE_IN), 0);
    ck_assert_int_eq(lowered_count(kept.program, TASK_STATE_OUT), 0);
    lowered_close(&kept);
    lowered_close(&host);
}
END_TEST

/* ---- slices ---- */

/* Where the slices of [device 0, device 1] begin at 60/40: in odd layers of a kind the
 * positions are rotated, and device 1 has the first. */
static const struct {
    const char *tensor;
    uint64_t first[2];
} slice_cases[] = {
    {"blk.0.ffn_up.weight", {0, 10240}},     {"blk.1.ffn_up.weight", {6912, 0}},
    {"blk.0.ffn_down.weight", {0, 10240}},   {"blk.1.ffn_down.weight", {6912, 0}},
    {"blk.3.attn_q.weight", {0, 6144}},      {"blk.7.attn_q.weight", {3072, 0}},
    {"blk.3.attn_k.weight", {0, 512}},       {"blk.7.attn_v.weight", {256, 0}},
    {"blk.3.attn_output.weight", {0, 3072}}, {"blk.7.attn_output.weight", {1536, 0}},
    {"blk.0.attn_qkv.weight", {0, 1024}},    {"blk.1.attn_qkv.weight", {768, 0}},
    {"blk.1.ssm_alpha.weight", {6, 0}},      {"blk.1.ssm_out.weight", {768, 0}},
    {"output.weight", {0, 148992}},
};

START_TEST(slices_lie_in_the_rotated_order_of_the_devices)
{
    struct lowered l = lowered_open(QWEN, PLAN_CASES_DESKTOP, "-sm tensor -ts 60/40", decode);
    int found = 0;

    for (size_t i = 0; i < l.program->task_count; i++) {
        const struct program_task *task = &l.program->tasks[i];

        if (task->tensor < 0 ||
            strcmp(l.c.model->tensors[task->tensor].name, slice_cases[_i].tensor) != 0)
            continue;
        found++;
        ck_assert_msg(task->slice.first == slice_cases[_i].first[task->device],
                      "%s: device %d begins at %llu", slice_cases[_i].tensor, task->device,
                      (unsigned long long)task->slice.first);
    }
    ck_assert_int_eq(found, 2);
    lowered_close(&l);
}
END_TEST

/* ---- the output head ---- */

START_TEST(a_ubatch_without_outputs_has_no_head)
{
    static const char *const flags[] = {"", "-sm tensor", "-sm none"};

    for (int i = 0; i < COUNT(flags); i++) {
        for (uint32_t outputs = 0; outputs < 2; outputs++) {
            struct program_step step = {.tokens = 64, .outputs = outputs, .rebuild = true};
            struct lowered l = lowered_open(QWEN, PLAN_CASES_DESKTOP, flags[i], step);
            int products = 0, devices = i == 1 ? 2 : 1;
            double bytes = 0;

            for (size_t t = 0; t < l.program->task_count; t++) {
                const struct program_task *task = &l.program->tasks[t];

                products += task->kind == TASK_MATMUL && task->layer < 0;
                bytes += task->kind == TASK_LOGITS ? task->bytes : 0;
            }
            ck_assert_int_eq(products, (int)outputs * devices);
            ck_assert_int_eq(lowered_count(l.program, TASK_LOGITS), (int)outputs * devices);
            ck_assert_double_eq(bytes, 4.0 * 248320 * outputs);
            lowered_close(&l);
        }
    }
}
END_TEST

START_TEST(a_step_that_does_not_sync_leaves_the_devices_running)
{
    struct program_step step = {.tokens = 1, .outputs = 1};
    struct lowered running = lowered_open(QWEN, PLAN_CASES_DESKTOP, "", step);
    struct lowered waiting = lowered_open(QWEN, PLAN_CASES_DESKTOP, "", decode);
    const struct program *program = waiting.program;

    ck_assert_int_eq(lowered_count(running.program, TASK_SYNC), 0);
    ck_assert_int_eq(lowered_count(program, TASK_SYNC), 2);
    ck_assert_int_eq(program->tasks[program->task_count - 1].kind, TASK_SYNC);
    lowered_close(&waiting);
    lowered_close(&running);
}
END_TEST

/* ---- windows in cells ---- */

static const struct {
    const char *model, *flags;
    uint32_t used, base, sliding;
} cell_cases[] = {
    {QWEN, "-c 65536", 0, 256, 0},
    {QWEN, "-c 65536", 1, 256, 0},
    {QWEN, "-c 65536", 256, 256, 0},
    {QWEN, "-c 65536", 257, 512, 0},
    {QWEN, "-c 65536", 15216, 15360, 0},
    {QWEN, "-c 65536", 58466, 58624, 0},
    {QWEN, "-c 65536", 65536, 65536, 0},
    {QWEN, "-c 4100", 4352, 4352, 0},
    {QWEN, "-c 4100", 9999, 4352, 0},
    {MUSE, "-c 65536", 300, 512, 512},
    {MUSE, "-c 65536", 2305, 2560, 2560},
    {MUSE, "-c 65536", 32768, 32768, 2560},
    {MUSE, "-c 65536 -ub 1024", 32768, 32768, 3072},
    {MUSE, "-c 65536 -ub 100", 32768, 32768, 2304},
    {MUSE, "-c 4096", 2000, 2048, 2048},
    {GEMMA, "-c 65536", 5000, 5120, 1536},
    {GEMMA, "-c 1000", 1024, 1024, 1024},
    {QWEN, "-c 65536 -engine lopside", 1, 64, 0},
    {QWEN, "-c 65536 -engine lopside", 65, 128, 0},
    {QWEN, "-c 65536 -engine lopside", 15216, 15232, 0},
    {QWEN, "-c 4100 -engine lopside", 9999, 4352, 0},
    {MUSE, "-c 65536 -engine lopside", 300, 320, 320},
    {MUSE, "-c 65536 -engine lopside", 32768, 32768, 2560},
};

START_TEST(a_window_is_padded_to_256_cells_or_our_own_64_and_no_longer_than_the_cache)
{
    struct plan_case c =
        plan_cases_open(cell_cases[_i].model, PLAN_CASES_DESKTOP, cell_cases[_i].flags, 0);
    struct program_cells cells = program_cells_at(c.placement, cell_cases[_i].used);

    ck_assert_uint_eq(cells.base, cell_cases[_i].base);
    ck_assert_uint_eq(cells.sliding, cell_cases[_i].sliding);
    plan_cases_close(&c);
}
END_TEST

START_TEST(a_sliding_cache_holds_the_window_and_a_ubatch)
{
    struct plan_case large = plan_cases_open(MUSE, PLAN_CASES_DESKTOP, "-c 65536", 0);
    struct plan_case small = plan_cases_open(MUSE, PLAN_CASES_DESKTOP, "-c 1024", 0);

    ck_assert_uint_eq(program_sliding_cache_cells(large.placement, 2048), 2560);
    ck_assert_uint_eq(program_sliding_cache_cells(large.placement, 1024), 1536);
    ck_assert_uint_eq(program_sliding_cache_cells(large.placement, 128), 768);
    ck_assert_uint_eq(program_sliding_cache_cells(small.placement, 2048), 1024);
    plan_cases_close(&small);
    plan_cases_close(&large);
}
END_TEST

START_TEST(every_kind_of_task_has_a_name_of_its_own)
{
    for (int kind = 0; kind < TASK_KIND_COUNT; kind++) {
        const char *name = program_task_name((enum task_kind)kind);

        ck_assert_ptr_nonnull(name);
        for (int other = 0; other < kind; other++)
            ck_assert_str_ne(name, program_task_name((enum task_kind)other));
    }
    ck_assert_int_eq(program_task_class(TASK_KV_STORE), TASK_CLASS_HOST);
    ck_assert_int_eq(program_task_class(TASK_KV_WINDOW), TASK_CLASS_COPY);
    ck_assert_int_eq(program_task_class(TASK_MATMUL), TASK_CLASS_KERNEL);
    ck_assert_int_eq(program_task_class(TASK_ALL_REDUCE), TASK_CLASS_COLLECTIVE);
    ck_assert_int_eq(program_task_class(TASK_SYNC), TASK_CLASS_WAIT);
    program_free(NULL);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("lower");
    TCase *between = tcase_create("between devices"), *host = tcase_create("host cache");
    TCase *steps = tcase_create("steps");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_set_timeout(between, 60);
    tcase_set_timeout(host, 60);
    tcase_set_timeout(steps, 60);
    tcase_add_loop_test(between, each_partial_result_is_reduced_once, 0, COUNT(reduce_counts));
    tcase_add_loop_test(between, a_reduction_carries_f32_below_the_threshold_and_bf16_from_it, 0,
                        COUNT(payloads));
    tcase_add_loop_test(between, the_residual_stream_moves_once_between_neighbours_of_a_layer_split,
                        0, COUNT(peer_cases));
    tcase_add_loop_test(
        host, a_window_has_the_rows_of_the_devices_heads_and_only_parts_of_rows_are_strided, 0,
        COUNT(window_cases));
    tcase_add_loop_test(host, new_rows_are_cast_before_only_in_the_fork_and_only_when_quantised, 0,
                        COUNT(row_cases));
    tcase_add_loop_test(host, a_host_layer_delivers_two_windows_to_each_device_with_heads, 0,
                        COUNT(window_counts));
    tcase_add_test(host, a_visit_to_the_host_serves_k_then_v_and_one_device_after_the_other);
    tcase_add_test(host, a_recurrent_state_on_the_host_comes_and_goes_once_a_layer);
    tcase_add_loop_test(steps, decode_launches_one_graph_a_part, 0, COUNT(part_cases));
    tcase_add_loop_test(steps, slices_lie_in_the_rotated_order_of_the_devices, 0,
                        COUNT(slice_cases));
    tcase_add_test(steps, a_ubatch_without_outputs_has_no_head);
    tcase_add_test(steps, a_step_that_does_not_sync_leaves_the_devices_running);
    tcase_add_loop_test(steps,
                        a_window_is_padded_to_256_cells_or_our_own_64_and_no_longer_than_the_cache,
                        0, COUNT(cell_cases));
    tcase_add_test(steps, a_sliding_cache_holds_the_window_and_a_ubatch);
    tcase_add_test(steps, every_kind_of_task_has_a_name_of_its_own);
    suite_add_tcase(suite, between);
    suite_add_tcase(suite, host);
    suite_add_tcase(suite, steps);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
