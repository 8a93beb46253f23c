/* The schedule of our own runtime: what waits for what, and what one launch is. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "sim/feasibility.h"
#include "sim/predict.h"
#include "tests/lowered.h"

#define LLAMA "llama-3.1-8b:Q8_0"
#define QWEN "qwen3.8-27b:Q8_0"
#define GEMMA "gemma-4-26b-a4b:Q8_0"
#define ONE_CARD "rtx4070-gen4x16"
#define OWN "-engine lopside "
#define HOST_CACHE OWN "-nkvo -kvcp "
#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

static const struct program_step decode = {.tokens = 1, .outputs = 1, .sync = true};
static const struct program_step prefill = {.tokens = 512, .outputs = 1, .rebuild = true};

/* The task of a kind on a device in a layer, behind task `from`. */
static size_t find_behind(const struct program *program, size_t from, enum task_kind kind,
                          int device, int layer)
{
    for (size_t i = from; i < program->task_count; i++)
        if (program->tasks[i].kind == kind && program->tasks[i].device == device &&
            program->tasks[i].layer == layer)
            return i;
    ck_abort_msg("no %s of layer %d on device %d behind task %zu", program_task_name(kind), layer,
                 device, from);
    return 0;
}

static size_t find(const struct program *program, enum task_kind kind, int device, int layer)
{
    return find_behind(program, 0, kind, device, layer);
}

/* Whether device `device` waits for task `on` somewhere before task `before`. */
static bool waits_before(const struct program *program, int device, size_t on, size_t before)
{
    for (size_t i = on; i < before; i++)
        if (program->tasks[i].kind == TASK_WAIT && program->tasks[i].device == device &&
            program->tasks[i].queues == UINT64_C(1) << program_queue_compute((uint32_t)device) &&
            lowered_depends_on(program, i, on))
            return true;
    return false;
}

/* ---- all on devices ---- */

static const struct {
    const char *machine, *flags;
    int syncs;
} device_plans[] = {
    {ONE_CARD, OWN "-sm none", 1},
    {PLAN_CASES_DESKTOP, OWN, 2},
    {PLAN_CASES_DESKTOP, OWN "-sm tensor", 2},
    {PLAN_CASES_DESKTOP, OWN "-sm tensor -as 1/0 -ctk q8_0", 2},
    {"4x RTX 3090@gen4x8", OWN, 4},
    {"4x RTX 3090@gen4x8", OWN "-sm tensor", 4},
};

START_TEST(nothing_blocks_between_the_embeddings_and_the_end_when_all_is_on_devices)
{
    for (int rebuild = 0; rebuild < 2; rebuild++) {
        struct program_step step = rebuild ? prefill : decode;
        struct lowered l;
        int blocking = 0;

        step.sync = true;
        l = lowered_open(LLAMA, device_plans[_i].machine, device_plans[_i].flags, step);
        for (size_t i = 0; i < l.program->task_count; i++) {
            const struct program_task *task = &l.program->tasks[i];

            ck_assert(task->blocking == (task->kind == TASK_EMBED || task->kind == TASK_SYNC));
            ck_assert(task->kind != TASK_EMBED || i == 0);
            ck_assert(task->kind != TASK_SYNC ||
                      i + (size_t)device_plans[_i].syncs >= l.program->task_count);
            blocking += task->blocking;
        }
        ck_assert_int_eq(blocking, 1 + device_plans[_i].syncs);
        lowered_close(&l);
    }
}
END_TEST

START_TEST(a_step_is_one_launch_over_inputs_sums_waits_and_copies)
{
    for (int rebuild = 0; rebuild < 2; rebuild++) {
        struct lowered l = lowered_open(LLAMA, device_plans[_i].machine, device_plans[_i].flags,
                                        rebuild ? prefill : decode);
        uint32_t launches = 0;

        for (size_t i = 0; i < l.program->task_count; i++) {
            const struct program_task *task = &l.program->tasks[i];

            if (program_task_class(task->kind) != TASK_CLASS_HOST && task->kind != TASK_SYNC)
                launches += task->launches;
        }
        ck_assert_uint_eq(launches, 1);
        lowered_close(&l);
    }
}
END_TEST

/* Tokens of 32 bytes; of each kind of window the cell of each position; where the model begins
 * the embeddings. */
static const struct {
    const char *model, *machine, *flags;
    int device;
    uint32_t copies;
    double bytes;
} inputs[] = {
    {LLAMA, ONE_CARD, OWN "-sm none", 0, 3, 512 * (4 * 4096 + 32) + 4 * 4096},
    {LLAMA, PLAN_CASES_DESKTOP, OWN, 1, 2, 512 * 32 + 4 * 4096},
    {LLAMA, PLAN_CASES_DESKTOP, OWN "-sm tensor", 1, 3, 512 * (4 * 4096 + 32) + 4 * 4096},
    {LLAMA, PLAN_CASES_DESKTOP, OWN "-sm tensor -as 1/0", 1, 2, 512 * (4 * 4096 + 32)},
    {GEMMA, ONE_CARD, OWN "-sm none", 0, 4, 512 * (4 * 2816 + 32) + 2 * 4 * 4096},
};

START_TEST(the_inputs_of_a_device_are_one_task_on_its_compute_queue)
{
    struct lowered l =
        lowered_open(inputs[_i].model, inputs[_i].machine, inputs[_i].flags, prefill);
    size_t index = find(l.program, TASK_INPUT, inputs[_i].device, -1);
    const struct program_task *task = &l.program->tasks[index];

    ck_assert(!task->blocking);
    ck_assert_uint_eq(task->queues, UINT64_C(1)
                                        << program_queue_compute((uint32_t)inputs[_i].device));
    ck_assert_uint_eq(task->op_count, inputs[_i].copies);
    ck_assert_double_eq(task->bytes, inputs[_i].bytes);
    for (size_t i = index + 1; i < l.program->task_count; i++)
        ck_assert(l.program->tasks[i].kind != TASK_INPUT ||
                  l.program->tasks[i].device != inputs[_i].device);
    lowered_close(&l);
}
END_TEST

/* ---- launches and kernels ---- */

/* Kernels of the tasks of a layer in order, on device 0. */
static const struct {
    const char *model, *flags;
    uint32_t tokens;
    int layer;
    uint32_t kernels[20];
} layer_kernels[] = {
    /* norm; q k v; rope; attention; o; norm; gate up; glu; down */
    {LLAMA, OWN, 1, 1, {1, 1, 0, 0, 1, 2, 1, 1, 1, 0, 1, 1}},
    {LLAMA, OWN "-ctk q8_0", 8, 1, {1, 1, 0, 0, 1, 2, 1, 1, 1, 0, 1, 1}},
    {LLAMA, OWN, 9, 1, {1, 1, 1, 1, 1, 2, 1, 1, 1, 1, 1, 1}},
    {LLAMA, OWN, 512, 1, {1, 1, 1, 1, 1, 2, 1, 1, 1, 1, 1, 1}},
    {LLAMA, "", 1, 1, {2, 2, 2, 2, 3, 2, 2, 2, 2, 0, 2}},
    /* another type is another launch: V is Q6_K in this block */
    {"llama-3.1-8b:Q4_K_M", OWN, 1, 0, {1, 1, 0, 1, 1, 2, 1, 1, 1, 0, 1, 1}},
    /* norm; qkv gate beta alpha; delta net; out; norm; gate up; glu; down */
    {QWEN, OWN, 1, 0, {1, 1, 0, 0, 0, 2, 1, 1, 1, 0, 1, 1}},
    {QWEN, OWN, 512, 0, {1, 1, 1, 1, 1, 2, 1, 1, 1, 1, 1, 1}},
};

START_TEST(products_of_one_input_and_type_are_one_launch_of_up_to_8_tokens)
{
    struct program_step step = {.tokens = layer_kernels[_i].tokens, .outputs = 1};
    struct lowered l =
        lowered_open(layer_kernels[_i].model, ONE_CARD, layer_kernels[_i].flags, step);
    const uint32_t *expected = layer_kernels[_i].kernels;

    for (size_t i = 0; i < l.program->task_count; i++) {
        const struct program_task *task = &l.program->tasks[i];

        if (task->layer != layer_kernels[_i].layer ||
            program_task_class(task->kind) != TASK_CLASS_KERNEL)
            continue;
        ck_assert_msg(task->kernels == *expected, "task %zu, %s: %u kernels, not %u", i,
                      program_task_name(task->kind), task->kernels, *expected);
        expected++;
    }
    ck_assert_uint_eq(*expected, 0);
    lowered_close(&l);
}
END_TEST

/* The router's product and the experts' stand between, so the activations of what follows are
 * not those that were quantised last. */
START_TEST(activations_are_quantised_where_they_are_made_unless_others_came_between)
{
    struct lowered l = lowered_open("qwen3.6-35b-a3b:Q8_0", ONE_CARD, OWN, decode);
    bool shared = false;

    for (size_t i = 0; i < l.program->task_count; i++) {
        const struct program_task *task = &l.program->tasks[i];
        const char *name;

        if (task->kind != TASK_MATMUL || task->layer != 3)
            continue;
        name = l.c.model->tensors[task->tensor].name;
        if (strcmp(name, "blk.3.ffn_gate_shexp.weight") == 0) {
            shared = true;
            ck_assert_uint_eq(task->kernels, 2);
            ck_assert_double_eq(task->input_bytes, (4 + 36 / 32.0) * 2048);
        } else {
            ck_assert_msg(task->input_bytes == 0 && task->kernels <= 1, "%s", name);
        }
    }
    ck_assert(shared);
    lowered_close(&l);
}
END_TEST

START_TEST(sums_over_devices_are_fixed_point_of_any_size)
{
    const uint32_t tokens[] = {1, 8, 512};

    for (int i = 0; i < COUNT(tokens); i++) {
        struct program_step step = {.tokens = tokens[i], .outputs = 1};
        struct lowered l = lowered_open(LLAMA, PLAN_CASES_DESKTOP, OWN "-sm tensor", step);
        const struct program_task *task = &l.program->tasks[find(l.program, TASK_ALL_REDUCE, 0, 0)];

        ck_assert_double_eq(task->bytes, 8.0 * 4096 * tokens[i]);
        ck_assert_uint_eq(task->kernels, 0);
        ck_assert_uint_eq(task->launches, 0);
        lowered_close(&l);
    }
}
END_TEST

/* ---- a cache on the host ---- */

static const struct {
    const char *flags;
    uint32_t places;
} caches[] = {
    {HOST_CACHE, 1},
    {HOST_CACHE "-kvd 2", 3},
    {HOST_CACHE "-sm tensor", 1},
    {HOST_CACHE "-sm tensor -kvd 1 -ctk q8_0", 2},
};

struct window {
    int layer;
    size_t first, last; /* copies of K and V */
};

static uint32_t windows_of(const struct program *program, int device, struct window *windows)
{
    uint32_t count = 0;

    for (size_t i = 0; i < program->task_count; i++) {
        const struct program_task *task = &program->tasks[i];

        if (task->kind != TASK_KV_WINDOW || task->device != device)
            continue;
        ck_assert(!task->blocking);
        ck_assert_uint_eq(task->queues, UINT64_C(1) << program_queue_copy_in((uint32_t)device));
        if (task->part == 'k')
            windows[count++] = (struct window){.layer = task->layer, .first = i};
        windows[count - 1].last = i;
    }
    return count;
}

START_TEST(a_window_waits_for_the_attention_that_reads_its_place)
{
    struct lowered l = lowered_open(LLAMA, PLAN_CASES_DESKTOP, caches[_i].flags, decode);

    for (int device = 0; device < 2; device++) {
        struct window windows[64];
        uint32_t count = windows_of(l.program, device, windows);

        ck_assert_uint_ge(count, 14);
        for (uint32_t w = 0; w < count; w++) {
            size_t attention = find(l.program, TASK_ATTENTION, device, windows[w].layer);

            ck_assert(waits_before(l.program, device, windows[w].last, attention));
            for (size_t copy = windows[w].first; copy <= windows[w].last; copy++) {
                const struct program_task *task = &l.program->tasks[copy];
                size_t before;

                ck_assert_uint_eq(l.program->ops[task->op_first].out.slot, w % caches[_i].places);
                ck_assert_uint_eq(task->dependency_count, w >= caches[_i].places);
                if (w < caches[_i].places)
                    continue;
                before =
                    find(l.program, TASK_ATTENTION, device, windows[w - caches[_i].places].layer);
                ck_assert(lowered_depends_on(l.program, copy, before));
                /* right behind it, so that the graph behind does not have to end first */
                ck_assert_uint_le(copy - before, 2);
            }
        }
    }
    lowered_close(&l);
}
END_TEST

START_TEST(new_rows_go_into_the_window_on_the_device_and_to_the_host_beside_attention)
{
    struct lowered l = lowered_open(LLAMA, PLAN_CASES_DESKTOP, caches[_i].flags, prefill);
    const struct program *program = l.program;

    for (int layer = 0; layer < 32; layer++)
        for (int device = 0; device < 2; device++) {
            const struct program_task *attention;
            size_t rope, rows;

            if (!placement_has_layer(l.c.placement, (uint32_t)layer, (uint32_t)device))
                continue;
            rope = find(program, TASK_ROPE, device, layer);
            attention = &program->tasks[find(program, TASK_ATTENTION, device, layer)];
            for (uint32_t i = 0; i < 3; i++)
                ck_assert_int_eq(program->ops[attention->op_first + i].kind,
                                 i < 2 ? OP_STORE : OP_ATTEND);
            rows = find(program, TASK_KV_ROWS, device, layer);
            ck_assert(!program->tasks[rows].blocking);
            ck_assert_uint_eq(program->tasks[rows].queues,
                              UINT64_C(1) << program_queue_copy_out((uint32_t)device));
            ck_assert(lowered_depends_on(program, rows, rope));
            ck_assert_double_eq(program->tasks[rows].bytes,
                                512 * 4.0 * 128 * l.c.placement->slices[layer].kv_heads[device]);
        }
    lowered_close(&l);
}
END_TEST

START_TEST(rows_of_few_tokens_leave_together_and_are_stored_at_the_end)
{
    struct lowered l = lowered_open(LLAMA, PLAN_CASES_DESKTOP, caches[_i].flags, decode);
    const struct program *program = l.program;
    size_t store = find(program, TASK_KV_STORE, PROGRAM_AT_HOST, -1);
    uint32_t devices = 0, stores = 0, sent = 0;

    for (int device = 0; device < 2; device++) {
        const struct program_task *task;
        uint32_t layers = 0;
        double bytes = 0;
        size_t rows;
        int last = -1;

        for (int layer = 0; layer < 32; layer++)
            if (placement_has_layer(l.c.placement, (uint32_t)layer, (uint32_t)device)) {
                bytes += 2 * 4.0 * 128 * l.c.placement->slices[layer].kv_heads[device];
                layers++;
                last = layer;
            }
        if (layers == 0)
            continue;
        rows = find(program, TASK_KV_ROWS, device, -1);
        task = &program->tasks[rows];
        ck_assert(!task->blocking);
        ck_assert_uint_eq(task->queues, UINT64_C(1) << program_queue_compute((uint32_t)device));
        ck_assert_uint_eq(task->dependency_count, 0);
        ck_assert_uint_eq(task->op_count, 2 * layers);
        ck_assert_double_eq(task->bytes, bytes);
        ck_assert_uint_gt(rows, find(program, TASK_ROPE, device, last));
        ck_assert_uint_lt(rows, find(program, TASK_ATTENTION, device, last));
        ck_assert(lowered_depends_on(program, store, rows));
        devices++;
        sent += layers;
    }
    ck_assert_uint_eq(program->tasks[store].dependency_count, devices);
    ck_assert(program->tasks[store].blocking);
    for (uint32_t i = 0; i < program->tasks[store].op_count; i++)
        stores += program->ops[program->tasks[store].op_first + i].kind == OP_STORE;
    ck_assert_uint_eq(stores, 2 * sent); /* what was not sent is not stored */
    for (size_t i = 1; i < store; i++)
        ck_assert(!program->tasks[i].blocking);
    lowered_close(&l);
}
END_TEST

/* Of each layer: the host stores the rows once the next layer's are made, and a device computes
 * its next K only when the ones before have left. */
START_TEST(rows_are_stored_a_layer_later_and_not_overwritten_before)
{
    struct lowered l = lowered_open(LLAMA, PLAN_CASES_DESKTOP, caches[_i].flags, prefill);
    const struct program *program = l.program;

    for (int layer = 0; layer < 32; layer++) {
        size_t store = find(program, TASK_KV_STORE, PROGRAM_AT_HOST, layer);
        uint32_t devices = 0;

        ck_assert(program->tasks[store].blocking);
        for (int device = 0; device < 2; device++) {
            size_t rows, k;

            if (!placement_has_layer(l.c.placement, (uint32_t)layer, (uint32_t)device))
                continue;
            devices++;
            rows = find(program, TASK_KV_ROWS, device, layer);
            rows = find_behind(program, rows + 1, TASK_KV_ROWS, device, layer); /* V */
            ck_assert(lowered_depends_on(program, store, rows));
            if (layer == 31 ||
                !placement_has_layer(l.c.placement, (uint32_t)layer + 1, (uint32_t)device))
                continue;
            ck_assert_uint_gt(store, find(program, TASK_ROPE, device, layer + 1));
            ck_assert_uint_lt(store, find(program, TASK_KV_ROWS, device, layer + 1));
            k = find(program, TASK_MATMUL, device, layer + 1);
            ck_assert(waits_before(program, device, rows, k));
        }
        ck_assert_uint_eq(program->tasks[store].dependency_count, devices);
    }
    lowered_close(&l);
}
END_TEST

START_TEST(only_what_the_host_attends_with_is_waited_for)
{
    struct lowered l = lowered_open(LLAMA, PLAN_CASES_DESKTOP, HOST_CACHE "-sm tensor -ah", decode);
    const enum task_kind kinds[] = {TASK_KV_ROWS,  TASK_KV_ROWS,        TASK_KV_ROWS,
                                    TASK_KV_ROWS,  TASK_ACTIVATIONS,    TASK_ACTIVATIONS,
                                    TASK_KV_STORE, TASK_HOST_ATTENTION, TASK_INPUT,
                                    TASK_WAIT,     TASK_INPUT,          TASK_WAIT};
    size_t at = find(l.program, TASK_ROPE, 1, 3) + 1;

    for (int i = 0; i < COUNT(kinds); i++) {
        const struct program_task *task = &l.program->tasks[at + (size_t)i];

        ck_assert_int_eq(task->kind, kinds[i]);
        ck_assert(task->blocking == (i >= 4 && i < 8));
    }
    ck_assert(lowered_depends_on(l.program, at + 4, find(l.program, TASK_ROPE, 0, 3)));
    ck_assert(lowered_depends_on(l.program, at + 5, find(l.program, TASK_ROPE, 1, 3)));
    ck_assert(lowered_depends_on(l.program, at + 9, at + 8));
    lowered_close(&l);
}
END_TEST

/* ---- states and experts on the host ---- */

START_TEST(states_come_before_the_window_behind_them_and_are_there_for_the_next_step)
{
    struct program_step step = prefill;
    struct lowered l = lowered_open(QWEN, ONE_CARD, OWN "-nkvo", step);
    const struct program_task *last = &l.program->tasks[l.program->task_count - 1];

    for (int layer = 0; layer < 64; layer++) {
        size_t in, out, delta;

        if (layer % 4 == 3)
            continue;
        in = find(l.program, TASK_STATE_IN, 0, layer);
        out = find(l.program, TASK_STATE_OUT, 0, layer);
        delta = find(l.program, TASK_DELTA_NET, 0, layer);
        ck_assert(!l.program->tasks[in].blocking && !l.program->tasks[out].blocking);
        ck_assert(waits_before(l.program, 0, in, delta));
        ck_assert(lowered_depends_on(l.program, out,
                                     find_behind(l.program, delta, TASK_MATMUL, 0, layer)));
        ck_assert_uint_lt(in, find(l.program, TASK_KV_WINDOW, 0, layer / 4 * 4 + 3));
    }
    ck_assert_int_eq(last->kind, TASK_SYNC);
    ck_assert_uint_eq(last->queues, UINT64_C(1) << program_queue_copy_out(0));
    lowered_close(&l);
}
END_TEST

START_TEST(experts_on_the_host_wait_until_their_last_sums_have_left)
{
    struct plan_case c = plan_cases_open(GEMMA, PLAN_CASES_DESKTOP, OWN, 4096);
    struct plan plan = plan_cases_plan(OWN "-sm tensor");
    struct error err = {0};
    struct placement *placement;
    struct program *program;
    size_t sent = 0, experts = 0;

    plan.n_cpu_moe = 30;
    placement = placement_new(c.model, c.machine, &plan, 4096, &err);
    ck_assert_msg(placement != NULL, "%s", err.text);
    program = lowered_program(placement, decode);
    for (size_t i = 0; i < program->task_count; i++) {
        const struct program_task *task = &program->tasks[i];

        if (task->kind == TASK_INPUT && task->layer >= 0) {
            ck_assert(!task->blocking);
            ck_assert_int_eq(task[1].kind, TASK_WAIT);
            ck_assert(lowered_depends_on(program, i + 1, i));
            sent = i;
        }
        if (task->kind != TASK_HOST_LAYER)
            continue;
        ck_assert_int_eq(task[-1].kind, TASK_ACTIVATIONS);
        ck_assert(task[-1].blocking);
        ck_assert(experts++ == 0 || lowered_depends_on(program, i, sent));
    }
    ck_assert_uint_eq(experts, 2 * 30);
    program_free(program);
    placement_free(placement);
    plan_cases_close(&c);
}
END_TEST

/* Both read the residual stream, and the first joins the last part to it. */
START_TEST(a_head_on_the_host_reads_what_the_hidden_rows_have_joined)
{
    struct program_step step = {.tokens = 64, .outputs = 1, .hidden = true, .sync = true};
    struct lowered l = lowered_open(LLAMA, ONE_CARD, OWN "-ngl 0", step);
    size_t head = find(l.program, TASK_HOST_LAYER, PROGRAM_AT_HOST, -1);
    const struct program_task *hidden = &l.program->tasks[head - 2], *copy = hidden + 1;

    for (const struct program_task *task = hidden; task <= copy; task++) {
        ck_assert_int_eq(task->kind, TASK_ACTIVATIONS);
        ck_assert_uint_eq(task->queues, UINT64_C(1) << program_queue_compute(0));
        ck_assert(task->blocking == (task == copy));
    }
    ck_assert_int_eq(l.program->ops[hidden->op_first].kind, OP_FINISH);
    ck_assert_int_eq(l.program->ops[copy->op_first].kind, OP_COPY);
    lowered_close(&l);
}
END_TEST

/* ---- speed ---- */

static double speed(const char *flags, bool prompt)
{
    struct plan_case c = plan_cases_open(QWEN, "2x RTX 3090@gen4x16", flags, 20000);
    struct error err = {0};
    struct timing *timing = timing_new(c.placement, &err);
    struct prediction prediction;
    int status;

    ck_assert_msg(timing != NULL, "%s", err.text);
    status = prompt ? predict_prompt(timing, c.placement, 16384, 2048, (struct predict_options){0},
                                     &prediction, &err)
                    : predict_generation(timing, c.placement, 16384, 4, (struct predict_options){0},
                                         &prediction, &err);
    ck_assert_msg(status == 0, "%s", err.text);
    timing_free(timing);
    plan_cases_close(&c);
    return prediction.tokens_per_s;
}

static const char *const speeds[] = {
    "-sm none",
    "",
    "-nkvo -kvcp",
    "-nkvo -kvcp -rso",
    "-nkvo -kvcp -rso -kvd 1",
    "-nkvo -kvcp -rso -kvgl 8",
    "-nkvo -kvcp -ah",
};

START_TEST(a_step_that_does_not_wait_is_never_slower)
{
    char flags[100];

    for (int prompt = 0; prompt < 2; prompt++) {
        if (prompt != 0 && speeds[_i][0] == '\0')
            continue; /* the engine's ubatches follow each other from device to device */
        snprintf(flags, sizeof flags, OWN "%s", speeds[_i]);
        ck_assert_double_ge(speed(flags, prompt != 0), speed(speeds[_i], prompt != 0));
    }
}
END_TEST

/* ---- what it accepts ---- */

static const char *const accepted[] = {
    "-sm tensor -fa 0", "-fa 0 -ctk q8_0",    "-ctk q8_0 -ctv f16", "-sm tensor -nkvo",
    "-nkvo -fa 0",      "-nkvo -fa 0 -kvd 1", "-nkvo -kvgl 4 -rso", "-sm tensor -as 3/1",
};

START_TEST(no_rule_of_another_engine_applies)
{
    char flags[100];
    struct plan_case c;

    snprintf(flags, sizeof flags, OWN "%s", accepted[_i]);
    c = plan_cases_open(LLAMA, PLAN_CASES_DESKTOP, flags, 4096);
    ck_assert_uint_eq(feasibility_check(c.model, c.machine, &c.placement->plan), 0);
    ck_assert(!c.placement->attn_on_host);
    plan_cases_close(&c);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("lower_own");
    TCase *order = tcase_create("on devices"), *kernels = tcase_create("launches");
    TCase *host = tcase_create("on the host"), *plans = tcase_create("plans");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_add_loop_test(order,
                        nothing_blocks_between_the_embeddings_and_the_end_when_all_is_on_devices, 0,
                        COUNT(device_plans));
    tcase_add_loop_test(order, a_step_is_one_launch_over_inputs_sums_waits_and_copies, 0,
                        COUNT(device_plans));
    tcase_add_loop_test(order, the_inputs_of_a_device_are_one_task_on_its_compute_queue, 0,
                        COUNT(inputs));
    tcase_add_loop_test(kernels, products_of_one_input_and_type_are_one_launch_of_up_to_8_tokens, 0,
                        COUNT(layer_kernels));
    tcase_add_test(kernels,
                   activations_are_quantised_where_they_are_made_unless_others_came_between);
    tcase_add_test(kernels, sums_over_devices_are_fixed_point_of_any_size);
    tcase_add_loop_test(host, a_window_waits_for_the_attention_that_reads_its_place, 0,
                        COUNT(caches));
    tcase_add_loop_test(host,
                        new_rows_go_into_the_window_on_the_device_and_to_the_host_beside_attention,
                        0, COUNT(caches));
    tcase_add_loop_test(host, rows_of_few_tokens_leave_together_and_are_stored_at_the_end, 0,
                        COUNT(caches));
    tcase_add_loop_test(host, rows_are_stored_a_layer_later_and_not_overwritten_before, 0,
                        COUNT(caches));
    tcase_add_test(host, only_what_the_host_attends_with_is_waited_for);
    tcase_add_test(host, states_come_before_the_window_behind_them_and_are_there_for_the_next_step);
    tcase_add_test(host, experts_on_the_host_wait_until_their_last_sums_have_left);
    tcase_add_test(host, a_head_on_the_host_reads_what_the_hidden_rows_have_joined);
    tcase_set_timeout(plans, 60);
    tcase_add_loop_test(plans, a_step_that_does_not_wait_is_never_slower, 0, COUNT(speeds));
    tcase_add_loop_test(plans, no_rule_of_another_engine_applies, 0, COUNT(accepted));
    suite_add_tcase(suite, order);
    suite_add_tcase(suite, kernels);
    suite_add_tcase(suite, host);
    suite_add_tcase(suite, plans);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
