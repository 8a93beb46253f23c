#include "cli/compare_output.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>

#include "config.h"

/* Files have nanoseconds: a smaller difference is rounding. */
#define NO_DIFFERENCE_S 1e-9

/* ---- figures ---- */

/* predicted / measured; NAN where nothing was measured. */
static double ratio(double measured_s, double predicted_s)
{
    return measured_s > 0 ? predicted_s / measured_s : NAN;
}

/* The error of a prediction, as `lopside validate` has it. */
static double error_pct(double measured_s, double predicted_s)
{
    return (ratio(measured_s, predicted_s) - 1) * 100;
}

static double whole_s(const struct comparison *comparison)
{
    return comparison->predicted_s - comparison->measured_s;
}

/* Share of the whole difference; NAN where there is none. */
static double share_pct(const struct comparison *comparison, double contribution_s)
{
    double whole = whole_s(comparison);

    return fabs(whole) > NO_DIFFERENCE_S ? contribution_s / whole * 100 : NAN;
}

static const struct timeline_task *task_of(const struct compare_output *output,
                                           const struct compare_task *row)
{
    return &output->measured->steps[row->step].tasks[row->task];
}

static size_t number_of(const struct compare_output *output, const struct compare_task *row)
{
    return output->measured->steps[row->step].number;
}

static void queue_of(const struct compare_output *output, const struct compare_task *row,
                     char *text, size_t size)
{
    timeline_queue_name(output->measured, timeline_task_queue(task_of(output, row)), text, size);
}

/* ---- Markdown ---- */

/* "-" for a figure that is not there. */
static void print_figure(int width, int digits, bool sign, double value)
{
    if (isnan(value))
        printf(" %*s |", width, "-");
    else if (sign)
        printf(" %+*.*f |", width, digits, value);
    else
        printf(" %*.*f |", width, digits, value);
}

/* Column heads with their widths; below 0: left-aligned. */
struct column {
    const char *head;
    int width;
};

static void print_heads(const struct column *columns, size_t count)
{
    putchar('|');
    for (size_t i = 0; i < count; i++)
        printf(columns[i].width < 0 ? " %-*s |" : " %*s |", abs(columns[i].width), columns[i].head);
    fputs("\n|", stdout);
    for (size_t i = 0; i < count; i++) {
        bool right = columns[i].width > 0;

        putchar(' ');
        for (int c = abs(columns[i].width) - right; c > 0; c--)
            putchar('-');
        fputs(right ? ": |" : " |", stdout);
    }
    putchar('\n');
}

static void print_side(const char *word, const struct timeline *timeline, const char *machine)
{
    printf("%s: %s, %s %s on ", word, timeline->source, timeline->model, timeline->quant);
    for (uint32_t d = 0; d < timeline->device_count; d++) {
        const struct timeline_device *device = &timeline->devices[d];

        printf("%s%s %s", d > 0 ? ", " : "", device->name, device->gpu);
        if (device->slowdown > 1)
            printf(" (slowed %.3g times)", device->slowdown);
        if (device->link_gbs > 0)
            printf(" (link held to %.3g GB/s)", device->link_gbs);
    }
    printf(machine != NULL ? " of %s\n" : "\n", machine);
}

static void print_kinds(const struct comparison *comparison)
{
    static const struct column columns[] = {
        {"op class", -14}, {"count", 7},          {"measured ms", 12}, {"predicted ms", 12},
        {"ratio", 7},      {"median us off", 13}, {"median % off", 12}};

    print_heads(columns, sizeof columns / sizeof *columns);
    for (size_t i = 0; i < comparison->kind_count; i++) {
        const struct compare_kind *row = &comparison->kinds[i];

        printf("| %-14s | %7zu |", program_task_name(row->kind), row->count);
        print_figure(12, 4, false, row->measured_s * 1e3);
        print_figure(12, 4, false, row->predicted_s * 1e3);
        print_figure(7, 3, false, ratio(row->measured_s, row->predicted_s));
        print_figure(13, 3, false, row->median_s * 1e6);
        print_figure(12, 2, false, row->median_ratio * 100);
        putchar('\n');
    }
}

static void print_queues(const struct compare_output *output)
{
    static const struct column columns[] = {
        {"queue", -16}, {"measured busy ms", 16}, {"predicted busy ms", 17},
        {"ratio", 7},   {"measured idle ms", 16}, {"predicted idle ms", 17}};
    const struct comparison *comparison = output->comparison;

    print_heads(columns, sizeof columns / sizeof *columns);
    for (size_t i = 0; i < comparison->queue_count; i++) {
        const struct compare_queue *row = &comparison->queues[i];
        char name[48];

        timeline_queue_name(output->measured, row->queue, name, sizeof name);
        printf("| %-16s |", name);
        print_figure(16, 4, false, row->measured_busy_s * 1e3);
        print_figure(17, 4, false, row->predicted_busy_s * 1e3);
        print_figure(7, 3, false, ratio(row->measured_busy_s, row->predicted_busy_s));
        print_figure(16, 4, false, row->measured_idle_s * 1e3);
        print_figure(17, 4, false, row->predicted_idle_s * 1e3);
        putchar('\n');
    }
}

static void print_steps(const struct comparison *comparison)
{
    static const struct column columns[] = {{"step", 6},          {"tokens", 7},
                                            {"depth", 8},         {"measured ms", 12},
                                            {"predicted ms", 12}, {"error %", 8}};

    print_heads(columns, sizeof columns / sizeof *columns);
    for (size_t i = 0; i < comparison->step_count; i++) {
        const struct compare_step *row = &comparison->steps[i];

        printf("| %6zu | %7u | %8u |", row->number, row->tokens, row->depth);
        print_figure(12, 4, false, row->measured_s * 1e3);
        print_figure(12, 4, false, row->predicted_s * 1e3);
        print_figure(8, 2, true, error_pct(row->measured_s, row->predicted_s));
        putchar('\n');
    }
    printf("| %6s | %7s | %8s |", "all", "", "");
    print_figure(12, 4, false, comparison->measured_s * 1e3);
    print_figure(12, 4, false, comparison->predicted_s * 1e3);
    print_figure(8, 2, true, error_pct(comparison->measured_s, comparison->predicted_s));
    putchar('\n');
}

static void print_tasks(const struct compare_output *output)
{
    static const struct column columns[] = {
        {"step", 6},         {"task", 6},          {"queue", -16},         {"what", -34},
        {"measured us", 12}, {"predicted us", 12}, {"contributes us", 14}, {"% of difference", 15}};
    const struct comparison *comparison = output->comparison;

    print_heads(columns, sizeof columns / sizeof *columns);
    for (size_t i = 0; i < comparison->task_count; i++) {
        const struct compare_task *row = &comparison->tasks[i];
        char queue[48], what[120];

        queue_of(output, row, queue, sizeof queue);
        timeline_task_text(output->measured, task_of(output, row), what, sizeof what);
        printf("| %6zu | %6u | %-16s | %-34s |", number_of(output, row), row->task, queue, what);
        print_figure(12, 3, false, row->measured_s * 1e6);
        print_figure(12, 3, false, row->predicted_s * 1e6);
        print_figure(14, 3, true, row->contribution_s * 1e6);
        print_figure(15, 1, true, share_pct(comparison, row->contribution_s));
        putchar('\n');
    }
}

static void print_markdown(const struct compare_output *output)
{
    print_side("measured", output->measured, NULL);
    print_side("predicted", output->predicted, output->machine);
    putchar('\n');
    print_kinds(output->comparison);
    putchar('\n');
    print_queues(output);
    putchar('\n');
    print_steps(output->comparison);
    printf("\nThe steps differ by %+.3f us in all; these tasks contribute most:\n\n",
           whole_s(output->comparison) * 1e6);
    print_tasks(output);
    puts("\nbuild: lopside " PACKAGE_VERSION);
}

/* ---- JSON and CSV: rows of the same fields ---- */

#define SET(key, value) json_object_set_new(object, key, value)

/* Null for a figure that is not there. */
static json_t *figure(double value)
{
    return isnan(value) ? json_null() : json_real(value);
}

static json_t *kind_row(const struct compare_kind *row)
{
    json_t *object = json_object();

    SET("kind", json_string(program_task_name(row->kind)));
    SET("count", json_integer((json_int_t)row->count));
    SET("measured_us", figure(row->measured_s * 1e6));
    SET("predicted_us", figure(row->predicted_s * 1e6));
    SET("ratio", figure(ratio(row->measured_s, row->predicted_s)));
    SET("median_error_us", figure(row->median_s * 1e6));
    SET("median_error_pct", figure(row->median_ratio * 100));
    return object;
}

static json_t *queue_row(const struct compare_output *output, const struct compare_queue *row)
{
    json_t *object = json_object();
    char name[48];

    timeline_queue_name(output->measured, row->queue, name, sizeof name);
    SET("queue", json_string(name));
    SET("measured_us", figure(row->measured_busy_s * 1e6));
    SET("predicted_us", figure(row->predicted_busy_s * 1e6));
    SET("ratio", figure(ratio(row->measured_busy_s, row->predicted_busy_s)));
    SET("measured_idle_us", figure(row->measured_idle_s * 1e6));
    SET("predicted_idle_us", figure(row->predicted_idle_s * 1e6));
    return object;
}

static json_t *step_row(const struct compare_step *row)
{
    json_t *object = json_object();

    SET("step", json_integer((json_int_t)row->number));
    SET("tokens", json_integer(row->tokens));
    SET("depth", json_integer(row->depth));
    SET("measured_us", figure(row->measured_s * 1e6));
    SET("predicted_us", figure(row->predicted_s * 1e6));
    SET("error_pct", figure(error_pct(row->measured_s, row->predicted_s)));
    return object;
}

static json_t *task_row(const struct compare_output *output, const struct compare_task *row)
{
    const struct timeline_task *task = task_of(output, row);
    json_t *object = json_object();
    char queue[48], what[120];

    queue_of(output, row, queue, sizeof queue);
    timeline_task_text(output->measured, task, what, sizeof what);
    SET("step", json_integer((json_int_t)number_of(output, row)));
    SET("task", json_integer(row->task));
    SET("kind", json_string(program_task_name(task->kind)));
    SET("what", json_string(what));
    SET("queue", json_string(queue));
    SET("measured_us", figure(row->measured_s * 1e6));
    SET("predicted_us", figure(row->predicted_s * 1e6));
    SET("contribution_us", figure(row->contribution_s * 1e6));
    SET("share_pct", figure(share_pct(output->comparison, row->contribution_s)));
    return object;
}

/* What both sides are, and the whole difference. */
static json_t *side(const struct timeline *timeline, const char *machine)
{
    json_t *object = json_object(), *gpus = json_array();

    for (uint32_t d = 0; d < timeline->device_count; d++)
        json_array_append_new(gpus, json_string(timeline->devices[d].gpu));
    SET("source", json_string(timeline->source));
    SET("model", json_string(timeline->model));
    SET("quant", json_string(timeline->quant));
    SET("gpus", gpus);
    SET("machine", machine != NULL ? json_string(machine) : json_null());
    return object;
}

#undef SET

struct rows {
    json_t *kinds, *queues, *steps, *tasks;
};

static struct rows make_rows(const struct compare_output *output)
{
    const struct comparison *comparison = output->comparison;
    struct rows rows = {json_array(), json_array(), json_array(), json_array()};

    for (size_t i = 0; i < comparison->kind_count; i++)
        json_array_append_new(rows.kinds, kind_row(&comparison->kinds[i]));
    for (size_t i = 0; i < comparison->queue_count; i++)
        json_array_append_new(rows.queues, queue_row(output, &comparison->queues[i]));
    for (size_t i = 0; i < comparison->step_count; i++)
        json_array_append_new(rows.steps, step_row(&comparison->steps[i]));
    for (size_t i = 0; i < comparison->task_count; i++)
        json_array_append_new(rows.tasks, task_row(output, &comparison->tasks[i]));
    return rows;
}

static void print_json(const struct compare_output *output, const struct rows *rows)
{
    const struct comparison *comparison = output->comparison;
    json_t *root = json_object();

    json_object_set_new(root, "measured", side(output->measured, NULL));
    json_object_set_new(root, "predicted", side(output->predicted, output->machine));
    json_object_set_new(root, "measured_us", json_real(comparison->measured_s * 1e6));
    json_object_set_new(root, "predicted_us", json_real(comparison->predicted_s * 1e6));
    json_object_set_new(root, "difference_us", json_real(whole_s(comparison) * 1e6));
    json_object_set(root, "kinds", rows->kinds);
    json_object_set(root, "queues", rows->queues);
    json_object_set(root, "steps", rows->steps);
    json_object_set(root, "tasks", rows->tasks);
    json_dumpf(root, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(10));
    putchar('\n');
    json_decref(root);
}

/* Every row has all columns; those of other tables are empty. */
static const char *const csv_columns[] = {"step",
                                          "task",
                                          "kind",
                                          "what",
                                          "queue",
                                          "count",
                                          "tokens",
                                          "depth",
                                          "measured_us",
                                          "predicted_us",
                                          "ratio",
                                          "error_pct",
                                          "median_error_us",
                                          "median_error_pct",
                                          "measured_idle_us",
                                          "predicted_idle_us",
                                          "contribution_us",
                                          "share_pct"};

static void print_csv_value(const json_t *value)
{
    fputs(",\"", stdout);
    if (json_is_string(value))
        for (const char *c = json_string_value(value); *c != '\0'; c++)
            fputs(*c == '"' ? "\"\"" : (char[2]){*c, '\0'}, stdout);
    else if (json_is_integer(value))
        printf("%lld", (long long)json_integer_value(value));
    else if (json_is_real(value))
        printf("%.6f", json_real_value(value));
    putchar('"');
}

static void print_csv_rows(const char *table, const json_t *rows)
{
    for (size_t i = 0; i < json_array_size(rows); i++) {
        printf("\"%s\"", table);
        for (size_t c = 0; c < sizeof csv_columns / sizeof *csv_columns; c++)
            print_csv_value(json_object_get(json_array_get(rows, i), csv_columns[c]));
        putchar('\n');
    }
}

static void print_csv(const struct rows *rows)
{
    fputs("table", stdout);
    for (size_t c = 0; c < sizeof csv_columns / sizeof *csv_columns; c++)
        printf(",%s", csv_columns[c]);
    putchar('\n');
    print_csv_rows("kinds", rows->kinds);
    print_csv_rows("queues", rows->queues);
    print_csv_rows("steps", rows->steps);
    print_csv_rows("tasks", rows->tasks);
}

void compare_output_print(const struct compare_output *output)
{
    struct rows rows;

    if (output->format == COMPARE_MARKDOWN) {
        print_markdown(output);
        return;
    }
    rows = make_rows(output);
    if (output->format == COMPARE_JSON)
        print_json(output, &rows);
    else
        print_csv(&rows);
    json_decref(rows.kinds);
    json_decref(rows.queues);
    json_decref(rows.steps);
    json_decref(rows.tasks);
}
