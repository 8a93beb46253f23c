/* lopside calibrate: fit a machine's constants to measured rows. */
#include <getopt.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/list.h"
#include "cli/trace_list.h"
#include "sim/calibrate.h"

struct options {
    struct list rows, constants, paths;
    const char *machine, *update;
    double row_pct, prior_pct;
    unsigned evaluations;
    bool list, quiet;
};

static void print_help(void)
{
    puts("Usage: lopside calibrate --row ID[,ID]... --constant NAME[,NAME]... FILE|DIR...\n"
         "  or:  lopside calibrate --list --machine NAME|FILE\n"
         "Fits constants of the time model to chosen measured rows and prints each with its\n"
         "uncertainty, as a 'fitted' part for a machine profile. Files are JSON lines, as\n"
         "traces/README.md has them, or the output of llama-bench in any format.\n\n"
         "  -r, --row ID          rows to fit to; they are never counted by 'validate'\n"
         "  -k, --constant NAME   constants to fit\n"
         "      --row-pct P       expected scatter of a row in percent (default 1)\n"
         "      --prior-pct P     expected distance of a constant from its start value in\n"
         "                        percent; 0 means any (default 0)\n"
         "      --evaluations N   at most so many evaluations (default 4000)\n"
         "      --update FILE     put the result into this profile, beside what it has of\n"
         "                        earlier fits of other constants\n"
         "  -l, --list            list the constants of --machine: value, bounds, meaning\n"
         "      --machine NAME|FILE   for --list; otherwise the machine of rows that name it,\n"
         "                        that name none, or that list its GPUs, as llama-bench does\n"
         "  -q, --quiet           no progress on stderr\n"
         "  -h, --help            this text");
}

static int parse(int argc, char **argv, struct options *options)
{
    static const struct option longs[] = {{"row", required_argument, NULL, 'r'},
                                          {"constant", required_argument, NULL, 'k'},
                                          {"row-pct", required_argument, NULL, 'R'},
                                          {"prior-pct", required_argument, NULL, 'P'},
                                          {"evaluations", required_argument, NULL, 'E'},
                                          {"update", required_argument, NULL, 'U'},
                                          {"list", no_argument, NULL, 'l'},
                                          {"machine", required_argument, NULL, 'M'},
                                          {"quiet", no_argument, NULL, 'q'},
                                          {"help", no_argument, NULL, 'h'},
                                          {NULL, 0, NULL, 0}};
    int option, status = 0;

    *options = (struct options){.row_pct = 1, .evaluations = 4000};
    while ((option = getopt_long(argc, argv, "r:k:lqh", longs, NULL)) != -1) {
        switch (option) {
        case 'r':
            status |= list_add(&options->rows, optarg);
            break;
        case 'k':
            status |= list_add(&options->constants, optarg);
            break;
        case 'R':
            options->row_pct = strtod(optarg, NULL);
            break;
        case 'P':
            options->prior_pct = strtod(optarg, NULL);
            break;
        case 'E':
            options->evaluations = (unsigned)strtoul(optarg, NULL, 10);
            break;
        case 'U':
            options->update = optarg;
            break;
        case 'l':
            options->list = true;
            break;
        case 'M':
            options->machine = optarg;
            break;
        case 'q':
            options->quiet = true;
            break;
        case 'h':
            print_help();
            return -1;
        default:
            return cli_unknown_option("calibrate");
        }
    }
    for (int i = optind; i < argc; i++)
        status |= list_add_one(&options->paths, argv[i]);
    if (status != 0)
        return cli_wrong_call("calibrate", "no memory for the arguments");
    if (!(options->row_pct > 0) || options->prior_pct < 0)
        return cli_wrong_call("calibrate",
                              "--row-pct takes a number above 0, --prior-pct 0 or more");
    if (options->list && options->machine == NULL)
        return cli_wrong_call("calibrate", "--list needs --machine");
    if (!options->list && options->paths.count == 0)
        return cli_wrong_call("calibrate", "no FILE or DIR given");
    return CLI_OK;
}

static int print_list(const char *name)
{
    struct error err = {0};
    struct machine *machine = machine_open(name, NULL, &err);
    size_t count;
    struct machine_constant *constants;

    if (machine == NULL)
        return cli_fail(&err);
    count = machine_constants(machine, NULL, 0);
    constants = calloc(count + 1, sizeof *constants);
    if (constants != NULL) {
        machine_constants(machine, constants, count);
        printf("| %-34s | %10s | %-12s | bounds | meaning |\n", "constant", "value", "unit");
        puts("| ---------------------------------- | ---------: | ------------ | ------ | ------- "
             "|");
        for (size_t i = 0; i < count; i++)
            printf("| %-34s | %10.4g | %-12s | %.4g to %.4g | %s |\n", constants[i].name,
                   *constants[i].value / constants[i].scale, constants[i].unit, constants[i].min,
                   constants[i].max, constants[i].meaning);
    }
    free(constants);
    machine_free(machine);
    return CLI_OK;
}

static void show_progress(unsigned evaluation, double rms, void *user)
{
    (void)user;
    if (evaluation % 50 == 0)
        fprintf(stderr, "\rlopside: %u evaluations, rms %.3f %%", evaluation, rms * 100);
}

static void print_result(const struct calibration *calibration)
{
    printf("| %-34s | %10s | %10s | %11s | unit |\n", "constant", "start", "fitted", "uncertainty");
    puts("| ---------------------------------- | ---------: | ---------: | ----------: | ---- |");
    for (size_t k = 0; k < calibration->constant_count; k++) {
        const struct calibrate_constant *c = &calibration->constants[k];

        printf("| %-34s | %10.4g | %10.4g | %11.3g | %s%s |\n", c->name, c->start, c->value,
               c->uncertainty, c->unit, c->at_bound ? ", at its bound" : "");
    }
    printf("\n| %-24s | %10s | %10s | %7s | %10s | %7s |\n", "row", "measured", "before", "error %",
           "after", "error %");
    puts("| ------------------------ | ---------: | ---------: | ------: | ---------: | ------: |");
    for (size_t r = 0; r < calibration->row_count; r++) {
        const struct calibrate_row *row = &calibration->rows[r];

        printf("| %-24s | %10.2f | %10.2f | %+7.2f | %10.2f | %+7.2f |\n", row->row->id,
               row->measured, row->before, (row->before / row->measured - 1) * 100, row->after,
               (row->after / row->measured - 1) * 100);
    }
    printf("\nrms error %.3f %% before, %.3f %% after %u evaluations\n",
           calibration->rms_before_ratio * 100, calibration->rms_after_ratio * 100,
           calibration->evaluations);
}

static double rounded(double value)
{
    char text[32];

    snprintf(text, sizeof text, "%.5g", value);
    return strtod(text, NULL);
}

/* Whether a list of row ids, or of constants, has one of that name. */
static bool names(const json_t *list, const char *name)
{
    const json_t *item;
    size_t i;

    json_array_foreach(list, i, item)
    {
        const char *own =
            json_string_value(json_is_object(item) ? json_object_get(item, "name") : item);

        if (own != NULL && strcmp(own, name) == 0)
            return true;
    }
    return false;
}

/* What an earlier fit left, without what this one fits again. */
static void keep_others(const json_t *earlier, json_t *list)
{
    json_t *fresh = json_copy(list);
    json_t *item;
    size_t i;

    json_array_clear(list);
    json_array_foreach(earlier, i, item)
    {
        const char *own =
            json_string_value(json_is_object(item) ? json_object_get(item, "name") : item);

        if (own != NULL && !names(fresh, own))
            json_array_append(list, item);
    }
    json_array_extend(list, fresh);
    json_decref(fresh);
}

static int update_profile(const char *path, const struct calibration *calibration)
{
    json_error_t error;
    json_t *root = json_load_file(path, 0, &error);
    json_t *rows = json_array(), *constants = json_array();
    int status;

    if (root == NULL) {
        fprintf(stderr, "lopside: %s:%d:%d: %s\n", path, error.line, error.column, error.text);
        json_decref(rows);
        json_decref(constants);
        return CLI_USAGE;
    }
    for (size_t r = 0; r < calibration->row_count; r++)
        json_array_append_new(rows, json_string(calibration->rows[r].row->id));
    for (size_t k = 0; k < calibration->constant_count; k++) {
        const struct calibrate_constant *c = &calibration->constants[k];
        json_t *object = json_pack("{s:s, s:f, s:s}", "name", c->name, "value", rounded(c->value),
                                   "unit", c->unit);

        if (isfinite(c->uncertainty))
            json_object_set_new(object, "uncertainty", json_real(rounded(c->uncertainty)));
        json_array_append_new(constants, object);
    }
    keep_others(json_object_get(json_object_get(root, "fitted"), "rows"), rows);
    keep_others(json_object_get(json_object_get(root, "fitted"), "constants"), constants);
    json_object_set_new(root, "fitted",
                        json_pack("{s:o, s:o}", "rows", rows, "constants", constants));
    status = json_dump_file(root, path, JSON_INDENT(1) | JSON_REAL_PRECISION(10));
    json_decref(root);
    if (status != 0)
        fprintf(stderr, "lopside: %s cannot be written\n", path);
    return status == 0 ? CLI_OK : CLI_FAILED;
}

static int load(const struct options *options, struct trace_list *traces, struct error *err)
{
    struct machine *machine;

    for (size_t i = 0; i < options->paths.count; i++)
        if (trace_list_load(traces, options->paths.items[i], err) != 0)
            return -1;
    if (options->machine == NULL)
        return 0;
    machine = machine_open(options->machine, NULL, err);
    if (machine == NULL)
        return -1;
    trace_list_set_machine(traces, machine, options->machine);
    machine_free(machine);
    return 0;
}

static int run(struct options *options)
{
    struct error err = {0};
    struct trace_list traces = {0};
    struct calibration calibration;
    struct calibrate_request request = {
        .rows = (const char *const *)options->rows.items,
        .row_count = options->rows.count,
        .constants = (const char *const *)options->constants.items,
        .constant_count = options->constants.count,
        .row_ratio = options->row_pct / 100,
        .prior_ratio = options->prior_pct / 100,
        .evaluations_max = options->evaluations,
        .progress = options->quiet ? NULL : show_progress,
    };
    int status = CLI_OK;

    if (load(options, &traces, &err) != 0) {
        status = cli_fail(&err);
    } else {
        request.traces = traces.entries;
        request.trace_count = traces.count;
        if (calibrate(&request, &calibration, &err) != 0) {
            status = cli_fail(&err);
        } else {
            if (!options->quiet)
                fputs("\r\033[K", stderr);
            print_result(&calibration);
            if (options->update != NULL)
                status = update_profile(options->update, &calibration);
            calibration_close(&calibration);
        }
    }
    trace_list_close(&traces);
    return status;
}

int cli_calibrate(int argc, char **argv)
{
    struct options options;
    int status = parse(argc, argv, &options);

    if (status == CLI_OK)
        status = options.list ? print_list(options.machine) : run(&options);
    list_close(&options.rows);
    list_close(&options.constants);
    list_close(&options.paths);
    return status < 0 ? CLI_OK : status;
}
