#include "cli/plan_options.h"

#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "sim/machine_local.h"
#include "sim/residency.h"
#include "sim/word_list.h"

static const struct {
    const char *short_name, *long_name, *default_value;
    bool swept;
    const char *argument, *help;
} table[PLAN_OPTION_COUNT] = {
#define PLAN_OPTION_ROW(id, ...) [PLAN_OPTION_##id] = {__VA_ARGS__},
    PLAN_OPTIONS(PLAN_OPTION_ROW)
#undef PLAN_OPTION_ROW
};

/* ---- the command line ---- */

static size_t add_long(struct option *longs, size_t count, const char *name, int value)
{
    longs[count] = (struct option){name, required_argument, NULL, value};
    return count + 1;
}

/* Other names of an option, and those of llama.cpp that are taken but not modelled. */
static const struct {
    const char *name;
    int value;
} aliases[] = {
    {"draft", PLAN_OPTION_BASE + PLAN_OPTION_DRAFT_MAX},
    {"draft-n", PLAN_OPTION_BASE + PLAN_OPTION_DRAFT_MAX},
    {"hf", PLAN_OPTION_HF},
    {"hfr", PLAN_OPTION_HF},
    {"hf-repo", PLAN_OPTION_HF},
    {"ngld", PLAN_OPTION_IGNORED},
    {"gpu-layers-draft", PLAN_OPTION_IGNORED},
    {"n-gpu-layers-draft", PLAN_OPTION_IGNORED},
    {"devd", PLAN_OPTION_IGNORED},
    {"device-draft", PLAN_OPTION_IGNORED},
    {"ctkd", PLAN_OPTION_IGNORED},
    {"ctvd", PLAN_OPTION_IGNORED},
    {"draft-min", PLAN_OPTION_IGNORED},
    {"draft-n-min", PLAN_OPTION_IGNORED},
    {"draft-p-min", PLAN_OPTION_IGNORED},
};

size_t plan_options_longs(struct option *longs, size_t capacity)
{
    size_t count = 0;

    for (int i = 0; i < PLAN_OPTION_COUNT && count + 2 < capacity; i++) {
        count = add_long(longs, count, table[i].short_name, PLAN_OPTION_BASE + i);
        if (strcmp(table[i].short_name, table[i].long_name) != 0)
            count = add_long(longs, count, table[i].long_name, PLAN_OPTION_BASE + i);
    }
    for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++)
        count = add_long(longs, count, aliases[i].name, aliases[i].value);
    count = add_long(longs, count, "gpu", PLAN_OPTION_GPU);
    count = add_long(longs, count, "machine", PLAN_OPTION_MACHINE);
    return add_long(longs, count, "variant", PLAN_OPTION_VARIANT);
}

int plan_options_take(struct plan_options *options, int value, const char *argument)
{
    int id = value - PLAN_OPTION_BASE;

    if (value == PLAN_OPTION_GPU)
        return list_add_one(&options->gpus, argument) == 0 ? 1 : -1;
    if (value == PLAN_OPTION_MACHINE) {
        options->machine = argument;
        return 1;
    }
    if (value == PLAN_OPTION_VARIANT) {
        options->variant = argument;
        return 1;
    }
    if (value == PLAN_OPTION_HF) {
        options->hf = argument;
        return 1;
    }
    if (value == PLAN_OPTION_IGNORED) {
        options->draft_ignored = true;
        return 1;
    }
    if (id < 0 || id >= PLAN_OPTION_COUNT)
        return 0;
    options->given[id] = true;
    return (table[id].swept ? list_add(&options->values[id], argument)
                            : list_add_one(&options->values[id], argument)) == 0
               ? 1
               : -1;
}

/* ---- words ---- */

static int add_words(struct list *words, const char *dashes, const char *name, const char *value)
{
    char flag[64];

    snprintf(flag, sizeof flag, "%s%s", dashes, name);
    return list_add_one(words, flag) != 0 || list_add_one(words, value) != 0 ? -1 : 0;
}

int plan_options_words(const struct plan_options *options, struct list *words, struct error *err)
{
    int status = 0;

    for (int id = 0; id < PLAN_OPTION_COUNT && status == 0; id++)
        if (options->given[id])
            status = add_words(words, "-", table[id].short_name,
                               plan_options_value(options, 0, (enum plan_option)id));
    if (status == 0 && options->machine != NULL)
        status = add_words(words, "--", "machine", options->machine);
    if (status == 0 && options->variant != NULL)
        status = add_words(words, "--", "variant", options->variant);
    for (size_t i = 0; i < options->gpus.count && status == 0; i++)
        status = add_words(words, "--", "gpu", options->gpus.items[i]);
    return status == 0 ? 0 : error_set(err, ERROR_MEMORY, "no memory for the arguments");
}

/* The value for plan_options_take() of a flag with one or two dashes; 0: it is none. */
static int find_flag(const char *flag, const struct option *longs, size_t count)
{
    const char *name = flag + (flag[0] == '-') + (flag[0] == '-' && flag[1] == '-');

    for (size_t i = 0; i < count && name > flag; i++)
        if (strcmp(longs[i].name, name) == 0)
            return longs[i].val;
    return 0;
}

int plan_options_take_words(struct plan_options *options, const char *const *words, size_t count,
                            struct error *err)
{
    struct option longs[PLAN_OPTION_LONGS];
    size_t long_count = plan_options_longs(longs, PLAN_OPTION_LONGS);
    bool machine = options->machine != NULL || options->gpus.count > 0;
    bool variant = options->variant != NULL, given[PLAN_OPTION_COUNT];

    memcpy(given, options->given, sizeof given);
    for (size_t i = 0; i < count; i += 2) {
        int value = find_flag(words[i], longs, long_count), id = value - PLAN_OPTION_BASE;

        if (value == 0)
            return error_set(err, ERROR_INPUT,
                             "arguments[%zu]: %.60s is no option of a plan; -m, -sm and others of "
                             "'lopside program --help' are",
                             i, words[i]);
        if (i + 1 == count)
            return error_set(err, ERROR_INPUT,
                             "arguments[%zu]: %.60s has no value; one is accepted behind it", i,
                             words[i]);
        if (id >= PLAN_OPTION_COUNT ? machine || (variant && value == PLAN_OPTION_VARIANT)
                                    : given[id])
            continue;
        if (plan_options_take(options, value, words[i + 1]) < 0)
            return error_set(err, ERROR_MEMORY, "no memory for the arguments");
    }
    return 0;
}

/* "50,50" gives the plans "50" and "50": what was meant has a slash. */
static int check_ratio(const struct plan_options *options, enum plan_option id, struct error *err)
{
    const struct list *list = &options->values[id];
    char joined[128] = "", typed[128] = "";

    if (!options->given[id] || list->count < 2)
        return 0;
    for (size_t i = 0; i < list->count; i++) {
        size_t length = strlen(joined);

        if (strpbrk(list->items[i], "/;") != NULL)
            return 0;
        snprintf(joined + length, sizeof joined - length, "%s%s", i > 0 ? "/" : "", list->items[i]);
        snprintf(typed + length, sizeof typed - length, "%s%s", i > 0 ? "," : "", list->items[i]);
    }
    return error_set(
        err, ERROR_USAGE,
        "-%s %s: a comma separates plans, a slash the shares of one plan; did you mean %s?",
        table[id].short_name, typed, joined);
}

static int check_split(const struct plan_options *options, struct error *err)
{
    const struct list *list = &options->values[PLAN_OPTION_SPLIT];

    for (size_t i = 0; i < list->count; i++)
        if (strcmp(list->items[i], "row") == 0)
            return error_set(
                err, ERROR_USAGE,
                "-sm row: llama.cpp's CUDA backend no longer has a split buffer type and "
                "refuses it; use -sm tensor or -sm layer");
    return 0;
}

/* Reads "8-32*2"; false for text that is no range, which stays as it is. */
static bool read_range(const char *text, long *first, long *last, long *step, char *operation)
{
    char *end;

    *first = *last = strtol(text, &end, 10);
    *step = 1;
    *operation = '+';
    if (end == text || *end != '-')
        return false;
    *last = strtol(end + 1, &end, 10);
    if (*end == '+' || *end == '*') {
        *operation = *end;
        *step = strtol(end + 1, &end, 10);
    }
    return *end == '\0';
}

static int expand_range(const char *flag, const char *text, struct list *expanded,
                        struct error *err)
{
    long first, last, step;
    char operation;

    if (!read_range(text, &first, &last, &step, &operation))
        return list_add_one(expanded, text);
    if (last < first || step < (operation == '*' ? 2 : 1) || (operation == '*' && first < 1) ||
        (operation == '+' && (last - first) / step > 100000))
        return error_set(err, ERROR_USAGE,
                         "-%s %s: an empty or endless range; 8-32*2 and 0-4+1 are accepted", flag,
                         text);
    for (long n = first; n <= last; n = operation == '*' ? n * step : n + step) {
        char number[32];

        snprintf(number, sizeof number, "%ld", n);
        if (list_add_one(expanded, number) != 0)
            return -1;
    }
    return 0;
}

int plan_options_expand(const char *flag, struct list *list, struct error *err)
{
    struct list expanded = {NULL, 0};
    int status = 0;

    for (size_t i = 0; i < list->count && status == 0; i++)
        status = expand_range(flag, list->items[i], &expanded, err);
    if (status != 0) {
        list_close(&expanded);
        return error_set(err, ERROR_MEMORY, "no memory for the arguments");
    }
    list_close(list);
    *list = expanded;
    return 0;
}

int plan_options_finish(struct plan_options *options, struct error *err)
{
    static const enum plan_option numbers[] = {PLAN_OPTION_MAIN_GPU,      PLAN_OPTION_N_GPU_LAYERS,
                                               PLAN_OPTION_N_BATCH,       PLAN_OPTION_N_UBATCH,
                                               PLAN_OPTION_KV_GPU_LAYERS, PLAN_OPTION_N_CTX,
                                               PLAN_OPTION_DRAFT_MAX};

    for (int id = 0; id < PLAN_OPTION_COUNT; id++)
        if (!options->given[id] && table[id].default_value != NULL &&
            list_add_one(&options->values[id], table[id].default_value) != 0)
            return error_set(err, ERROR_MEMORY, "no memory for the arguments");
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (plan_options_expand(table[numbers[i]].short_name, &options->values[numbers[i]], err) !=
            0)
            return -1;
    if (check_ratio(options, PLAN_OPTION_TENSOR_SPLIT, err) != 0 ||
        check_ratio(options, PLAN_OPTION_ATTN_SPLIT, err) != 0 || check_split(options, err) != 0)
        return -1;
    if (options->hf != NULL)
        return error_set(
            err, ERROR_USAGE,
            "-hf %.80s: nothing is downloaded here; give -m with a GGUF file, of which "
            "the header is enough, or a name of the catalogue ('lopside model' lists "
            "them)",
            options->hf);
    if (!options->given[PLAN_OPTION_MODEL])
        return error_set(
            err, ERROR_USAGE,
            "no model: give -m FILE.gguf or -m NAME:QUANT; 'lopside model' lists names");
    return 0;
}

void plan_options_close(struct plan_options *options)
{
    for (int id = 0; id < PLAN_OPTION_COUNT; id++)
        list_close(&options->values[id]);
    list_close(&options->gpus);
}

static bool is_given_as(const struct plan_options *options, enum plan_option id, const char *value)
{
    for (size_t i = 0; options->given[id] && i < options->values[id].count; i++)
        if (strcmp(options->values[id].items[i], value) == 0)
            return true;
    return false;
}

void plan_options_warn(const struct plan_options *options)
{
    static const enum plan_option of_host_cache[] = {PLAN_OPTION_KV_GPU_LAYERS,
                                                     PLAN_OPTION_KV_PINNED, PLAN_OPTION_RECURRENT,
                                                     PLAN_OPTION_KV_POLICY};
    bool on_host = is_given_as(options, PLAN_OPTION_NKVO, "1") ||
                   is_given_as(options, PLAN_OPTION_NKVO, "on") ||
                   options->given[PLAN_OPTION_KV_RESIDENT];

    for (size_t i = 0; i < sizeof of_host_cache / sizeof *of_host_cache; i++)
        if (options->given[of_host_cache[i]] && !on_host)
            cli_warn("-%s has no effect without -nkvo 1", table[of_host_cache[i]].short_name);
    if (options->draft_ignored)
        cli_warn(
            "of drafts -md, --draft-max and --draft-acceptance are modelled: all layers and the "
            "f16 cache of a draft lie on the model's devices");
    if (options->given[PLAN_OPTION_DRAFT_ACCEPTANCE] && !plan_options_drafts(options))
        cli_warn("--draft-acceptance has no effect without -md or --draft-max");
    if (options->given[PLAN_OPTION_KV_RESIDENT] && options->given[PLAN_OPTION_KV_GPU_LAYERS])
        cli_warn("-kvr says which layers are resident; -kvgl has no effect beside it");
}

void plan_options_print_help(void)
{
    puts("Machine:\n"
         "  --machine NAME|FILE             built-in profile or a profile file\n"
         "  --variant NAME                  a variant in it, such as oc\n"
         "  --gpu \"GPU[@LINK]\"              compose a machine: once for each device\n"
         "                                  (\"RTX 4070@gen4x16\"); 'lopside machine list' has "
         "names\n"
         "Plan (lists with commas, ranges as 8-32*2 or 0-4+1):");
    for (int id = 0; id < PLAN_OPTION_COUNT; id++) {
        char names[80];

        if (strcmp(table[id].short_name, table[id].long_name) == 0)
            snprintf(names, sizeof names, "--%s", table[id].long_name);
        else
            snprintf(names, sizeof names, "-%s, --%s", table[id].short_name, table[id].long_name);
        printf("  %-31s %s (%s", names, table[id].help, table[id].argument);
        if (table[id].default_value != NULL && strcmp(table[id].default_value, "0") != 0)
            printf("; default %s", table[id].default_value);
        puts(")");
    }
}

/* ---- combinations ---- */

size_t plan_options_combinations(const struct plan_options *options)
{
    size_t count = 1;

    for (int id = 0; id < PLAN_OPTION_COUNT; id++)
        if (table[id].swept)
            count *= options->values[id].count;
    return count;
}

const char *plan_options_value(const struct plan_options *options, size_t index,
                               enum plan_option option)
{
    if (!table[option].swept) /* given twice, the last one counts */
        return options->values[option].count > 0
                   ? options->values[option].items[options->values[option].count - 1]
                   : NULL;
    /* The last option changes fastest. */
    for (int id = PLAN_OPTION_COUNT - 1; id > (int)option; id--)
        if (table[id].swept)
            index /= options->values[id].count;
    return options->values[option].items[index % options->values[option].count];
}

/* ---- machines ---- */

struct machine *plan_options_machine(const struct plan_options *options, struct error *err)
{
    struct machine *machine;

    if (options->gpus.count > 0 && (options->machine != NULL || options->variant != NULL)) {
        error_set(err, ERROR_USAGE, "--gpu composes a machine, %s names one; give one of the two",
                  options->machine != NULL ? "--machine" : "--variant");
        return NULL;
    }
    if (options->gpus.count > 0)
        return machine_compose((const char *const *)options->gpus.items, options->gpus.count, err);
    if (options->machine != NULL)
        return machine_open(options->machine, options->variant, err);
    machine = machine_local(err);
    if (machine == NULL && err->code == ERROR_UNSUPPORTED) {
        char names[300];
        const char *const *all = machine_builtin_names();
        size_t count = 0;

        while (all[count] != NULL)
            count++;
        word_list_text(all, count, names, sizeof names);
        *err = (struct error){0};
        error_set(
            err, ERROR_USAGE,
            "no GPU can be seen here: name a machine with --machine (%s), or compose one with "
            "--gpu \"RTX 4070@gen4x16\"",
            names);
    }
    return machine;
}

/* The chosen devices keep the names by which they were chosen. */
static int keep_named(struct machine *machine, const uint32_t *order, size_t count,
                      struct error *err)
{
    char names[MACHINE_DEVICES_MAX][sizeof machine->devices[0].name];

    for (size_t i = 0; i < count; i++)
        memcpy(names[i], machine->devices[order[i]].name, sizeof names[i]);
    if (machine_keep_devices(machine, order, count, err) != 0)
        return -1;
    for (size_t i = 0; i < count; i++) {
        memcpy(machine->devices[i].name, names[i], sizeof names[i]);
        memcpy(machine->nodes[machine->devices[i].node].name, names[i], sizeof names[i]);
    }
    return 0;
}

int plan_options_select(const struct plan_options *options, size_t index, struct machine *machine,
                        struct error *err)
{
    const char *text = plan_options_value(options, index, PLAN_OPTION_DEVICES);
    uint32_t order[MACHINE_DEVICES_MAX] = {0};
    size_t count = 0;

    if (strcmp(text, "auto") == 0)
        return 0;
    while (*text != '\0') {
        size_t length = strcspn(text, "/");
        char name[16];
        int device;

        snprintf(name, sizeof name, "%.*s", (int)length, text);
        device = machine_find_device(machine, name);
        if (device < 0)
            return error_set(err, ERROR_USAGE, "-dev %s: no such device; %s has CUDA0 to CUDA%u",
                             name, machine->name, machine->device_count - 1);
        if (count < MACHINE_DEVICES_MAX)
            order[count++] = (uint32_t)device;
        text += length + (text[length] == '/');
    }
    return keep_named(machine, order, count, err);
}

/* ---- calls ---- */

enum { OWN_MAX = 64 };

int plan_options_parse(struct plan_options *options, struct plan_options_own own, int argc,
                       char **argv)
{
    struct option longs[PLAN_OPTION_LONGS + OWN_MAX];
    size_t count = plan_options_longs(longs, PLAN_OPTION_LONGS), own_count = 0;
    int option, status = CLI_OK;

    while (own_count + 1 < OWN_MAX && own.longs[own_count].name != NULL)
        longs[count++] = own.longs[own_count++];
    longs[count] = (struct option){NULL, 0, NULL, 0};
    optind = 1;
    opterr = 0;
    while (status == CLI_OK && (option = getopt_long_only(argc, argv, ":h", longs, NULL)) != -1) {
        int taken = plan_options_take(options, option, optarg);

        if (option == ':')
            return cli_wrong_call(own.command, "%s needs a value", argv[optind - 1]);
        if (option == '?')
            return cli_wrong_call(own.command, "unknown option %s", argv[optind - 1]);
        if (taken < 0)
            return cli_wrong_call(own.command, "no memory for the arguments");
        if (taken == 0)
            status = own.take(own.context, option, optarg);
    }
    return status;
}

bool plan_options_are_given(const struct plan_options *options)
{
    bool given = options->gpus.count > 0 || options->machine != NULL || options->variant != NULL ||
                 options->hf != NULL;

    for (int id = 0; id < PLAN_OPTION_COUNT; id++)
        given = given || options->given[id];
    return given;
}
