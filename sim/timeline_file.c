/* Recorded timelines as JSON lines. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sim/json_names.h"
#include "sim/json_write.h"
#include "sim/timeline.h"

/* ---- writing ---- */

static void write_member(FILE *out, const char *key, const char *text)
{
    fprintf(out, ", \"%s\": ", key);
    json_write_string(out, text);
}

void timeline_write_header(const struct timeline *timeline, FILE *out)
{
    fprintf(out, "{\"lopside_timeline\": %d", TIMELINE_VERSION);
    write_member(out, "model", timeline->model);
    write_member(out, "quant", timeline->quant);
    fprintf(out, ", \"n_ctx\": %u, \"arguments\": [", timeline->n_ctx);
    for (size_t i = 0; i < timeline->argument_count; i++) {
        fputs(i > 0 ? ", " : "", out);
        json_write_string(out, timeline->arguments[i]);
    }
    fputs("], \"devices\": [", out);
    for (uint32_t d = 0; d < timeline->device_count; d++) {
        const struct timeline_device *device = &timeline->devices[d];

        fputs(d > 0 ? ", {\"name\": " : "{\"name\": ", out);
        json_write_string(out, device->name);
        write_member(out, "gpu", device->gpu);
        fprintf(out, ", \"slowdown\": %.6g, \"link_gbs\": %.6g}", device->slowdown,
                device->link_gbs);
    }
    fputs("]}\n", out);
}

static const char *word(bool value)
{
    return value ? "true" : "false";
}

static void write_step_line(const struct timeline_step *step, FILE *out)
{
    fprintf(out,
            "{\"step\": %zu, \"tokens\": %u, \"outputs\": %u, \"sequences\": %u, "
            "\"snapshots\": %u, \"rebuild\": %s, \"hidden\": %s, \"sample\": %s, \"sync\": %s, "
            "\"shift\": %s, \"depth\": %u, \"cells\": %u, \"sliding_cells\": %u, "
            "\"start_us\": %.3f, \"tasks\": %zu}\n",
            step->number, step->step.tokens, step->step.outputs, step->step.sequences,
            step->step.snapshots, word(step->step.rebuild), word(step->step.hidden),
            word(step->step.sample), word(step->step.sync), word(step->shift), step->depth,
            step->cells.base, step->cells.sliding, step->start_s * 1e6, step->task_count);
}

static void write_queues(const struct timeline *timeline, uint64_t queues, FILE *out)
{
    const char *comma = "";

    fputs(", \"queues\": [", out);
    for (; queues != 0; queues &= queues - 1) {
        char name[48];

        timeline_queue_name(timeline, (unsigned)__builtin_ctzll(queues), name, sizeof name);
        fputs(comma, out);
        json_write_string(out, name);
        comma = ", ";
    }
    fputc(']', out);
}

static void write_task(const struct timeline *timeline, const struct timeline_step *step,
                       size_t index, FILE *out)
{
    const struct timeline_task *task = &step->tasks[index];

    fprintf(out, "{\"step\": %zu, \"task\": %zu, \"kind\": \"%s\"", step->number, index,
            program_task_name(task->kind));
    write_queues(timeline, task->queues, out);
    if (task->device >= 0)
        write_member(out, "device", timeline->devices[task->device].name);
    if (task->peer >= 0)
        write_member(out, "peer", timeline->devices[task->peer].name);
    if (task->layer >= 0)
        fprintf(out, ", \"layer\": %d", task->layer);
    if (task->tensor != NULL)
        write_member(out, "tensor", task->tensor);
    if (task->part != 0)
        fprintf(out, ", \"part\": \"%c\"", task->part);
    if (task->blocking)
        fputs(", \"blocking\": true", out);
    if (task->bytes > 0)
        fprintf(out, ", \"bytes\": %.0f", task->bytes);
    if (task->flops > 0)
        fprintf(out, ", \"flops\": %.0f", task->flops);
    if (task->tokens > 0)
        fprintf(out, ", \"tokens\": %u", task->tokens);
    for (uint32_t d = 0; d < task->dependency_count; d++)
        fprintf(out, "%s%u%s", d == 0 ? ", \"after\": [" : ", ",
                step->dependencies[task->dependency_first + d],
                d + 1 == task->dependency_count ? "]" : "");
    fprintf(out, ", \"start_us\": %.3f, \"end_us\": %.3f}\n", task->start_s * 1e6,
            task->end_s * 1e6);
}

void timeline_write_step(const struct timeline *timeline, size_t index, FILE *out)
{
    const struct timeline_step *step = &timeline->steps[index];

    write_step_line(step, out);
    for (size_t i = 0; i < step->task_count; i++)
        write_task(timeline, step, i, out);
}

/* ---- reading ---- */

#define LATEST_US 1e12 /* eleven days */
#define MOST_WORK 1e18 /* bytes or operations of a task */

enum { TOKENS_MAX = 1 << 24 }; /* of a step */

static const struct json_number_rule time_rule = {"a time in us", 0, LATEST_US, false, false};
static const struct json_number_rule work_rule = {NULL, 0, MOST_WORK, false, false};
static const struct json_integer_rule count_rule = {NULL, 0, UINT32_MAX};

struct reader {
    struct timeline *timeline;
    size_t expected; /* tasks of the step under way */
    size_t task_capacity, dependency_capacity;
    bool has_header;
};

static int read_uint(const struct json_cursor *object, const char *key, uint32_t *value,
                     struct error *err)
{
    int64_t number = *value;

    if (json_input_integer(object, key, &count_rule, &number, err) != 0)
        return -1;
    *value = (uint32_t)number;
    return 0;
}

/* A text that fits its place: a longer one is refused, since a shorter one is another name. */
static int read_name(const struct json_cursor *object, const char *key, const char *noun,
                     char *name, size_t size, struct error *err)
{
    struct json_cursor at = json_input_member(object, key);
    const char *text;

    if (json_input_string(object, key, noun, &text, err) != 0)
        return -1;
    if (text[0] == '\0' || strlen(text) >= size)
        return json_input_refuse(&at, err, "%zu bytes are no name; 1 to %zu are accepted",
                                 strlen(text), size - 1);
    snprintf(name, size, "%s", text);
    return 0;
}

static int read_devices(const struct json_cursor *root, struct timeline *timeline,
                        struct error *err)
{
    static const char *const keys[] = {"name", "gpu", "slowdown", "link_gbs"};
    static const struct json_number_rule slowdown = {"a slowdown", 1, 1e6, false, false};
    static const struct json_number_rule bandwidth = {"a bandwidth in GB/s", 0, 1e6, false, false};
    struct json_cursor array;
    size_t count;

    if (json_input_array(root, "devices", &array, err) != 0)
        return -1;
    count = json_array_size(array.value);
    if (count == 0 || count > MACHINE_DEVICES_MAX)
        return json_input_refuse(&array, err, "%zu devices; 1 to %d are accepted", count,
                                 MACHINE_DEVICES_MAX);
    for (size_t d = 0; d < count; d++) {
        struct json_cursor at = json_input_element(&array, d);
        struct timeline_device *device = &timeline->devices[d];

        *device = (struct timeline_device){.slowdown = 1};
        if (json_input_as_object(&at, err) != 0 ||
            json_input_refuse_unknown_keys(&at, keys, sizeof keys / sizeof *keys, err) != 0 ||
            read_name(&at, "name", "a device", device->name, sizeof device->name, err) != 0 ||
            read_name(&at, "gpu", "a GPU", device->gpu, sizeof device->gpu, err) != 0 ||
            json_input_find_number(&at, "slowdown", &slowdown, &device->slowdown, err) < 0 ||
            json_input_find_number(&at, "link_gbs", &bandwidth, &device->link_gbs, err) < 0)
            return -1;
        for (size_t e = 0; e < d; e++)
            if (strcmp(timeline->devices[e].name, device->name) == 0)
                return json_input_refuse(&at, err, "%s is there twice", device->name);
    }
    timeline->device_count = (uint32_t)count;
    return 0;
}

static int read_arguments(const struct json_cursor *root, struct timeline *timeline,
                          struct error *err)
{
    struct json_cursor array;
    size_t count;

    if (json_input_array(root, "arguments", &array, err) != 0)
        return -1;
    count = json_array_size(array.value);
    timeline->arguments =
        arena_alloc_array(timeline->arena, count + 1, sizeof *timeline->arguments, err);
    for (size_t i = 0; i < count && timeline->arguments != NULL; i++) {
        struct json_cursor at = json_input_element(&array, i);
        const char *text;

        if (json_input_as_string(&at, "an argument", &text, err) != 0)
            return -1;
        timeline->arguments[i] = arena_strdup(timeline->arena, text, err);
        if (timeline->arguments[i] == NULL)
            return -1;
    }
    timeline->argument_count = count;
    return timeline->arguments != NULL ? 0 : -1;
}

static int copy_text(const struct json_cursor *root, const char *key, const char *noun,
                     struct timeline *timeline, const char **copy, struct error *err)
{
    const char *text;

    if (json_input_string(root, key, noun, &text, err) != 0)
        return -1;
    *copy = arena_strdup(timeline->arena, text, err);
    return *copy != NULL ? 0 : -1;
}

static int read_header(struct reader *reader, const struct json_cursor *root, struct error *err)
{
    static const char *const keys[] = {"lopside_timeline", "model",  "quant", "n_ctx",
                                       "arguments",        "devices"};
    static const struct json_integer_rule any = {"a version", INT64_MIN, INT64_MAX};
    struct timeline *timeline = reader->timeline;
    struct json_cursor at = json_input_member(root, "lopside_timeline");
    int64_t version;

    if (at.value == NULL)
        return json_input_refuse(root, err,
                                 "a timeline begins with a header; a line with "
                                 "\"lopside_timeline\": %d is accepted here",
                                 TIMELINE_VERSION);
    if (json_input_integer(root, "lopside_timeline", &any, &version, err) != 0)
        return -1;
    if (version != TIMELINE_VERSION)
        return json_input_refuse(&at, err, "version %lld cannot be read; version %d can",
                                 (long long)version, TIMELINE_VERSION);
    reader->has_header = true;
    if (json_input_refuse_unknown_keys(root, keys, sizeof keys / sizeof *keys, err) != 0 ||
        copy_text(root, "model", "a model", timeline, &timeline->model, err) != 0 ||
        copy_text(root, "quant", "a quantisation", timeline, &timeline->quant, err) != 0 ||
        read_uint(root, "n_ctx", &timeline->n_ctx, err) != 0 ||
        read_arguments(root, timeline, err) != 0)
        return -1;
    return read_devices(root, timeline, err);
}

/* ---- a step ---- */

static int expect_number(const struct json_cursor *root, const char *key, size_t expected,
                         const char *what, struct error *err)
{
    struct json_cursor at = json_input_member(root, key);
    uint32_t number = 0;

    if (read_uint(root, key, &number, err) != 0)
        return -1;
    if (number != expected)
        return json_input_refuse(&at, err, "%u is not %s; %zu is accepted here", number, what,
                                 expected);
    return 0;
}

static int read_switches(const struct json_cursor *root, struct timeline_step *step,
                         struct error *err)
{
    return json_input_bool(root, "rebuild", &step->step.rebuild, err) != 0 ||
                   json_input_bool(root, "hidden", &step->step.hidden, err) != 0 ||
                   json_input_bool(root, "sample", &step->step.sample, err) != 0 ||
                   json_input_bool(root, "sync", &step->step.sync, err) != 0 ||
                   json_input_bool(root, "shift", &step->shift, err) != 0
               ? -1
               : 0;
}

/* A file may begin with any step; the others follow it. */
static int read_step_number(const struct timeline *timeline, const struct json_cursor *root,
                            uint32_t *number, struct error *err)
{
    size_t count = timeline->step_count;

    if (read_uint(root, "step", number, err) != 0)
        return -1;
    return count == 0 ? 0
                      : expect_number(root, "step", timeline->steps[count - 1].number + 1,
                                      "the next step", err);
}

/* What a step can be lowered from. */
static int check_counts(const struct json_cursor *root, const struct timeline_step *step,
                        struct error *err)
{
    struct json_cursor tokens = json_input_member(root, "tokens");
    struct json_cursor outputs = json_input_member(root, "outputs");
    struct json_cursor sequences = json_input_member(root, "sequences");

    if (step->shift)
        return 0;
    if (step->step.tokens < 1 || step->step.tokens > TOKENS_MAX)
        return json_input_refuse(&tokens, err, "%u tokens; 1 to %u are accepted", step->step.tokens,
                                 (unsigned)TOKENS_MAX);
    if (step->step.outputs > step->step.tokens)
        return json_input_refuse(&outputs, err, "%u rows of logits; %u or fewer are accepted",
                                 step->step.outputs, step->step.tokens);
    if (step->step.sequences > step->step.tokens)
        return json_input_refuse(&sequences, err, "%u sequences; %u or fewer are accepted",
                                 step->step.sequences, step->step.tokens);
    return 0;
}

static int read_step(struct reader *reader, const struct json_cursor *root, struct error *err)
{
    static const char *const keys[] = {
        "step", "tokens", "outputs", "sequences", "snapshots",     "rebuild",  "hidden", "sample",
        "sync", "shift",  "depth",   "cells",     "sliding_cells", "start_us", "tasks"};
    static const struct program nothing = {.tasks = NULL};
    struct timeline *timeline = reader->timeline;
    struct json_cursor start_at = json_input_member(root, "start_us");
    struct timeline_step *step;
    uint32_t tasks = 0, number = 0;
    double start_us = 0;

    if (json_input_refuse_unknown_keys(root, keys, sizeof keys / sizeof *keys, err) != 0 ||
        read_step_number(timeline, root, &number, err) != 0)
        return -1;
    step = timeline_add_step(timeline, &nothing, (struct program_cells){0, 0}, err);
    if (step == NULL)
        return -1;
    step->number = number;
    if (read_uint(root, "tokens", &step->step.tokens, err) != 0 ||
        read_uint(root, "outputs", &step->step.outputs, err) != 0 ||
        read_uint(root, "sequences", &step->step.sequences, err) != 0 ||
        read_uint(root, "snapshots", &step->step.snapshots, err) != 0 ||
        read_switches(root, step, err) != 0 || check_counts(root, step, err) != 0 ||
        read_uint(root, "depth", &step->depth, err) != 0 ||
        read_uint(root, "cells", &step->cells.base, err) != 0 ||
        read_uint(root, "sliding_cells", &step->cells.sliding, err) != 0 ||
        json_input_number(root, "start_us", &time_rule, &start_us, err) != 0 ||
        read_uint(root, "tasks", &tasks, err) != 0)
        return -1;
    step->start_s = start_us / 1e6;
    if (timeline->step_count > 1 && step->start_s < step[-1].start_s)
        return json_input_refuse(&start_at, err,
                                 "%.3f is before the step before begins; %.3f or more is accepted",
                                 start_us, step[-1].start_s * 1e6);
    reader->expected = tasks;
    reader->task_capacity = reader->dependency_capacity = 0;
    return 0;
}

/* ---- a task ---- */

static int read_queues(const struct timeline *timeline, const struct json_cursor *root,
                       uint64_t *queues, struct error *err)
{
    char names[PROGRAM_QUEUE_DEVICES + 3 * MACHINE_DEVICES_MAX][48];
    const char *words[PROGRAM_QUEUE_DEVICES + 3 * MACHINE_DEVICES_MAX];
    unsigned count = timeline_queue_count(timeline);
    struct json_cursor array;

    if (json_input_array(root, "queues", &array, err) != 0)
        return -1;
    if (json_array_size(array.value) == 0)
        return json_input_refuse(&array, err, "no queue; a task holds at least one");
    for (unsigned q = 0; q < count; q++) {
        timeline_queue_name(timeline, q, names[q], sizeof names[q]);
        words[q] = names[q];
    }
    for (size_t i = 0; i < json_array_size(array.value); i++) {
        struct json_cursor at = json_input_element(&array, i);
        size_t queue;

        if (json_input_as_word(&at, "a queue", words, count, &queue, err) != 0)
            return -1;
        *queues |= UINT64_C(1) << queue;
    }
    return 0;
}

/* A device by name; without one `device` stays PROGRAM_AT_HOST. */
static int read_device(const struct timeline *timeline, const struct json_cursor *root,
                       const char *key, int16_t *device, struct error *err)
{
    const char *words[MACHINE_DEVICES_MAX];
    size_t index;
    int found;

    for (uint32_t d = 0; d < timeline->device_count; d++)
        words[d] = timeline->devices[d].name;
    found = json_input_find_word(root, key, "a device", words, timeline->device_count, &index, err);
    if (found > 0)
        *device = (int16_t)index;
    return found < 0 ? -1 : 0;
}

static int read_what(struct timeline *timeline, const struct json_cursor *root,
                     struct timeline_task *task, struct error *err)
{
    static const struct json_integer_rule layers = {"a layer", 0, INT32_MAX};
    static const char *const parts[] = {"k", "v"};
    const char *tensor = NULL;
    int64_t layer = -1, tokens = 0;
    size_t part;
    int found;

    if (json_names_kind(root, "kind", NULL, &task->kind, err) != 0 ||
        read_queues(timeline, root, &task->queues, err) != 0 ||
        read_device(timeline, root, "device", &task->device, err) != 0 ||
        read_device(timeline, root, "peer", &task->peer, err) != 0 ||
        json_input_find_integer(root, "layer", &layers, &layer, err) < 0 ||
        json_input_find_integer(root, "tokens", &count_rule, &tokens, err) < 0 ||
        json_input_find_string(root, "tensor", "the name of a weight", &tensor, err) < 0 ||
        json_input_find_bool(root, "blocking", &task->blocking, err) < 0 ||
        json_input_find_number(root, "bytes", &work_rule, &task->bytes, err) < 0 ||
        json_input_find_number(root, "flops", &work_rule, &task->flops, err) < 0)
        return -1;
    found = json_input_find_word(root, "part", "a part of a cache", parts, 2, &part, err);
    if (found < 0)
        return -1;
    task->part = found > 0 ? parts[part][0] : 0;
    task->layer = (int32_t)layer;
    task->tokens = (uint32_t)tokens;
    if (tensor != NULL) {
        task->tensor = arena_strdup(timeline->arena, tensor, err);
        if (task->tensor == NULL)
            return -1;
    }
    return 0;
}

static int read_times(const struct json_cursor *root, struct timeline_task *task, struct error *err)
{
    struct json_cursor end_at = json_input_member(root, "end_us");
    double start_us, end_us;

    if (json_input_number(root, "start_us", &time_rule, &start_us, err) != 0 ||
        json_input_number(root, "end_us", &time_rule, &end_us, err) != 0)
        return -1;
    if (end_us < start_us)
        return json_input_refuse(&end_at, err, "%.3f is before the start; %.3f or more is accepted",
                                 end_us, start_us);
    task->start_s = start_us / 1e6;
    task->end_s = end_us / 1e6;
    task->issue_from_s = task->issue_to_s = NAN;
    return 0;
}

static int grow(void **items, size_t *capacity, size_t needed, size_t item_bytes, struct error *err)
{
    size_t wanted = *capacity > 0 ? 2 * *capacity : 64;
    void *grown;

    if (needed <= *capacity)
        return 0;
    wanted = wanted < needed ? needed : wanted;
    grown = realloc(*items, wanted * item_bytes);
    if (grown == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for %zu tasks", wanted);
    *items = grown;
    *capacity = wanted;
    return 0;
}

static int read_dependencies(struct reader *reader, const struct json_cursor *root,
                             struct timeline_step *step, struct timeline_task *task,
                             struct error *err)
{
    struct json_cursor array;
    int found = json_input_find_array(root, "after", &array, err);
    size_t count = found > 0 ? json_array_size(array.value) : 0;
    void *items = step->dependencies;
    struct json_integer_rule earlier = {"a task before this one", 0, (int64_t)step->task_count - 1};

    if (found < 0)
        return -1;
    if (grow(&items, &reader->dependency_capacity, step->dependency_count + count,
             sizeof *step->dependencies, err) != 0)
        return -1;
    step->dependencies = items;
    task->dependency_first = (uint32_t)step->dependency_count;
    task->dependency_count = (uint32_t)count;
    for (size_t i = 0; i < count; i++) {
        struct json_cursor at = json_input_element(&array, i);
        int64_t on;

        if (step->task_count == 0)
            return json_input_refuse(&at, err, "the first task of a step waits for none");
        if (json_input_as_integer(&at, &earlier, &on, err) != 0)
            return -1;
        step->dependencies[step->dependency_count++] = (uint32_t)on;
    }
    return 0;
}

static int read_task(struct reader *reader, const struct json_cursor *root, struct error *err)
{
    static const char *const keys[] = {
        "step", "task",     "kind",  "queues", "device", "peer",  "layer",    "tensor",
        "part", "blocking", "bytes", "flops",  "tokens", "after", "start_us", "end_us"};
    struct timeline *timeline = reader->timeline;
    struct timeline_task task = {.device = PROGRAM_AT_HOST, .peer = PROGRAM_AT_HOST};
    struct timeline_step *step;
    void *items;

    if (timeline->step_count == 0)
        return json_input_refuse(root, err,
                                 "a task outside a step; the line of step 0 is accepted "
                                 "here, with \"tasks\"");
    step = &timeline->steps[timeline->step_count - 1];
    if (step->task_count == reader->expected)
        return json_input_refuse(root, err,
                                 "a task beyond the %zu of step %zu; the line of the next step is "
                                 "accepted here",
                                 reader->expected, step->number);
    if (json_input_refuse_unknown_keys(root, keys, sizeof keys / sizeof *keys, err) != 0 ||
        expect_number(root, "step", step->number, "the step under way", err) != 0 ||
        expect_number(root, "task", step->task_count, "the next task", err) != 0 ||
        read_what(timeline, root, &task, err) != 0 || read_times(root, &task, err) != 0 ||
        read_dependencies(reader, root, step, &task, err) != 0)
        return -1;
    items = step->tasks;
    if (grow(&items, &reader->task_capacity, step->task_count + 1, sizeof task, err) != 0)
        return -1;
    step->tasks = items;
    step->tasks[step->task_count++] = task;
    return 0;
}

/* ---- lines ---- */

/* Whether the step under way has all its tasks. */
static int check_complete(const struct reader *reader, const char *source, int line,
                          struct error *err)
{
    const struct timeline *timeline = reader->timeline;
    size_t count;

    if (timeline->step_count == 0)
        return 0;
    count = timeline->steps[timeline->step_count - 1].task_count;
    if (count < reader->expected)
        return error_set_at(err, ERROR_INPUT, source, line, 0,
                            "step %zu ends after %zu of its %zu tasks; task %zu is accepted here",
                            timeline->steps[timeline->step_count - 1].number, count,
                            reader->expected, count);
    return 0;
}

static int read_line(struct reader *reader, const char *line, size_t length, const char *source,
                     int number, struct error *err)
{
    struct json_input *input = json_input_load_lines(line, length, source, number, err);
    struct json_cursor root;
    int status;

    if (input == NULL)
        return -1;
    root = json_input_root(input);
    if (json_input_as_object(&root, err) != 0)
        status = -1;
    else if (!reader->has_header)
        status = read_header(reader, &root, err);
    else if (json_object_get(root.value, "task") != NULL)
        status = read_task(reader, &root, err);
    else
        status =
            check_complete(reader, source, number, err) != 0 ? -1 : read_step(reader, &root, err);
    json_input_free(input);
    if (status != 0 && err != NULL && err->line == 0)
        err->line = number; /* a key too long to be found again */
    return status;
}

static bool is_blank(const char *line, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (line[i] != ' ' && line[i] != '\t' && line[i] != '\r')
            return false;
    return true;
}

static int read_lines(struct reader *reader, const char *text, size_t size, const char *source,
                      struct error *err)
{
    int number = 1;

    for (size_t at = 0; at < size; number++) {
        const char *line = text + at, *end = memchr(line, '\n', size - at);
        size_t length = end != NULL ? (size_t)(end - line) : size - at;

        if (!is_blank(line, length) && read_line(reader, line, length, source, number, err) != 0)
            return -1;
        at += length + 1;
    }
    if (!reader->has_header)
        return error_set_at(err, ERROR_INPUT, source, number, 0,
                            "empty; a line with \"lopside_timeline\": %d is accepted here",
                            TIMELINE_VERSION);
    if (reader->timeline->step_count == 0)
        return error_set_at(err, ERROR_INPUT, source, number, 0,
                            "no step; the line of step 0 is accepted here");
    return check_complete(reader, source, number, err);
}

struct timeline *timeline_parse(const char *text, size_t size, const char *source,
                                struct error *err)
{
    struct reader reader = {.timeline = timeline_new(err)};

    if (reader.timeline == NULL)
        return NULL;
    snprintf(reader.timeline->source, sizeof reader.timeline->source, "%s", source);
    if (read_lines(&reader, text, size, source, err) != 0) {
        error_name_source(err, source);
        timeline_free(reader.timeline);
        return NULL;
    }
    return reader.timeline;
}

struct timeline *timeline_load_file(const char *path, struct error *err)
{
    struct timeline *timeline;
    size_t size;
    char *text;

    if (json_input_read_file(path, &text, &size, err) != 0)
        return NULL;
    timeline = timeline_parse(text, size, path, err);
    free(text);
    return timeline;
}
