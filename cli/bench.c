/* lopside bench: throughput and memory of plans, as llama-bench prints it. */
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli/bench_draft.h"
#include "cli/bench_measure.h"
#include "cli/bench_output.h"
#include "cli/bench_tests.h"
#include "cli/cli.h"
#include "cli/plan_options.h"
#include "cli/rule_warnings.h"
#include "config.h"
#include "sim/machine_pace.h"
#include "sim/timing.h"

struct options {
    struct plan_options plans;
    struct test_lists tests;
    struct bench_measure measure;
    const char *pace_devices, *pace_links; /* as typed; NULL: not given */
    struct machine_pace pace;
    uint32_t reps;
    enum bench_format format;
    bool list_devices, no_default, progress, full_stepping;
};

/* Flags of llama-bench that change nothing here. Those of the second group would
 * change a measurement, so they are accepted with a warning. */
static const struct {
    const char *name;
    bool has_value, warns;
} ignored[] = {
    {"t", true, true},          {"threads", true, true},
    {"C", true, true},          {"cpu-mask", true, true},
    {"cpu-strict", true, true}, {"poll", true, true},
    {"prio", true, true},       {"numa", true, true},
    {"nopo", true, true},       {"no-op-offload", true, true},
    {"no-host", true, true},    {"embd", true, true},
    {"embeddings", true, true}, {"mmp", true, true},
    {"mmap", true, true},       {"dio", true, true},
    {"direct-io", true, true},  {"lm", true, true},
    {"load-mode", true, true},  {"fitt", true, true},
    {"fit-target", true, true}, {"fitc", true, true},
    {"fit-ctx", true, true},    {"rpc", true, true},
    {"oe", true, true},         {"output-err", true, true},
    {"delay", true, false},     {"no-warmup", false, false},
    {"v", false, false},        {"verbose", false, false},
};

enum { IGNORED_BASE = 3000, IGNORED_COUNT = sizeof ignored / sizeof *ignored };

static void print_help(void)
{
    puts("Usage: lopside bench -m MODEL --machine NAME [OPTION]...\n"
         "Predicts prompt processing (pp) and text generation (tg) of every combination of\n"
         "plans, with what limits each and the memory it needs. No GPU is used, unless\n"
         "--backend has the plans executed and timed.\n");
    plan_options_print_help();
    puts("Tests:\n"
         "  -p, --n-prompt N[,N]            prompt lengths (default 512; 0: none)\n"
         "  -n, --n-gen N[,N]               tokens to generate (default 128; 0: none)\n"
         "  -pg PP,TG                       a prompt and a generation in one test\n"
         "  -d, --n-depth N[,N]             tokens in the cache before a test (default 0); for\n"
         "                                  one that is measured nothing is computed of them\n"
         "  -r, --repetitions N             of what is measured; predictions do not scatter\n"
         "                                  (default 5)\n"
         "Measuring, on synthetic weights where the model is no file:\n"
         "      --backend cpu|cuda          execute the plans; t/s is then measured, with the\n"
         "                                  prediction beside it\n"
         "      --reduce WAY                with cuda, sums over GPUs: auto, nccl, nccl-float\n"
         "                                  (not the same bits) or copies (default auto)\n"
         "      --trace FILE                with cuda, of one plan and one test: start and end of\n"
         "                                  each task, those that warm up included, for 'lopside\n"
         "                                  trace' and 'lopside compare'\n"
         "      --pace-devices A/B          share of its speed that each device has, measured\n"
         "                                  (cuda) and predicted\n"
         "      --pace-links A/B            GB/s of each device's link, likewise\n"
         "Output:\n"
         "  -o, --output md|csv|json|jsonl|sql   (default md)\n"
         "      --no-default                no row for llama.cpp's own default plan\n"
         "      --full-stepping             simulate every decode step, also equal ones\n"
         "      --progress                  progress on stderr, also where it is no terminal\n"
         "      --list-devices              the machine's devices, and exit\n"
         "      --version, --help\n\n"
         "Columns beyond llama-bench's: bound (the resource that was busy for the largest share\n"
         "of the time: a device, a link as from>to, all-reduce, or the host thread), MiB in use\n"
         "on each device, and fit. A plan that does not fit has no speed. A note names the rules\n"
         "of the engine that a plan breaks. Exit status: 0; 2 when a plan or the call cannot be.");
}

/* ---- reading the call ---- */

static int take_pair(struct options *options, const char *text)
{
    return list_add_one(&options->tests.pairs, text);
}

enum {
    BENCH_N_PROMPT = 4000,
    BENCH_N_GEN,
    BENCH_PG,
    BENCH_N_DEPTH,
    BENCH_REPS,
    BENCH_BACKEND,
    BENCH_REDUCE,
    BENCH_TRACE,
    BENCH_PACE_DEVICES,
    BENCH_PACE_LINKS,
    BENCH_OUTPUT,
    BENCH_NO_DEFAULT,
    BENCH_FULL,
    BENCH_PROGRESS,
    BENCH_LIST,
    BENCH_VERSION,
    BENCH_HELP,
};

static const struct option own_longs[] = {
    {"p", required_argument, NULL, BENCH_N_PROMPT},
    {"n-prompt", required_argument, NULL, BENCH_N_PROMPT},
    {"n", required_argument, NULL, BENCH_N_GEN},
    {"n-gen", required_argument, NULL, BENCH_N_GEN},
    {"pg", required_argument, NULL, BENCH_PG},
    {"d", required_argument, NULL, BENCH_N_DEPTH},
    {"n-depth", required_argument, NULL, BENCH_N_DEPTH},
    {"r", required_argument, NULL, BENCH_REPS},
    {"repetitions", required_argument, NULL, BENCH_REPS},
    {"backend", required_argument, NULL, BENCH_BACKEND},
    {"reduce", required_argument, NULL, BENCH_REDUCE},
    {"trace", required_argument, NULL, BENCH_TRACE},
    {"pace-devices", required_argument, NULL, BENCH_PACE_DEVICES},
    {"pace-links", required_argument, NULL, BENCH_PACE_LINKS},
    {"o", required_argument, NULL, BENCH_OUTPUT},
    {"output", required_argument, NULL, BENCH_OUTPUT},
    {"no-default", no_argument, NULL, BENCH_NO_DEFAULT},
    {"full-stepping", no_argument, NULL, BENCH_FULL},
    {"progress", no_argument, NULL, BENCH_PROGRESS},
    {"list-devices", no_argument, NULL, BENCH_LIST},
    {"version", no_argument, NULL, BENCH_VERSION},
    {"h", no_argument, NULL, BENCH_HELP},
    {"help", no_argument, NULL, BENCH_HELP},
};

static int read_format(struct options *options, const char *text)
{
    static const char *const names[] = {"md", "csv", "json", "jsonl", "sql"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(names[i], text) == 0) {
            options->format = (enum bench_format)i;
            return CLI_OK;
        }
    }
    return cli_wrong_call("bench", "-o %s: md, csv, json, jsonl and sql are accepted", text);
}

static int take_own(struct options *options, int value)
{
    int status = 0;

    switch (value) {
    case BENCH_N_PROMPT:
        status = list_add(&options->tests.prompts, optarg);
        break;
    case BENCH_N_GEN:
        status = list_add(&options->tests.gens, optarg);
        break;
    case BENCH_PG:
        status = take_pair(options, optarg);
        break;
    case BENCH_N_DEPTH:
        status = list_add(&options->tests.depths, optarg);
        break;
    case BENCH_REPS:
        if (bench_read_count("r", optarg, &options->reps) != CLI_OK)
            return CLI_USAGE;
        if (options->reps == 0 || options->reps > 1000)
            return cli_wrong_call("bench", "-r %s: 1 to 1000 is accepted", optarg);
        break;
    case BENCH_BACKEND:
        options->measure.options.name = optarg;
        break;
    case BENCH_REDUCE:
        options->measure.options.reduce = optarg;
        break;
    case BENCH_TRACE:
        options->measure.options.trace = optarg;
        break;
    case BENCH_PACE_DEVICES:
        options->pace_devices = optarg;
        break;
    case BENCH_PACE_LINKS:
        options->pace_links = optarg;
        break;
    case BENCH_OUTPUT:
        return read_format(options, optarg);
    case BENCH_NO_DEFAULT:
        options->no_default = true;
        break;
    case BENCH_FULL:
        options->full_stepping = true;
        break;
    case BENCH_PROGRESS:
        options->progress = true;
        break;
    case BENCH_LIST:
        options->list_devices = true;
        break;
    case BENCH_VERSION:
        puts("lopside " PACKAGE_VERSION);
        return -1;
    case BENCH_HELP:
        print_help();
        return -1;
    default:
        return cli_unknown_option("bench");
    }
    return status == 0 ? CLI_OK : cli_wrong_call("bench", "no memory for the arguments");
}

static void warn_ignored(int index)
{
    if (ignored[index].warns)
        cli_warn("-%s is accepted but not modelled", ignored[index].name);
}

static int parse(int argc, char **argv, struct options *options)
{
    struct option
        longs[PLAN_OPTION_LONGS + sizeof own_longs / sizeof *own_longs + IGNORED_COUNT + 1];
    size_t count = plan_options_longs(longs, PLAN_OPTION_LONGS);
    int option;

    for (size_t i = 0; i < sizeof own_longs / sizeof *own_longs; i++)
        longs[count++] = own_longs[i];
    for (int i = 0; i < IGNORED_COUNT; i++)
        longs[count++] =
            (struct option){ignored[i].name, ignored[i].has_value ? required_argument : no_argument,
                            NULL, IGNORED_BASE + i};
    longs[count] = (struct option){NULL, 0, NULL, 0};
    options->reps = 5;
    while ((option = getopt_long_only(argc, argv, "", longs, NULL)) != -1) {
        int status, taken = plan_options_take(&options->plans, option, optarg);

        if (taken < 0)
            return cli_wrong_call("bench", "no memory for the arguments");
        if (taken > 0)
            continue;
        if (option >= IGNORED_BASE && option < IGNORED_BASE + IGNORED_COUNT) {
            warn_ignored(option - IGNORED_BASE);
            continue;
        }
        status = take_own(options, option);
        if (status != CLI_OK)
            return status;
    }
    if (optind < argc)
        return cli_wrong_call("bench", "'%s' is no option", argv[optind]);
    return CLI_OK;
}

/* ---- running ---- */

struct run {
    struct options *options;
    struct tests tests;
    struct bench_output output;
    struct model **models;        /* one a value of -m */
    struct bench_result *results; /* all, so that md knows its columns */
    size_t result_count, result_capacity, expected;
    struct machine **machines; /* one a combination; results borrow them */
    uint32_t *resident;        /* of all combinations, result after result */
    bool some_refused;
    uint32_t warned_rules; /* so that each rule is said once */
    time_t began;
};

static void show_progress(const struct run *run)
{
    bool wanted = run->options->progress || (isatty(STDERR_FILENO) != 0 && time(NULL) > run->began);

    if (wanted && run->result_count % 16 == 0)
        fprintf(stderr, "\rlopside: %zu of %zu tests", run->result_count, run->expected);
}

/* The call's machine, as slow as it says. */
static struct machine *open_machine(const struct options *options, struct error *err)
{
    struct machine *machine = plan_options_machine(&options->plans, err);

    if (machine != NULL)
        machine_apply_pace(machine, &options->pace);
    return machine;
}

static int predict(const struct run *run, const struct placement *placement,
                   const struct bench_draft *draft, struct test test, struct bench_result *result,
                   struct error *err)
{
    struct predict_options how = {.tool = PREDICT_LLAMA_BENCH,
                                  .full_stepping = run->options->full_stepping};
    struct predict_options generating = how;
    struct timing *timing = timing_new(placement, err);
    struct prediction prompt = {0}, generation = {0};
    int status = timing == NULL ? -1 : 0;

    if (result->samples)
        generating.tool = PREDICT_LLAMA_COMPLETION;
    if (status == 0 && test.n_prompt > 0)
        status = predict_prompt(timing, placement, test.n_depth, test.n_prompt, how, &prompt, err);
    if (status == 0 && test.n_gen > 0)
        status = bench_draft_generate(draft, timing, placement, test.n_depth + test.n_prompt,
                                      test.n_gen, generating, &generation, err);
    timing_free(timing);
    result->time_s = prompt.time_s + generation.time_s;
    result->bound = prompt.time_s > generation.time_s ? prompt.bound : generation.bound;
    return status;
}

/* Executes a test that the prediction has been made of. */
static int measure(const struct run *run, const struct placement *placement, struct test test,
                   struct bench_result *result, struct error *err)
{
    struct bench_measure *measure = &run->options->measure;

    if (!measure->wanted || result->is_default)
        return 0;
    if (result->draft_max > 0)
        return error_set(err, ERROR_UNSUPPORTED, "--backend: drafts are not measured");
    result->samples_s = calloc(result->reps, sizeof *result->samples_s);
    if (result->samples_s == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for %u samples", result->reps);
    result->measured_at = time(NULL);
    result->on_cpu = strcmp(measure->options.name, "cpu") == 0;
    if (bench_measure_test(measure, result->model_filename, placement, test, result->reps,
                           result->samples_s, err) == 0)
        return 0;
    free(result->samples_s);
    result->samples_s = NULL;
    return -1;
}

static struct bench_result *next_result(struct run *run, struct error *err)
{
    if (run->result_count == run->result_capacity) {
        size_t capacity = run->result_capacity > 0 ? 2 * run->result_capacity : 64;
        struct bench_result *grown = realloc(run->results, capacity * sizeof *grown);

        if (grown == NULL) {
            error_set(err, ERROR_MEMORY, "no memory for %zu results", capacity);
            return NULL;
        }
        run->results = grown;
        run->result_capacity = capacity;
    }
    return &run->results[run->result_count];
}

/* Memory by device of the whole machine, whichever of them the plan uses. */
static void note_memory(const struct run *run, const struct placement *placement,
                        struct bench_result *result)
{
    const struct machine *whole = run->output.machine;

    for (uint32_t i = 0; i < whole->device_count; i++) {
        result->device_mib[i] = -1;
        for (uint32_t d = 0; d < placement->device_count; d++)
            if (strcmp(whole->devices[i].name,
                       placement->machine->devices[placement->devices[d]].name) == 0)
                result->device_mib[i] = (double)result->memory.devices[d].total / (1 << 20);
    }
}

static void note_rules(struct run *run, struct bench_result *result)
{
    result->rules = feasibility_check(result->model, result->machine, &result->plan);
    cli_warn_rules(result->rules & ~run->warned_rules);
    run->warned_rules |= result->rules;
}

/* What is measured takes its time, so each row is there when it is; a table's columns are known at
 * its end. */
static bool prints_at_once(const struct run *run)
{
    return run->options->measure.wanted && run->output.format != BENCH_MARKDOWN;
}

static int run_test(struct run *run, struct bench_result result, const struct bench_draft *draft,
                    struct test test, struct error *err)
{
    uint32_t context = predict_context(&result.plan, test.n_prompt, test.n_gen, test.n_depth);
    struct placement *placement =
        placement_new(result.model, result.machine, &result.plan, context, err);
    struct bench_result *slot;
    int status = -1;

    if (placement == NULL) {
        uint32_t rules = feasibility_check(result.model, result.machine, &result.plan);

        cli_warn_rules_of_refused(rules & ~run->warned_rules);
        run->warned_rules |= rules;
        return -1;
    }
    slot = next_result(run, err);
    if (slot != NULL) {
        result.n_prompt = test.n_prompt;
        result.n_gen = test.n_gen;
        result.n_depth = test.n_depth;
        result.reps = run->options->reps;
        result.n_ctx = placement->n_ctx;
        memory_count(placement, &result.memory);
        status = bench_draft_memory(draft, placement, &result.memory, err);
        note_memory(run, placement, &result);
        memory_verdict(placement, &result.memory, result.verdict, sizeof result.verdict);
        note_rules(run, &result);
        if (status == 0)
            status = predict(run, placement, draft, test, &result, err);
        if (status == 0)
            status = measure(run, placement, test, &result, err);
        if (status == 0) {
            *slot = result;
            bench_columns_note(&run->output.columns, slot);
            run->result_count++;
            if (prints_at_once(run))
                bench_output_row(&run->output, slot);
        }
    }
    placement_free(placement);
    return status;
}

static const char *typed(const struct options *options, size_t combination, enum plan_option option)
{
    const char *value = plan_options_value(&options->plans, combination, option);

    return value != NULL && options->plans.given[option] && strcmp(value, "0") != 0 ? value : "";
}

/* Says why a plan cannot be, and goes on with the others. */
static void refuse(struct run *run, const struct error *err)
{
    cli_fail(err);
    run->some_refused = true;
}

static void run_combination(struct run *run, size_t combination)
{
    struct options *options = run->options;
    struct error err = {0};
    struct bench_result result = {
        .model_filename = plan_options_value(&options->plans, combination, PLAN_OPTION_MODEL),
        .tensor_split = typed(options, combination, PLAN_OPTION_TENSOR_SPLIT),
        .attn_split = typed(options, combination, PLAN_OPTION_ATTN_SPLIT),
        .devices = typed(options, combination, PLAN_OPTION_DEVICES),
        .kv_resident = typed(options, combination, PLAN_OPTION_KV_RESIDENT),
        .samples = plan_options_sample(&options->plans, combination),
        .pace_devices = options->pace_devices,
        .pace_links = options->pace_links,
    };
    struct bench_draft draft = {.asked = {.n_max = 0}};
    const struct list *names = &options->plans.values[PLAN_OPTION_MODEL];

    for (size_t m = 0; m < names->count; m++)
        if (strcmp(names->items[m], result.model_filename) == 0)
            result.model = run->models[m];
    run->machines[combination] = open_machine(options, &err);
    result.machine = run->machines[combination];
    if (result.machine == NULL ||
        plan_options_select(&options->plans, combination, run->machines[combination], &err) != 0 ||
        plan_options_plan(&options->plans, combination, result.model, result.machine, run->resident,
                          result.model->n_layer + result.model->n_layer_nextn, &result.plan,
                          &err) != 0 ||
        bench_draft_open(&draft, &options->plans, combination, result.model, &result.plan, &err) !=
            0) {
        refuse(run, &err);
        return;
    }
    bench_draft_note(&draft, &result);
    for (size_t t = 0; t < run->tests.count; t++) {
        struct error test_err = {0};

        if (run_test(run, result, &draft, run->tests.entries[t], &test_err) != 0) {
            refuse(run, &test_err);
            break;
        }
        show_progress(run);
    }
    bench_draft_close(&draft);
}

static bool is_asked(const struct run *run, const struct model *model)
{
    struct plan usual = plan_default();

    for (size_t i = 0; i < run->result_count; i++) {
        const struct bench_result *r = &run->results[i];

        if (r->model == model && r->plan.split == usual.split && r->plan.tensor_split_count == 0 &&
            !r->plan.kv_on_host && r->plan.type_k == usual.type_k && r->devices[0] == '\0' &&
            r->plan.n_batch == usual.n_batch && r->plan.n_ubatch == usual.n_ubatch &&
            r->draft_max == 0)
            return true;
    }
    return false;
}

/* The row beside the asked ones: what llama.cpp does when nothing is asked. */
static void run_default(struct run *run, struct machine *machine)
{
    const struct list *names = &run->options->plans.values[PLAN_OPTION_MODEL];
    const struct bench_draft no_draft = {.asked = {.n_max = 0}};

    for (size_t m = 0; m < names->count; m++) {
        struct bench_result result = {.model = run->models[m],
                                      .machine = machine,
                                      .model_filename = names->items[m],
                                      .plan = plan_default(),
                                      .tensor_split = "",
                                      .attn_split = "",
                                      .devices = "",
                                      .kv_resident = "",
                                      .model_draft = "",
                                      .is_default = true};

        if (is_asked(run, run->models[m]))
            continue;
        result.plan.schedule = PLAN_SCHEDULE_LLAMA_CPP;
        result.plan.all_logits = true;
        for (size_t t = 0; t < run->tests.count; t++) {
            struct error err = {0};

            if (run_test(run, result, &no_draft, run->tests.entries[t], &err) != 0)
                break;
        }
    }
}

static int open_models(struct run *run, uint32_t *layers_max, struct error *err)
{
    const struct list *names = &run->options->plans.values[PLAN_OPTION_MODEL];

    *layers_max = 0;
    run->models = calloc(names->count + 1, sizeof(struct model *));
    if (run->models == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for %zu models", names->count);
    for (size_t m = 0; m < names->count; m++) {
        uint32_t layers;

        run->models[m] = model_open(names->items[m], err);
        if (run->models[m] == NULL)
            return -1;
        layers = run->models[m]->n_layer + run->models[m]->n_layer_nextn;
        *layers_max = layers > *layers_max ? layers : *layers_max;
    }
    return 0;
}

static int print_devices(const struct options *options)
{
    struct error err = {0};
    struct machine *machine = plan_options_machine(&options->plans, &err);

    if (machine == NULL)
        return cli_fail(&err);
    puts("Available devices:");
    for (uint32_t d = 0; d < machine->device_count; d++)
        printf("  %s: %s (%llu MiB, %llu MiB free)\n", machine->devices[d].name,
               machine->devices[d].gpu,
               (unsigned long long)(machine->devices[d].memory_bytes >> 20),
               (unsigned long long)((machine->devices[d].memory_bytes -
                                     machine->devices[d].other_bytes) >>
                                    20));
    machine_free(machine);
    return CLI_OK;
}

static int run_all(struct run *run, struct error *err)
{
    size_t combinations = plan_options_combinations(&run->options->plans);
    uint32_t layers_max;

    if (open_models(run, &layers_max, err) != 0)
        return -1;
    run->machines = calloc(combinations + 1, sizeof(struct machine *));
    run->resident = calloc(layers_max + 1, sizeof *run->resident);
    if (run->machines == NULL || run->resident == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for %zu plans", combinations);
    run->expected = combinations * run->tests.count;
    run->machines[combinations] = open_machine(run->options, err);
    if (run->machines[combinations] == NULL)
        return -1;
    run->output.machine = run->machines[combinations];
    bench_output_begin(&run->output);
    for (size_t c = 0; c < combinations; c++)
        run_combination(run, c);
    if (!run->options->no_default && !run->some_refused && !run->options->measure.wanted)
        run_default(run, run->machines[combinations]);
    if (run->options->progress || (isatty(STDERR_FILENO) != 0 && time(NULL) > run->began))
        fputs("\r\033[K", stderr);
    for (size_t i = 0; i < run->result_count && !prints_at_once(run); i++)
        bench_output_row(&run->output, &run->results[i]);
    bench_output_end(&run->output);
    return 0;
}

static void close_run(struct run *run)
{
    size_t combinations = plan_options_combinations(&run->options->plans);

    for (size_t m = 0;
         run->models != NULL && m < run->options->plans.values[PLAN_OPTION_MODEL].count; m++)
        model_free(run->models[m]);
    for (size_t c = 0; run->machines != NULL && c <= combinations; c++)
        machine_free(run->machines[c]);
    for (size_t i = 0; i < run->result_count; i++)
        free(run->results[i].samples_s);
    free(run->models);
    free(run->machines);
    free(run->resident);
    free(run->results);
    free(run->tests.entries);
}

static int run_bench(struct options *options)
{
    struct run run = {.options = options,
                      .output = {.out = stdout, .format = options->format},
                      .began = time(NULL)};
    struct error err = {0};
    int status = CLI_OK;

    if (options->list_devices)
        return print_devices(options);
    if (options->measure.options.name != NULL) {
        options->measure.options.pace_devices = options->pace_devices;
        options->measure.options.pace_links = options->pace_links;
    }
    if (plan_options_finish(&options->plans, &err) != 0 ||
        machine_pace_read(&options->pace, options->pace_devices, options->pace_links, &err) != 0 ||
        plan_options_words(&options->plans, &options->measure.options.words, &err) != 0 ||
        bench_measure_open(&options->measure, &err) != 0)
        return cli_fail(&err);
    plan_options_warn(&options->plans);
    status = bench_make_tests(&options->tests, &run.tests);
    if (status == CLI_OK && options->measure.options.trace != NULL &&
        plan_options_combinations(&options->plans) * run.tests.count != 1)
        status = cli_wrong_call("bench",
                                "--trace: of %zu plans and %zu tests; one of each is "
                                "accepted, as with -p 512 -n 0",
                                plan_options_combinations(&options->plans), run.tests.count);
    if (status == CLI_OK && run_all(&run, &err) != 0)
        status = cli_fail(&err);
    if (run.some_refused)
        status = CLI_USAGE;
    close_run(&run);
    return status;
}

int cli_bench(int argc, char **argv)
{
    struct options options = {.reps = 0};
    int status = parse(argc, argv, &options);

    if (status == CLI_OK)
        status = run_bench(&options);
    plan_options_close(&options.plans);
    bench_test_lists_close(&options.tests);
    bench_measure_close(&options.measure);
    return status < 0 ? CLI_OK : status;
}
