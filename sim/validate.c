#include "sim/validate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "sim/values.h"

const char *validate_status_name(enum validate_status status)
{
    static const char *const names[] = {"counted",  "fitted",  "duplicate",
                                        "repeated", "derived", "skipped"};

    return names[status];
}

/* ---- models and machines, opened once ---- */

struct opened {
    char *name;
    void *thing; /* NULL: it could not be opened */
    struct error err;
};

struct cache {
    struct opened *entries;
    size_t count;
};

static struct opened *find(struct cache *cache, const char *name)
{
    for (size_t i = 0; i < cache->count; i++)
        if (strcmp(cache->entries[i].name, name) == 0)
            return &cache->entries[i];
    return NULL;
}

static struct opened *add(struct cache *cache, const char *name, struct error *err)
{
    struct opened *entries = realloc(cache->entries, (cache->count + 1) * sizeof *entries);

    if (entries == NULL) {
        error_set(err, ERROR_MEMORY, "no memory for %s", name);
        return NULL;
    }
    cache->entries = entries;
    entries[cache->count] = (struct opened){.name = strdup(name)};
    if (entries[cache->count].name == NULL) {
        error_set(err, ERROR_MEMORY, "no memory for %s", name);
        return NULL;
    }
    return &entries[cache->count++];
}

struct bench {
    struct cache models, machines;
    const struct machine *given; /* stands for the profile of its name */
    struct {
        char *key;
    } * fitted;
    size_t fitted_count;
};

static const struct model *open_model(struct bench *bench, const struct row_case *c,
                                      struct error *err)
{
    struct opened *opened = find(&bench->models, c->model_spec);

    if (opened == NULL) {
        opened = add(&bench->models, c->model_spec, err);
        if (opened == NULL)
            return NULL;
        opened->thing = model_from_catalogue(c->model_spec, &opened->err);
    }
    if (opened->thing == NULL)
        error_set(err, opened->err.code, "%s", opened->err.text);
    return opened->thing;
}

static bool is_paced(const struct row_case *c)
{
    return c->pace_devices[0] != '\0' || c->pace_links[0] != '\0';
}

/* The given machine, as slow as the row's. */
static struct machine *paced_copy(const struct machine *given, const struct row_case *c,
                                  struct error *err)
{
    char *text = machine_to_json(given, err);
    struct machine *copy =
        text != NULL ? machine_parse(text, strlen(text), given->source, NULL, err) : NULL;

    free(text);
    if (copy != NULL && row_case_pace(c, copy, err) != 0) {
        machine_free(copy);
        return NULL;
    }
    return copy;
}

static const struct machine *open_machine(struct bench *bench, const struct row_case *c,
                                          struct error *err)
{
    bool is_given = bench->given != NULL && c->variant[0] == '\0' &&
                    strcmp(bench->given->name, c->machine_name) == 0;
    char name[360];
    struct opened *opened;

    if (is_given && !is_paced(c))
        return bench->given;
    snprintf(name, sizeof name, "%s %s %zu %s %s", c->machine_name, c->variant, c->row->gpu_count,
             c->pace_devices, c->pace_links);
    opened = find(&bench->machines, name);
    if (opened == NULL) {
        opened = add(&bench->machines, name, err);
        if (opened == NULL)
            return NULL;
        opened->thing = is_given ? paced_copy(bench->given, c, &opened->err)
                                 : row_case_machine(c, &opened->err);
    }
    if (opened->thing == NULL)
        error_set(err, opened->err.code, "%s", opened->err.text);
    return opened->thing;
}

static void close_bench(struct bench *bench)
{
    for (size_t i = 0; i < bench->models.count; i++) {
        model_free(bench->models.entries[i].thing);
        free(bench->models.entries[i].name);
    }
    for (size_t i = 0; i < bench->machines.count; i++) {
        machine_free(bench->machines.entries[i].thing);
        free(bench->machines.entries[i].name);
    }
    for (size_t i = 0; i < bench->fitted_count; i++)
        free(bench->fitted[i].key);
    free(bench->models.entries);
    free(bench->machines.entries);
    free(bench->fitted);
}

/* ---- one row ---- */

static bool is_fitted(const struct machine *machine, const char *id)
{
    for (size_t i = 0; i < machine->fitted_row_count; i++)
        if (strcmp(machine->fitted_rows[i], id) == 0)
            return true;
    return false;
}

static int remember_fitted(struct bench *bench, const char *key, struct error *err)
{
    void *grown = realloc(bench->fitted, (bench->fitted_count + 1) * sizeof *bench->fitted);

    if (grown == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for a fitted row");
    bench->fitted = grown;
    bench->fitted[bench->fitted_count].key = strdup(key);
    bench->fitted_count++;
    return 0;
}

static void skip(struct validate_row *out, const char *reason)
{
    out->status = VALIDATE_SKIPPED;
    snprintf(out->reason, sizeof out->reason, "%s", reason);
}

static void set_error(struct validate_row *out)
{
    if (out->metric == ROW_FITS || out->metric == ROW_STATUS)
        out->error_pct = out->predicted == out->measured ? 0 : 100;
    else
        out->error_pct = (out->predicted - out->measured) / out->measured * 100;
}

static void predict_row(struct bench *bench, struct validate_row *out, struct row_case *c)
{
    struct error err = {0};
    const struct model *model = open_model(bench, c, &err);
    const struct machine *machine = model != NULL ? open_machine(bench, c, &err) : NULL;
    struct row_value value = {0};

    if (machine == NULL || row_case_predict(c, model, machine, &value, &err) != 0) {
        skip(out, err.text);
        return;
    }
    out->predicted = value.value;
    out->fits = value.fits;
    set_error(out);
    if (is_fitted(machine, out->row->id)) {
        char key[65536];

        out->status = VALIDATE_FITTED;
        if (row_case_key(c, model, machine, key, sizeof key, &err) == 0)
            remember_fitted(bench, key, &err);
    }
}

/* For free(); NULL without one. */
static char *key_of(struct bench *bench, struct row_case *c)
{
    struct error err = {0};
    const struct model *model = open_model(bench, c, &err);
    const struct machine *machine = model != NULL ? open_machine(bench, c, &err) : NULL;
    char key[65536];

    if (machine == NULL || row_case_key(c, model, machine, key, sizeof key, &err) != 0)
        return NULL;
    return strdup(key);
}

static bool is_of_same_table(const struct validate_row *a, const struct validate_row *b)
{
    char one[48], other[48];

    validate_table_id(a->row->id, one, sizeof one);
    validate_table_id(b->row->id, other, sizeof other);
    return strcmp(one, other) == 0;
}

/* Runs of another process, or at another time, of the same configuration: the mean of all rows, and
 * the spread within them and between. */
static void add_repeat(struct validate_row *first, struct validate_row *repeat)
{
    double n = (double)++first->rows, off = repeat->measured - first->measured;
    double within = first->spread * first->spread;

    first->measured += off / n;
    within = ((n - 1) * within + repeat->spread * repeat->spread) / n;
    first->spread = sqrt(within + (n - 1) / (n * n) * off * off);
    set_error(first);
    repeat->status = VALIDATE_REPEATED;
}

/* Rows that have the configuration of another one, once all fitted ones are known: of a fitted one,
 * or of a counted one before, where it is known of both how far their runs are apart.
 * @param keys of the rows before; `keys[at]` is set */
static void mark_same(struct bench *bench, struct validate_row *rows, size_t at, char **keys,
                      struct row_case *c)
{
    struct validate_row *out = &rows[at];

    keys[at] = key_of(bench, c);
    if (keys[at] == NULL)
        return;
    for (size_t i = 0; i < bench->fitted_count; i++)
        if (bench->fitted[i].key != NULL && strcmp(bench->fitted[i].key, keys[at]) == 0) {
            out->status = VALIDATE_DUPLICATE;
            return;
        }
    for (size_t i = 0; i < at && out->rows > 0; i++)
        if (keys[i] != NULL && rows[i].status == VALIDATE_COUNTED && rows[i].rows > 0 &&
            rows[i].metric == out->metric && is_of_same_table(&rows[i], out) &&
            strcmp(keys[i], keys[at]) == 0) {
            add_repeat(&rows[i], out);
            return;
        }
}

static void read_row(const struct trace_row *row, struct validate_row *out, struct row_case *c)
{
    char reason[400];

    *out = (struct validate_row){.row = row, .status = VALIDATE_COUNTED, .fits = true};
    if (row_case_read(row, c, reason, sizeof reason) != 0)
        skip(out, reason);
    else if (c->metric == ROW_STATUS && row_case_read_status(row, &out->measured) != 0)
        skip(out, "its value is no status of a plan");
    else if (c->metric != ROW_STATUS && row->value.kind == TRACE_VALUE_TEXT)
        skip(out, "its value is text");
    else if (c->metric != ROW_FITS && c->metric != ROW_STATUS && !(row->value.number > 0))
        skip(out, "its value is not above 0");
    out->metric = c->metric;
    if (c->metric != ROW_STATUS)
        out->measured = row->value.number;
    if (trace_row_has(row, TRACE_FIELD_STDDEV)) {
        out->spread = row->stddev;
        out->rows = 1;
    }
    if (row->derived)
        out->status = VALIDATE_DERIVED;
}

/* ---- figures ---- */

double validate_percentile(const double *sorted, size_t count, double percent)
{
    size_t rank = (size_t)ceil(percent * (double)count / 100); /* exact where it is whole */

    return count == 0 ? 0 : sorted[rank > 0 ? rank - 1 : 0];
}

void validate_table_id(const char *id, char *table, size_t size)
{
    const char *dash = strrchr(id, '-');
    size_t length =
        dash != NULL && dash[1] >= '0' && dash[1] <= '9' ? (size_t)(dash - id) : strlen(id);

    snprintf(table, size, "%.*s", (int)length, id);
}

/* Which rows a line of figures is about. */
enum pool { POOL_SPEED, POOL_MEMORY, POOL_COUNTS };

static bool is_in(const struct validate_row *row, enum pool pool)
{
    enum row_metric_kind kind = row_metric_kind(row->metric);

    return pool == POOL_SPEED    ? row_metric_is_speed(row->metric)
           : pool == POOL_MEMORY ? kind == ROW_KIND_SIZE
                                 : kind == ROW_KIND_COUNT;
}

/* `table` NULL takes rows of all tables. */
static int compute(const struct validation *validation, const char *table, enum pool pool,
                   struct validate_figures *figures, struct error *err)
{
    double *errors = malloc((validation->row_count + 1) * sizeof *errors);
    size_t n = 0;

    if (errors == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for %zu rows", validation->row_count);
    snprintf(figures->id, sizeof figures->id, "%s", table != NULL ? table : "");
    for (size_t i = 0; i < validation->row_count; i++) {
        const struct validate_row *row = &validation->rows[i];
        char own[48];

        validate_table_id(row->row->id, own, sizeof own);
        if (table != NULL && strcmp(own, table) != 0)
            continue;
        if (!is_in(row, pool))
            continue;
        if (row->status == VALIDATE_SKIPPED)
            figures->skipped++;
        if (row->status == VALIDATE_COUNTED)
            errors[n++] = fabs(row->error_pct);
    }
    values_sort(errors, n);
    figures->n = n;
    figures->median_pct = validate_percentile(errors, n, 50);
    figures->p95_pct = validate_percentile(errors, n, 95);
    figures->max_pct = n > 0 ? errors[n - 1] : 0;
    free(errors);
    return 0;
}

static bool has_table(const struct validation *validation, const char *table)
{
    for (size_t i = 0; i < validation->table_count; i++)
        if (strcmp(validation->tables[i].id, table) == 0)
            return true;
    return false;
}

/* ---- orders ---- */

/* How the machine was slowed is not part of a plan. */
static const char *pace_of(const struct trace_row *row, const char *key)
{
    for (size_t i = 0; i < row->other_plan_key_count; i++)
        if (strcmp(row->other_plan_keys[i].key, key) == 0)
            return row->other_plan_keys[i].json;
    return "";
}

static bool are_on_one_machine(const struct trace_row *a, const struct trace_row *b)
{
    if (strcmp(a->machine, b->machine) != 0 || a->gpu_count != b->gpu_count)
        return false;
    for (size_t i = 0; i < a->gpu_count; i++)
        if (strcmp(a->gpus[i], b->gpus[i]) != 0 ||
            (i < a->link_count && i < b->link_count && strcmp(a->links[i], b->links[i]) != 0))
            return false;
    return a->clocks == b->clocks && a->link_count == b->link_count &&
           strcmp(a->cpu, b->cpu) == 0 && strcmp(a->ram, b->ram) == 0 &&
           strcmp(a->backend, b->backend) == 0;
}

static bool have_one_workload(const struct trace_row *a, const struct trace_row *b)
{
    if (strcmp(a->tool, b->tool) != 0 || a->n_prompt != b->n_prompt || a->n_gen != b->n_gen ||
        a->n_depth != b->n_depth || a->n_slots != b->n_slots ||
        a->other_workload_key_count != b->other_workload_key_count)
        return false;
    for (size_t i = 0; i < a->other_workload_key_count; i++)
        if (strcmp(a->other_workload_keys[i].key, b->other_workload_keys[i].key) != 0 ||
            strcmp(a->other_workload_keys[i].json, b->other_workload_keys[i].json) != 0)
            return false;
    return true;
}

static bool differ_in_plan_alone(const struct trace_row *a, const struct trace_row *b)
{
    return are_on_one_machine(a, b) && have_one_workload(a, b) &&
           strcmp(a->engine, b->engine) == 0 && strcmp(a->build, b->build) == 0 &&
           strcmp(a->model, b->model) == 0 && strcasecmp(a->quant, b->quant) == 0 &&
           strcmp(a->metric, b->metric) == 0 &&
           strcmp(pace_of(a, "pace_devices"), pace_of(b, "pace_devices")) == 0 &&
           strcmp(pace_of(a, "pace_links"), pace_of(b, "pace_links")) == 0;
}

static bool is_ordered(const struct validate_row *row)
{
    return row->status == VALIDATE_COUNTED && row_metric_is_speed(row->metric);
}

struct validate_order validate_order_of(const struct validate_row *rows, size_t count)
{
    struct validate_order order = {0};

    for (size_t i = 0; i < count; i++)
        for (size_t k = i + 1; k < count && is_ordered(&rows[i]); k++) {
            double least = fmin(rows[i].measured, rows[k].measured);
            double apart = rows[k].measured - rows[i].measured;

            if (!is_ordered(&rows[k]) || !differ_in_plan_alone(rows[i].row, rows[k].row) ||
                fabs(apart) * 100 <= VALIDATE_APART_PCT * least)
                continue;
            order.pairs++;
            order.wrong += (rows[k].predicted - rows[i].predicted) * apart <= 0;
        }
    return order;
}

/* ---- all ---- */

/* Rows of a plan that ran, or of which it is said whether it did. A buffer's size can be that
 * of a plan that failed. */
static bool has_run(const struct validate_row *row)
{
    return row_metric_is_speed(row->metric) || row->metric == ROW_VRAM || row->metric == ROW_FITS ||
           row->metric == ROW_STATUS;
}

static int compute_all(struct validation *validation, struct error *err)
{
    for (size_t i = 0; i < validation->row_count; i++) {
        struct validate_row *row = &validation->rows[i];
        char table[48];

        if (row->status != VALIDATE_SKIPPED && row->status != VALIDATE_DERIVED && has_run(row)) {
            bool measured = row->metric == ROW_FITS || row->metric == ROW_STATUS;

            validation->verdicts++;
            validation->wrong_verdicts += measured ? row->predicted != row->measured : !row->fits;
        }
        validate_table_id(row->row->id, table, sizeof table);
        if (!is_in(row, POOL_SPEED) || has_table(validation, table))
            continue;
        if (compute(validation, table, POOL_SPEED, &validation->tables[validation->table_count++],
                    err) != 0)
            return -1;
    }
    validation->order = validate_order_of(validation->rows, validation->row_count);
    return compute(validation, NULL, POOL_SPEED, &validation->total, err) != 0 ||
                   compute(validation, NULL, POOL_MEMORY, &validation->memory, err) != 0 ||
                   compute(validation, NULL, POOL_COUNTS, &validation->counts, err) != 0
               ? -1
               : 0;
}

int validate_rows(const struct trace *traces, size_t trace_count, const struct machine *machine,
                  struct validation *validation, struct error *err)
{
    struct bench bench = {.given = machine};
    struct row_case *cases;
    char **keys;
    size_t count = 0, at = 0;
    int status = -1;

    for (size_t t = 0; t < trace_count; t++)
        count += traces[t].count;
    *validation = (struct validation){.row_count = count};
    validation->rows = calloc(count + 1, sizeof *validation->rows);
    validation->tables = calloc(count + 1, sizeof *validation->tables);
    cases = calloc(count + 1, sizeof *cases);
    keys = calloc(count + 1, sizeof *keys);
    if (validation->rows == NULL || validation->tables == NULL || cases == NULL || keys == NULL) {
        error_set(err, ERROR_MEMORY, "no memory for %zu rows", count);
        goto done;
    }
    for (size_t t = 0; t < trace_count; t++) {
        for (size_t i = 0; i < traces[t].count; i++, at++) {
            read_row(&traces[t].rows[i], &validation->rows[at], &cases[at]);
            if (validation->rows[at].status == VALIDATE_COUNTED)
                predict_row(&bench, &validation->rows[at], &cases[at]);
        }
    }
    for (size_t i = 0; i < count; i++)
        if (validation->rows[i].status == VALIDATE_COUNTED)
            mark_same(&bench, validation->rows, i, keys, &cases[i]);
    status = compute_all(validation, err);

done:
    if (status != 0)
        validation_close(validation);
    for (size_t i = 0; keys != NULL && i < count; i++)
        free(keys[i]);
    free(keys);
    free(cases);
    close_bench(&bench);
    return status;
}

void validation_close(struct validation *validation)
{
    free(validation->rows);
    free(validation->tables);
    *validation = (struct validation){0};
}
