/* A result of llama-bench, as texts, becomes a row: it is written in the keys of a row of
 * our own and read by trace_row.c, which checks what the keys may hold. */
#include "sim/trace_bench_private.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "sim/mix_rule.h"
#include "sim/model.h"

/* --- the test and its speed --- */

struct test {
    int64_t n_prompt, n_gen, n_depth;
    int64_t n_slots; /* 0: not told */
};

/* A count behind `*at`, which moves past it. Old tables print "pp 512". */
static bool take_count(const char **at, int64_t *count)
{
    const char *digits = *at + strspn(*at, " ");
    char *end;

    if (!isdigit((unsigned char)*digits))
        return false;
    errno = 0;
    *count = strtoll(digits, &end, 10);
    *at = end + strspn(end, " ");
    return errno == 0;
}

/* "pp512", "tg128", "pp512+tg128", each perhaps with " @ d4096". */
static bool parse_test(const char *text, struct test *test)
{
    const char *at = text + strspn(text, " ");
    bool known = false, both = false;

    if (strncmp(at, "pp", 2) == 0) {
        at += 2;
        known = take_count(&at, &test->n_prompt);
        if (!known)
            return false;
        both = *at == '+';
        if (both)
            at += 1 + strspn(at + 1, " ");
    }
    if (both || !known) {
        if (strncmp(at, "tg", 2) != 0)
            return false;
        at += 2;
        known = take_count(&at, &test->n_gen);
    }
    if (known && *at == '@') {
        at += 1 + strspn(at + 1, " ");
        if (*at++ != 'd')
            return false;
        known = take_count(&at, &test->n_depth);
    }
    return known && *at == '\0';
}

static int read_test(const struct trace_bench_record *record, struct test *test, struct error *err)
{
    static const enum trace_bench_column counts[] = {TRACE_BENCH_N_PROMPT, TRACE_BENCH_N_GEN,
                                                     TRACE_BENCH_N_DEPTH};
    int64_t *const places[] = {&test->n_prompt, &test->n_gen, &test->n_depth};
    const char *text = record->values[TRACE_BENCH_TEST];

    if (text != NULL) {
        if (!parse_test(text, test))
            return trace_bench_refuse_value(
                record, TRACE_BENCH_TEST, err,
                "\"%.40s\" is not a test; one such as pp512, tg128 or pp512+tg128 @ d4096 is",
                text);
    } else if (record->values[TRACE_BENCH_N_PROMPT] == NULL &&
               record->values[TRACE_BENCH_N_GEN] == NULL) {
        return trace_bench_refuse_value(record, TRACE_BENCH_N_PROMPT, err,
                                        "missing; a result has n_prompt and n_gen, or test");
    }
    for (size_t i = 0; i < 3 && text == NULL; i++) {
        if (trace_bench_read_integer(record, counts[i], places[i], err) < 0)
            return -1;
        if (*places[i] < 0)
            return trace_bench_refuse_value(record, counts[i], err,
                                            "%lld is not a number of tokens; 0 or more is",
                                            (long long)*places[i]);
    }
    if (trace_bench_read_integer(record, TRACE_BENCH_N_PARALLEL, &test->n_slots, err) < 0)
        return -1;
    if (test->n_prompt == 0 && test->n_gen == 0)
        return trace_bench_refuse_value(
            record, text ? TRACE_BENCH_TEST : TRACE_BENCH_N_PROMPT, err,
            "no token is read and none generated; a test does one or both");
    return 0;
}

static void put_test(struct trace_bench_writing *writing, const struct test *test)
{
    trace_bench_put_text(writing, writing->row, "metric",
                         test->n_prompt == 0 ? "tg"
                         : test->n_gen == 0  ? "pp"
                                             : "pg");
    trace_bench_put_text(writing, writing->workload, "tool", "llama-bench");
    trace_bench_put(writing, writing->workload, "n_prompt", json_integer(test->n_prompt));
    trace_bench_put(writing, writing->workload, "n_gen", json_integer(test->n_gen));
    trace_bench_put(writing, writing->workload, "n_depth", json_integer(test->n_depth));
    if (test->n_slots > 0)
        trace_bench_put(writing, writing->workload, "n_slots", json_integer(test->n_slots));
    if (writing->record->reps > 0)
        trace_bench_put(writing, writing->workload, "reps", json_integer(writing->record->reps));
}

/* `lopside bench` gives no speed to a plan that does not fit. */
static bool is_without_speed(const struct trace_bench_record *record)
{
    const char *fits = record->values[TRACE_BENCH_FITS], *speed = record->values[TRACE_BENCH_SPEED];

    return (fits != NULL && (strcasecmp(fits, "false") == 0 || strcmp(fits, "0") == 0)) ||
           (speed != NULL && strcmp(speed, "-") == 0);
}

static int put_speed(struct trace_bench_writing *writing, struct error *err)
{
    const struct trace_bench_record *record = writing->record;
    const char *text = record->values[TRACE_BENCH_SPEED];
    const char *stddev_text = record->values[TRACE_BENCH_SPEED_STDDEV];
    const char *at;
    double speed, stddev = NAN;

    if (text == NULL)
        return trace_bench_refuse_value(
            record, TRACE_BENCH_SPEED, err,
            "missing; every result has a speed (avg_ts, or t/s in a table)");
    if (!trace_bench_is_number(text, &speed, &at) || !(speed > 0))
        return trace_bench_refuse_value(record, TRACE_BENCH_SPEED, err,
                                        "\"%.40s\" is not a speed; a number above 0 is", text);
    if (*at != '\0') {
        at += strspn(at, " ");
        while (*at != '\0' && !isalnum((unsigned char)*at)) /* the sign, in any encoding */
            at++;
        if (!trace_bench_is_number(at, &stddev, &at) || *at != '\0')
            return trace_bench_refuse_value(record, TRACE_BENCH_SPEED, err,
                                            "\"%.40s\" is not a speed; one such as 52.07 ± 0.11 is",
                                            text);
    } else if (stddev_text != NULL && stddev_text[0] != '\0') {
        if (!trace_bench_is_number(stddev_text, &stddev, &at) && at == stddev_text)
            return trace_bench_refuse_value(record, TRACE_BENCH_SPEED_STDDEV, err,
                                            "\"%.40s\" is not a number", stddev_text);
    }
    trace_bench_put(writing, writing->row, "value", json_real(speed));
    trace_bench_put_text(writing, writing->row, "unit", "t/s");
    if (isfinite(stddev) && stddev >= 0)
        trace_bench_put(writing, writing->row, "stddev", json_real(stddev));
    return 0;
}

/* --- model, machine, program --- */

/* What llama.cpp prints for a mix, where that is not its name. Source: llama.cpp,
 * src/llama-model-loader.cpp, llama_model_ftype_name(). */
static const struct {
    const char *printed, *quant;
} printed_mixes[] = {
    {"Q2_K - Medium", "Q2_K"},
    {"IQ3_S mix - 3.66 bpw", "IQ3_M"},
    {"MXFP4 MoE", "MXFP4_MOE"},
    {"unknown, may not work", ""},
};

/* "Q4_K - Medium" is Q4_K_M; "IQ2_M - 2.7 bpw" is IQ2_M. */
static void quant_of(const char *printed, char *quant, size_t size)
{
    static const char *const before[] = {"(guessed) ", "mostly ", "all "};
    const char *dash, *extent;

    for (size_t i = 0; i < sizeof before / sizeof before[0]; i++)
        if (strncmp(printed, before[i], strlen(before[i])) == 0)
            printed += strlen(before[i]);
    for (size_t i = 0; i < sizeof printed_mixes / sizeof printed_mixes[0]; i++) {
        if (strcmp(printed, printed_mixes[i].printed) == 0) {
            snprintf(quant, size, "%s", printed_mixes[i].quant);
            return;
        }
    }
    dash = strstr(printed, " - ");
    if (dash == NULL) {
        snprintf(quant, size, "%s", printed);
        return;
    }
    extent = strcmp(dash, " - Small") == 0    ? "_S"
             : strcmp(dash, " - Medium") == 0 ? "_M"
             : strcmp(dash, " - Large") == 0  ? "_L"
                                              : "";
    snprintf(quant, size, "%.*s%s", (int)(dash - printed), printed, extent);
}

enum { MODEL_TYPE_MAX = 128 };

/* "llama 7B Q4_0": architecture, size, mix. A size may have a name behind it, "17B.16E
 * (Scout)"; a model without a size has its mix behind the architecture. */
static void put_model(struct trace_bench_writing *writing, const char *type)
{
    size_t arch = strcspn(type, " "), size, end;
    const char *second = type + arch + strspn(type + arch, " "), *rest;
    char model[MODEL_TYPE_MAX], quant[MODEL_TYPE_MAX + 2], word[64];

    size = strcspn(second, " ");
    snprintf(word, sizeof word, "%.*s", (int)(size < sizeof word ? size : 0), second);
    end = (size_t)(second - type) + size;
    rest = type + end + strspn(type + end, " ");
    if (rest[0] == '(' && strncmp(rest, "(guessed)", 9) != 0 && strchr(rest, ')') != NULL) {
        end = (size_t)(strchr(rest, ')') - type) + 1;
        rest = type + end + strspn(type + end, " ");
    }
    if (rest[0] == '\0' && (strchr(word, '_') != NULL || mix_find(word) >= 0)) {
        end = arch;
        rest = second;
    }
    quant_of(rest, quant, sizeof quant);
    while (end > 0 && type[end - 1] == ' ')
        end--;
    snprintf(model, sizeof model, "%.*s", (int)end, type);
    trace_bench_put_text(writing, writing->row, "model", model);
    if (quant[0] != '\0')
        trace_bench_put_text(writing, writing->row, "quant", quant);
}

static bool has_mix(const struct model_card *card, const char *quant)
{
    for (size_t i = 0; i < card->quant_count; i++)
        if (strcasecmp(card->quants[i], quant) == 0)
            return true;
    return false;
}

/* "qwen3.8-27b:Q8_0", which `lopside bench` has in place of a file: what it prints as a type may
 * stand for several models. */
static bool put_catalogue_model(struct trace_bench_writing *writing, const char *name)
{
    const char *colon = name != NULL ? strchr(name, ':') : NULL;
    size_t length = colon != NULL ? (size_t)(colon - name) : 0;

    for (size_t i = 0; length > 0 && i < model_catalogue_count(); i++) {
        const struct model_card *card = model_catalogue_card(i);

        if (strlen(card->name) != length || strncasecmp(card->name, name, length) != 0)
            continue;
        if (!has_mix(card, colon + 1))
            return false;
        trace_bench_put_text(writing, writing->row, "model", card->name);
        trace_bench_put_text(writing, writing->row, "quant", colon + 1);
        return true;
    }
    return false;
}

/* "NVIDIA GeForce RTX 4070, NVIDIA GeForce RTX 3060"; older releases join by a slash. */
static void put_gpus(struct trace_bench_writing *writing, json_t *list, const char *text)
{
    static const char vendor[] = "NVIDIA ";

    while (*text != '\0') {
        size_t start = strspn(text, " "), length;

        text += start;
        if (strncmp(text, vendor, sizeof vendor - 1) == 0)
            text += sizeof vendor - 1;
        length = strcspn(text, ",/");
        while (length > 0 && text[length - 1] == ' ')
            length--;
        if (length > 0 && json_array_append_new(list, json_stringn(text, length)) != 0)
            writing->failed = true;
        text += strcspn(text, ",/");
        text += *text != '\0';
    }
}

static void put_machine(struct trace_bench_writing *writing)
{
    const char *const *values = writing->record->values;
    const char *name = values[TRACE_BENCH_MACHINE], *backends = values[TRACE_BENCH_BACKENDS];
    json_t *machine, *gpus;

    if (backends != NULL && backends[0] != '\0' && strstr(backends, "CUDA") == NULL) {
        char skip[96];

        snprintf(skip, sizeof skip, "the backend %.*s is not modelled",
                 (int)strspn(backends, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz,+_ "),
                 backends);
        trace_bench_put_text(writing, writing->row, "skip", skip);
    }
    if (name != NULL && name[0] != '\0') {
        trace_bench_put_text(writing, writing->row, "machine", name);
        return;
    }
    machine = json_object();
    gpus = json_array();
    put_gpus(writing, gpus, values[TRACE_BENCH_GPU_INFO] ? values[TRACE_BENCH_GPU_INFO] : "");
    if (json_array_size(gpus) == 0) { /* then nothing is known of the machine */
        json_decref(gpus);
        json_decref(machine);
        return;
    }
    trace_bench_put(writing, machine, "gpus", gpus);
    if (values[TRACE_BENCH_CPU_INFO] != NULL)
        trace_bench_put_text(writing, machine, "cpu", values[TRACE_BENCH_CPU_INFO]);
    if (backends != NULL)
        trace_bench_put_text(writing, machine, "backend", backends);
    trace_bench_put(writing, writing->row, "machine", machine);
}

/* Columns that only the fork prints tell it from llama.cpp, where no column names the engine. */
static void put_program(struct trace_bench_writing *writing)
{
    const char *const *values = writing->record->values;
    const char *engine = "llama.cpp", *note = values[TRACE_BENCH_NOTE];

    if (values[TRACE_BENCH_KV_CPU_PINNED] != NULL || values[TRACE_BENCH_KV_GPU_LAYERS] != NULL ||
        values[TRACE_BENCH_RECURRENT_STATE_OFFLOAD] != NULL)
        engine = "llama.cpp-fork";
    if (note != NULL && strcmp(note, "llama.cpp default") == 0) /* a row of `lopside bench` */
        engine = "llama.cpp";
    if (values[TRACE_BENCH_ENGINE] != NULL && values[TRACE_BENCH_ENGINE][0] != '\0')
        engine = values[TRACE_BENCH_ENGINE];
    trace_bench_put_text(writing, writing->row, "engine", engine);
    if (values[TRACE_BENCH_BUILD_COMMIT] != NULL)
        trace_bench_put_text(writing, writing->row, "build", values[TRACE_BENCH_BUILD_COMMIT]);
    if (values[TRACE_BENCH_MODEL_FILENAME] != NULL)
        trace_bench_put_text(writing, writing->row, "note", values[TRACE_BENCH_MODEL_FILENAME]);
}

/* --- the row --- */

/* "mybench-01" for the first result of runs/mybench.csv. A file may have any name: what
 * is not ASCII becomes a question mark. */
static void put_id(struct trace_bench_writing *writing, const char *source, size_t number)
{
    const char *slash = strrchr(source, '/'), *base = slash ? slash + 1 : source;
    const char *dot = strrchr(base, '.');
    size_t length = dot != NULL && dot > base ? (size_t)(dot - base) : strlen(base);
    char id[200];

    snprintf(id, sizeof id, "%.*s-%02zu", (int)(length < 160 ? length : 160), base, number);
    for (char *c = id; *c != '\0'; c++)
        if ((unsigned char)*c >= 0x80 || iscntrl((unsigned char)*c))
            *c = '?';
    trace_bench_put_text(writing, writing->row, "id", id);
}

static int write_row(struct trace_bench_writing *writing, struct trace_draft *draft,
                     struct error *err)
{
    const char *type = writing->record->values[TRACE_BENCH_MODEL_TYPE];
    struct test test = {0};

    if (type != NULL && strlen(type) >= MODEL_TYPE_MAX)
        return trace_bench_refuse_value(
            writing->record, TRACE_BENCH_MODEL_TYPE, err,
            "%zu bytes are too many for a model; less than %d can be read", strlen(type),
            MODEL_TYPE_MAX);
    if (type == NULL || type[0] == '\0')
        return trace_bench_refuse_value(
            writing->record, TRACE_BENCH_MODEL_TYPE, err,
            "missing; every result has a model, such as \"llama 7B Q4_0\"");
    if (read_test(writing->record, &test, err) != 0 || put_speed(writing, err) != 0 ||
        trace_bench_put_plan(writing, err) != 0)
        return -1;
    put_id(writing, draft->trace.source, draft->bench_results);
    put_test(writing, &test);
    if (!put_catalogue_model(writing, writing->record->values[TRACE_BENCH_MODEL_FILENAME]))
        put_model(writing, type);
    put_machine(writing);
    put_program(writing);
    trace_bench_put(writing, writing->row, "plan", json_incref(writing->plan));
    trace_bench_put(writing, writing->row, "workload", json_incref(writing->workload));
    if (writing->failed)
        return error_set(err, ERROR_MEMORY, "no memory for a row");
    return 0;
}

static int refuse_unless_utf8(const struct trace_bench_record *record, struct error *err)
{
    for (int c = 0; c < TRACE_BENCH_COLUMN_COUNT; c++) {
        json_t *text = record->values[c] ? json_string(record->values[c]) : NULL;

        /* the sign before a deviation is lost in other encodings, which does no harm */
        if (record->values[c] != NULL && text == NULL && c != TRACE_BENCH_SPEED)
            return trace_bench_refuse_value(record, (enum trace_bench_column)c, err,
                                            "not UTF-8 text");
        json_decref(text);
    }
    return 0;
}

int trace_bench_add_row(const struct trace_bench_record *record, struct trace_draft *draft,
                        struct error *err)
{
    struct trace_bench_writing writing = {.record = record};
    struct json_input input = {.text = "", .first_line = record->line};
    struct json_cursor root;
    struct trace_row *row;
    int result = -1;

    draft->bench_results++;
    if (is_without_speed(record))
        return 0;
    if (refuse_unless_utf8(record, err) != 0)
        return -1;
    writing.row = json_object();
    writing.plan = json_object();
    writing.workload = json_object();
    if (write_row(&writing, draft, err) == 0 && (row = trace_draft_add(draft, err)) != NULL) {
        snprintf(input.source, sizeof input.source, "%s", draft->trace.source);
        input.root = writing.row;
        root = json_input_root(&input);
        result = trace_row_read(&root, draft->trace.arena, row, err);
        row->line = record->line;
        if (result != 0 && err != NULL && err->line == 0)
            err->line = record->line;
    }
    json_decref(writing.row);
    json_decref(writing.plan);
    json_decref(writing.workload);
    return result;
}
