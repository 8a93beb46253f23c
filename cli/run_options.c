#include "cli/run_options.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

/* A card to stand on where none is named: its figures have no effect on what is computed. */
#define DEFAULT_GPU "RTX 4090"

static void print_help(void)
{
    puts(
        "Usage: lopside run -m MODEL (-p TEXT | --tokens IDS) [OPTION]...\n"
        "Executes a plan on the CPU, task by task: every copy, slice and sum that the plan's\n"
        "devices would make, each in a memory of its own. Prints the tokens and a checksum of\n"
        "the logits that they were chosen from, which no plan changes: docs/arithmetic.md.\n"
        "MODEL is a GGUF file, one of the small models ('lopside synth' lists them) or a model\n"
        "of the catalogue; models without a file get synthetic weights. Without\n"
        "--machine and --gpu the plan stands on as many \"" DEFAULT_GPU "\" as -ts, -as, -fer or "
        "-dev\n"
        "name, or on one; the machine decides about default shares only.\n\n"
        "  -p, --prompt TEXT               prompt of every slot; needs a file with an SPM "
        "vocabulary\n"
        "      --tokens ID,ID...[/ID...]   prompt as token ids; slots of -np apart by slashes,\n"
        "                                  or one list for all\n"
        "  -n, --n-predict N               tokens to generate in each slot (default 16); an end\n"
        "                                  of text does not end it\n"
        "      --temp T                    temperature (default 0: the likeliest token)\n"
        "      --sampling-seed N           seed of sampling, llama.cpp's --seed (default 1)\n"
        "      --seed N                    seed of synthetic weights (default 1)\n"
        "      --context-shift KEEP,COUNT@N   after N tokens, drop COUNT behind the first KEEP\n"
        "      --backend cpu|cuda          where the plan is executed (default cpu)\n"
        "      --trace FILE                with cuda: start and end of each task, for 'lopside "
        "trace'\n"
        "                                  and 'lopside compare'\n"
        "      --pace-devices A/B          with cuda: the share of its speed that each device has\n"
        "      --pace-links A/B            with cuda: GB/s at most between host and each device\n"
        "      --reduce WAY                with cuda, sums over GPUs: auto, nccl, nccl-float\n"
        "                                  (not the same bits) or copies (default auto)\n"
        "      --isa base|avx2|avx512      instructions of the loops (default: the best)\n"
        "      --shuffle SEED              run tasks in a random order that their edges allow\n"
        "      --record FILE               keep a digest of what each operation yields\n"
        "      --check-against FILE        compare with such a record; tell where they part\n"
        "  -o, --output text|json          (default text)\n"
        "  -h, --help                      this text\n\n"
        "Drafts: -md ngram proposes what followed the last two tokens before; --draft-max N\n"
        "alone, or -md nextn, asks the model's own block. Exit status: 0; 1 when the run\n"
        "differs from --check-against; 2 when the plan or the call cannot be.\n");
    plan_options_print_help();
}

/* ---- values ---- */

static int read_whole(const char *flag, const char *text, uint64_t min, uint64_t max,
                      uint64_t *value)
{
    char *end;

    errno = 0;
    *value = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0 || *value < min ||
        *value > max)
        return cli_wrong_call("run",
                              "%s %s: a whole number from %" PRIu64 " to %" PRIu64 " is accepted",
                              flag, text, min, max);
    return CLI_OK;
}

static int read_temperature(const char *text, float *temperature)
{
    char *end;

    *temperature = strtof(text, &end);
    if (end == text || *end != '\0' || !(*temperature >= 0) || !isfinite(*temperature))
        return cli_wrong_call("run", "--temp %s: a temperature of 0 or more is accepted", text);
    return CLI_OK;
}

static int read_shift(const char *text, struct generate_options *options)
{
    unsigned keep, count, at;
    int end = 0;

    if (sscanf(text, "%9u,%9u@%9u%n", &keep, &count, &at, &end) != 3 || text[end] != '\0' ||
        strpbrk(text, "+- ") != NULL || count == 0 || at == 0)
        return cli_wrong_call(
            "run", "--context-shift %s: KEEP,COUNT@N is accepted, as 4,16@32; COUNT and N above 0",
            text);
    options->shift_keep = keep;
    options->shift_count = count;
    options->shift_at = at;
    return CLI_OK;
}

static int read_format(const char *text, bool *json)
{
    *json = strcmp(text, "json") == 0;
    return *json || strcmp(text, "text") == 0
               ? CLI_OK
               : cli_wrong_call("run", "-o %s: text and json are accepted", text);
}

/* ---- the call ---- */

enum {
    OPTION_PROMPT = 1,
    OPTION_TOKENS,
    OPTION_PREDICT,
    OPTION_TEMP,
    OPTION_SAMPLING_SEED,
    OPTION_SEED,
    OPTION_SHIFT,
    OPTION_ISA,
    OPTION_BACKEND,
    OPTION_TRACE,
    OPTION_PACE_DEVICES,
    OPTION_PACE_LINKS,
    OPTION_REDUCE,
    OPTION_SHUFFLE,
    OPTION_RECORD,
    OPTION_CHECK,
    OPTION_OUTPUT,
};

static const struct option own_longs[] = {
    {"p", required_argument, NULL, OPTION_PROMPT},
    {"prompt", required_argument, NULL, OPTION_PROMPT},
    {"tokens", required_argument, NULL, OPTION_TOKENS},
    {"n", required_argument, NULL, OPTION_PREDICT},
    {"n-predict", required_argument, NULL, OPTION_PREDICT},
    {"temp", required_argument, NULL, OPTION_TEMP},
    {"sampling-seed", required_argument, NULL, OPTION_SAMPLING_SEED},
    {"seed", required_argument, NULL, OPTION_SEED},
    {"context-shift", required_argument, NULL, OPTION_SHIFT},
    {"isa", required_argument, NULL, OPTION_ISA},
    {"backend", required_argument, NULL, OPTION_BACKEND},
    {"trace", required_argument, NULL, OPTION_TRACE},
    {"pace-devices", required_argument, NULL, OPTION_PACE_DEVICES},
    {"pace-links", required_argument, NULL, OPTION_PACE_LINKS},
    {"reduce", required_argument, NULL, OPTION_REDUCE},
    {"shuffle", required_argument, NULL, OPTION_SHUFFLE},
    {"record", required_argument, NULL, OPTION_RECORD},
    {"check-against", required_argument, NULL, OPTION_CHECK},
    {"o", required_argument, NULL, OPTION_OUTPUT},
    {"output", required_argument, NULL, OPTION_OUTPUT},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

static int take_number(struct run_options *options, int option, const char *argument)
{
    uint64_t predict = 0;
    int status;

    switch (option) {
    case OPTION_PREDICT:
        status = read_whole("-n", argument, 1, 1 << 20, &predict);
        options->generate.tokens = (uint32_t)predict;
        return status;
    case OPTION_SAMPLING_SEED:
        return read_whole("--sampling-seed", argument, 0, UINT64_MAX,
                          &options->generate.sampling.seed);
    case OPTION_SEED:
        return read_whole("--seed", argument, 0, UINT64_MAX, &options->weights_seed);
    default:
        options->shuffled = true;
        return read_whole("--shuffle", argument, 0, UINT64_MAX, &options->order_seed);
    }
}

/* What says where the plan is executed. */
static void take_backend(struct run_options *options, int option, const char *argument)
{
    struct backend_options *backend = &options->backend;

    switch (option) {
    case OPTION_BACKEND:
        backend->name = argument;
        break;
    case OPTION_TRACE:
        backend->trace = argument;
        break;
    case OPTION_PACE_DEVICES:
        backend->pace_devices = argument;
        break;
    case OPTION_PACE_LINKS:
        backend->pace_links = argument;
        break;
    default:
        backend->reduce = argument;
    }
}

static int take_option(void *context, int option, const char *argument)
{
    struct run_options *options = context;

    switch (option) {
    case OPTION_PROMPT:
        options->prompt = argument;
        return CLI_OK;
    case OPTION_TOKENS:
        options->token_ids = argument;
        return CLI_OK;
    case OPTION_TEMP:
        return read_temperature(argument, &options->generate.sampling.temperature);
    case OPTION_SHIFT:
        return read_shift(argument, &options->generate);
    case OPTION_ISA:
        options->isa = argument;
        return CLI_OK;
    case OPTION_BACKEND:
    case OPTION_TRACE:
    case OPTION_PACE_DEVICES:
    case OPTION_PACE_LINKS:
    case OPTION_REDUCE:
        take_backend(options, option, argument);
        return CLI_OK;
    case OPTION_RECORD:
        options->record = argument;
        return CLI_OK;
    case OPTION_CHECK:
        options->check_against = argument;
        return CLI_OK;
    case OPTION_OUTPUT:
        return read_format(argument, &options->json);
    case 'h':
        options->help = true;
        return CLI_OK;
    default:
        return take_number(options, option, argument);
    }
}

/* What has to be there once all is read. */
static int check_call(struct run_options *options)
{
    struct error err = {0};
    size_t combinations;

    if (plan_options_finish(&options->plans, &err) != 0)
        return cli_fail(&err);
    combinations = plan_options_combinations(&options->plans);
    if (combinations != 1)
        return cli_wrong_call(
            "run", "these are %zu plans; one is executed, `verify` runs many and `bench` predicts",
            combinations);
    if (options->prompt == NULL && options->token_ids == NULL)
        return cli_wrong_call("run", "no prompt: give --tokens ID,ID,... or -p TEXT");
    if (options->prompt != NULL && options->token_ids != NULL)
        return cli_wrong_call("run", "-p and --tokens are both prompts; give one of the two");
    plan_options_warn(&options->plans);
    if (options->plans.given[PLAN_OPTION_DRAFT_ACCEPTANCE])
        cli_warn("--draft-acceptance has no effect: drafts are executed, and counted");
    return CLI_OK;
}

int run_options_parse(int argc, char **argv, struct run_options *options)
{
    int status;

    *options = (struct run_options){.weights_seed = 1,
                                    .generate = {.tokens = 16, .sampling = {.seed = 1}}};
    status = plan_options_parse(&options->plans,
                                (struct plan_options_own){"run", own_longs, take_option, options},
                                argc, argv);
    if (options->help && status == CLI_OK) {
        print_help();
        return CLI_OK;
    }
    if (status == CLI_OK && optind < argc)
        return cli_wrong_call("run", "\"%s\" is no option", argv[optind]);
    return status == CLI_OK ? check_call(options) : status;
}

void run_options_close(struct run_options *options)
{
    list_close(&options->backend.words);
    plan_options_close(&options->plans);
}

/* ---- the machine ---- */

static size_t entries_of(const struct run_options *options, enum plan_option option)
{
    const char *text = plan_options_value(&options->plans, 0, option);
    size_t entries = 1;

    while (*text != '\0')
        entries += *text == '/' || *text == ';', text++;
    return entries;
}

int run_options_default_machine(struct run_options *options, struct error *err)
{
    static const enum plan_option ratios[] = {PLAN_OPTION_TENSOR_SPLIT, PLAN_OPTION_ATTN_SPLIT,
                                              PLAN_OPTION_FF_EXP_ROWS, PLAN_OPTION_DEVICES};
    size_t devices = 1;

    if (options->plans.machine != NULL || options->plans.gpus.count > 0)
        return 0;
    for (size_t i = 0; i < sizeof ratios / sizeof *ratios; i++) {
        size_t entries = entries_of(options, ratios[i]);

        devices = entries > devices ? entries : devices;
    }
    for (size_t i = 0; i < devices && i < MACHINE_DEVICES_MAX; i++)
        if (list_add_one(&options->plans.gpus, DEFAULT_GPU) != 0)
            return error_set(err, ERROR_MEMORY, "no memory for %zu devices", devices);
    return 0;
}

/* ---- prompts ---- */

static int reserve(struct run_prompts *prompts, size_t tokens, uint32_t slots, struct error *err)
{
    prompts->tokens = calloc(tokens + 1, sizeof *prompts->tokens);
    prompts->first = calloc((size_t)slots + 1, sizeof *prompts->first);
    if (prompts->tokens == NULL || prompts->first == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for a prompt of %zu tokens", tokens);
    return 0;
}

int run_prompts_repeat(struct run_prompts *prompts, const uint32_t *tokens, uint32_t count,
                       uint32_t slots, struct error *err)
{
    if (reserve(prompts, (size_t)count * slots, slots, err) != 0)
        return -1;
    for (uint32_t slot = 0; slot < slots; slot++) {
        memcpy(prompts->tokens + (size_t)slot * count, tokens, count * sizeof *tokens);
        prompts->first[slot + 1] = (slot + 1) * count;
    }
    return 0;
}

/* An id, behind which comes a comma, a slash or the end. */
static int read_id(const char **at, uint32_t n_vocab, uint32_t *id, struct error *err)
{
    char *end;
    unsigned long long value;

    errno = 0;
    value = strtoull(*at, &end, 10);
    if (**at < '0' || **at > '9' || (*end != '\0' && *end != ',' && *end != '/'))
        return error_set(err, ERROR_USAGE,
                         "--tokens: \"%.20s\" is no token id; whole numbers are, joined by commas, "
                         "and slots by slashes",
                         *at);
    if (errno != 0 || value >= n_vocab)
        return error_set(err, ERROR_USAGE,
                         "--tokens: %.*s is not in the vocabulary; ids from 0 to %" PRIu32 " are",
                         (int)(end - *at), *at, n_vocab - 1);
    *id = (uint32_t)value;
    *at = end;
    return 0;
}

int run_prompts_read(struct run_prompts *prompts, const char *ids, uint32_t slots, uint32_t n_vocab,
                     struct error *err)
{
    struct run_prompts one = {NULL, NULL};
    uint32_t lists = 1, count = 0;
    int status = 0;

    for (const char *c = ids; *c != '\0'; c++)
        lists += *c == '/';
    if (lists != 1 && lists != slots)
        return error_set(err, ERROR_USAGE,
                         "--tokens has %" PRIu32 " prompts, the plan %" PRIu32
                         " slots (-np); give one prompt, or one a slot",
                         lists, slots);
    status = reserve(&one, strlen(ids), lists, err);
    for (uint32_t list = 0; status == 0; ids++) {
        status = read_id(&ids, n_vocab, &one.tokens[count++], err);
        if (status == 0 && *ids != ',')
            one.first[++list] = count;
        if (status == 0 && *ids == '\0')
            break;
    }
    if (status == 0 && lists == 1)
        status = run_prompts_repeat(prompts, one.tokens, count, slots, err);
    else if (status == 0) {
        *prompts = one;
        return 0;
    }
    run_prompts_close(&one);
    return status;
}

void run_prompts_close(struct run_prompts *prompts)
{
    free(prompts->tokens);
    free(prompts->first);
}
