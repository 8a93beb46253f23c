/* lopside verify: executes many plans of a model and holds their outputs against each other. */
#include "cli/cli.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/backend.h"
#include "cli/list.h"
#include "ref/shape.h"
#include "ref/verify.h"

enum { SLOTS_MAX = 4, TYPES_MAX = 8, SHOWN_MAX = 8 };

struct options {
    struct list models, types, slots, chosen;
    size_t plans;
    long tokens, prompt;
    uint64_t seed, order_seed;
    float temperature;
    const char *isa;
    struct backend_options backend_options;
    struct backend backend;
    enum interpret_fault fault;
    bool shift, json, list, list_plans, help;
};

static void print_help(void)
{
    puts(
        "Usage: lopside verify [OPTION]...\n"
        "Executes a grid of plans on the CPU: 1 to 8 devices, split by layer or tensor in\n"
        "even and uneven ratios, attention heads apart, cache on devices, host or both,\n"
        "deliveries ordered or sent ahead, attention on the host, ubatches of 1 to 512, layers\n"
        "and experts on the host, drafts, and tasks in random orders. All plans of a model,\n"
        "cache type, workload and sampling have to give one checksum.\n\n"
        "  -m, --model MODEL[,MODEL...]    small models (default: all), GGUF files, or NAME:QUANT\n"
        "      --list                      the small models\n"
        "  -ctk, --cache-type TYPE,...     cache types (default f16,q8_0)\n"
        "  -np, --parallel N,...           slots (default 1,2)\n"
        "  -p, --prompt-length N           tokens of the first slot's prompt (default 66)\n"
        "  -n, --n-predict N               tokens to generate (default 6)\n"
        "      --plans N                   at most N plans of the grid, spread over it\n"
        "      --plan N[,N...]             these plans of the grid; the first one's output is\n"
        "                                  expected of all\n"
        "      --list-plans                the plans of the grid for the first model\n"
        "      --temp T                    sampling temperature (default 0: greedy)\n"
        "      --context-shift             the context is shifted half-way\n"
        "      --seed N                    of synthetic weights (default 1)\n"
        "      --order-seed N              of the random orders (default 1)\n"
        "      --isa base|avx2|avx512      kernels (default: the best that this CPU has)\n"
        "      --backend cpu|cuda          where plans are executed (default cpu); with cuda the\n"
        "                                  first runs on the CPU as well, and that output is\n"
        "                                  expected of all\n"
        "      --reduce WAY                with cuda, sums over GPUs: auto, nccl, nccl-float\n"
        "                                  (not the same bits) or copies (default auto)\n"
        "      --break float-sums|device-groups\n"
        "                                  breaks a rule on purpose; the check has to fail\n"
        "  -o, --output text|json          (default text)\n"
        "  -h, --help                      this text\n\n"
        "Exit status: 0 one checksum each, 1 plans differ or fail, 2 a wrong call.");
}

/* ---- options ---- */

enum {
    OPTION_LIST = 256,
    OPTION_PLAN,
    OPTION_LIST_PLANS,
    OPTION_PLANS,
    OPTION_TEMP,
    OPTION_SHIFT,
    OPTION_SEED,
    OPTION_ORDER,
    OPTION_ISA,
    OPTION_BREAK,
    OPTION_TYPES,
    OPTION_SLOTS,
    OPTION_REDUCE,
    OPTION_BACKEND
};

static const struct option longs[] = {{"model", required_argument, NULL, 'm'},
                                      {"list", no_argument, NULL, OPTION_LIST},
                                      {"cache-type", required_argument, NULL, OPTION_TYPES},
                                      {"ctk", required_argument, NULL, OPTION_TYPES},
                                      {"parallel", required_argument, NULL, OPTION_SLOTS},
                                      {"np", required_argument, NULL, OPTION_SLOTS},
                                      {"prompt-length", required_argument, NULL, 'p'},
                                      {"n-predict", required_argument, NULL, 'n'},
                                      {"plans", required_argument, NULL, OPTION_PLANS},
                                      {"plan", required_argument, NULL, OPTION_PLAN},
                                      {"list-plans", no_argument, NULL, OPTION_LIST_PLANS},
                                      {"temp", required_argument, NULL, OPTION_TEMP},
                                      {"context-shift", no_argument, NULL, OPTION_SHIFT},
                                      {"seed", required_argument, NULL, OPTION_SEED},
                                      {"order-seed", required_argument, NULL, OPTION_ORDER},
                                      {"isa", required_argument, NULL, OPTION_ISA},
                                      {"reduce", required_argument, NULL, OPTION_REDUCE},
                                      {"backend", required_argument, NULL, OPTION_BACKEND},
                                      {"break", required_argument, NULL, OPTION_BREAK},
                                      {"output", required_argument, NULL, 'o'},
                                      {"help", no_argument, NULL, 'h'},
                                      {NULL, 0, NULL, 0}};

static int number(const char *flag, const char *text, long least, long most, long *value)
{
    char *end;
    long result = strtol(text, &end, 10);

    if (*text == '\0' || *end != '\0' || result < least || result > most)
        return cli_wrong_call("verify", "%s %s: a number from %ld to %ld is needed", flag, text,
                              least, most);
    *value = result;
    return 0;
}

static int take_word(struct options *options, int option, const char *word)
{
    char *end;

    switch (option) {
    case OPTION_TEMP:
        options->temperature = strtof(word, &end);
        if (*word == '\0' || *end != '\0' || !(options->temperature >= 0))
            return cli_wrong_call("verify", "--temp %s: a number from 0 on is needed", word);
        return 0;
    case OPTION_ISA:
        options->isa = word;
        return ref_kernels_find(word) != NULL
                   ? 0
                   : cli_wrong_call("verify",
                                    "--isa %s: this CPU or this build has no such "
                                    "kernels; base always works",
                                    word);
    case OPTION_BACKEND:
        options->backend_options.name = word;
        return 0;
    case OPTION_BREAK:
        options->fault = strcmp(word, "float-sums") == 0      ? INTERPRET_FLOAT_SUMS
                         : strcmp(word, "device-groups") == 0 ? INTERPRET_DEVICE_GROUPS
                                                              : INTERPRET_SOUND;
        return options->fault != INTERPRET_SOUND
                   ? 0
                   : cli_wrong_call("verify", "--break %s: float-sums or device-groups", word);
    default:
        options->json = strcmp(word, "json") == 0;
        return options->json || strcmp(word, "text") == 0
                   ? 0
                   : cli_wrong_call("verify", "-o %s: text or json", word);
    }
}

static int take_number(struct options *options, int option, const char *text)
{
    long value = 0;
    int status;

    switch (option) {
    case 'p':
        return number("-p", text, 1, 4096, &options->prompt);
    case 'n':
        return number("-n", text, 1, 4096, &options->tokens);
    case OPTION_PLANS:
        status = number("--plans", text, 1, 1000000, &value);
        options->plans = (size_t)value;
        return status;
    case OPTION_SEED:
        status = number("--seed", text, 0, INT32_MAX, &value);
        options->seed = (uint64_t)value;
        return status;
    default:
        status = number("--order-seed", text, 0, INT32_MAX, &value);
        options->order_seed = (uint64_t)value;
        return status;
    }
}

static int take(struct options *options, int option, const char *argument)
{
    struct list *list = option == 'm'            ? &options->models
                        : option == OPTION_TYPES ? &options->types
                        : option == OPTION_SLOTS ? &options->slots
                                                 : &options->chosen;

    switch (option) {
    case 'm':
    case OPTION_TYPES:
    case OPTION_SLOTS:
    case OPTION_PLAN:
        return list_add(list, argument) == 0
                   ? 0
                   : cli_wrong_call("verify", "no memory for %s", argument);
    case OPTION_LIST:
        options->list = true;
        return 0;
    case OPTION_LIST_PLANS:
        options->list_plans = true;
        return 0;
    case OPTION_SHIFT:
        options->shift = true;
        return 0;
    case OPTION_REDUCE:
        options->backend_options.reduce = argument;
        return 0;
    case 'h':
        options->help = true;
        return 0;
    case 'p':
    case 'n':
    case OPTION_PLANS:
    case OPTION_SEED:
    case OPTION_ORDER:
        return take_number(options, option, argument);
    case OPTION_TEMP:
    case OPTION_ISA:
    case OPTION_BREAK:
    case OPTION_BACKEND:
    case 'o':
        return take_word(options, option, argument);
    default:
        return cli_unknown_option("verify");
    }
}

/* Types and slots are refused before anything is printed. */
static int check_lists(const struct options *options)
{
    int status = CLI_OK;
    long slots, plan;

    for (size_t i = 0; i < options->types.count; i++) {
        int type = tensor_type_find(options->types.items[i]);

        if (type != TENSOR_TYPE_F16 && type != TENSOR_TYPE_Q8_0 && type != TENSOR_TYPE_Q4_0)
            return cli_wrong_call("verify", "-ctk %s: f16, q8_0 or q4_0", options->types.items[i]);
    }
    for (size_t i = 0; i < options->slots.count && status == CLI_OK; i++)
        status = number("-np", options->slots.items[i], 1, SLOTS_MAX, &slots);
    for (size_t i = 0; i < options->chosen.count && status == CLI_OK; i++)
        status = number("--plan", options->chosen.items[i], 0, (long)plan_grid_count() - 1, &plan);
    return status;
}

static int read_options(struct options *options, int argc, char **argv)
{
    struct error err = {0};
    int status = CLI_OK, option;
    bool all_models;

    while (status == CLI_OK &&
           (option = getopt_long_only(argc, argv, "hm:p:n:o:", longs, NULL)) != -1)
        status = take(options, option, optarg);
    if (status == CLI_OK && optind < argc)
        status = cli_wrong_call("verify", "unexpected argument %s", argv[optind]);
    if (status != CLI_OK || options->help || options->list)
        return status;
    all_models = options->models.count == 0;
    for (size_t i = 0; all_models && i < shape_count(); i++)
        if (list_add(&options->models, shape_name(i)) != 0)
            return cli_wrong_call("verify", "no memory for the list of models");
    if ((options->types.count == 0 && list_add(&options->types, "f16,q8_0") != 0) ||
        (options->slots.count == 0 && list_add(&options->slots, "1,2") != 0))
        return cli_wrong_call("verify", "no memory for lists");
    if (backend_open(&options->backend_options, &options->backend, &err) != 0)
        return cli_fail(&err);
    return check_lists(options);
}

/* ---- running ---- */

struct outcome {
    size_t plans, different, failed, shuffled, drafted;
    uint64_t checksum;
};

/* Those that were named, or plans spread over the grid, the first one among them. */
static size_t choose_plans(const struct options *options, size_t **indices)
{
    size_t all = plan_grid_count();
    size_t count = options->plans > 0 && options->plans < all ? options->plans : all;

    if (options->chosen.count > 0)
        count = options->chosen.count;
    *indices = calloc(count, sizeof **indices);
    for (size_t i = 0; i < count && *indices != NULL; i++)
        (*indices)[i] = options->chosen.count > 0 ? strtoul(options->chosen.items[i], NULL, 10)
                                                  : i * PLAN_GRID_STEP % all;
    return *indices != NULL ? count : 0;
}

static void entry_of(const struct verify_job *job, size_t index, struct plan_grid_entry *entry)
{
    struct plan base = plan_default();

    base.n_slots = job->slots;
    base.kv_unified = true;
    plan_grid_entry(index, job->source->model, &base, entry);
}

static void show_difference(const struct verify_job *job, const struct verify_result *result)
{
    struct plan_grid_entry entry;

    entry_of(job, result->index, &entry);
    if (result->failed)
        fprintf(stderr, "  plan %zu, %u device%s, %s: %s\n", result->index, entry.devices,
                entry.devices == 1 ? "" : "s", entry.text, result->error.text);
    else
        fprintf(stderr, "  plan %zu, %u device%s, %s: slot %u differs from token %u on\n",
                result->index, entry.devices, entry.devices == 1 ? "" : "s", entry.text,
                result->first_difference / job->tokens, result->first_difference % job->tokens);
}

static struct outcome judge(const struct verify_job *job, const struct verify_result *results,
                            size_t count)
{
    struct outcome outcome = {.plans = count, .checksum = results[0].expected};

    for (size_t i = 0; i < count; i++) {
        bool different = !results[i].failed && results[i].checksum != outcome.checksum;
        struct plan_grid_entry entry;

        entry_of(job, results[i].index, &entry);
        outcome.shuffled += entry.shuffled;
        outcome.drafted += entry.drafter != GENERATE_NO_DRAFTER && !job->shift;
        outcome.failed += results[i].failed;
        outcome.different += different;
        if ((different || results[i].failed) && outcome.failed + outcome.different <= SHOWN_MAX)
            show_difference(job, &results[i]);
    }
    return outcome;
}

static void print_outcome(const struct options *options, const char *model,
                          const struct verify_job *job, struct outcome outcome)
{
    const char *type = tensor_type_info(job->type_k)->name;
    bool same = outcome.different == 0 && outcome.failed == 0;

    if (options->json)
        printf("{\"model\": \"%s\", \"cache_type\": \"%s\", \"slots\": %u, \"plans\": %zu, "
               "\"shuffled\": %zu, \"drafted\": %zu, \"different\": %zu, \"failed\": %zu, "
               "\"checksum\": \"%016" PRIx64 "\"}\n",
               model, type, job->slots, outcome.plans, outcome.shuffled, outcome.drafted,
               outcome.different, outcome.failed, outcome.checksum);
    else
        printf("| %-22s | %-5s | %5u | %5zu | %8zu | %7zu | %016" PRIx64 " | %s |\n", model, type,
               job->slots, outcome.plans, outcome.shuffled, outcome.drafted, outcome.checksum,
               same ? "same" : "DIFFERENT");
    fflush(stdout);
}

static int verify_one(const struct options *options, const char *model, struct verify_job *job,
                      bool *same)
{
    struct error err = {0};
    struct verify_result *results;
    struct outcome outcome;
    size_t *indices, count = choose_plans(options, &indices);
    int status = CLI_OK;

    results = calloc(count + 1, sizeof *results);
    if (indices == NULL || results == NULL)
        error_set(&err, ERROR_MEMORY, "no memory for %zu plans", count);
    if (err.code != ERROR_NONE || verify_plans(job, indices, count, results, &err) != 0) {
        status = cli_fail(&err);
    } else {
        outcome = judge(job, results, count);
        *same = *same && outcome.different == 0 && outcome.failed == 0;
        print_outcome(options, model, job, outcome);
    }
    free(indices);
    free(results);
    return status;
}

/* Slots beyond the first have shorter prompts. */
static void fill_lengths(uint32_t lengths[SLOTS_MAX], long prompt)
{
    for (uint32_t slot = 0; slot < SLOTS_MAX; slot++)
        lengths[slot] = (uint32_t)(prompt / (slot * slot + 1)) + (slot > 0);
}

static int verify_model(const struct options *options, const char *model, bool *same)
{
    struct source source;
    struct error err = {0};
    uint32_t lengths[SLOTS_MAX];
    int status = CLI_OK;

    if (source_open(&source, model, options->seed, &err) != 0)
        status = cli_fail(&err);
    fill_lengths(lengths, options->prompt);
    for (size_t t = 0; t < options->types.count && status == CLI_OK; t++)
        for (size_t s = 0; s < options->slots.count && status == CLI_OK; s++) {
            int type = tensor_type_find(options->types.items[t]);
            struct verify_job job = {.source = &source,
                                     .prompt_lengths = lengths,
                                     .tokens = (uint32_t)options->tokens,
                                     .sampling = {.temperature = options->temperature, .seed = 1},
                                     .kernels = ref_kernels_find(options->isa),
                                     .order_seed = options->order_seed,
                                     .fault = options->fault,
                                     .open = options->backend.open,
                                     .open_context = options->backend.context,
                                     .shift = options->shift};
            long slots = 0;

            number("-np", options->slots.items[s], 1, SLOTS_MAX, &slots);
            job.slots = (uint32_t)slots;
            job.type_k = job.type_v = (enum tensor_type)type;
            if (status == CLI_OK)
                status = verify_one(options, model, &job, same);
        }
    source_close(&source);
    return status;
}

static void print_list(void)
{
    for (size_t i = 0; i < shape_count(); i++)
        printf("%-20s %s\n", shape_name(i), shape_about(i));
}

static int print_plans(const struct options *options)
{
    struct source source;
    struct error err = {0};
    int status = CLI_OK;

    if (source_open(&source, options->models.items[0], options->seed, &err) != 0)
        status = cli_fail(&err);
    for (size_t i = 0; i < plan_grid_count() && status == CLI_OK; i++) {
        struct verify_job job = {.source = &source, .slots = 1};
        struct plan_grid_entry entry;

        entry_of(&job, i, &entry);
        printf("%4zu  %u device%s  %s\n", i, entry.devices, entry.devices == 1 ? " " : "s",
               entry.text);
    }
    source_close(&source);
    return status;
}

int cli_verify(int argc, char **argv)
{
    struct options options = {.tokens = 6, .prompt = 66, .seed = 1, .order_seed = 1};
    bool same = true;
    int status = read_options(&options, argc, argv);

    if (status == CLI_OK && options.help)
        print_help();
    else if (status == CLI_OK && options.list)
        print_list();
    else if (status == CLI_OK && options.list_plans)
        status = print_plans(&options);
    else if (status == CLI_OK) {
        if (!options.json)
            puts("| model                  | cache | slots | plans | shuffled | drafted | "
                 "checksum         | output |\n"
                 "| ---------------------- | ----- | ----: | ----: | -------: | ------: | "
                 "---------------- | ------ |");
        for (size_t i = 0; i < options.models.count && status == CLI_OK; i++)
            status = verify_model(&options, options.models.items[i], &same);
        if (status == CLI_OK && !same)
            status = CLI_FAILED;
    }
    free(options.backend.context);
    list_close(&options.models);
    list_close(&options.types);
    list_close(&options.slots);
    list_close(&options.chosen);
    return status;
}
