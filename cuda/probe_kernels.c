/* Samples are tasks of traced steps. A kind's samples of one number of tokens give a fixed time and
 * a rate over the bytes that they move: the line of least squares, of squares relative to the time.
 */
#include "cuda/probe_kernels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/probe.h"
#include "ref/host_probe.h"
#include "ref/session.h"
#include "ref/source.h"
#include "sim/timeline.h"

enum {
    REPEATS = 6, /* of a step; the first make buffers, kernels and graphs */
    WARM = 3,    /* of them */
    TOKENS_MAX = 512,
    CONTEXT = 4096,
    LONG_CONTEXT = 34816,
};

/* A task, or several that are one launch. */
struct sample {
    enum task_kind kind;
    enum tensor_type type; /* of weights, or of a cache */
    uint32_t tokens;       /* of an expert: rows that it has on average */
    uint32_t kernels;
    uint32_t kv_heads;
    uint64_t cells;
    double bytes, time_s;
    double gap_s; /* of a product: what other kernels took since the product before */
};

struct probing {
    const struct machine *machine;
    struct cuda_options options;
    struct sample *samples;
    size_t count, capacity;
    bool collects, failed; /* failed: no memory for a sample */
    double span_s;         /* of the last step, from its first kernel on */
    /* The last step's kernels by the table, unless NULL: each alone, and as they follow. */
    const struct kernel_table *table;
    double alone_s, together_s;
    uint32_t kernel_count;
    struct source source;
    struct placement *placement;
    struct session *session;
};

/* ---- samples ---- */

static void add_sample(struct probing *p, struct sample sample)
{
    if (p->count == p->capacity) {
        size_t capacity = p->capacity > 0 ? 2 * p->capacity : 1024;
        struct sample *grown = realloc(p->samples, capacity * sizeof *grown);

        p->failed = p->failed || grown == NULL;
        if (grown == NULL)
            return;
        p->samples = grown;
        p->capacity = capacity;
    }
    p->samples[p->count++] = sample;
}

/* Products behind the first that share its launch are part of its sample. */
static size_t add_product(struct probing *p, const struct program *program,
                          const struct timeline_step *step, size_t first, double *last_end_s)
{
    const struct program_task *task = &program->tasks[first];
    struct sample sample = {.kind = task->kind,
                            .type = task->type,
                            .tokens =
                                (uint32_t)fmax(1, floor(program_task_product_tokens(task) + 0.5)),
                            .kernels = task->kernels,
                            .bytes = program_task_weight_bytes(task),
                            .gap_s = step->tasks[first].start_s - *last_end_s};
    size_t end = first + 1;

    while (end < step->task_count && program->tasks[end].kind == task->kind &&
           program->tasks[end].kernels == 0 && program->tasks[end].type == task->type)
        sample.bytes += program_task_weight_bytes(&program->tasks[end++]);
    sample.time_s = step->tasks[end - 1].end_s - step->tasks[first].start_s;
    if (sample.time_s > 0)
        add_sample(p, sample);
    if (task->kind == TASK_MATMUL && tensor_type_info(task->type)->quantised)
        *last_end_s = step->tasks[end - 1].end_s;
    return end;
}

static void add_up(struct probing *p, const struct program *program,
                   const struct timeline_step *step)
{
    struct kernel_gap gap = {.s = 0};

    p->alone_s = p->together_s = p->kernel_count = 0;
    for (size_t i = 0; i < program->task_count; i++) {
        struct program_task task = program->tasks[i];
        double cells = program_task_cells(&task, step->cells);

        if (program_task_class(task.kind) != TASK_CLASS_KERNEL || task.op_count == 0)
            continue;
        p->together_s += kernel_table_s(p->table, &task, cells, &gap);
        task.kernels = task.kernels > 0 ? task.kernels : 1;
        p->alone_s += kernel_table_s(p->table, &task, cells, NULL);
        p->kernel_count++;
    }
}

static void watch(void *context, const struct program *program, const struct timeline_step *step)
{
    struct probing *p = context;
    size_t first = 0;
    double last_end_s;

    while (first + 1 < step->task_count &&
           program_task_class(program->tasks[first].kind) != TASK_CLASS_KERNEL)
        first++;
    last_end_s = step->tasks[first].start_s;
    p->span_s = step->tasks[step->task_count - 1].end_s - last_end_s;
    if (p->table != NULL)
        add_up(p, program, step);
    for (size_t i = 0; i < step->task_count && p->collects;) {
        const struct program_task *task = &program->tasks[i];
        struct sample sample = {.kind = task->kind,
                                .tokens = task->tokens > 0 ? task->tokens : program->tokens,
                                .kernels = task->kernels,
                                .bytes = task->bytes,
                                .time_s = step->tasks[i].end_s - step->tasks[i].start_s};

        if (task->kind == TASK_MATMUL || task->kind == TASK_EXPERTS) {
            i = add_product(p, program, step, i, &last_end_s);
            continue;
        }
        if (task->kind == TASK_ATTENTION) {
            sample.type = task->cache_type;
            sample.kv_heads = task->kv_heads;
            sample.cells = (uint64_t)program_task_cells(task, step->cells);
        }
        if (program_task_class(task->kind) != TASK_CLASS_COPY && sample.time_s > 0)
            add_sample(p, sample);
        i++;
    }
}

/* ---- sessions ---- */

static void close_model(struct probing *p)
{
    session_free(p->session);
    placement_free(p->placement);
    source_close(&p->source);
    p->session = NULL;
    p->placement = NULL;
}

/* The first `layers` blocks of a model. */
static int open_model(struct probing *p, const char *spec, uint32_t layers, struct plan plan,
                      uint32_t context, struct error *err)
{
    plan.schedule = PLAN_SCHEDULE_LOPSIDE;
    plan.n_ubatch = TOKENS_MAX;
    if (source_open_layers(&p->source, spec, layers, 1, err) != 0)
        return -1;
    p->placement = placement_new(p->source.model, p->machine, &plan, context, err);
    if (p->placement == NULL)
        return -1;
    p->session = session_new(
        p->placement, p->source.weights, &p->source.numbers, NULL,
        (struct session_options){.open = cuda_executor_open, .open_context = &p->options}, err);
    return p->session != NULL ? 0 : -1;
}

/* `count` tokens behind those that are there. */
static int decode(struct probing *p, uint32_t count, struct error *err)
{
    struct session_token tokens[TOKENS_MAX];

    for (uint32_t i = 0; i < count; i++)
        tokens[i] =
            (struct session_token){(i * 7919 + 11) % p->source.model->n_vocab, 0, i + 1 == count};
    return session_decode(p->session, tokens, count, err);
}

/* A step of `tokens` at `depth`, over and over; the last ones give samples. */
static int sample_step(struct probing *p, uint32_t depth, uint32_t tokens, struct error *err)
{
    struct error gone = {0};

    for (int i = 0; i < REPEATS; i++) {
        if (session_truncate(p->session, 0, depth, &gone) != 0 &&
            session_truncate(p->session, 0, 0, err) != 0)
            return -1;
        p->collects = i >= WARM;
        if (decode(p, tokens, err) != 0)
            return -1;
        p->collects = false;
    }
    return p->failed ? error_set(err, ERROR_MEMORY, "no memory for samples") : 0;
}

static struct plan plan_of_one(void)
{
    struct plan plan = plan_default();

    plan.split = PLAN_SPLIT_NONE;
    return plan;
}

static const uint32_t token_counts[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512};

enum { TOKEN_COUNTS = sizeof token_counts / sizeof *token_counts };

static int sample_model(struct probing *p, const char *model, const char *type, uint32_t layers,
                        struct error *err)
{
    char spec[96];
    int status;

    snprintf(spec, sizeof spec, "%s:%s", model, type);
    status = open_model(p, spec, layers, plan_of_one(), CONTEXT, err);
    for (size_t i = 0; i < TOKEN_COUNTS && status == 0; i++)
        status = sample_step(p, 0, token_counts[i], err);
    close_model(p);
    return status;
}

/* Attention at growing depths, of a model with 32 query heads of 128. */
static int sample_attention(struct probing *p, const char *model, enum tensor_type cache,
                            struct error *err)
{
    static const uint32_t counts[] = {1, 8, 64, 512};
    struct plan plan = plan_of_one();
    uint32_t depth = 0;
    int status;

    plan.type_k = plan.type_v = cache;
    status = open_model(p, model, 2, plan, LONG_CONTEXT, err);
    for (uint32_t next = 0; next <= 32768 && status == 0; next = next > 0 ? 2 * next : 256) {
        while (depth < next && status == 0) {
            uint32_t now = next - depth < TOKENS_MAX ? next - depth : TOKENS_MAX;

            status = decode(p, now, err);
            depth += now;
        }
        for (size_t i = 0; i < sizeof counts / sizeof *counts && status == 0; i++)
            status = sample_step(p, depth, counts[i], err);
        if (status == 0)
            status = session_truncate(p->session, 0, depth, err);
    }
    close_model(p);
    return status;
}

/* ---- rows ---- */

static int by_group(const void *left, const void *right)
{
    const struct sample *a = left, *b = right;

    if (a->kind != b->kind)
        return a->kind < b->kind ? -1 : 1;
    if (a->type != b->type)
        return a->type < b->type ? -1 : 1;
    if (a->kv_heads != b->kv_heads)
        return a->kv_heads < b->kv_heads ? -1 : 1;
    if (a->tokens != b->tokens)
        return a->tokens < b->tokens ? -1 : 1;
    if (a->cells != b->cells)
        return a->cells < b->cells ? -1 : 1;
    return a->time_s < b->time_s ? -1 : a->time_s > b->time_s;
}

static bool is_one_group(const struct sample *a, const struct sample *b)
{
    return a->kind == b->kind && a->type == b->type && a->kv_heads == b->kv_heads &&
           a->tokens == b->tokens && a->cells == b->cells;
}

struct line {
    double fixed_s, gbs;
};

/* What a launch takes at least where all samples are of one size. */
static const double least_launch_s = 2.5e-6;

enum { GBS_MOST = 100000 };

/* Bytes of a sample that had not come before it began. */
static double bytes_left(const struct sample *sample, double gbs, double ahead_bytes)
{
    return fmax(0, sample->bytes - fmin(ahead_bytes, sample->gap_s * gbs * 1e9));
}

/* Least squares; without a fixed time where that would be below 0. */
static struct line line_through(const struct sample *samples, size_t count, double gbs,
                                double ahead_bytes)
{
    double all = 0, x = 0, y = 0, xx = 0, xy = 0, slope, fixed_s;

    for (size_t i = 0; i < count; i++) {
        double weight = 1 / samples[i].time_s;

        all += weight;
        x += weight * bytes_left(&samples[i], gbs, ahead_bytes);
        y += weight * samples[i].time_s;
    }
    x /= all;
    y /= all;
    for (size_t i = 0; i < count; i++) {
        double weight = 1 / samples[i].time_s;
        double off = bytes_left(&samples[i], gbs, ahead_bytes) - x;

        xx += weight * off * off;
        xy += weight * off * (samples[i].time_s - y);
    }
    if (x <= 0)
        return (struct line){y, GBS_MOST};
    if (xx > 1e-9 * x * x * all) {
        slope = xy / xx;
        fixed_s = y - slope * x;
    } else { /* all have one size */
        fixed_s = fmin(y, least_launch_s * samples[0].kernels);
        slope = (y - fixed_s) / x;
    }
    if (fixed_s < 0) {
        fixed_s = 0;
        slope = y / x;
    }
    return slope * GBS_MOST * 1e9 <= 1 ? (struct line){y, GBS_MOST}
                                       : (struct line){fixed_s, 1e-9 / slope};
}

/* What comes ahead does so at the rate that is looked for. */
static struct line line_of(const struct sample *samples, size_t count, double gbs,
                           double ahead_bytes)
{
    enum { ROUNDS = 8 };
    struct line line = {0, gbs};

    for (int i = 0; i < (ahead_bytes > 0 ? ROUNDS : 1); i++)
        line = line_through(samples, count, line.gbs, ahead_bytes);
    return line;
}

static int add_rows(struct probing *p, const struct sample *group, size_t count,
                    struct kernel_table *table, struct error *err)
{
    bool is_packed = group->kind == TASK_MATMUL;
    double ahead_bytes =
        is_packed ? (double)probe_ahead_bytes(p->options.gpus[0], group->type, group->tokens) : 0;
    struct line line =
        line_of(group, count, p->machine->devices[p->options.gpus[0]].memory_gbs, ahead_bytes);
    uint32_t tokens = group->tokens;

    switch (group->kind) {
    case TASK_MATMUL:
    case TASK_EXPERTS:
        return kernel_table_add_product(table,
                                        (struct kernel_product){group->kind, group->type, tokens,
                                                                line.fixed_s, line.gbs,
                                                                ahead_bytes},
                                        err);
    case TASK_ATTENTION:
        return kernel_table_add_attention(table,
                                          (struct kernel_attention){group->type, group->kv_heads,
                                                                    tokens, group->cells,
                                                                    group[count / 2].time_s},
                                          err);
    case TASK_ALL_REDUCE:
        return kernel_table_add_sum(table,
                                    (struct kernel_sum){p->placement->device_count,
                                                        (uint64_t)group->bytes,
                                                        group[count / 2].time_s},
                                    err);
    default:
        if (program_task_class(group->kind) != TASK_CLASS_KERNEL)
            return 0;
        return kernel_table_add_other(
            table, (struct kernel_other){group->kind, tokens, line.fixed_s, line.gbs}, err);
    }
}

/* Rows of all samples, which are gone then. */
static int make_rows(struct probing *p, bool (*takes)(const struct sample *),
                     struct kernel_table *table, struct error *err)
{
    size_t end;

    qsort(p->samples, p->count, sizeof *p->samples, by_group);
    for (size_t first = 0; first < p->count; first = end) {
        for (end = first + 1; end < p->count && is_one_group(&p->samples[first], &p->samples[end]);)
            end++;
        if (takes(&p->samples[first]) &&
            add_rows(p, p->samples + first, end - first, table, err) != 0)
            return -1;
    }
    p->count = 0;
    return 0;
}

static bool is_dense(const struct sample *sample)
{
    return sample->kind == TASK_MATMUL || sample->kind == TASK_NORM || sample->kind == TASK_ROPE ||
           sample->kind == TASK_GLU;
}

static bool is_attention(const struct sample *sample)
{
    return sample->kind == TASK_ATTENTION;
}

/* What dense models have not: routers' weights are floats. */
static bool is_of_hybrids(const struct sample *sample)
{
    if (sample->kind == TASK_MATMUL)
        return !tensor_type_info(sample->type)->quantised;
    return !is_dense(sample) && sample->kind != TASK_ATTENTION && sample->kind != TASK_ALL_REDUCE;
}

static bool is_sum(const struct sample *sample)
{
    return sample->kind == TASK_ALL_REDUCE;
}

/* ---- the host ---- */

static int by_value(const void *left, const void *right)
{
    const double *a = left, *b = right;

    return *a < *b ? -1 : *a > *b;
}

/* Median time of a step of one token of a dense model; of traced ones what comes from the first
 * kernel on. */
static int time_steps(struct probing *p, bool traced, double *time_s, struct error *err)
{
    enum { COUNT = 31, FIRST = 8 };
    double times_s[COUNT];
    int status;

    p->options.watch = traced ? watch : NULL;
    status = open_model(p, "qwen3-8b:Q8_0", 4, plan_of_one(), CONTEXT, err);
    for (int i = 0; i < FIRST + COUNT && status == 0; i++) {
        double start_s = host_probe_now_s();

        status = decode(p, 1, err);
        if (i >= FIRST)
            times_s[i - FIRST] = traced ? p->span_s : host_probe_now_s() - start_s;
    }
    close_model(p);
    p->options.watch = watch;
    if (status != 0)
        return -1;
    qsort(times_s, COUNT, sizeof *times_s, by_value);
    *time_s = times_s[COUNT / 2];
    return 0;
}

static int probe_step(struct probing *p, struct kernel_table *table, struct error *err)
{
    double whole_s, kernels_s;

    if (time_steps(p, false, &whole_s, err) != 0 || time_steps(p, true, &kernels_s, err) != 0)
        return -1;
    table->step_s = fmax(0, whole_s - kernels_s);
    return 0;
}

/* What pacing adds to a kernel, from steps that are slowed to different speeds: what is slowed with
 * it goes with the factor, the rest does not. */
static int probe_pace(struct probing *p, struct kernel_table *table, struct error *err)
{
    static const double factors[] = {0, 1.001, 2}; /* 0: not paced */
    double times_s[3], ignored_s, slope_s;

    for (int i = 0; i < 3; i++) {
        p->options.slowdowns[0] = factors[i];
        if (time_steps(p, false, &times_s[i], err) != 0)
            return -1;
    }
    p->options.slowdowns[0] = 0;
    p->table = table;
    if (time_steps(p, true, &ignored_s, err) != 0)
        return -1;
    p->table = NULL;
    slope_s = (times_s[2] - times_s[1]) / (factors[2] - factors[1]);
    table->pace_inside_s = fmax(0, (slope_s - p->alone_s) / p->kernel_count);
    table->pace_behind_s = fmax(
        0, (times_s[1] - factors[1] * slope_s - (times_s[0] - p->together_s)) / p->kernel_count);
    return 0;
}

/* ---- all ---- */

static int probe_products(struct probing *p, struct kernel_table *table, struct error *err)
{
    static const char *const types[] = {"Q8_0", "Q4_0", "Q4_K_M", "Q5_K_M", "Q6_K"};

    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (sample_model(p, "qwen3-0.6b", types[i], 8, err) != 0 ||
            sample_model(p, "qwen3-8b", types[i], 4, err) != 0 ||
            sample_model(p, "llama-3.3-70b", types[i], 2, err) != 0)
            return -1;
    return make_rows(p, is_dense, table, err);
}

static int probe_attention(struct probing *p, struct kernel_table *table, struct error *err)
{
    static const enum tensor_type caches[] = {TENSOR_TYPE_F16, TENSOR_TYPE_Q8_0, TENSOR_TYPE_Q4_0};

    for (size_t i = 0; i < sizeof caches / sizeof *caches; i++)
        if (sample_attention(p, "qwen3-8b:Q8_0", caches[i], err) != 0 || /* 8 KV heads */
            sample_attention(p, "llama-2-7b:Q8_0", caches[i], err) != 0) /* 32 */
            return -1;
    return make_rows(p, is_attention, table, err);
}

static int probe_hybrids(struct probing *p, struct kernel_table *table, struct error *err)
{
    static const char *const models[] = {"ornith-1.5-35b-a3b", "qwen3.8-27b", "qwen3-30b-a3b"};

    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        if (sample_model(p, models[i], "Q8_0", 4, err) != 0)
            return -1;
    return make_rows(p, is_of_hybrids, table, err);
}

/* Sums over all GPUs, of a tensor split. */
static int probe_sums(struct probing *p, struct kernel_table *table, struct error *err)
{
    struct plan plan = plan_default();
    int status;

    plan.split = PLAN_SPLIT_TENSOR;
    p->options.gpu_count = 0;
    status = open_model(p, "qwen3-8b:Q8_0", 4, plan, CONTEXT, err);
    for (size_t i = 0; i < TOKEN_COUNTS && status == 0; i++)
        status = sample_step(p, 0, token_counts[i], err);
    if (status == 0)
        status = make_rows(p, is_sum, table, err);
    close_model(p);
    return status;
}

int probe_kernels(const struct machine *machine, uint32_t device, enum cuda_reduction reduction,
                  struct kernel_table *table, struct error *err)
{
    struct probing p = {.machine = machine,
                        .options = {.gpus = {(int)device},
                                    .gpu_count = 1,
                                    .reduction = reduction,
                                    .watch = watch,
                                    .watch_context = &p}};
    int status;

    snprintf(table->gpu, sizeof table->gpu, "%s", machine->devices[device].gpu);
    status = probe_step(&p, table, err);
    if (status == 0)
        status = probe_products(&p, table, err);
    if (status == 0)
        status = probe_attention(&p, table, err);
    if (status == 0)
        status = probe_pace(&p, table, err);
    if (status == 0)
        status = probe_hybrids(&p, table, err);
    if (status == 0 && machine->device_count > 1)
        status = probe_sums(&p, table, err);
    free(p.samples);
    return status;
}
