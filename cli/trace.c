/* lopside trace: timelines for Perfetto and chrome://tracing. */
#include "cli/cli.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "cli/plan_session.h"
#include "sim/chrome_trace.h"
#include "sim/predict.h"
#include "sim/timeline_simulate.h"

enum { GENERATED_MAX = 4096 };

struct options {
    struct plan_options plans;
    const char *recorded, *output; /* files; NULL: simulate, standard output */
    long prompt, generated, depth; /* generated below 0: not given */
    long step;                     /* below 0: all */
    bool timeline, help;
};

static void print_help(void)
{
    puts(
        "Usage: lopside trace -m MODEL [OPTION]... [-o FILE]\n"
        "       lopside trace --recorded FILE [--step N] [-o FILE]\n"
        "Writes when each task runs as a trace for Perfetto (https://ui.perfetto.dev) and\n"
        "chrome://tracing: of a simulated step, of the steps of a workload, or of a run that\n"
        "'lopside run --backend cuda --trace FILE' has recorded.\n\n"
        "  -n 1                            a step that generates a token (default), the second of\n"
        "                                  two equal ones, as 'lopside program --times' has it\n"
        "  -p N                            the first ubatch of a prompt of N tokens, likewise\n"
        "  -n N                            the steps of N generated tokens, behind the ubatches\n"
        "                                  of a prompt with -p; -p N -n 0: of the prompt alone\n"
        "  -d, --depth DEPTH               tokens that are in the cache before (default 0)\n"
        "      --recorded FILE             a recorded timeline in place of a simulated one\n"
        "      --step N                    this step of it alone, from 0\n"
        "      --timeline                  write the timeline as a recorded one, in JSON lines\n"
        "  -o, --output FILE               (default: standard output)\n"
        "  -h, --help                      this text\n");
    plan_options_print_help();
}

/* --- simulating --- */

/* A step as `lopside program` has it, or a workload. */
static struct timeline *simulate(const struct options *options, const struct placement *placement,
                                 struct error *err)
{
    uint32_t prompt = (uint32_t)options->prompt, depth = (uint32_t)options->depth;
    bool workload = options->generated > 1 || (options->generated >= 0 && prompt > 0);
    bool sample = plan_options_sample(&options->plans, 0);
    struct program_step step = predict_decode_step(placement, sample, false);
    struct program_cells cells = predict_decode_cells(placement, depth, 0, false);
    struct timing *timing = timing_new(placement, err);
    struct timeline *timeline;

    if (timing == NULL)
        return NULL;
    if (prompt > 0) {
        uint32_t n_ubatch = placement->plan.n_ubatch;

        step =
            (struct program_step){.tokens = prompt < n_ubatch ? prompt : n_ubatch, .rebuild = true};
        cells = program_cells_at(placement, depth + step.tokens);
    }
    if (workload)
        timeline = timeline_simulate_workload(
            timing, placement,
            (struct timeline_workload){depth, prompt, (uint32_t)options->generated, sample}, err);
    else
        timeline = timeline_simulate_step(timing, placement, step, depth, cells, err);
    timing_free(timing);
    return timeline;
}

/* --- writing --- */

static int write_lines(struct timeline *timeline, FILE *out, struct error *err)
{
    timeline_write_header(timeline, out);
    for (size_t i = 0; i < timeline->step_count; i++)
        timeline_write_step(timeline, i, out);
    return fflush(out) == 0 && !ferror(out)
               ? 0
               : error_set(err, ERROR_IO, "the timeline cannot be written");
}

static int write_to(const struct options *options, struct timeline *timeline, FILE *out,
                    struct error *err)
{
    if (options->timeline)
        return write_lines(timeline, out, err);
    return timeline_estimate_rates(timeline, err) != 0 ? -1
                                                       : chrome_trace_write(timeline, out, err);
}

static int write_timeline(const struct options *options, struct timeline *timeline,
                          struct error *err)
{
    FILE *out = stdout;
    int status;

    if (options->output != NULL)
        out = fopen(options->output, "w");
    if (out == NULL)
        return error_set_at(err, ERROR_IO, options->output, 0, 0, "cannot be written: %s",
                            strerror(errno));
    status = write_to(options, timeline, out, err);
    if (options->output != NULL && fclose(out) != 0 && status == 0)
        status = error_set_at(err, ERROR_IO, options->output, 0, 0, "cannot be written: %s",
                              strerror(errno));
    return status;
}

/* --- the two kinds --- */

static int trace_recorded(const struct options *options, struct error *err)
{
    struct timeline *timeline = timeline_load_file(options->recorded, err);
    int status = -1;

    if (timeline == NULL)
        return -1;
    if (options->step < 0 || timeline_keep_step(timeline, (size_t)options->step, err) == 0)
        status = write_timeline(options, timeline, err);
    timeline_free(timeline);
    return status;
}

static int write_simulated(const struct options *options, struct timeline *timeline,
                           struct error *err)
{
    struct list words = {NULL, 0};
    int status = plan_options_words(&options->plans, &words, err);

    if (status == 0) {
        timeline->arguments = (const char **)words.items;
        timeline->argument_count = words.count;
        status = write_timeline(options, timeline, err);
    }
    list_close(&words);
    return status;
}

static int trace_simulated(const struct options *options, struct error *err)
{
    uint32_t needed = (uint32_t)(options->depth + options->prompt +
                                 (options->generated > 0 ? options->generated : 1));
    struct plan_session session;
    struct timeline *timeline = NULL;
    int status = plan_session_open(&session, &options->plans, needed, err);

    if (status == 0)
        timeline = simulate(options, session.placement, err);
    if (timeline != NULL)
        status = write_simulated(options, timeline, err);
    else
        status = -1;
    timeline_free(timeline);
    plan_session_close(&session);
    return status;
}

/* --- the call --- */

enum { OPTION_RECORDED = 1, OPTION_STEP, OPTION_TIMELINE };

static const struct option own_longs[] = {{"p", required_argument, NULL, 'p'},
                                          {"n-prompt", required_argument, NULL, 'p'},
                                          {"n", required_argument, NULL, 'n'},
                                          {"n-gen", required_argument, NULL, 'n'},
                                          {"d", required_argument, NULL, 'd'},
                                          {"n-depth", required_argument, NULL, 'd'},
                                          {"depth", required_argument, NULL, 'd'},
                                          {"recorded", required_argument, NULL, OPTION_RECORDED},
                                          {"step", required_argument, NULL, OPTION_STEP},
                                          {"timeline", no_argument, NULL, OPTION_TIMELINE},
                                          {"o", required_argument, NULL, 'o'},
                                          {"output", required_argument, NULL, 'o'},
                                          {"help", no_argument, NULL, 'h'},
                                          {NULL, 0, NULL, 0}};

static int take_option(void *context, int option, const char *argument)
{
    struct options *options = context;

    switch (option) {
    case 'p':
        return cli_read_whole("trace", "-p", argument, 1, 1 << 28, &options->prompt);
    case 'n':
        return cli_read_whole("trace", "-n", argument, 0, GENERATED_MAX, &options->generated);
    case 'd':
        return cli_read_whole("trace", "-d", argument, 0, 1 << 28, &options->depth);
    case OPTION_STEP:
        return cli_read_whole("trace", "--step", argument, 0, 1 << 28, &options->step);
    case OPTION_RECORDED:
        options->recorded = argument;
        return CLI_OK;
    case 'o':
        options->output = argument;
        return CLI_OK;
    default:
        options->timeline |= option == OPTION_TIMELINE;
        options->help |= option == 'h';
        return CLI_OK;
    }
}

/* What has to be there once all is read. */
static int check_call(struct options *options)
{
    struct error err = {0};
    size_t combinations;

    if (options->recorded != NULL)
        return plan_options_are_given(&options->plans) || options->prompt > 0 ||
                       options->generated >= 0 || options->depth > 0
                   ? cli_wrong_call("trace", "--recorded says what was run; leave away the plan, "
                                             "-p, -n and -d, or simulate without it")
                   : CLI_OK;
    if (options->step >= 0)
        return cli_wrong_call("trace", "--step is for --recorded; without -p, -n 1 is one step");
    if (options->prompt == 0 && options->generated == 0)
        return cli_wrong_call("trace", "-n 0 is no step; 1 or more, or a prompt with -p is");
    if (plan_options_finish(&options->plans, &err) != 0)
        return cli_fail(&err);
    if (plan_options_drafts(&options->plans))
        cli_warn("steps of the model are traced, without those of its draft");
    combinations = plan_options_combinations(&options->plans);
    if (combinations != 1)
        return cli_wrong_call("trace", "these are %zu plans; one is traced, `bench` sweeps",
                              combinations);
    return CLI_OK;
}

static int parse(int argc, char **argv, struct options *options)
{
    int status;

    *options = (struct options){.generated = -1, .step = -1};
    status = plan_options_parse(&options->plans,
                                (struct plan_options_own){"trace", own_longs, take_option, options},
                                argc, argv);
    if (status != CLI_OK || options->help)
        return status;
    if (optind < argc)
        return cli_wrong_call("trace", "\"%s\" is no option", argv[optind]);
    return check_call(options);
}

int cli_trace(int argc, char **argv)
{
    struct options options;
    struct error err = {0};
    int status = parse(argc, argv, &options);

    if (status == CLI_OK && options.help)
        print_help();
    else if (status == CLI_OK && (options.recorded != NULL ? trace_recorded(&options, &err)
                                                           : trace_simulated(&options, &err)) != 0)
        status = cli_fail(&err);
    plan_options_close(&options.plans);
    return status;
}
