/* lopside compare: a recorded run beside its prediction, task by task. */
#include "cli/cli.h"

#include <getopt.h>
#include <string.h>

#include "cli/compare_output.h"
#include "cli/plan_session.h"
#include "sim/machine_pace.h"
#include "sim/timeline_simulate.h"

struct options {
    struct plan_options plans;
    const char *recorded, *with;
    long step, worst; /* step below 0: all */
    enum compare_format format;
    bool help;
};

static void print_help(void)
{
    puts(
        "Usage: lopside compare --recorded FILE [OPTION]...\n"
        "       lopside compare --recorded FILE --with FILE2 [OPTION]...\n"
        "Predicts the steps that 'lopside run --backend cuda --trace FILE' has recorded, and lays\n"
        "the two side by side: each kind of task, each queue, each step, and the tasks that\n"
        "explain most of the difference. The plan is the recorded one; options of the call\n"
        "replace its own, above all --machine and --gpu. With --with two recorded runs are\n"
        "compared.\n\n"
        "      --recorded FILE             the recorded timeline\n"
        "      --with FILE                 another one, in place of a prediction\n"
        "      --step N                    this step alone, from 0\n"
        "  -w, --worst N                   tasks that contribute most to list (default 10)\n"
        "  -o, --output md|json|csv        (default md)\n"
        "  -h, --help                      this text\n\n"
        "Ratios are predicted / measured, errors (predicted - measured) / measured. A task\n"
        "contributes by how much it moves the end of its step on; over all tasks that adds up\n"
        "to the whole difference. Exit status: 0; 1 when the files, or the file and the plan,\n"
        "are not of the same program; 2 for a wrong call or a file that cannot be read.\n");
    plan_options_print_help();
}

/* --- timelines --- */

/* A recorded one: the asked step of it, without context shifts. */
static struct timeline *load(const struct options *options, const char *path, struct error *err)
{
    struct timeline *timeline = timeline_load_file(path, err);
    size_t shifts;

    if (timeline == NULL)
        return NULL;
    if (options->step >= 0 && timeline_keep_step(timeline, (size_t)options->step, err) != 0) {
        timeline_free(timeline);
        return NULL;
    }
    shifts = timeline_drop_shifts(timeline);
    if (timeline->step_count == 0) {
        error_set_at(err, ERROR_UNSUPPORTED, path, 0, 0,
                     "a context shift only; steps of tokens are compared");
        timeline_free(timeline);
        return NULL;
    }
    if (shifts > 0)
        cli_warn("%s: %zu context shifts are left out", path, shifts);
    return timeline;
}

static int print(const struct options *options, const struct timeline *measured,
                 const struct timeline *predicted, const char *machine, struct error *err)
{
    struct comparison *comparison;
    char difference[600];

    if (compare_find_difference(measured, predicted, difference, sizeof difference)) {
        fprintf(stderr, "lopside: %s\n", difference);
        return CLI_FAILED;
    }
    comparison = compare_timelines(measured, predicted, (size_t)options->worst, err);
    if (comparison == NULL)
        return cli_fail(err);
    compare_output_print(
        &(struct compare_output){options->format, measured, predicted, machine, comparison});
    comparison_free(comparison);
    return CLI_OK;
}

/* --- the two kinds --- */

static int compare_recorded(const struct options *options, const struct timeline *measured)
{
    struct error err = {0};
    struct timeline *other = load(options, options->with, &err);
    int status = other != NULL ? print(options, measured, other, NULL, &err) : cli_fail(&err);

    timeline_free(other);
    return status;
}

/* The recorded plan, with what the call says in its place. */
static int read_plan(struct options *options, const struct timeline *measured, struct error *err)
{
    size_t combinations;

    if (plan_options_take_words(&options->plans, measured->arguments, measured->argument_count,
                                err) != 0) {
        error_name_source(err, measured->source);
        return -1;
    }
    if (plan_options_finish(&options->plans, err) != 0)
        return -1;
    combinations = plan_options_combinations(&options->plans);
    return combinations == 1
               ? 0
               : error_set(err, ERROR_USAGE, "these are %zu plans; the recorded one is compared",
                           combinations);
}

/* What the recorded run was slowed by, the prediction is, too. */
static void slow_down(struct machine *machine, const struct timeline *measured)
{
    struct machine_pace pace = {.slowdowns = {0}};

    for (uint32_t d = 0; d < measured->device_count; d++) {
        pace.slowdowns[d] = measured->devices[d].slowdown;
        pace.link_gbs[d] = measured->devices[d].link_gbs;
    }
    machine_apply_pace(machine, &pace);
}

static int compare_simulated(struct options *options, const struct timeline *measured)
{
    struct plan_session session = {NULL, NULL, NULL, NULL};
    struct timeline *predicted = NULL;
    struct timing *timing = NULL;
    struct error err = {0};
    int status;

    if (read_plan(options, measured, &err) == 0 &&
        plan_session_open(&session, &options->plans, measured->n_ctx, &err) == 0) {
        slow_down(session.machine, measured);
        timing = timing_new(session.placement, &err);
    }
    if (timing != NULL)
        predicted = timeline_simulate_like(timing, session.placement, measured, &err);
    status = predicted != NULL ? print(options, measured, predicted, session.machine->name, &err)
                               : cli_fail(&err);
    timeline_free(predicted);
    timing_free(timing);
    plan_session_close(&session);
    return status;
}

static int run(struct options *options)
{
    struct error err = {0};
    struct timeline *measured = load(options, options->recorded, &err);
    int status;

    if (measured == NULL)
        return cli_fail(&err);
    status = options->with != NULL ? compare_recorded(options, measured)
                                   : compare_simulated(options, measured);
    timeline_free(measured);
    return status;
}

/* --- the call --- */

enum { OPTION_RECORDED = 1, OPTION_WITH, OPTION_STEP };

static const struct option own_longs[] = {{"recorded", required_argument, NULL, OPTION_RECORDED},
                                          {"with", required_argument, NULL, OPTION_WITH},
                                          {"step", required_argument, NULL, OPTION_STEP},
                                          {"w", required_argument, NULL, 'w'},
                                          {"worst", required_argument, NULL, 'w'},
                                          {"o", required_argument, NULL, 'o'},
                                          {"output", required_argument, NULL, 'o'},
                                          {"help", no_argument, NULL, 'h'},
                                          {NULL, 0, NULL, 0}};

static int read_format(const char *text, enum compare_format *format)
{
    static const char *const words[] = {"md", "json", "csv"};

    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(text, words[i]) == 0) {
            *format = (enum compare_format)i;
            return CLI_OK;
        }
    return cli_wrong_call("compare", "-o %s: md, json and csv are accepted", text);
}

static int take_option(void *context, int option, const char *argument)
{
    struct options *options = context;

    switch (option) {
    case OPTION_RECORDED:
        options->recorded = argument;
        return CLI_OK;
    case OPTION_WITH:
        options->with = argument;
        return CLI_OK;
    case OPTION_STEP:
        return cli_read_whole("compare", "--step", argument, 0, 1 << 28, &options->step);
    case 'w':
        return cli_read_whole("compare", "-w", argument, 0, 1 << 28, &options->worst);
    case 'o':
        return read_format(argument, &options->format);
    default:
        options->help = true;
        return CLI_OK;
    }
}

static int check_call(const struct options *options)
{
    if (options->recorded == NULL)
        return cli_wrong_call("compare", "no --recorded FILE given");
    if (options->with != NULL && plan_options_are_given(&options->plans))
        return cli_wrong_call("compare", "--with compares two recorded runs; leave away the plan, "
                                         "or --with for a prediction");
    return CLI_OK;
}

static int parse(int argc, char **argv, struct options *options)
{
    int status;

    *options = (struct options){.step = -1, .worst = 10};
    status = plan_options_parse(
        &options->plans, (struct plan_options_own){"compare", own_longs, take_option, options},
        argc, argv);
    if (status != CLI_OK || options->help)
        return status;
    if (optind < argc)
        return cli_wrong_call("compare", "\"%s\" is no option", argv[optind]);
    return check_call(options);
}

int cli_compare(int argc, char **argv)
{
    struct options options;
    int status = parse(argc, argv, &options);

    if (status == CLI_OK && options.help)
        print_help();
    else if (status == CLI_OK)
        status = run(&options);
    plan_options_close(&options.plans);
    return status;
}
