/* lopside program: prints what a plan does in one step, a line a task. */
#include "cli/cli.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/plan_options.h"
#include "sim/memory.h"
#include "sim/program.h"
#include "sim/timing.h"

struct options {
    struct plan_options plans;
    long prompt, depth, layer; /* prompt 0: a decode step; layer -1: all */
    bool shares, times, help;
};

/* What one call works on; members are owned. */
struct session {
    struct machine *machine;
    struct model *model;
    uint32_t *resident;
    struct placement *placement;
};

static void print_help(void)
{
    puts("Usage: lopside program -m MODEL [OPTION]...\n"
         "Prints the tasks of one step of a plan: of one generated token, or of the first\n"
         "ubatch of a prompt. A listing of layers as 3-31+4 means 3, 7 and so on to 31.\n\n"
         "  -n 1                            a step that generates a token (default)\n"
         "  -p N                            the first ubatch of a prompt of N tokens\n"
         "  -d, --depth DEPTH               tokens that are in the cache before (default 0)\n"
         "      --layer N                   only tasks of this layer\n"
         "      --shares                    first, what each device holds after rounding\n"
         "      --times                     when each task starts and ends, in us, in the second "
         "of\n"
         "                                  two equal steps\n"
         "  -h, --help                      this text\n");
    plan_options_print_help();
}

/* --- shares: layers --- */

static const char *device_name(const struct placement *placement, uint32_t d)
{
    return placement->machine->devices[placement->devices[d]].name;
}

static const char *mixer_name(const struct model_layer *layer)
{
    static const char *const names[] = {
        [MODEL_MIXER_ATTENTION] = "attention",
        [MODEL_MIXER_SLIDING_WINDOW] = "sliding window",
        [MODEL_MIXER_MLA] = "latent attention",
        [MODEL_MIXER_GATED_DELTA_NET] = "gated delta net",
    };

    return names[layer->mixer];
}

/* Prints chosen layers as the flags write them: "0-3,8-32+4,40". */
static void print_layer_list(const bool *chosen, uint32_t count)
{
    const char *comma = "";

    for (uint32_t first = 0, step, last; first < count; first++) {
        if (!chosen[first])
            continue;
        for (step = 1; first + step < count && !chosen[first + step];)
            step++;
        for (last = first; last + step < count && chosen[last + step];) {
            uint32_t between = last + 1;

            while (between < last + step && !chosen[between])
                between++;
            if (between < last + step)
                break;
            last += step;
        }
        if (last > first && (step == 1 || last > first + step)) {
            printf("%s%" PRIu32 "-%" PRIu32, comma, first, last);
            if (step > 1)
                printf("+%" PRIu32, step);
            first = last;
        } else {
            printf("%s%" PRIu32, comma, first);
        }
        comma = ",";
    }
}

/* Whether two layers are alike and divided alike. */
static bool same_shape(const struct placement *placement, uint32_t a, uint32_t b)
{
    const struct model_layer *x = &placement->model->layers[a], *y = &placement->model->layers[b];
    const struct share_slices *s = &placement->slices[a], *t = &placement->slices[b];

    if (x->mixer != y->mixer || x->window != y->window || x->n_head != y->n_head ||
        x->n_head_kv != y->n_head_kv || x->head_dim_k != y->head_dim_k ||
        x->head_dim_v != y->head_dim_v || x->n_ff != y->n_ff || x->n_ff_exp != y->n_ff_exp ||
        x->n_expert != y->n_expert || placement->owner[a] != placement->owner[b])
        return false;
    for (uint32_t d = 0; d < placement->device_count; d++)
        if (s->q_heads[d] != t->q_heads[d] || s->kv_heads[d] != t->kv_heads[d] ||
            s->gdn_k_heads[d] != t->gdn_k_heads[d] || s->n_ff[d] != t->n_ff[d] ||
            s->n_ff_exp[d] != t->n_ff_exp[d])
            return false;
    return true;
}

/* A figure that the kind of layer has; a layer on the host is whole there. */
static void print_figure(bool has, bool on_host, uint64_t figure)
{
    if (!has)
        printf(" %7s |", "-");
    else if (on_host)
        printf(" %7s |", "all");
    else
        printf(" %7" PRIu64 " |", figure);
}

static void print_shape_row(const struct placement *placement, uint32_t layer, uint32_t d)
{
    const struct model_layer *l = &placement->model->layers[layer];
    const struct share_slices *slices = &placement->slices[layer];
    bool on_host = placement->owner[layer] < 0;
    char heads[32];

    snprintf(heads, sizeof heads, "%" PRIu32 ":%" PRIu32, slices->q_heads[d], slices->kv_heads[d]);
    printf("| %-16s | %-8s | %7s |", mixer_name(l), on_host ? "host" : device_name(placement, d),
           l->n_head == 0 ? "-"
           : on_host      ? "all"
                          : heads);
    print_figure(l->gdn_k_heads > 0, on_host, slices->gdn_k_heads[d]);
    print_figure(l->n_ff > 0, on_host, slices->n_ff[d]);
    print_figure(l->n_ff_exp > 0, on_host, slices->n_ff_exp[d]);
}

/* The rows of the layers that are like `first`, which it marks in `done`. */
static void print_shape(const struct placement *placement, uint32_t first, bool *like, bool *done)
{
    uint32_t count = placement->model->n_layer, alike = 0;

    for (uint32_t i = 0; i < count; i++) {
        like[i] = !done[i] && same_shape(placement, first, i);
        done[i] = done[i] || like[i];
        alike += like[i];
    }
    for (uint32_t d = 0; d < placement->device_count; d++) {
        if (placement->owner[first] < 0 ? d > 0 : !placement_has_layer(placement, first, d))
            continue;
        print_shape_row(placement, first, d);
        printf(" %4" PRIu32 ": ", alike);
        print_layer_list(like, count);
        puts(" |");
    }
}

static void print_shapes(const struct placement *placement, bool *like, bool *done)
{
    uint32_t count = placement->model->n_layer;

    printf("| %-16s | %-8s | %7s | %7s | %7s | %7s | layers |\n", "kind", "device", "Q:KV",
           "k-heads", "ffn", "experts");
    puts("| ---------------- | -------- | ------: | ------: | ------: | ------: | ------ |");
    memset(done, 0, count * sizeof *done);
    for (uint32_t i = 0; i < count; i++)
        if (!done[i])
            print_shape(placement, i, like, done);
}

static void print_head(const struct placement *placement)
{
    printf("\nOutput rows:");
    if (placement->owner[placement->layer_count] < 0)
        printf(" all on the host");
    for (uint32_t d = 0; d < placement->device_count; d++)
        if (placement->output_rows[d] > 0)
            printf(" %s %" PRIu64, device_name(placement, d), placement->output_rows[d]);
    puts("");
}

/* --- shares: cache and memory --- */

/* Chooses the layers whose cache part of device `d` lies on it, or on the host. */
static uint32_t choose_cache(const struct placement *placement, uint32_t d, bool resident,
                             bool *chosen)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < placement->model->n_layer; i++) {
        uint64_t k, v;

        placement_kv_row(placement, i, d, &k, &v);
        chosen[i] = k > 0 && placement->owner[i] >= 0 &&
                    ((placement->kv_resident[i] >> d & 1) != 0) == resident;
        count += chosen[i];
    }
    return count;
}

static uint32_t choose_host_layers(const struct placement *placement, bool *chosen)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < placement->model->n_layer; i++) {
        chosen[i] = placement->owner[i] < 0 && model_layer_has_kv(&placement->model->layers[i]);
        count += chosen[i];
    }
    return count;
}

static void print_cache_row(const struct placement *placement, const char *heads, const char *where,
                            const bool *chosen, uint32_t count)
{
    if (count == 0)
        return;
    printf("| %-9s | %-9s | %4" PRIu32 ": ", heads, where, count);
    print_layer_list(chosen, placement->model->n_layer);
    puts(" |");
}

static void print_cells(const struct placement *placement)
{
    printf("\nKV cache: %s, %" PRIu32 " cells", tensor_type_info(placement->plan.type_k)->name,
           placement->n_ctx);
    for (uint32_t i = 0; i < placement->model->n_layer; i++) {
        uint32_t window = placement->model->layers[i].window;

        if (window > 0) {
            printf(", %" PRIu32 " of a sliding window",
                   program_sliding_cache_cells(placement, window));
            break;
        }
    }
    puts("");
}

static void print_state(const struct placement *placement)
{
    for (uint32_t i = 0; i < placement->model->n_layer; i++) {
        if (placement->model->layers[i].mixer != MODEL_MIXER_GATED_DELTA_NET)
            continue;
        printf("Recurrent state: %s\n",
               placement->recurrent_on_device ? "with its layers" : "on the host");
        return;
    }
}

static void print_cache(const struct placement *placement, bool *chosen)
{
    print_cells(placement);
    printf("| %-9s | %-9s | layers |\n", "heads of", "cached on");
    puts("| --------- | --------- | ------ |");
    for (uint32_t d = 0; d < placement->device_count; d++) {
        const char *name = device_name(placement, d);
        uint32_t count = choose_cache(placement, d, true, chosen);

        print_cache_row(placement, name, name, chosen, count);
        count = choose_cache(placement, d, false, chosen);
        print_cache_row(placement, name, "host", chosen, count);
    }
    print_cache_row(placement, "host", "host", chosen, choose_host_layers(placement, chosen));
    print_state(placement);
}

static double size_mib(uint64_t bytes)
{
    return (double)bytes / 1048576;
}

static void print_memory(const struct placement *placement)
{
    struct memory_account account;
    char verdict[80];

    memory_count(placement, &account);
    memory_verdict(placement, &account, verdict, sizeof verdict);
    printf("\n| %-8s | %9s | %9s | %9s | %9s | %9s | %9s | %9s |\n", "MiB", "weights", "KV",
           "state", "compute", "overhead", "total", "available");
    puts("| -------- | --------: | --------: | --------: | --------: | --------: | --------: | "
         "--------: |");
    for (uint32_t d = 0; d < account.device_count; d++) {
        const struct memory_device *device = &account.devices[d];

        printf("| %-8s | %9.1f | %9.1f | %9.1f | %9.1f | %9.1f | %9.1f | %9.1f |\n",
               device_name(placement, d), size_mib(device->weights), size_mib(device->kv),
               size_mib(device->recurrent), size_mib(device->compute), size_mib(device->overhead),
               size_mib(device->total), size_mib(device->available));
    }
    printf("| %-8s | %9.1f | %9.1f |\n", "host", size_mib(account.host_weights),
           size_mib(account.host_kv));
    printf("\nMemory: %s\n\n", verdict);
}

static int print_shares(const struct placement *placement, struct error *err)
{
    uint32_t count = placement->model->n_layer;
    bool *marks = calloc(2 * (size_t)count + 1, sizeof *marks);

    if (marks == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for %" PRIu32 " layers", count);
    print_shapes(placement, marks, marks + count);
    print_head(placement);
    print_cache(placement, marks);
    print_memory(placement);
    free(marks);
    return 0;
}

/* --- the listing --- */

/* Start and end of each task in the step's own time; NULL for a listing without. */
struct times {
    const double *start_s, *end_s;
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
                      struct program_cells cells, long layer, struct error *err)
{
    struct program *program = program_lower(placement, step, err);
    int status;

    if (program == NULL)
        return -1;
    status = print_program(program, cells, layer, (struct times){NULL, NULL}, err);
    program_free(program);
    return status;
}

/* Times are those of the second of two steps: the first leaves behind what every
 * later one finds. */
static int list_timed_tasks(const struct placement *placement, struct program_step step,
                            struct program_cells cells, long layer, struct error *err)
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
        status = print_program(
            timed->program, cells, layer,
            (struct times){engine_last_starts(engine, &count), engine_last_ends(engine, &count)},
            err);
    timed_program_free(timed);
    timing_free(timing);
    return status;
}

/* --- the session --- */

static void session_close(struct session *session)
{
    placement_free(session->placement);
    free(session->resident);
    model_free(session->model);
    machine_free(session->machine);
}

static int session_open(struct session *session, const struct options *options, struct error *err)
{
    uint32_t needed = (uint32_t)(options->depth + (options->prompt > 0 ? options->prompt : 1));
    uint32_t layer_count;
    struct plan plan;

    session->machine = plan_options_machine(&options->plans, err);
    if (session->machine == NULL ||
        plan_options_select(&options->plans, 0, session->machine, err) != 0)
        return -1;
    session->model = model_open(plan_options_value(&options->plans, 0, PLAN_OPTION_MODEL), err);
    if (session->model == NULL)
        return -1;
    if (session->model->tensor_count == 0)
        return error_set(err, ERROR_USAGE,
                         "%s has no tensors, only a vocabulary; nothing can be placed",
                         session->model->source);
    if (options->layer >= (long)session->model->n_layer)
        return error_set(err, ERROR_USAGE, "--layer %ld: %s has layers 0 to %" PRIu32,
                         options->layer, session->model->name, session->model->n_layer - 1);
    layer_count = session->model->n_layer + session->model->n_layer_nextn;
    session->resident = calloc((size_t)layer_count + 1, sizeof *session->resident);
    if (session->resident == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for %" PRIu32 " layers", layer_count);
    if (plan_options_plan(&options->plans, 0, session->model, session->machine, session->resident,
                          layer_count, &plan, err) != 0)
        return -1;
    session->placement = placement_new(session->model, session->machine, &plan, needed, err);
    return session->placement != NULL ? 0 : -1;
}

/* A generated token when graphs are replayed, or a ubatch as prompts have it. */
static struct program_step step_of(const struct options *options, const struct placement *placement)
{
    uint32_t prompt = (uint32_t)options->prompt, n_ubatch = placement->plan.n_ubatch;

    if (prompt == 0)
        return (struct program_step){.tokens = 1, .outputs = 1, .sync = true};
    return (struct program_step){.tokens = prompt < n_ubatch ? prompt : n_ubatch, .rebuild = true};
}

static int list_step(const struct options *options, const struct placement *placement,
                     struct error *err)
{
    struct program_step step = step_of(options, placement);
    struct program_cells cells =
        program_cells_at(placement, (uint32_t)options->depth + step.tokens);

    if (options->shares && print_shares(placement, err) != 0)
        return -1;
    return options->times ? list_timed_tasks(placement, step, cells, options->layer, err)
                          : list_tasks(placement, step, cells, options->layer, err);
}

static int run(const struct options *options, struct error *err)
{
    struct session session = {NULL, NULL, NULL, NULL};
    int status = -1;

    if (session_open(&session, options, err) == 0 && session.placement != NULL)
        status = list_step(options, session.placement, err);
    session_close(&session);
    return status;
}

/* --- the call --- */

enum { OPTION_LAYER = 1, OPTION_SHARES, OPTION_TIMES };

static int read_number(const char *flag, const char *text, long min, long max, long *value)
{
    char *end;

    *value = strtol(text, &end, 10);
    if (end == text || *end != '\0' || *value < min || *value > max)
        return cli_wrong_call("program",
                              "%s %s: a whole number from %ld to %ld is accepted; "
                              "lists are for 'lopside bench'",
                              flag, text, min, max);
    return CLI_OK;
}

static int take_option(struct options *options, int option, const char *argument)
{
    switch (option) {
    case 'p':
        return read_number("-p", argument, 1, 1 << 28, &options->prompt);
    case 'n':
        return strcmp(argument, "1") == 0
                   ? CLI_OK
                   : cli_wrong_call("program", "-n %s: a step generates one token", argument);
    case 'd':
        return read_number("-d", argument, 0, 1 << 28, &options->depth);
    case OPTION_LAYER:
        return read_number("--layer", argument, 0, 1 << 20, &options->layer);
    default:
        options->shares |= option == OPTION_SHARES;
        options->times |= option == OPTION_TIMES;
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
                                        {"help", no_argument, NULL, 'h'},
                                        {NULL, 0, NULL, 0}};
    struct option longs[2 * PLAN_OPTION_COUNT + 4 + sizeof own / sizeof *own];
    size_t count = plan_options_longs(longs, sizeof longs / sizeof *longs);
    bool generates = false;
    int option, status = CLI_OK;

    memcpy(longs + count, own, sizeof own);
    optind = 1;
    opterr = 0;
    while (status == CLI_OK && (option = getopt_long_only(argc, argv, ":h", longs, NULL)) != -1) {
        int taken = plan_options_take(&options->plans, option, optarg);

        if (option == ':')
            return cli_wrong_call("program", "%s needs a value", argv[optind - 1]);
        if (option == '?')
            return cli_wrong_call("program", "unknown option %s", argv[optind - 1]);
        if (taken < 0)
            return cli_wrong_call("program", "no memory for the arguments");
        if (taken == 0)
            status = take_option(options, option, optarg);
        generates = generates || option == 'n';
    }
    if (status != CLI_OK || options->help)
        return status;
    if (optind < argc)
        return cli_wrong_call("program", "\"%s\" is no option", argv[optind]);
    if (generates && options->prompt > 0)
        return cli_wrong_call("program", "a step has -p or -n, not both");
    return CLI_OK;
}

static int run_checked(struct options *options)
{
    struct error err = {0};
    size_t combinations;

    if (plan_options_finish(&options->plans, &err) != 0)
        return cli_fail(&err);
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
