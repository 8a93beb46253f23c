/* What holds for every program, over a grid of plans and steps. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lowered.h"

#define QWEN "qwen3.8-27b:UD-Q5_K_M"
#define GEMMA "gemma-4-26b-a4b:Q8_0"
#define ONE_CARD "rtx4070-gen4x16"
#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

static const struct {
    const char *model, *machine, *flags;
} plans[] = {
    {QWEN, ONE_CARD, "-sm none"},
    {QWEN, ONE_CARD, "-nkvo -ctk q8_0 -kvcp -rso"},
    {QWEN, PLAN_CASES_DESKTOP, ""},
    {QWEN, PLAN_CASES_DESKTOP, "-ts 60/40 -nkvo -kvcp -ctk q8_0 -kvgl 8"},
    {QWEN, PLAN_CASES_DESKTOP, "-nkvo -engine llama.cpp"},
    {QWEN, PLAN_CASES_DESKTOP, "-ts 0/1"},
    {QWEN, PLAN_CASES_DESKTOP, "-sm none -mg 1"},
    {QWEN, PLAN_CASES_DESKTOP, "-sm tensor"},
    {QWEN, PLAN_CASES_DESKTOP, "-sm tensor -ts 60/40 -engine llama.cpp"},
    {QWEN, PLAN_CASES_DESKTOP, "-sm tensor -ts 60/40 -as 75/25 -nkvo -ctk q8_0 -kvgl 4 -kvcp"},
    {QWEN, PLAN_CASES_DESKTOP, "-sm tensor -as 1/0 -nkvo"},
    {QWEN, PLAN_CASES_DESKTOP, "-sm tensor -ts 1/0"},
    {"qwen3.8-27b:Q8_0", "3x RTX 3090@gen4x8", "-sm tensor -ts 5/3/2"},
    {GEMMA, PLAN_CASES_DESKTOP, ""},
    {GEMMA, PLAN_CASES_DESKTOP, "-sm tensor -ts 62/38 -nkvo -ctk q8_0"},
    {GEMMA, PLAN_CASES_DESKTOP, "-sm tensor -engine llama.cpp"},
    {GEMMA, "4x RTX 3090@gen4x8", "-nkvo -kvgl 7"},
    {"muse-glimmer-30b:Q5_K_M", PLAN_CASES_DESKTOP, "-sm tensor -nkvo -ctk q8_0"},
    {"qwen3.6-35b-a3b:Q4_K_M", PLAN_CASES_DESKTOP, "-sm tensor -ts 57/43"},
    {"qwen3.6-35b-a3b:Q4_K_M", PLAN_CASES_DESKTOP, "-nkvo -rso -kvgl 3"},
    {"glm-4.5-air:Q4_K_M", "3x RTX 3090@gen4x8", "-sm tensor -ts 2/1/1"},
    {"gpt-oss-20b:MXFP4", PLAN_CASES_DESKTOP, "-sm tensor -ts 55/45"},
    {"deepseek-v3:Q4_K_M", PLAN_CASES_DESKTOP, "-nkvo"},
    {"qwen3-0.6b:Q8_0", PLAN_CASES_DESKTOP, "-sm tensor -engine llama.cpp"},
    {"llama-2-7b:Q4_K_M", "4x RTX 3090@gen4x8", "-sm tensor -ts 4/3/2/1 -nkvo"},
    {QWEN, PLAN_CASES_DESKTOP, "-engine lopside -nkvo -kvd 1"},
    {QWEN, PLAN_CASES_DESKTOP, "-engine lopside -sm tensor -ts 60/40 -as 75/25 -nkvo -ctk q8_0"},
    {GEMMA, "3x RTX 3090@gen4x8", "-engine lopside -sm tensor -nkvo -kvgl 4"},
    {"deepseek-v3:Q4_K_M", PLAN_CASES_DESKTOP, "-engine lopside -nkvo"},
    /* layers on the host */
    {QWEN, PLAN_CASES_DESKTOP, "-ngl 20"},
    {QWEN, PLAN_CASES_DESKTOP, "-ngl 20 -sm tensor -nkvo"},
    {"llama-3.1-8b:Q4_K_M", ONE_CARD, "-ngl 0"},
};

static const struct program_step steps[] = {
    {.tokens = 1, .outputs = 1, .sync = true},                    /* decode, replayed */
    {.tokens = 1, .outputs = 1, .rebuild = true, .sync = true},   /* decode, built anew */
    {.tokens = 4, .outputs = 4, .sync = true},                    /* verify a draft */
    {.tokens = 512, .outputs = 0, .rebuild = true},               /* prefill */
    {.tokens = 512, .outputs = 1, .rebuild = true, .sync = true}, /* its last ubatch */
};

/* What asks for weights on devices leaves out the plans with layers on the host. */
enum { PLANS_WITH_HOST_LAYERS = 3 };
#define GRID_COUNT (COUNT(plans) * COUNT(steps))
#define DEVICE_PLAN_COUNT (COUNT(plans) - PLANS_WITH_HOST_LAYERS)

struct grid_case {
    struct plan_case c;
    struct program *program;
    char text[240];
};

static struct grid_case open_case(int index)
{
    int plan = index / COUNT(steps), step = index % COUNT(steps);
    struct grid_case grid = {
        .c = plan_cases_open(plans[plan].model, plans[plan].machine, plans[plan].flags, 4096)};

    grid.program = lowered_program(grid.c.placement, steps[step]);
    snprintf(grid.text, sizeof grid.text, "%s on %s with '%s', step %d", plans[plan].model,
             plans[plan].machine, plans[plan].flags, step);
    return grid;
}

static void close_case(struct grid_case *grid)
{
    program_free(grid->program);
    plan_cases_close(&grid->c);
}

static bool on_compute(const struct program_task *task, uint32_t d)
{
    return (task->queues >> program_queue_compute(d) & 1) != 0;
}

/* Our own schedule has an order of its own: tests/test_lower_own.c. */
static bool is_own(const struct grid_case *grid)
{
    return grid->c.placement->plan.schedule == PLAN_SCHEDULE_LOPSIDE;
}

/* ---- order and queues ---- */

START_TEST(dependencies_point_backward)
{
    struct grid_case grid = open_case(_i);
    const struct program *program = grid.program;
    size_t used = 0;

    for (size_t i = 0; i < program->task_count; i++) {
        const struct program_task *task = &program->tasks[i];

        ck_assert_uint_le((size_t)task->dependency_first + task->dependency_count,
                          program->dependency_count);
        used += task->dependency_count;
        for (uint32_t d = 0; d < task->dependency_count; d++)
            ck_assert_msg(program->dependencies[task->dependency_first + d] < i,
                          "%s: task %zu waits for a later one", grid.text, i);
    }
    ck_assert_uint_eq(used, program->dependency_count);
    close_case(&grid);
}
END_TEST

static uint64_t expected_queues(const struct program_task *task, uint32_t device_count)
{
    uint32_t d = (uint32_t)task->device;
    uint64_t all = UINT64_C(1) << PROGRAM_QUEUE_COLLECTIVE;

    switch (program_task_class(task->kind)) {
    case TASK_CLASS_HOST:
        return UINT64_C(1) << (task->kind == TASK_HOST_LAYER ? PROGRAM_QUEUE_WORKERS
                                                             : PROGRAM_QUEUE_HOST);
    case TASK_CLASS_COLLECTIVE:
        for (d = 0; d < device_count; d++)
            all |= UINT64_C(1) << program_queue_compute(d);
        return all;
    case TASK_CLASS_COPY:
        if (task->kind == TASK_KV_ROWS || task->kind == TASK_STATE_OUT ||
            task->kind == TASK_ACTIVATIONS)
            return UINT64_C(1) << program_queue_copy_out(d);
        if (task->blocking)
            return UINT64_C(1) << program_queue_copy_in(d);
        /* asynchronous ones are put on the device's stream */
        return UINT64_C(1) << program_queue_compute(d);
    default:
        return UINT64_C(1) << program_queue_compute(d);
    }
}

START_TEST(every_task_holds_the_queues_of_its_kind_on_its_device)
{
    struct grid_case grid = open_case(_i);
    const struct placement *placement = grid.c.placement;

    for (size_t i = 0; i < grid.program->task_count && !is_own(&grid); i++) {
        const struct program_task *task = &grid.program->tasks[i];
        bool host = program_task_class(task->kind) == TASK_CLASS_HOST;

        ck_assert_msg(host ? task->device == PROGRAM_AT_HOST
                           : task->device >= 0 && (uint32_t)task->device < placement->device_count,
                      "%s: %s is on device %d", grid.text, program_task_name(task->kind),
                      task->device);
        ck_assert_msg(task->queues == expected_queues(task, placement->device_count),
                      "%s: %s holds queues %llx", grid.text, program_task_name(task->kind),
                      (unsigned long long)task->queues);
        ck_assert_int_lt(task->layer, (int)grid.c.model->n_layer);
        if (task->layer >= 0 && !host && task->kind != TASK_ALL_REDUCE &&
            placement->owner[task->layer] >= 0)
            ck_assert(
                placement_has_layer(placement, (uint32_t)task->layer, (uint32_t)task->device));
    }
    close_case(&grid);
}
END_TEST

/* The host copies from or to a device only while it is idle: since its last kernel it has
 * been waited for. Inputs of a pipelined layer split have slots of their own. */
START_TEST(a_device_is_idle_while_the_host_copies)
{
    struct grid_case grid = open_case(_i);
    uint32_t busy = UINT32_MAX;

    for (size_t i = 0; i < grid.program->task_count && !is_own(&grid); i++) {
        const struct program_task *task = &grid.program->tasks[i];
        bool copy = program_task_class(task->kind) == TASK_CLASS_COPY && task->blocking;

        if (copy && !(task->kind == TASK_INPUT && grid.c.placement->pipeline))
            ck_assert_msg((busy >> task->device & 1) == 0, "%s: task %zu, %s, meets a busy device",
                          grid.text, i, program_task_name(task->kind));
        if (task->kind == TASK_SYNC) {
            ck_assert(task->blocking);
            busy &= ~(1u << task->device);
            continue;
        }
        for (uint32_t d = 0; d < grid.c.placement->device_count && !copy; d++)
            if (on_compute(task, d))
                busy |= 1u << d;
    }
    close_case(&grid);
}
END_TEST

/* ---- launches ---- */

/* Whether a task ends what device `d` was launched to do as one graph. */
static bool ends_part(const struct program_task *task, uint32_t d)
{
    return on_compute(task, d) &&
           (task->kind == TASK_SYNC || task->kind == TASK_PEER || task->kind == TASK_ALL_REDUCE);
}

START_TEST(a_graph_part_is_launched_once_and_a_fresh_graph_kernel_by_kernel)
{
    struct grid_case grid = open_case(_i);
    bool rebuild = steps[_i % COUNT(steps)].rebuild;

    for (uint32_t d = 0; d < grid.c.placement->device_count && !is_own(&grid); d++) {
        bool open = false;

        for (size_t i = 0; i < grid.program->task_count; i++) {
            const struct program_task *task = &grid.program->tasks[i];

            if (ends_part(task, d))
                open = false;
            if (program_task_class(task->kind) != TASK_CLASS_KERNEL || task->device != (int)d)
                continue;
            ck_assert_msg(task->launches == (rebuild ? task->kernels : !open),
                          "%s: task %zu, %s: %u launches of %u kernels", grid.text, i,
                          program_task_name(task->kind), task->launches, task->kernels);
            open = true;
        }
    }
    close_case(&grid);
}
END_TEST

/* ---- slices ---- */

static bool reads_weight(const struct program_task *task, size_t tensor)
{
    return (task->kind == TASK_MATMUL || task->kind == TASK_EXPERTS) && task->tensor >= 0 &&
           (size_t)task->tensor == tensor;
}

static uint64_t axis_length(const struct program_task *task, const struct model_tensor *tensor)
{
    uint64_t length = task->slice.axis == 1 ? tensor->ne[1] : tensor->ne[0];

    return length / (task->slice.segments > 0 ? task->slice.segments : 1);
}

static uint64_t slice_count(const struct program_task *task, const struct model_tensor *tensor)
{
    return task->slice.count > 0 ? task->slice.count : axis_length(task, tensor);
}

/* How often the value at `at` of a segment is read by some device. */
static int readers(const struct program *program, size_t index, uint64_t at)
{
    const struct model_tensor *tensor = &program->placement->model->tensors[index];
    int count = 0;

    for (size_t i = 0; i < program->task_count; i++) {
        const struct program_task *task = &program->tasks[i];

        if (reads_weight(task, index))
            count += at >= task->slice.first && at - task->slice.first < slice_count(task, tensor);
    }
    return count;
}

static uint64_t stored_bytes(const struct placement *placement, const struct model_tensor *tensor)
{
    uint64_t sum = 0;

    for (uint32_t d = 0; d < placement->device_count; d++)
        sum += placement_tensor_bytes(placement, tensor, d);
    return sum;
}

/* Slices are ranges, so reading changes only where one begins or ends: it is enough to look
 * at the first and last values of each. */
static void check_cover(const struct grid_case *grid, size_t index)
{
    const struct model_tensor *tensor = &grid->c.model->tensors[index];
    uint64_t copies = stored_bytes(grid->c.placement, tensor) / tensor->bytes, length = 0, sum = 0;

    for (size_t i = 0; i < grid->program->task_count; i++) {
        const struct program_task *task = &grid->program->tasks[i];
        uint64_t last;

        if (!reads_weight(task, index))
            continue;
        length = axis_length(task, tensor);
        last = task->slice.first + slice_count(task, tensor) - 1;
        ck_assert_msg(last < length, "%s: %s: a slice ends at %llu of %llu", grid->text,
                      tensor->name, (unsigned long long)last, (unsigned long long)length);
        sum += last - task->slice.first + 1;
        ck_assert_int_eq(readers(grid->program, index, task->slice.first), (int)copies);
        ck_assert_int_eq(readers(grid->program, index, last), (int)copies);
    }
    ck_assert_msg(sum == copies * length, "%s: %s: slices have %llu of %llu x %llu", grid->text,
                  tensor->name, (unsigned long long)sum, (unsigned long long)copies,
                  (unsigned long long)length);
}

START_TEST(slices_of_a_weight_are_disjoint_and_cover_it)
{
    /* Slices depend on the plan alone. */
    struct grid_case grid = open_case(_i * COUNT(steps));
    char *read = calloc(grid.c.model->tensor_count, 1);

    for (size_t i = 0; i < grid.program->task_count; i++)
        if (grid.program->tasks[i].tensor >= 0)
            read[grid.program->tasks[i].tensor] = 1;
    for (size_t t = 0; t < grid.c.model->tensor_count; t++) {
        const struct model_tensor *tensor = &grid.c.model->tensors[t];
        bool product = tensor->ne[1] > 1 && tensor->layer < (int)grid.c.model->n_layer &&
                       tensor->role != TENSOR_ROLE_SSM_CONV1D && tensor->type != TENSOR_TYPE_F32 &&
                       (tensor->role != TENSOR_ROLE_TOKEN_EMBD || grid.c.model->tied_embeddings);

        ck_assert_msg(read[t] || !product, "%s: nothing reads %s", grid.text, tensor->name);
        if (read[t])
            check_cover(&grid, t);
    }
    free(read);
    close_case(&grid);
}
END_TEST

START_TEST(products_read_the_bytes_that_the_device_holds)
{
    struct grid_case grid = open_case(_i * COUNT(steps));

    for (size_t i = 0; i < grid.program->task_count; i++) {
        const struct program_task *task = &grid.program->tasks[i];
        const struct model_tensor *tensor;
        uint64_t bytes;

        if (task->kind != TASK_MATMUL && task->kind != TASK_EXPERTS)
            continue;
        tensor = &grid.c.model->tensors[task->tensor];
        bytes = task->rows * tensor_type_row_bytes(tensor->type, task->columns);
        if (task->kind == TASK_EXPERTS)
            bytes *= tensor->ne[2];
        ck_assert_msg(bytes ==
                          placement_tensor_bytes(grid.c.placement, tensor, (uint32_t)task->device),
                      "%s: device %d reads %llu bytes of %s and holds %llu", grid.text,
                      task->device, (unsigned long long)bytes, tensor->name,
                      (unsigned long long)placement_tensor_bytes(grid.c.placement, tensor,
                                                                 (uint32_t)task->device));
    }
    close_case(&grid);
}
END_TEST

/* ---- work ---- */

struct work {
    double product_flops, weight_bytes; /* of weights that are not mirrored */
    double attention_flops, attention_bytes, delta_flops, state_bytes;
};

static struct work work_of(const struct program *program)
{
    struct work work = {0};

    for (size_t i = 0; i < program->task_count; i++) {
        const struct program_task *task = &program->tasks[i];

        if (task->kind == TASK_MATMUL || task->kind == TASK_EXPERTS) {
            const struct model_tensor *tensor = &program->placement->model->tensors[task->tensor];
            double copies =
                (double)stored_bytes(program->placement, tensor) / (double)tensor->bytes;
            double row = (double)tensor_type_row_bytes(tensor->type, task->columns);

            work.product_flops += task->flops / copies;
            work.weight_bytes += task->experts * (double)task->rows * row / copies;
        } else if (task->kind == TASK_ATTENTION) {
            work.attention_flops += task->flops_per_cell;
            work.attention_bytes += task->bytes_per_cell;
        } else if (task->kind == TASK_DELTA_NET) {
            work.delta_flops += task->flops;
            work.state_bytes += task->state_bytes;
        }
    }
    return work;
}

#define CHECK_SAME(grid, one, other)                                                               \
    ck_assert_msg(fabs((one) - (other)) <= 1e-9 * (other), "%s: " #one " %.17g, not %.17g",        \
                  (grid).text, one, other)

START_TEST(devices_together_do_the_work_of_one)
{
    struct grid_case grid = open_case(_i);
    struct machine *machine = plan_cases_machine(ONE_CARD);
    struct plan plan = plan_cases_plan("-sm none");
    struct error err = {0};
    struct placement *placement;
    struct program *program;
    struct work whole, parts;

    plan.type_k = plan.type_v = grid.c.placement->plan.type_k;
    placement = placement_new(grid.c.model, machine, &plan, 4096, &err);
    ck_assert_ptr_nonnull(placement);
    program = lowered_program(placement, steps[_i % COUNT(steps)]);
    whole = work_of(program);
    parts = work_of(grid.program);
    CHECK_SAME(grid, parts.product_flops, whole.product_flops);
    CHECK_SAME(grid, parts.weight_bytes, whole.weight_bytes);
    CHECK_SAME(grid, parts.attention_flops, whole.attention_flops);
    CHECK_SAME(grid, parts.attention_bytes, whole.attention_bytes);
    CHECK_SAME(grid, parts.delta_flops, whole.delta_flops);
    CHECK_SAME(grid, parts.state_bytes, whole.state_bytes);
    program_free(program);
    placement_free(placement);
    machine_free(machine);
    close_case(&grid);
}
END_TEST

/* ---- a cache on the host ---- */

/* Device 0 computes host layers of a large batch. */
static uint32_t devices_with_heads(const struct placement *placement, uint32_t layer,
                                   uint32_t tokens)
{
    bool on_host = placement->owner[layer] < 0 && placement->plan.split != PLAN_SPLIT_TENSOR;
    uint32_t count = 0;

    for (uint32_t d = 0; d < placement->device_count; d++) {
        uint64_t k, v;

        placement_kv_row(placement, layer, d, &k, &v);
        count +=
            k > 0 &&
            (placement_has_layer(placement, layer, d) || (d == 0 && on_host && tokens >= 32)) &&
            (placement->kv_resident[layer] >> d & 1) == 0;
    }
    return count;
}

START_TEST(each_host_layer_delivers_its_heads_to_each_device_that_has_some)
{
    struct grid_case grid = open_case(_i);
    uint32_t windows = 0, rows = 0, splits = 0, stores = 0;
    uint32_t expected = 0, layers = 0;
    /* Those of few tokens are stored together. */
    bool kept = is_own(&grid) && !grid.c.placement->attn_on_host && grid.program->tokens <= 8;

    for (size_t i = 0; i < grid.program->task_count; i++) {
        const struct program_task *task = &grid.program->tasks[i];
        bool recurrent =
            task->layer >= 0 && !model_layer_has_kv(&grid.c.model->layers[task->layer]);

        windows += task->kind == TASK_KV_WINDOW;
        rows += task->kind == TASK_KV_ROWS ? task->op_count : 0;
        stores += task->kind == TASK_KV_STORE;
        splits += task->kind == TASK_SPLIT && !recurrent ? task->launches : 0;
    }
    for (uint32_t layer = 0; layer < grid.c.model->n_layer; layer++) {
        uint32_t devices = devices_with_heads(grid.c.placement, layer, grid.program->tokens);

        expected += (grid.c.model->layers[layer].v_in_k ? 1 : 2) * devices;
        layers += devices > 0;
    }
    ck_assert_uint_eq(windows, expected);
    ck_assert_uint_eq(rows, expected);
    ck_assert_uint_eq(stores, kept && layers > 0 ? 1 : layers);
    ck_assert_uint_eq(splits, is_own(&grid) ? 0 : 2 * layers);
    close_case(&grid);
}
END_TEST

/* ---- printing ---- */

START_TEST(a_program_prints_a_header_and_a_line_a_task)
{
    struct grid_case grid = open_case(_i);
    struct program_cells cells = program_cells_at(grid.c.placement, 1000);
    char *text = NULL;
    size_t size = 0, lines = 0;
    FILE *out = open_memstream(&text, &size);

    ck_assert_ptr_nonnull(out);
    program_print(grid.program, cells, out);
    fclose(out);
    for (size_t i = 0; i < size; i++)
        lines += text[i] == '\n';
    ck_assert_int_eq(text[0], '#');
    ck_assert_uint_eq(lines, grid.program->task_count + 1);
    free(text);
    close_case(&grid);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("lower_grid");
    TCase *grid = tcase_create("grid");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_set_timeout(grid, 120);
    tcase_add_loop_test(grid, dependencies_point_backward, 0, GRID_COUNT);
    tcase_add_loop_test(grid, every_task_holds_the_queues_of_its_kind_on_its_device, 0, GRID_COUNT);
    tcase_add_loop_test(grid, a_device_is_idle_while_the_host_copies, 0, GRID_COUNT);
    tcase_add_loop_test(grid, a_graph_part_is_launched_once_and_a_fresh_graph_kernel_by_kernel, 0,
                        GRID_COUNT);
    tcase_add_loop_test(grid, slices_of_a_weight_are_disjoint_and_cover_it, 0, DEVICE_PLAN_COUNT);
    tcase_add_loop_test(grid, products_read_the_bytes_that_the_device_holds, 0, DEVICE_PLAN_COUNT);
    tcase_add_loop_test(grid, devices_together_do_the_work_of_one, 0,
                        DEVICE_PLAN_COUNT * COUNT(steps));
    tcase_add_loop_test(grid, each_host_layer_delivers_its_heads_to_each_device_that_has_some, 0,
                        GRID_COUNT);
    tcase_add_loop_test(grid, a_program_prints_a_header_and_a_line_a_task, 0, GRID_COUNT);
    suite_add_tcase(suite, grid);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
