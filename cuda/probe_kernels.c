/* Samples are tasks of traced steps; sim/kernel_samples.h makes rows of them. */
#include "cuda/probe_kernels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/probe.h"
#include "ref/host_probe.h"
#include "ref/session.h"
#include "ref/source.h"
#include "sim/kernel_samples.h"
#include "sim/kernel_times.h"
#include "sim/memory.h"
#include "sim/timeline.h"
#include "sim/values.h"

enum {
    REPEATS = 6, /* of a step; the first make buffers, kernels and graphs */
    WARM = 3,    /* of them */
    LONG_REPEATS = 3,
    ENDS_REPEATS = 10, /* the host's times scatter */
    TOKENS_MAX = 2048,
    SHORT_CONTEXT = 256,
    CONTEXT = 4096,
    LONG_CONTEXT = 34816,
};

/* Which tasks give samples. */
enum wanted {
    WANTED_ALL, /* but ends */
    WANTED_PRODUCTS,
    WANTED_ENDS, /* how steps begin and end: embeddings, inputs, logits, and waiting for them */
};

struct probing {
    const struct machine *machine;
    struct cuda_options options;
    struct kernel_samples samples, *kept; /* kept: all that rows were made of, unless NULL */
    bool collects;
    enum wanted wanted;
    double span_s;     /* of the last step: embeddings, and from its first kernel on */
    double ready_s[2]; /* of the last step: waiting for its first device, for each further one */
    uint32_t steps;    /* no two have the same tokens, which lie near once they are read */
    const struct kernel_table *waits; /* unless NULL: what attention is longer than by this table */
    /* The last step's kernels by the table, unless NULL: each alone, and as they follow. */
    const struct kernel_table *table;
    double alone_s, together_s;
    uint32_t kernel_count;
    struct source source;
    struct placement *placement;
    struct session *session;
};

/* ---- samples ---- */

static void pass(struct kernel_fit_sample *before, enum task_kind kind, double time_s)
{
    if (kind == TASK_ATTENTION || kind == TASK_ROPE)
        before->attention_s += time_s;
    else if (kind == TASK_DELTA_NET)
        before->delta_net_s += time_s;
    else
        before->small_s += time_s;
}

/* Products behind the first that share its launch are part of its sample. `before`: what has run
 * since the last one that loads ahead. */
static size_t add_product(struct probing *p, const struct program *program,
                          const struct timeline_step *step, size_t first,
                          struct kernel_fit_sample *before)
{
    const struct program_task *task = &program->tasks[first];
    struct kernel_sample sample = {
        .kind = task->kind,
        .type = task->type,
        .group = task->group,
        .tokens = (uint32_t)fmax(1, floor(program_task_product_tokens(task) + 0.5)),
        .kernels = task->kernels,
        .bytes = program_task_weight_bytes(task),
        .before = *before};
    size_t end = first + 1;

    if (task->kind == TASK_MATMUL)
        sample.ahead_bytes =
            (double)probe_ahead_bytes(p->options.gpus[0], sample.type, sample.tokens);
    while (end < step->task_count && program->tasks[end].kind == task->kind &&
           program->tasks[end].kernels == 0 && program->tasks[end].type == task->type &&
           program->tasks[end].group == task->group)
        sample.bytes += program_task_weight_bytes(&program->tasks[end++]);
    sample.time_s = step->tasks[end - 1].end_s - step->tasks[first].start_s;
    if (sample.time_s > 0)
        kernel_samples_add(&p->samples, sample);
    if (task->kind == TASK_MATMUL && tensor_type_info(task->type)->quantised)
        *before = (struct kernel_fit_sample){.bytes = 0};
    else
        pass(before, task->kind, sample.time_s);
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

/* Of the host before the first kernel what is its own work, and all from there on. */
static double span_of(const struct program *program, const struct timeline_step *step)
{
    double host_s = 0;
    size_t first = 0;

    while (first + 1 < step->task_count &&
           program_task_class(program->tasks[first].kind) != TASK_CLASS_KERNEL) {
        if (program->tasks[first].kind == TASK_EMBED)
            host_s += step->tasks[first].end_s - step->tasks[first].start_s;
        first++;
    }
    return host_s + step->tasks[step->task_count - 1].end_s - step->tasks[first].start_s;
}

/* Of the first of the waits that end a step, and the mean of the others. */
static void find_ready(struct probing *p, const struct program *program,
                       const struct timeline_step *step)
{
    size_t first = step->task_count;

    while (first > 0 && program->tasks[first - 1].kind == TASK_SYNC)
        first--;
    p->ready_s[0] = p->ready_s[1] = 0;
    for (size_t i = first; i < step->task_count; i++) {
        double time_s = step->tasks[i].end_s - step->tasks[i].start_s;

        if (i == first)
            p->ready_s[0] = time_s;
        else
            p->ready_s[1] += time_s / (double)(step->task_count - first - 1);
    }
}

/* By how much attention that waits for its window ends later than it would behind the task before
 * on its queue. */
static void add_wait(struct probing *p, const struct program *program,
                     const struct timeline_step *step, size_t attention)
{
    const struct program_task *task = &program->tasks[attention];
    struct kernel_sample sample = {.kind = TASK_WAIT, .tokens = program->tokens};
    size_t before = attention;

    while (before-- > 0)
        if (program->tasks[before].queues == task->queues &&
            program->tasks[before].kind != TASK_WAIT)
            break;
    if (before == SIZE_MAX)
        return;
    sample.time_s = step->tasks[attention].end_s - step->tasks[before].end_s -
                    kernel_table_s(p->waits, task, program_task_cells(task, step->cells), NULL);
    if (sample.time_s > 0)
        kernel_samples_add(&p->samples, sample);
}

/* The task before on the same queue. */
static enum task_kind kind_before(const struct program *program, size_t index)
{
    for (size_t i = index; i-- > 0;)
        if ((program->tasks[i].queues & program->tasks[index].queues) != 0)
            return program->tasks[i].kind;
    return TASK_INPUT;
}

/* Norms that are not like the others: the first one waits for the inputs, and before the head those
 * of all tokens are joined, of which few go on. */
static bool is_unlike(const struct program *program, size_t index)
{
    return program->tasks[index].kind == TASK_NORM &&
           (program->tasks[index].kernels != 1 ||
            program_task_class(kind_before(program, index)) == TASK_CLASS_COPY);
}

static bool is_end(enum task_kind kind)
{
    return kind == TASK_EMBED || kind == TASK_INPUT || kind == TASK_LOGITS || kind == TASK_SYNC;
}

static bool is_wanted(enum wanted wanted, enum task_kind kind)
{
    return wanted == WANTED_ALL ? !is_end(kind) : wanted == WANTED_ENDS && is_end(kind);
}

/* Products aside. */
static bool is_sampled(const struct probing *p, const struct program *program, size_t index)
{
    const struct program_task *task = &program->tasks[index];

    if (!is_wanted(p->wanted, task->kind))
        return false;
    if (program_task_class(task->kind) == TASK_CLASS_COPY)
        return kernel_table_times_copy(task->kind) && !task->pageable &&
               program_task_is_on_compute(task);
    return task->kind != TASK_WAIT && !is_unlike(program, index);
}

static void watch(void *context, const struct program *program, const struct timeline_step *step)
{
    struct probing *p = context;
    struct kernel_fit_sample before = {.bytes = 0};

    p->span_s = span_of(program, step);
    find_ready(p, program, step);
    if (p->table != NULL)
        add_up(p, program, step);
    for (size_t i = 0; i < step->task_count && p->collects;) {
        const struct program_task *task = &program->tasks[i];
        struct kernel_sample sample = {.kind = task->kind,
                                       .tokens = task->tokens > 0 ? task->tokens : program->tokens,
                                       .kernels = task->kernels,
                                       .bytes = task->bytes,
                                       .time_s = step->tasks[i].end_s - step->tasks[i].start_s};

        if ((task->kind == TASK_MATMUL || task->kind == TASK_EXPERTS) &&
            p->wanted <= WANTED_PRODUCTS) {
            i = add_product(p, program, step, i, &before);
            continue;
        }
        if (task->kind == TASK_ALL_REDUCE)
            sample.devices = p->placement->device_count;
        sample.behind = kernel_table_behind(task->kind, kind_before(program, i));
        if (task->kind == TASK_ROPE) {
            sample.head_dim = task->head_dim;
            sample.normed = task->normed;
        }
        if (task->kind == TASK_ATTENTION) {
            sample.type = task->cache_type;
            sample.head_dim = task->head_dim;
            sample.heads = task->heads < task->heads_all
                               ? task->heads * KERNEL_ATTENTION_HEADS / task->heads_all
                               : 0;
            sample.kv_heads = task->kv_heads * KERNEL_ATTENTION_HEADS / task->heads;
            sample.cells = (uint64_t)program_task_cells(task, step->cells) * task->heads_all /
                           KERNEL_ATTENTION_HEADS;
            if (p->waits != NULL)
                add_wait(p, program, step, i);
        }
        if (program_task_class(task->kind) == TASK_CLASS_KERNEL)
            pass(&before, task->kind, sample.time_s);
        if (is_sampled(p, program, i) && sample.time_s > 0)
            kernel_samples_add(&p->samples, sample);
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

/* Whether it leaves the GPUs a fifth of their memory. */
static bool has_room(const struct placement *placement)
{
    struct memory_account account;

    memory_count(placement, &account);
    for (uint32_t d = 0; d < placement->device_count; d++)
        if (account.devices[d].total > account.devices[d].available / 5 * 4)
            return false;
    return true;
}

/* The first `layers` blocks of a model, or as many as there is room for: a half, a quarter, at
 * least as few as have each kind of layer. */
static int open_model(struct probing *p, const char *spec, uint32_t layers, struct plan plan,
                      uint32_t context, struct error *err)
{
    enum { LEAST_LAYERS = 4 };

    plan.schedule = PLAN_SCHEDULE_LOPSIDE;
    plan.n_ubatch = TOKENS_MAX;
    for (;; layers /= 2) {
        if (source_open_layers(&p->source, spec, layers, 1, err) != 0)
            return -1;
        p->placement = placement_new(p->source.model, p->machine, &plan, context, err);
        if (p->placement == NULL)
            return -1;
        if (layers / 2 < LEAST_LAYERS || has_room(p->placement))
            break;
        close_model(p);
    }
    p->session = session_new(
        p->placement, p->source.weights, &p->source.numbers, NULL,
        (struct session_options){.open = cuda_executor_open, .open_context = &p->options}, err);
    return p->session != NULL ? 0 : -1;
}

/* `count` tokens behind those that are there. */
static int decode(struct probing *p, uint32_t count, struct error *err)
{
    struct session_token tokens[TOKENS_MAX];
    const uint32_t first = p->steps++ * 104729;

    for (uint32_t i = 0; i < count; i++)
        tokens[i] = (struct session_token){(first + i * 7919) % p->source.model->n_vocab, 0,
                                           i + 1 == count};
    return session_decode(p->session, tokens, count, err);
}

/* A step of `tokens` at `depth`, over and over; the last ones give samples. */
static int sample_step(struct probing *p, uint32_t depth, uint32_t tokens, struct error *err)
{
    const bool is_long = (uint64_t)tokens * (depth + tokens) >= UINT64_C(1) << 22;
    const int often = p->wanted == WANTED_ENDS && tokens <= 512 ? ENDS_REPEATS : REPEATS;
    const int repeats = is_long ? LONG_REPEATS : often, warm = is_long ? 1 : WARM;

    for (int i = 0; i < repeats; i++) {
        if (session_truncate(p->session, 0, 0, err) != 0 ||
            session_fill(p->session, 1, depth, err) != 0)
            return -1;
        p->collects = i >= warm;
        if (decode(p, tokens, err) != 0)
            return -1;
        p->collects = false;
    }
    return 0;
}

static struct plan plan_of_one(void)
{
    struct plan plan = plan_default();

    plan.split = PLAN_SPLIT_NONE;
    return plan;
}

static const uint32_t token_counts[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048};

enum { TOKEN_COUNTS = sizeof token_counts / sizeof *token_counts };

/* Prompts of up to half the context. */
static int sample_model(struct probing *p, const char *model, const char *type, uint32_t layers,
                        uint32_t context, struct error *err)
{
    char spec[96];
    int status;

    snprintf(spec, sizeof spec, "%s:%s", model, type);
    status = open_model(p, spec, layers, plan_of_one(), context, err);
    for (size_t i = 0; i < TOKEN_COUNTS && token_counts[i] <= context / 2 && status == 0; i++)
        status = sample_step(p, 0, token_counts[i], err);
    close_model(p);
    return status;
}

/* Attention at growing depths, of the first layers of a model. */
static int sample_attention(struct probing *p, const char *model, uint32_t layers,
                            enum tensor_type cache, struct error *err)
{
    static const uint32_t counts[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 2048};
    struct plan plan = plan_of_one();
    int status;

    plan.type_k = plan.type_v = cache;
    status = open_model(p, model, layers, plan, LONG_CONTEXT, err);
    for (uint32_t depth = 0; depth <= 32768 && status == 0; depth = depth > 0 ? 2 * depth : 256)
        for (size_t i = 0; i < sizeof counts / sizeof *counts && status == 0; i++)
            status = sample_step(p, depth, counts[i], err);
    close_model(p);
    return status;
}

/* ---- which samples ---- */

/* All but what goes with windows and devices. */
static bool is_of_any_model(const struct kernel_sample *sample)
{
    return program_task_class(sample->kind) == TASK_CLASS_KERNEL && sample->kind != TASK_ATTENTION;
}

static bool is_of_ends(const struct kernel_sample *sample)
{
    return is_end(sample->kind);
}

static bool is_attention(const struct kernel_sample *sample)
{
    return sample->kind == TASK_ATTENTION;
}

static bool is_of_host_cache(const struct kernel_sample *sample)
{
    return sample->kind == TASK_KV_STORE || sample->kind == TASK_KV_ROWS ||
           sample->kind == TASK_WAIT;
}

static bool is_of_split(const struct kernel_sample *sample)
{
    return sample->kind == TASK_ALL_REDUCE || sample->behind == TASK_ALL_REDUCE ||
           (sample->kind == TASK_ATTENTION && sample->heads > 0);
}

static int make_rows(struct probing *p, bool (*takes)(const struct kernel_sample *),
                     struct kernel_table *table, struct error *err)
{
    for (size_t i = 0; i < p->samples.count && p->kept != NULL; i++)
        if (takes(&p->samples.list[i]))
            kernel_samples_add(p->kept, p->samples.list[i]);
    return kernel_samples_rows(&p->samples, takes,
                               p->machine->devices[p->options.gpus[0]].memory_gbs, table, err);
}

/* ---- steps ---- */

/* A step of one token of the first layers of a dense model. */
struct timed_step {
    uint32_t layers, depth;
    struct plan plan;
    bool traced; /* without what the host takes before the first kernel, but for the embeddings */
};

/* Medians of many; `ready_s`: as of struct probing, or NULL. */
static int time_steps(struct probing *p, struct timed_step timed, double *time_s, double *ready_s,
                      struct error *err)
{
    enum { COUNT = 31, FIRST = 8 };
    double times_s[COUNT], readies_s[2][COUNT];
    int status;

    p->options.watch = timed.traced ? watch : NULL;
    status = open_model(p, "qwen3-8b:Q8_0", timed.layers, timed.plan, CONTEXT, err);
    if (status == 0)
        status = session_fill(p->session, 1, timed.depth, err);
    for (int i = 0; i < FIRST + COUNT && status == 0; i++) {
        double start_s = host_probe_now_s();

        status = decode(p, 1, err);
        if (i < FIRST)
            continue;
        times_s[i - FIRST] = timed.traced ? p->span_s : host_probe_now_s() - start_s;
        readies_s[0][i - FIRST] = p->ready_s[0];
        readies_s[1][i - FIRST] = p->ready_s[1];
    }
    close_model(p);
    p->options.watch = watch;
    if (status != 0)
        return -1;
    *time_s = values_median(times_s, COUNT);
    for (int k = 0; k < 2 && ready_s != NULL; k++)
        ready_s[k] = values_median(readies_s[k], COUNT);
    return 0;
}

static int probe_step(struct probing *p, struct kernel_table *table, struct error *err)
{
    struct timed_step timed = {.layers = 4, .plan = plan_of_one()};
    double whole_s, traced_s;

    if (time_steps(p, timed, &whole_s, NULL, err) != 0)
        return -1;
    timed.traced = true;
    if (time_steps(p, timed, &traced_s, NULL, err) != 0)
        return -1;
    table->step_s = fmax(0, whole_s - traced_s);
    return 0;
}

/* What pacing adds to a kernel, from steps that are slowed to different speeds: what is slowed with
 * it goes with the factor, the rest does not. */
static int probe_pace(struct probing *p, struct kernel_table *table, struct error *err)
{
    static const double factors[] = {0, 1.001, 2}; /* 0: not paced */
    struct timed_step timed = {.layers = 4, .plan = plan_of_one()};
    double times_s[3], ignored_s, slope_s;

    for (int i = 0; i < 3; i++) {
        p->options.slowdowns[0] = factors[i];
        if (time_steps(p, timed, &times_s[i], NULL, err) != 0)
            return -1;
    }
    p->options.slowdowns[0] = 0;
    p->table = table;
    timed.traced = true;
    if (time_steps(p, timed, &ignored_s, NULL, err) != 0)
        return -1;
    p->table = NULL;
    slope_s = (times_s[2] - times_s[1]) / (factors[2] - factors[1]);
    table->pace_inside_s = fmax(0, (slope_s - p->alone_s) / p->kernel_count);
    table->pace_behind_s = fmax(
        0, (times_s[1] - factors[1] * slope_s - (times_s[0] - p->together_s)) / p->kernel_count);
    return 0;
}

/* ---- all ---- */

/* How steps of whole models begin and end. First of all: in a process that has run others before,
 * copies to the host take longer. */
static int probe_ends(struct probing *p, struct kernel_table *table, struct error *err)
{
    static const struct {
        const char *model;
        uint32_t layers, context;
    } steps[] = {{"llama-3.1-8b", 32, CONTEXT},       {"qwen3.8-27b", 64, CONTEXT},
                 {"qwen3-0.6b", 28, CONTEXT},         {"llama-3.3-70b", 8, CONTEXT},
                 {"llama-3.1-8b", 32, SHORT_CONTEXT}, {"qwen3-0.6b", 28, SHORT_CONTEXT},
                 {"llama-3.3-70b", 8, SHORT_CONTEXT}};

    p->wanted = WANTED_ENDS;
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        if (sample_model(p, steps[i].model, "Q8_0", steps[i].layers, steps[i].context, err) != 0)
            return -1;
    p->wanted = WANTED_ALL;
    return make_rows(p, is_of_ends, table, err);
}

/* What comes between products begins while they drain, and takes a little less behind those of
 * K-quants: behind the first type it counts. */
static int probe_models(struct probing *p, struct kernel_table *table, struct error *err)
{
    static const char *const types[] = {"Q8_0", "Q4_0", "Q4_K_M", "Q5_K_M", "Q6_K"};
    /* The first layers of synthetic experts do not choose evenly. */
    static const struct {
        const char *model;
        uint32_t layers;
    } dense[] = {{"qwen3-0.6b", 8}, {"qwen3-8b", 4}, {"llama-3.3-70b", 2}},
      more[] = {{"llama-3.1-8b", 4},
                {"ornith-1.5-35b-a3b", 16},
                {"qwen3.8-27b", 8},
                {"qwen3-30b-a3b", 32}};

    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        p->wanted = i > 0 ? WANTED_PRODUCTS : WANTED_ALL;
        for (size_t m = 0; m < sizeof dense / sizeof *dense; m++)
            if (sample_model(p, dense[m].model, types[i], dense[m].layers, CONTEXT, err) != 0)
                return -1;
    }
    p->wanted = WANTED_ALL;
    for (size_t m = 0; m < sizeof more / sizeof *more; m++)
        if (sample_model(p, more[m].model, "Q8_0", more[m].layers, CONTEXT, err) != 0)
            return -1;
    return make_rows(p, is_of_any_model, table, err);
}

static int probe_attention(struct probing *p, struct kernel_table *table, struct error *err)
{
    static const struct {
        const char *model;
        uint32_t layers;                          /* the last has attention */
    } shapes[] = {{"qwen3-8b:Q8_0", 2},           /* 8 KV heads for 32 query heads, of 128 values */
                  {"llama-2-7b:Q8_0", 2},         /* 32 */
                  {"qwen3-30b-a3b:Q8_0", 2},      /* 4 */
                  {"ornith-1.5-35b-a3b:Q8_0", 4}, /* 4, of 256 values */
                  {"qwen3.8-27b:Q8_0", 4}};       /* 5 */
    static const struct {
        enum tensor_type type;
        size_t shapes;
    } caches[] = {{TENSOR_TYPE_F16, 5}, {TENSOR_TYPE_Q8_0, 5}, {TENSOR_TYPE_Q4_0, 2}};

    for (size_t i = 0; i < sizeof caches / sizeof *caches; i++)
        for (size_t s = 0; s < caches[i].shapes; s++)
            if (sample_attention(p, shapes[s].model, shapes[s].layers, caches[i].type, err) != 0)
                return -1;
    return make_rows(p, is_attention, table, err);
}

static struct plan plan_of_host_cache(void)
{
    struct plan plan = plan_of_one();

    plan.kv_on_host = plan.kv_pinned = true;
    plan.delivery_depth = 2;
    return plan;
}

/* What the host takes to store the rows of a cache that it has, and attention to wait. */
static int probe_host_cache(struct probing *p, struct kernel_table *table, struct error *err)
{
    static const uint32_t counts[] = {1, 8, 16, 64, 512};
    int status = open_model(p, "qwen3-8b:Q8_0", 4, plan_of_host_cache(), CONTEXT, err);

    for (size_t i = 0; i < sizeof counts / sizeof *counts && status == 0; i++) {
        p->waits = counts[i] == 1 ? table : NULL;
        status = sample_step(p, 256, counts[i], err);
    }
    p->waits = NULL;
    if (status == 0)
        status = make_rows(p, is_of_host_cache, table, err);
    close_model(p);
    return status;
}

/* What a copy of a window takes beside its bytes: from steps that take as long as their copies, of
 * few and of more layers. */
static int probe_copies(struct probing *p, struct kernel_table *table, struct error *err)
{
    enum { FEW = 4, MORE = 12, DEPTH = 3072, OPENINGS = 4 };
    const struct machine *machine = p->machine;
    const struct machine_link *link =
        &machine->links[machine_device_link(machine, (uint32_t)p->options.gpus[0])];
    struct timed_step timed = {.layers = FEW, .depth = DEPTH, .plan = plan_of_host_cache()};
    double few_s = INFINITY, more_s = INFINITY, bytes;

    /* Where in the host the windows lie is another place each time, some of them far. */
    for (int i = 0; i < OPENINGS; i++) {
        double few, more;

        timed.layers = FEW;
        if (time_steps(p, timed, &few, NULL, err) != 0)
            return -1;
        timed.layers = MORE;
        if (time_steps(p, timed, &more, NULL, err) != 0)
            return -1;
        few_s = fmin(few_s, few);
        more_s = fmin(more_s, more);
    }
    bytes =
        (DEPTH + PROGRAM_WINDOW_UNIT) * (double)tensor_type_row_bytes(timed.plan.type_k, 8 * 128);
    table->copy_s = fmax(0, (more_s - few_s) / (2 * (MORE - FEW)) - bytes / (link->down_gbs * 1e9));
    return 0;
}

/* Attention of a part of the heads, at growing depths. */
static int sample_part(struct probing *p, struct plan plan, struct error *err)
{
    static const uint32_t counts[] = {1, 8, 64, 512};
    int status = open_model(p, "qwen3-8b:Q8_0", 2, plan, LONG_CONTEXT, err);

    for (uint32_t depth = 0; depth <= 16384 && status == 0; depth = depth > 0 ? 4 * depth : 256)
        for (size_t i = 0; i < sizeof counts / sizeof *counts && status == 0; i++)
            status = sample_step(p, depth, counts[i], err);
    close_model(p);
    return status;
}

/* Steps of a tensor split over the devices of `p->machine`. */
static int sample_split(struct probing *p, struct error *err)
{
    static const char *const models[] = {"qwen3-8b:Q8_0", "qwen3-32b:Q8_0"};
    struct plan plan = plan_default();
    int status = 0;

    plan.split = PLAN_SPLIT_TENSOR;
    for (size_t m = 0; m < sizeof models / sizeof *models && status == 0; m++) {
        status = open_model(p, models[m], 4, plan, CONTEXT, err);
        for (size_t i = 0; i < TOKEN_COUNTS && status == 0; i++)
            status = sample_step(p, 0, token_counts[i], err);
        close_model(p);
    }
    return status == 0 ? sample_part(p, plan, err) : -1;
}

/* What waiting for several devices takes more. */
static int probe_ready(struct probing *p, struct kernel_table *table, struct error *err)
{
    struct timed_step timed = {.layers = 4, .plan = plan_default(), .traced = true};
    double ignored_s, ready_s[2];
    double one_s = fmax(0, kernel_table_plain_s(table, TASK_SYNC, 1, 0));

    timed.plan.split = PLAN_SPLIT_TENSOR;
    if (time_steps(p, timed, &ignored_s, ready_s, err) != 0)
        return -1;
    table->ready_each_s = fmax(0, ready_s[0] - one_s) / (p->machine->device_count - 1);
    table->ready_next_s = ready_s[1];
    return 0;
}

/* The machine with its first `count` devices; for machine_free(), or NULL with `err` set. */
static struct machine *first_devices(const struct machine *machine, uint32_t count,
                                     struct error *err)
{
    char *text = machine_to_json(machine, err);
    struct machine *first =
        text != NULL ? machine_parse(text, strlen(text), machine->name, NULL, err) : NULL;
    uint32_t order[MACHINE_DEVICES_MAX];

    free(text);
    for (uint32_t d = 0; d < count; d++)
        order[d] = d;
    if (first != NULL && machine_keep_devices(first, order, count, err) != 0) {
        machine_free(first);
        return NULL;
    }
    return first;
}

/* What a tensor split has of its own: sums, norms behind them, attention of a part of the heads. Of
 * the first two GPUs, twice as many, and so on to all. Widths of 4096 and 5120: what a sum through
 * the host takes jumps at sizes in between. */
static int probe_split(struct probing *p, struct kernel_table *table, struct error *err)
{
    const struct machine *all = p->machine;
    int status = 0;

    p->options.gpu_count = 0;
    for (uint32_t count = 2; count < all->device_count && status == 0; count *= 2) {
        struct machine *first = first_devices(all, count, err);

        p->machine = first;
        status = first != NULL ? sample_split(p, err) : -1;
        machine_free(first);
    }
    p->machine = all;
    if (status == 0)
        status = sample_split(p, err);
    if (status == 0)
        status = make_rows(p, is_of_split, table, err);
    return status == 0 ? probe_ready(p, table, err) : -1;
}

int probe_kernels(const struct machine *machine, uint32_t device, enum cuda_reduction reduction,
                  struct kernel_table *table, struct kernel_samples *kept, struct error *err)
{
    struct probing p = {.machine = machine,
                        .kept = kept,
                        .options = {.gpus = {(int)device},
                                    .gpu_count = 1,
                                    .reduction = reduction,
                                    .watch = watch,
                                    .watch_context = &p}};
    static int (*const parts[])(struct probing *, struct kernel_table *, struct error *) = {
        probe_ends, probe_step,       probe_models, probe_attention,
        probe_pace, probe_host_cache, probe_copies};
    bool known = table->product_count > 0;
    int status = 0;

    snprintf(table->gpu, sizeof table->gpu, "%s", machine->devices[device].gpu);
    for (size_t i = 0; i < sizeof parts / sizeof *parts && status == 0 && !known; i++)
        status = parts[i](&p, table, err);
    if (status == 0 && machine->device_count > 1)
        status = probe_split(&p, table, err);
    kernel_samples_free(&p.samples);
    return status;
}
