/* Events are collected in whole nanoseconds, put in order of time and then printed. */
#include "sim/chrome_trace.h"

#include <math.h>
#include <stdlib.h>

#include "sim/json_write.h"

/* Viewers keep process and thread 0 for themselves. */
enum { PROCESS_HOST = 1, PROCESS_ALL, PROCESS_LINKS, PROCESS_DEVICES };

enum { QUEUES_MAX = PROGRAM_QUEUE_DEVICES + 3 * MACHINE_DEVICES_MAX };

enum event_kind {
    EVENT_TASK,
    EVENT_HELD,
    EVENT_ISSUE,
    EVENT_BLOCKED,
    EVENT_FLOW_START,
    EVENT_FLOW_END,
    EVENT_STEP,
    EVENT_LINK,
    EVENT_BUSY,
};

struct event {
    enum event_kind kind;
    int64_t time_ns, duration_ns;
    size_t order; /* breaks ties */
    unsigned queue;
    size_t step;
    uint32_t task; /* or a direction */
    bool blocks;   /* of a flow: it leads to the host's wait, not along a dependency */
    size_t flow;
    double value; /* of a counter */
};

struct slice {
    int64_t start_ns, end_ns;
};

struct writer {
    const struct timeline *timeline;
    struct event *events;
    size_t count, capacity, flows;
    struct slice *slices; /* of the tasks of the step under way, on their own queues */
    int64_t free_ns[QUEUES_MAX];
    bool used[QUEUES_MAX];
    struct error *err;
    bool failed;
};

static int64_t in_ns(double time_s)
{
    return llround(time_s * 1e9);
}

/* ---- collecting ---- */

static void add(struct writer *writer, struct event event)
{
    if (!writer->failed && writer->count == writer->capacity) {
        size_t capacity = writer->capacity > 0 ? 2 * writer->capacity : 1024;
        struct event *grown = realloc(writer->events, capacity * sizeof *grown);

        if (grown == NULL) {
            error_set(writer->err, ERROR_MEMORY, "no memory for %zu events", capacity);
            writer->failed = true;
            return;
        }
        writer->events = grown;
        writer->capacity = capacity;
    }
    if (writer->failed)
        return;
    event.order = writer->count;
    writer->events[writer->count++] = event;
}

static bool is_compute(unsigned queue)
{
    return queue >= PROGRAM_QUEUE_DEVICES && (queue - PROGRAM_QUEUE_DEVICES) % 3 == 0;
}

static struct slice add_slice(struct writer *writer, struct event event, struct slice slice)
{
    int64_t *free_ns = &writer->free_ns[event.queue];

    slice.start_ns = slice.start_ns > *free_ns ? slice.start_ns : *free_ns;
    slice.end_ns = slice.end_ns > slice.start_ns ? slice.end_ns : slice.start_ns;
    *free_ns = slice.end_ns;
    writer->used[event.queue] = true;
    event.time_ns = slice.start_ns;
    event.duration_ns = slice.end_ns - slice.start_ns;
    add(writer, event);
    return slice;
}

/* An arrow leaves a slice just before its end, so that it lies within. */
static int64_t leaves_ns(struct slice slice)
{
    return slice.end_ns > slice.start_ns ? slice.end_ns - 1 : slice.end_ns;
}

static void add_flow(struct writer *writer, struct event from, struct slice from_slice,
                     struct event to, struct slice to_slice)
{
    from.time_ns = leaves_ns(from_slice);
    to.time_ns = to_slice.start_ns > from.time_ns ? to_slice.start_ns : from.time_ns;
    if (to.time_ns > to_slice.end_ns)
        return;
    from.kind = EVENT_FLOW_START;
    to.kind = EVENT_FLOW_END;
    from.flow = to.flow = ++writer->flows;
    from.blocks = to.blocks;
    add(writer, from);
    add(writer, to);
}

static struct event task_event(const struct timeline_step *step, size_t step_index, uint32_t index)
{
    return (struct event){.kind = EVENT_TASK,
                          .queue = timeline_task_queue(&step->tasks[index]),
                          .step = step_index,
                          .task = index};
}

static struct slice slice_at(const struct timeline_step *step, double start_s, double end_s)
{
    return (struct slice){in_ns(step->start_s + start_s), in_ns(step->start_s + end_s)};
}

/* What the host's thread does for a task of another queue: it issues it, then it may wait. */
static void add_host_side(struct writer *writer, const struct timeline_step *step,
                          struct event event)
{
    const struct timeline_task *task = &step->tasks[event.task];
    struct slice issue = slice_at(step, task->issue_from_s, task->issue_to_s);
    struct slice own = writer->slices[event.task], wait = {issue.end_ns, own.end_ns};
    struct event host = event;

    host.queue = PROGRAM_QUEUE_HOST;
    host.kind = EVENT_ISSUE;
    if (issue.end_ns > issue.start_ns)
        add_slice(writer, host, issue);
    if (!task->blocking || wait.end_ns <= wait.start_ns)
        return;
    host.kind = EVENT_BLOCKED;
    host.blocks = true;
    wait = add_slice(writer, host, wait);
    add_flow(writer, event, own, host, wait);
}

/* Recorded tasks: who waited for a blocking one is the task issued next. */
static void add_wait_of_next(struct writer *writer, const struct timeline_step *step,
                             struct event event)
{
    struct event before = task_event(step, event.step, event.task - 1);
    const struct timeline_task *task = &step->tasks[before.task];

    event.blocks = true;
    if (task->blocking && program_task_class(task->kind) != TASK_CLASS_HOST)
        add_flow(writer, before, writer->slices[before.task], event, writer->slices[event.task]);
}

static void add_task(struct writer *writer, size_t step_index, uint32_t index)
{
    const struct timeline_step *step = &writer->timeline->steps[step_index];
    const struct timeline_task *task = &step->tasks[index];
    struct event event = task_event(step, step_index, index), held = event;
    struct slice slice = add_slice(writer, event, slice_at(step, task->start_s, task->end_s));

    writer->slices[index] = slice;
    for (uint32_t d = 0; d < task->dependency_count; d++) {
        uint32_t on = step->dependencies[task->dependency_first + d];

        add_flow(writer, task_event(step, step_index, on), writer->slices[on], event, slice);
    }
    held.kind = EVENT_HELD;
    for (uint64_t left = task->queues; left != 0; left &= left - 1) {
        held.queue = (unsigned)__builtin_ctzll(left);
        if (held.queue != event.queue && slice.end_ns > slice.start_ns)
            add_slice(writer, held, slice);
    }
    if (isnan(task->issue_from_s)) {
        if (index > 0)
            add_wait_of_next(writer, step, event);
    } else if (event.queue != PROGRAM_QUEUE_HOST) {
        add_host_side(writer, step, event);
    }
}

static void add_step(struct writer *writer, size_t index)
{
    const struct timeline_step *step = &writer->timeline->steps[index];

    writer->slices = malloc((step->task_count + 1) * sizeof *writer->slices);
    if (writer->slices == NULL) {
        error_set(writer->err, ERROR_MEMORY, "no memory for %zu tasks", step->task_count);
        writer->failed = true;
        return;
    }
    writer->used[PROGRAM_QUEUE_HOST] = true;
    add(writer, (struct event){.kind = EVENT_STEP,
                               .time_ns = in_ns(step->start_s),
                               .queue = PROGRAM_QUEUE_HOST,
                               .step = index});
    for (uint32_t i = 0; i < step->task_count && !writer->failed; i++)
        add_task(writer, index, i);
    free(writer->slices);
    writer->slices = NULL;
}

/* ---- counters ---- */

/* Of equal times the last value counts, and one that changes nothing is left out. */
static void add_value(struct writer *writer, struct event event, double *shown, bool last_of_time)
{
    if (!last_of_time || event.value == *shown)
        return;
    *shown = event.value;
    add(writer, event);
}

static void add_direction(struct writer *writer, uint32_t direction)
{
    const struct timeline *timeline = writer->timeline;
    struct event event = {.kind = EVENT_LINK, .task = direction};
    bool begun = false;
    double shown = 0;

    for (size_t i = 0; i < timeline->rate_count; i++) {
        const struct timeline_rate *rate = &timeline->rates[i];

        if (rate->direction != direction)
            continue;
        if (!begun || in_ns(rate->time_s) != event.time_ns) {
            add_value(writer, event, &shown, begun);
            if (!begun && in_ns(rate->time_s) > 0) {
                event.value = 0;
                add(writer, event);
            }
            begun = true;
        }
        event.time_ns = in_ns(rate->time_s);
        event.value = rate->gbs;
    }
    add_value(writer, event, &shown, begun);
}

static int by_time(const void *a, const void *b)
{
    const struct event *x = a, *y = b;

    if (x->time_ns != y->time_ns)
        return x->time_ns < y->time_ns ? -1 : 1;
    return x->order < y->order ? -1 : x->order > y->order;
}

/* Starts and ends of everything on compute queues, in order of time. */
static size_t find_busy_changes(const struct writer *writer, struct event *changes)
{
    size_t count = 0;

    for (size_t i = 0; i < writer->count; i++) {
        const struct event *event = &writer->events[i];

        if (event->kind > EVENT_HELD || !is_compute(event->queue) || event->duration_ns == 0)
            continue;
        changes[count] = (struct event){
            .kind = EVENT_BUSY, .time_ns = event->time_ns, .value = 1, .order = count};
        count++;
        changes[count] = (struct event){.kind = EVENT_BUSY,
                                        .time_ns = event->time_ns + event->duration_ns,
                                        .value = -1,
                                        .order = count};
        count++;
    }
    qsort(changes, count, sizeof *changes, by_time);
    return count;
}

static void add_busy(struct writer *writer)
{
    struct event *changes = malloc((2 * writer->count + 1) * sizeof *changes);
    double busy = 0, shown = -1;
    size_t count;

    if (changes == NULL) {
        error_set(writer->err, ERROR_MEMORY, "no memory for %zu events", 2 * writer->count);
        writer->failed = true;
        return;
    }
    count = find_busy_changes(writer, changes);
    if (count == 0 || changes[0].time_ns > 0)
        add_value(writer, (struct event){.kind = EVENT_BUSY}, &shown, true);
    for (size_t i = 0; i < count; i++) {
        struct event event = changes[i];

        busy += event.value;
        event.value = busy;
        add_value(writer, event, &shown, i + 1 == count || changes[i + 1].time_ns != event.time_ns);
    }
    free(changes);
}

static void collect(struct writer *writer)
{
    for (size_t i = 0; i < writer->timeline->step_count && !writer->failed; i++)
        add_step(writer, i);
    if (!writer->failed)
        add_busy(writer);
    for (uint32_t d = 0; d < writer->timeline->direction_count && !writer->failed; d++)
        add_direction(writer, d);
    if (!writer->failed && writer->count > 0)
        qsort(writer->events, writer->count, sizeof *writer->events, by_time);
}

/* ---- printing ---- */

static unsigned process_of(unsigned queue)
{
    if (queue <= PROGRAM_QUEUE_WORKERS)
        return PROCESS_HOST;
    if (queue < PROGRAM_QUEUE_DEVICES)
        return PROCESS_ALL;
    return PROCESS_DEVICES + (queue - PROGRAM_QUEUE_DEVICES) / 3;
}

static const char *thread_name(unsigned queue)
{
    static const char *const hosts[PROGRAM_QUEUE_DEVICES] = {
        [PROGRAM_QUEUE_HOST] = "host thread",
        [PROGRAM_QUEUE_WORKERS] = "workers",
        [PROGRAM_QUEUE_COLLECTIVE] = "collective",
        [PROGRAM_QUEUE_BESIDE] = "beside",
    };
    static const char *const parts[] = {"compute", "copy in", "copy out"};

    return queue < PROGRAM_QUEUE_DEVICES ? hosts[queue]
                                         : parts[(queue - PROGRAM_QUEUE_DEVICES) % 3];
}

static void print_process(unsigned process, const char *name, const char *before, FILE *out)
{
    fprintf(out, "%s{\"ph\": \"M\", \"pid\": %u, \"name\": \"process_name\", \"args\": {\"name\": ",
            before, process);
    json_write_string(out, name);
    fprintf(out,
            "}},\n{\"ph\": \"M\", \"pid\": %u, \"name\": \"process_sort_index\", \"args\": "
            "{\"sort_index\": %u}}",
            process, process);
}

static void print_thread(unsigned queue, FILE *out)
{
    unsigned process = process_of(queue);

    fprintf(out,
            ",\n{\"ph\": \"M\", \"pid\": %u, \"tid\": %u, \"name\": \"thread_name\", \"args\": "
            "{\"name\": \"%s\"}},\n",
            process, queue + 1, thread_name(queue));
    fprintf(out,
            "{\"ph\": \"M\", \"pid\": %u, \"tid\": %u, \"name\": \"thread_sort_index\", \"args\": "
            "{\"sort_index\": %u}}",
            process, queue + 1, queue);
}

static void print_processes(const struct writer *writer, FILE *out)
{
    const struct timeline *timeline = writer->timeline;

    print_process(PROCESS_HOST, "host", "", out);
    print_process(PROCESS_ALL, "all devices", ",\n", out);
    print_process(PROCESS_LINKS, "links", ",\n", out);
    for (uint32_t d = 0; d < timeline->device_count; d++) {
        char name[96];

        snprintf(name, sizeof name, "%s %s", timeline->devices[d].name, timeline->devices[d].gpu);
        print_process(PROCESS_DEVICES + d, name, ",\n", out);
    }
    for (unsigned q = 0; q < timeline_queue_count(timeline); q++)
        if (writer->used[q] || is_compute(q))
            print_thread(q, out);
}

/* "12.345" */
static void print_us(const char *key, int64_t time_ns, FILE *out)
{
    fprintf(out, ", \"%s\": %lld.%03lld", key, (long long)(time_ns / 1000),
            (long long)(time_ns % 1000));
}

static void print_arguments(const struct timeline *timeline, const struct event *event, FILE *out)
{
    const struct timeline_task *task = &timeline->steps[event->step].tasks[event->task];
    char queue[48];

    timeline_queue_name(timeline, timeline_task_queue(task), queue, sizeof queue);
    fprintf(out, ", \"args\": {\"step\": %zu, \"task\": %u, \"queue\": ",
            timeline->steps[event->step].number, event->task);
    json_write_string(out, queue);
    if (event->kind == EVENT_TASK && task->layer >= 0)
        fprintf(out, ", \"layer\": %d", task->layer);
    if (event->kind == EVENT_TASK && task->tensor != NULL) {
        fputs(", \"weight\": ", out);
        json_write_string(out, task->tensor);
    }
    if (event->kind == EVENT_TASK && task->bytes > 0)
        fprintf(out, ", \"bytes\": %.0f", task->bytes);
    if (event->kind == EVENT_TASK && task->flops > 0)
        fprintf(out, ", \"flops\": %.0f", task->flops);
    if (event->kind == EVENT_TASK && task->tokens > 0)
        fprintf(out, ", \"tokens\": %u", task->tokens);
    fputs("}}", out);
}

static void print_slice(const struct timeline *timeline, const struct event *event, FILE *out)
{
    const struct timeline_task *task = &timeline->steps[event->step].tasks[event->task];
    static const char *const before[] = {[EVENT_TASK] = "",
                                         [EVENT_HELD] = "",
                                         [EVENT_ISSUE] = "issue ",
                                         [EVENT_BLOCKED] = "wait for "};
    static const char *const categories[] = {
        [EVENT_HELD] = "held", [EVENT_ISSUE] = "issue", [EVENT_BLOCKED] = "blocked"};
    char what[160], name[192];

    timeline_task_text(timeline, task, what, sizeof what);
    snprintf(name, sizeof name, "%s%s", before[event->kind], what);
    fprintf(out, "{\"ph\": \"X\", \"pid\": %u, \"tid\": %u", process_of(event->queue),
            event->queue + 1);
    print_us("ts", event->time_ns, out);
    print_us("dur", event->duration_ns, out);
    fputs(", \"name\": ", out);
    json_write_string(out, name);
    fprintf(out, ", \"cat\": \"%s\"",
            event->kind == EVENT_TASK ? program_class_name(program_task_class(task->kind))
                                      : categories[event->kind]);
    print_arguments(timeline, event, out);
}

static void print_flow(const struct event *event, FILE *out)
{
    bool ends = event->kind == EVENT_FLOW_END;

    fprintf(out, "{\"ph\": \"%s\", \"pid\": %u, \"tid\": %u", ends ? "f" : "s",
            process_of(event->queue), event->queue + 1);
    print_us("ts", event->time_ns, out);
    fprintf(out, ", \"id\": %zu%s, \"name\": \"%s\", \"cat\": \"flow\"}", event->flow,
            ends ? ", \"bp\": \"e\"" : "", event->blocks ? "wait" : "dependency");
}

static void print_step(const struct timeline *timeline, const struct event *event, FILE *out)
{
    const struct timeline_step *step = &timeline->steps[event->step];

    fprintf(out, "{\"ph\": \"i\", \"s\": \"p\", \"pid\": %u, \"tid\": %u", PROCESS_HOST,
            event->queue + 1);
    print_us("ts", event->time_ns, out);
    if (step->shift)
        fprintf(out, ", \"name\": \"step %zu: context shift\"", step->number);
    else
        fprintf(out, ", \"name\": \"step %zu: %u token%s behind %u\"", step->number,
                step->step.tokens, step->step.tokens == 1 ? "" : "s", step->depth);
    fputs(", \"cat\": \"step\"}", out);
}

static void print_counter(const struct timeline *timeline, const struct event *event, FILE *out)
{
    bool link = event->kind == EVENT_LINK;

    fprintf(out, "{\"ph\": \"C\", \"pid\": %u", link ? PROCESS_LINKS : PROCESS_ALL);
    print_us("ts", event->time_ns, out);
    fputs(", \"name\": ", out);
    json_write_string(out, link ? timeline->directions[event->task] : "busy compute queues");
    if (link)
        fprintf(out, ", \"args\": {\"GB/s\": %.6f}}", event->value);
    else
        fprintf(out, ", \"args\": {\"queues\": %.0f}}", event->value);
}

static void print_event(const struct timeline *timeline, const struct event *event, FILE *out)
{
    switch (event->kind) {
    case EVENT_FLOW_START:
    case EVENT_FLOW_END:
        print_flow(event, out);
        break;
    case EVENT_STEP:
        print_step(timeline, event, out);
        break;
    case EVENT_LINK:
    case EVENT_BUSY:
        print_counter(timeline, event, out);
        break;
    default:
        print_slice(timeline, event, out);
    }
}

static void print(const struct writer *writer, FILE *out)
{
    const struct timeline *timeline = writer->timeline;

    fputs("{\"displayTimeUnit\": \"ns\",\n\"otherData\": {\"source\": ", out);
    json_write_string(out, timeline->source);
    fputs(", \"model\": ", out);
    json_write_string(out, timeline->model);
    fputs(", \"quant\": ", out);
    json_write_string(out, timeline->quant);
    fputs("},\n\"traceEvents\": [\n", out);
    print_processes(writer, out);
    for (size_t i = 0; i < writer->count; i++) {
        fputs(",\n", out);
        print_event(timeline, &writer->events[i], out);
    }
    fputs("\n]}\n", out);
}

int chrome_trace_write(const struct timeline *timeline, FILE *out, struct error *err)
{
    struct writer writer = {.timeline = timeline, .err = err};

    collect(&writer);
    if (!writer.failed)
        print(&writer, out);
    free(writer.events);
    if (writer.failed)
        return -1;
    return fflush(out) == 0 && !ferror(out)
               ? 0
               : error_set(err, ERROR_IO, "the trace cannot be written");
}
