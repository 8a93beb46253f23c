/* lopside validate: predictions beside measured rows. */
#include <getopt.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/trace_list.h"
#include "cli/validate_tables.h"
#include "sim/validate.h"

enum output { OUTPUT_MD, OUTPUT_JSON, OUTPUT_TABLES };

struct options {
    enum output output;
    bool all;
    size_t worst;
    const char *profile;
};

static void print_help(void)
{
    puts("Usage: lopside validate [OPTION]... FILE|DIR...\n"
         "Predicts every measured row of the files (JSON lines, as traces/README.md has them,\n"
         "or the output of llama-bench in any format) and prints how far apart the two are.\n"
         "A row that was used to fit the machine's constants, or repeats one, is reported\n"
         "apart and not counted. Of a directory, all *.jsonl are read.\n\n"
         "  -o, --output md|json|tables\n"
         "                        the figures (default), all rows as JSON, or a document with\n"
         "                        each table of the sources, measured beside predicted\n"
         "  -a, --all             list every row, not only the worst\n"
         "  -w, --worst N         how many of the worst rows to list (default 10)\n"
         "      --machine NAME|FILE   the machine of rows that name it, that name none, or\n"
         "                        that list its GPUs, as llama-bench does\n"
         "  -h, --help            this text\n\n"
         "Errors are (predicted - measured) / measured in percent; percentiles are by\n"
         "nearest rank over absolute errors.");
}

static int read_output(const char *word, enum output *output)
{
    static const char *const words[] = {"md", "json", "tables"};

    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strcmp(word, words[i]) == 0) {
            *output = (enum output)i;
            return 0;
        }
    }
    return -1;
}

static int parse(int argc, char **argv, struct options *options)
{
    static const struct option longs[] = {
        {"output", required_argument, NULL, 'o'}, {"all", no_argument, NULL, 'a'},
        {"worst", required_argument, NULL, 'w'},  {"machine", required_argument, NULL, 'M'},
        {"help", no_argument, NULL, 'h'},         {NULL, 0, NULL, 0}};
    int option;

    *options = (struct options){.worst = 10};
    while ((option = getopt_long(argc, argv, "o:aw:h", longs, NULL)) != -1) {
        switch (option) {
        case 'o':
            if (read_output(optarg, &options->output) != 0)
                return cli_wrong_call("validate", "-o %s: md, json and tables are accepted",
                                      optarg);
            break;
        case 'a':
            options->all = true;
            break;
        case 'w':
            options->worst = (size_t)strtoul(optarg, NULL, 10);
            break;
        case 'M':
            options->profile = optarg;
            break;
        case 'h':
            print_help();
            return -1;
        default:
            return cli_unknown_option("validate");
        }
    }
    if (optind == argc)
        return cli_wrong_call("validate", "no FILE or DIR given");
    return CLI_OK;
}

/* ---- tables ---- */

static void print_figures(const struct validate_figures *f, const char *name)
{
    printf("| %-22s | %4zu | %8.2f | %8.2f | %8.2f | %7zu |\n", name, f->n, f->median_pct,
           f->p95_pct, f->max_pct, f->skipped);
}

static void print_row(const struct validate_row *row)
{
    bool predicted = row->status != VALIDATE_SKIPPED && row->status != VALIDATE_DERIVED;
    bool text = row->status == VALIDATE_SKIPPED && row->row->value.kind == TRACE_VALUE_TEXT;
    char measured[32] = "text", value[32] = "-", error[32] = "-";

    if (!text)
        snprintf(measured, sizeof measured, "%.2f", row->measured);
    if (predicted) {
        snprintf(value, sizeof value, "%.2f", row->predicted);
        snprintf(error, sizeof error, "%+.2f", row->error_pct);
    }
    printf("| %-24s | %-10s | %10s | %10s | %7s | %-9s | %.80s |\n", row->row->id, row->row->metric,
           measured, value, error, validate_status_name(row->status), row->reason);
}

static int by_error(const void *a, const void *b)
{
    const struct validate_row *x = *(const struct validate_row *const *)a;
    const struct validate_row *y = *(const struct validate_row *const *)b;
    double ex = fabs(x->error_pct), ey = fabs(y->error_pct);

    return ex != ey ? (ex < ey) - (ex > ey) : (x > y) - (x < y);
}

static void print_rows(const struct validation *validation, const struct options *options)
{
    const struct validate_row **rows = malloc((validation->row_count + 1) * sizeof *rows);
    size_t count = 0;

    if (rows == NULL)
        return;
    for (size_t i = 0; i < validation->row_count; i++)
        if (options->all || validation->rows[i].status == VALIDATE_COUNTED)
            rows[count++] = &validation->rows[i];
    if (!options->all) {
        qsort(rows, count, sizeof *rows, by_error);
        if (count > options->worst)
            count = options->worst;
    }
    printf("\n| %-24s | %-10s | %10s | %10s | %7s | %-9s | reason |\n",
           options->all ? "row" : "worst rows", "what", "measured", "predicted", "error %",
           "status");
    puts(
        "| ------------------------ | ---------- | ---------: | ---------: | ------: | --------- | "
        "------ |");
    for (size_t i = 0; i < count; i++)
        print_row(rows[i]);
    free(rows);
}

static void print_fitted(const struct validation *validation)
{
    size_t fitted = 0, duplicates = 0, repeated = 0, derived = 0;

    for (size_t i = 0; i < validation->row_count; i++) {
        fitted += validation->rows[i].status == VALIDATE_FITTED;
        duplicates += validation->rows[i].status == VALIDATE_DUPLICATE;
        repeated += validation->rows[i].status == VALIDATE_REPEATED;
        derived += validation->rows[i].status == VALIDATE_DERIVED;
    }
    printf("\nNot counted: %zu rows used for fitting, %zu that repeat one, %zu measured again, %zu "
           "derived by their author.\n",
           fitted, duplicates, repeated, derived);
}

static void print_text(const struct validation *validation, const struct options *options)
{
    printf("| %-22s | %4s | %8s | %8s | %8s | %7s |\n", "table", "n", "median %", "p95 %", "max %",
           "skipped");
    puts("| ---------------------- | ---: | -------: | -------: | -------: | ------: |");
    for (size_t i = 0; i < validation->table_count; i++)
        if (validation->tables[i].n + validation->tables[i].skipped > 0)
            print_figures(&validation->tables[i], validation->tables[i].id);
    print_figures(&validation->total, "total");
    if (validation->memory.n > 0)
        print_figures(&validation->memory, "memory");
    if (validation->counts.n > 0)
        print_figures(&validation->counts, "counts");
    printf("\nFits or not, runs or not: %zu of %zu rows right.\n",
           validation->verdicts - validation->wrong_verdicts, validation->verdicts);
    if (validation->order.pairs > 0)
        printf("Orders: %zu of %zu pairs of plans that are more than %g %% apart right.\n",
               validation->order.pairs - validation->order.wrong, validation->order.pairs,
               VALIDATE_APART_PCT);
    print_fitted(validation);
    print_rows(validation, options);
}

/* ---- JSON ---- */

static json_t *figures_json(const struct validate_figures *f)
{
    json_t *object = json_pack("{s:s, s:I, s:f, s:f, s:f, s:I}", "id", f->id, "n", (json_int_t)f->n,
                               "median_pct", f->median_pct, "p95_pct", f->p95_pct, "max_pct",
                               f->max_pct, "skipped", (json_int_t)f->skipped);

    return object;
}

static json_t *row_json(const struct validate_row *row)
{
    bool predicted = row->status != VALIDATE_SKIPPED && row->status != VALIDATE_DERIVED;
    static const char *const statuses[] = {"aborts", "wrong", "works"};
    bool verdict = row->metric == ROW_FITS;
    json_t *object = json_object();

    json_object_set_new(object, "id", json_string(row->row->id));
    json_object_set_new(object, "metric", json_string(row->row->metric));
    json_object_set_new(object, "measured",
                        verdict ? json_boolean(row->measured != 0)
                        : row->row->value.kind == TRACE_VALUE_TEXT
                            ? json_string(row->row->value.text)
                            : json_real(row->measured));
    json_object_set_new(object, "predicted",
                        !predicted                  ? json_null()
                        : verdict                   ? json_boolean(row->predicted != 0)
                        : row->metric == ROW_STATUS ? json_string(statuses[(int)row->predicted])
                                                    : json_real(row->predicted));
    json_object_set_new(object, "error_pct", predicted ? json_real(row->error_pct) : json_null());
    if (predicted)
        json_object_set_new(object, "fits", json_boolean(row->fits));
    json_object_set_new(object, "status", json_string(validate_status_name(row->status)));
    if (row->reason[0] != '\0')
        json_object_set_new(object, "reason", json_string(row->reason));
    return object;
}

static int print_json(const struct validation *validation)
{
    json_t *root = json_object(), *tables = json_array(), *rows = json_array();

    for (size_t i = 0; i < validation->table_count; i++)
        json_array_append_new(tables, figures_json(&validation->tables[i]));
    for (size_t i = 0; i < validation->row_count; i++)
        json_array_append_new(rows, row_json(&validation->rows[i]));
    json_object_set_new(root, "tables", tables);
    json_object_set_new(root, "total", figures_json(&validation->total));
    json_object_set_new(root, "memory", figures_json(&validation->memory));
    json_object_set_new(root, "counts", figures_json(&validation->counts));
    json_object_set_new(root, "verdicts",
                        json_pack("{s:I, s:I}", "n", (json_int_t)validation->verdicts, "wrong",
                                  (json_int_t)validation->wrong_verdicts));
    json_object_set_new(root, "order",
                        json_pack("{s:I, s:I}", "n", (json_int_t)validation->order.pairs, "wrong",
                                  (json_int_t)validation->order.wrong));
    json_object_set_new(root, "rows", rows);
    json_dumpf(root, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(10));
    putchar('\n');
    json_decref(root);
    return CLI_OK;
}

/* ---- running ---- */

static int run(struct trace_list *traces, const struct options *options, struct error *err)
{
    struct validation validation;
    struct machine *machine = NULL;
    int status = 0;

    if (options->profile != NULL) {
        machine = machine_open(options->profile, NULL, err);
        if (machine == NULL)
            return -1;
        trace_list_set_machine(traces, machine, machine->name);
    }
    if (validate_rows(traces->entries, traces->count, machine, &validation, err) != 0) {
        machine_free(machine);
        return -1;
    }
    if (options->output == OUTPUT_JSON)
        print_json(&validation);
    else if (options->output == OUTPUT_TABLES)
        status = validate_tables_print(&validation, traces->entries, traces->count, err);
    else
        print_text(&validation, options);
    validation_close(&validation);
    machine_free(machine);
    return status;
}

int cli_validate(int argc, char **argv)
{
    struct options options;
    struct trace_list traces = {0};
    struct error err = {0};
    int status = parse(argc, argv, &options);

    if (status != CLI_OK)
        return status < 0 ? CLI_OK : status;
    status = 0;
    for (int i = optind; i < argc && status == 0; i++)
        status = trace_list_load(&traces, argv[i], &err);
    if (status == 0)
        status = run(&traces, &options, &err);
    trace_list_close(&traces);
    return status == 0 ? CLI_OK : cli_fail(&err);
}
