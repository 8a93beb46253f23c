/* lopside program: prints what a plan does in one step, a line a task. */
#include "cli/cli.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/plan_session.h"
#include "cli/program_shares.h"
#include "sim/program.h"
#include "sim/timing.h"

struct options {
    struct plan_options plans;
    long prompt, depth, layer; /* prompt 0: a decode step; layer -1: all */
    bool generates, shares, times, operations, help;
};

static void print_help(void)
{
    puts(
        "Usage: lopside program -m MODEL [OPTION]...\n"
        "Prints the tasks of one step of a plan: of one generated token, or of the first\n"
        "ubatch of a prompt. A listing of layers as 3-31+4 means 3, 7 and so on to 31.\n\n"
        "  -n 1                            a step that generates a token (default)\n"
        "  -p N                            the first ubatch of a prompt of N tokens\n"
        "  -d, --depth DEPTH               tokens that are in the cache before (default 0)\n"
        "      --layer N                   only tasks of this layer\n"
        "      --shares                    first, what each device holds after rounding\n"
        "      --operations                under each task what it computes: operands, the weight\n"
        "                                  and its slice, and the memory of each\n"
        "      --times                     when each task starts and ends, in us, in the second "
        "of\n"
        "                                  two equal steps\n"
        "  -h, --help                      this text\n");
    plan_options_print_help();
}

/* --- the listing --- */

/* Start and end of each task in the step's own time; NULL for a listing without. */
struct times {
    const double *start_s, *end_s;
    bool operations; /* a line for each, too */
};

static double last_end_s(struct times times, size_t count)
{
    double last = 0;

    for (size_t i = 0; i < count; i++)
        if (times.end_s[i] > last)
            last = times.end_s[i];
    return last;
}

/* Prints program_print()'s lines: a heading, then one a task. */
static void print_lines(const char *text, const struct program *program, long layer,
                        struct times times)
{
    size_t heading = strcspn(text, "\n");

    printf("%.*s\n", (int)heading, text);
    if (times.start_s != NULL)
        printf(
            "# us since the host thread began the step, which follows one like it; all is done at "
            "%.1f\n#%9s %11s\n",
            last_end_s(times, program->task_count) * 1e6, "start", "end");
    text += heading + 1;
    for (size_t i = 0; i < program->task_count; i++) {
        size_t length = strcspn(text, "\n"), width = length;

        while (width > 0 && text[width - 1] == ' ')
            width--;
        if (layer < 0 || program->tasks[i].layer == layer) {
            if (times.start_s != NULL)
                printf("%10.1f %11.1f ", times.start_s[i] * 1e6, times.end_s[i] * 1e6);
            printf("%.*s\n", (int)width, text);
            if (times.operations)
                program_print_operations(program, i, stdout);
        }
        text += length + 1;
    }
}

static int print_program(const struct program *program, struct program_cells cells, long layer,
                         struct times times, struct error *err)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    if (out != NULL) {
        program_print(program, cells, out);
        if (fclose(out) == 0) {
            print_lines(text, program, layer, times);
            free(text);
            return 0;
        }
        free(text);
    }
    return error_set(err, ERROR_MEMORY, "no memory for a listing of %zu tasks",
                     program->task_count);
}

static int list_tasks(const struct placement *placement, struct program_step step,
                      struct program_cells cells, long layer, bool operations, struct error *err)
{
    struct program *program = program_lower(placement, step, err);
    int status;

    if (program == NULL)
        return -1;
    status = print_program(program, cells, layer, (struct times){.operations = operations}, err);
    program_free(program);
    return status;
}

/* Times are those of the second of two steps: the first leaves behind what every
 * later one finds. */
static int list_timed_tasks(const struct placement *placement, struct program_step step,
                            struct program_cells cells, long layer, bool operations,
                            struct error *err)
{
    struct timing *timing = timing_new(placement, err);
    struct timed_program *timed = NULL;
    struct engine *engine;
    size_t count;
    int status = -1;

    if (timing == NULL)
        return -1;
    engine = timing_engine(timing);
    timed = timed_program_new(timing, step, cells, err);
    if (timed != NULL && engine_run(engine, timed->schedule, err) == 0 &&
        engine_run(engine, timed->schedule, err) == 0 && engine_finish(engine, err) == 0)
        status = print_program(timed->program, cells, layer,
                               (struct times){engine_last_starts(engine, &count),
                                              engine_last_ends(engine, &count), operations},
                               err);
    timed_program_free(timed);
    timing_free(timing);
    return status;
}

/* --- the step --- */

/* A generated token when graphs are replayed, or a ubatch as prompts have it. */
static struct program_step step_of(const struct options *options, const struct placement *placement)
{
    uint32_t prompt = (uint32_t)options->prompt, n_ubatch = placement->plan.n_ubatch;

    if (prompt == 0)
        return (struct program_step){.tokens = 1,
                                     .outputs = 1,
                                     .sample = plan_options_sample(&options->plans, 0),
                                     .sync = true};
    return (struct program_step){.tokens = prompt < n_ubatch ? prompt : n_ubatch, .rebuild = true};
}

static int list_step(const struct options *options, const struct placement *placement,
                     struct error *err)
{
    struct program_step step = step_of(options, placement);
    struct program_cells cells =
        program_cells_at(placement, (uint32_t)options->depth + step.tokens);

    if (options->shares && program_shares_print(placement, err) != 0)
        return -1;
    return options->times
               ? list_timed_tasks(placement, step, cells, options->layer, options->operations, err)
               : list_tasks(placement, step, cells, options->layer, options->operations, err);
}

static int run(const struct options *options, struct error *err)
{
    uint32_t needed = (uint32_t)(options->depth + (options->prompt > 0 ? options->prompt : 1));
    struct plan_session session;
    int status = plan_session_open(&session, &options->plans, needed, err);

    if (status == 0 && options->layer >= (long)session.model->n_layer)
        status = error_set(err, ERROR_USAGE, "--layer %ld: %s has layers 0 to %" PRIu32,
                           options->layer, session.model->name, session.model->n_layer - 1);
    if (status == 0)
        status = list_step(options, session.placement, err);
    plan_session_close(&session);
    return status;
}

/* --- the call --- */

enum { OPTION_LAYER = 1, OPTION_SHARES, OPTION_TIMES, OPTION_OPERATIONS };

static int take_option(void *context, int option, const char *argument)
{
    struct options *options = context;

    switch (option) {
    case 'p':
        return cli_read_whole("program", "-p", argument, 1, 1 << 28, &options->prompt);
    case 'n':
        options->generates = true;
        return strcmp(argument, "1") == 0
                   ? CLI_OK
                   : cli_wrong_call("program", "-n %s: a step generates one token", argument);
    case 'd':
        return cli_read_whole("program", "-d", argument, 0, 1 << 28, &options->depth);
    case OPTION_LAYER:
        return cli_read_whole("program", "--layer", argument, 0, 1 << 20, &options->layer);
    default:
        options->shares |= option == OPTION_SHARES;
        options->times |= option == OPTION_TIMES;
        options->operations |= option == OPTION_OPERATIONS;
        options->help |= option == 'h';
        return CLI_OK;
    }
}

static int parse(int argc, char **argv, struct options *options)
{
    static const struct option own[] = {{"p", required_argument, NULL, 'p'},
                                        {"n-prompt", required_argument, NULL, 'p'},
                                        {"n", required_argument, NULL, 'n'},
                                        {"n-gen", required_argument, NULL, 'n'},
                                        {"d", required_argument, NULL, 'd'},
                                        {"n-depth", required_argument, NULL, 'd'},
                                        {"depth", required_argument, NULL, 'd'},
                                        {"layer", required_argument, NULL, OPTION_LAYER},
                                        {"shares", no_argument, NULL, OPTION_SHARES},
                                        {"times", no_argument, NULL, OPTION_TIMES},
                                        {"operations", no_argument, NULL, OPTION_OPERATIONS},
                                        {"help", no_argument, NULL, 'h'},
                                        {NULL, 0, NULL, 0}};
    int status;

    status = plan_options_parse(&options->plans,
                                (struct plan_options_own){"program", own, take_option, options},
                                argc, argv);
    if (status != CLI_OK || options->help)
        return status;
    if (optind < argc)
        return cli_wrong_call("program", "\"%s\" is no option", argv[optind]);
    if (options->generates && options->prompt > 0)
        return cli_wrong_call("program", "a step has -p or -n, not both");
    return CLI_OK;
}

static int run_checked(struct options *options)
{
    struct error err = {0};
    size_t combinations;

    if (plan_options_finish(&options->plans, &err) != 0)
        return cli_fail(&err);
    if (plan_options_drafts(&options->plans))
        cli_warn("a step of the model is listed, without those of its draft");
    combinations = plan_options_combinations(&options->plans);
    if (combinations != 1)
        return cli_wrong_call("program", "these are %zu plans; one is listed, `bench` sweeps",
                              combinations);
    return run(options, &err) == 0 ? CLI_OK : cli_fail(&err);
}

int cli_program(int argc, char **argv)
{
    struct options options = {.layer = -1};
    int status = parse(argc, argv, &options);

    if (status == CLI_OK && options.help)
        print_help();
    else if (status == CLI_OK)
        status = run_checked(&options);
    plan_options_close(&options.plans);
    return status;
}
