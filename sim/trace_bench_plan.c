/* The columns of llama-bench, and the plan that they tell. */
#include "sim/trace_bench_private.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* --- columns --- */

/* What becomes of a value in the plan of the row. */
enum kind {
    KIND_NONE, /* told elsewhere in this file */
    KIND_TEXT,
    KIND_INTEGER, /* a value below 0 asks for the default, which an absent key says */
    KIND_LAYERS,  /* an integer of which -1 means all */
    KIND_ANSWER,
    KIND_SPLIT,
    KIND_SPLIT_MODE,
    KIND_RARE, /* kept as a key that no prediction knows, unless it changes nothing */
};

enum { NAMES_MAX = 2 };

/* Names: in csv, json and sql, and in a table. */
static const struct {
    const char *names[NAMES_MAX];
    enum kind kind;
    const char *key; /* in the plan of a row */
} columns[TRACE_BENCH_COLUMN_COUNT] = {
    [TRACE_BENCH_MODEL_TYPE] = {{"model_type", "model"}, KIND_NONE, NULL},
    [TRACE_BENCH_MODEL_FILENAME] = {{"model_filename"}, KIND_NONE, NULL},
    [TRACE_BENCH_TEST] = {{"test"}, KIND_NONE, NULL},
    [TRACE_BENCH_N_PROMPT] = {{"n_prompt"}, KIND_NONE, NULL},
    [TRACE_BENCH_N_GEN] = {{"n_gen"}, KIND_NONE, NULL},
    [TRACE_BENCH_N_DEPTH] = {{"n_depth"}, KIND_NONE, NULL},
    [TRACE_BENCH_N_PARALLEL] = {{"n_parallel", "np"}, KIND_NONE, NULL},
    [TRACE_BENCH_KV_UNIFIED] = {{"kv_unified", "kvu"}, KIND_ANSWER, "kv_unified"},
    [TRACE_BENCH_SPEED] = {{"avg_ts", "t/s"}, KIND_NONE, NULL},
    [TRACE_BENCH_SPEED_STDDEV] = {{"stddev_ts"}, KIND_NONE, NULL},
    [TRACE_BENCH_FITS] = {{"fits"}, KIND_NONE, NULL},
    [TRACE_BENCH_NOTE] = {{"note"}, KIND_NONE, NULL},
    [TRACE_BENCH_MACHINE] = {{"machine"}, KIND_NONE, NULL},
    [TRACE_BENCH_GPU_INFO] = {{"gpu_info"}, KIND_NONE, NULL},
    [TRACE_BENCH_CPU_INFO] = {{"cpu_info"}, KIND_NONE, NULL},
    [TRACE_BENCH_BACKENDS] = {{"backends", "backend"}, KIND_NONE, NULL},
    [TRACE_BENCH_ENGINE] = {{"engine"}, KIND_NONE, NULL},
    [TRACE_BENCH_BUILD_COMMIT] = {{"build_commit"}, KIND_NONE, NULL},
    [TRACE_BENCH_SPLIT_MODE] = {{"split_mode", "sm"}, KIND_SPLIT_MODE, "split_mode"},
    [TRACE_BENCH_MAIN_GPU] = {{"main_gpu", "mg"}, KIND_NONE, "main_gpu"},
    [TRACE_BENCH_TENSOR_SPLIT] = {{"tensor_split", "ts"}, KIND_SPLIT, "tensor_split"},
    [TRACE_BENCH_ATTN_SPLIT] = {{"attn_split", "as"}, KIND_SPLIT, "attn_split"},
    [TRACE_BENCH_NO_KV_OFFLOAD] = {{"no_kv_offload", "nkvo"}, KIND_ANSWER, "kv_on_host"},
    [TRACE_BENCH_KV_CPU_PINNED] = {{"kv_cpu_pinned", "kvcp"}, KIND_ANSWER, "kv_pinned"},
    [TRACE_BENCH_KV_GPU_LAYERS] = {{"kv_gpu_layers", "kvgl"}, KIND_INTEGER, "kv_gpu_layers"},
    [TRACE_BENCH_KV_POLICY] = {{"kv_policy"}, KIND_TEXT, "kv_policy"},
    [TRACE_BENCH_KV_RESIDENT] = {{"kv_resident", "kvr"}, KIND_RARE, "kv_resident"},
    [TRACE_BENCH_RECURRENT_STATE_OFFLOAD] = {{"recurrent_state_offload", "rso"},
                                             KIND_ANSWER,
                                             "recurrent_on_device"},
    [TRACE_BENCH_TYPE_K] = {{"type_k", "ctk"}, KIND_TEXT, "type_k"},
    [TRACE_BENCH_TYPE_V] = {{"type_v", "ctv"}, KIND_TEXT, "type_v"},
    [TRACE_BENCH_N_CTX] = {{"n_ctx"}, KIND_INTEGER, "n_ctx"},
    [TRACE_BENCH_N_BATCH] = {{"n_batch"}, KIND_INTEGER, "n_batch"},
    [TRACE_BENCH_N_UBATCH] = {{"n_ubatch"}, KIND_INTEGER, "n_ubatch"},
    [TRACE_BENCH_N_GPU_LAYERS] = {{"n_gpu_layers", "ngl"}, KIND_LAYERS, "n_gpu_layers"},
    [TRACE_BENCH_N_THREADS] = {{"n_threads", "threads"}, KIND_INTEGER, "n_threads"},
    [TRACE_BENCH_FLASH_ATTN] = {{"flash_attn", "fa"}, KIND_ANSWER, "flash_attn"},
    [TRACE_BENCH_DEVICES] = {{"devices", "dev"}, KIND_RARE, "devices"},
    [TRACE_BENCH_N_CPU_MOE] = {{"n_cpu_moe", "ncmoe"}, KIND_RARE, "n_cpu_moe"},
    [TRACE_BENCH_TENSOR_BUFT_OVERRIDES] = {{"tensor_buft_overrides", "ot"},
                                           KIND_RARE,
                                           "tensor_buft_overrides"},
    [TRACE_BENCH_EMBEDDINGS] = {{"embeddings", "embd"}, KIND_RARE, "embeddings"},
    [TRACE_BENCH_NO_OP_OFFLOAD] = {{"no_op_offload", "nopo"}, KIND_RARE, "no_op_offload"},
    [TRACE_BENCH_KV_DELIVERY_DEPTH] = {{"kv_delivery_depth", "kvd"},
                                       KIND_RARE,
                                       "kv_delivery_depth"},
    [TRACE_BENCH_ATTN_ON_HOST] = {{"attn_on_host", "ah"}, KIND_ANSWER, "attn_on_host"},
    [TRACE_BENCH_ALL_REDUCE] = {{"all_reduce", "ar"}, KIND_RARE, "all_reduce"},
    [TRACE_BENCH_PACE_DEVICES] = {{"pace_devices"}, KIND_RARE, "pace_devices"},
    [TRACE_BENCH_PACE_LINKS] = {{"pace_links"}, KIND_RARE, "pace_links"},
};

int trace_bench_find_column(const char *name, size_t length)
{
    for (int c = 0; c < TRACE_BENCH_COLUMN_COUNT; c++)
        for (size_t i = 0; i < NAMES_MAX && columns[c].names[i] != NULL; i++)
            if (strlen(columns[c].names[i]) == length &&
                memcmp(columns[c].names[i], name, length) == 0)
                return c;
    return -1;
}

/* --- refusals --- */

int trace_bench_refuse_value(const struct trace_bench_record *record,
                             enum trace_bench_column column, struct error *err, const char *format,
                             ...)
{
    const char *name = record->names[column] ? record->names[column] : columns[column].names[0];
    char message[sizeof err->text];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    if (record->object != NULL) {
        struct json_cursor member = json_input_member(record->object, name);

        return json_input_refuse(&member, err, "%s", message);
    }
    return trace_bench_refuse(record->text, record->size,
                              record->values[column] ? record->offsets[column] : record->offset,
                              err, "%s: %s", name, message);
}

/* --- values. Each returns 1 with the value, 0 when nothing is told, -1 with `err` set --- */

int trace_bench_read_integer(const struct trace_bench_record *record,
                             enum trace_bench_column column, int64_t *value, struct error *err)
{
    const char *text = record->values[column];
    long long number;
    char *end;

    if (text == NULL || text[0] == '\0')
        return 0;
    errno = 0;
    number = strtoll(text, &end, 10);
    if (end == text || *end != '\0' || errno != 0)
        return trace_bench_refuse_value(record, column, err, "\"%.40s\" is not a whole number",
                                        text);
    *value = number;
    return 1;
}

static int read_answer(const struct trace_bench_record *record, enum trace_bench_column column,
                       bool *answer, struct error *err)
{
    static const char *const words[] = {"0",  "false", "off", "no", "1",
                                        "on", "true",  "yes", "-1", "auto"};
    const char *text = record->values[column];

    if (text == NULL || text[0] == '\0')
        return 0;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (strcasecmp(text, words[i]) == 0) {
            *answer = i >= 4;
            return i < 8;
        }
    }
    return trace_bench_refuse_value(
        record, column, err, "\"%.40s\" is no answer; 0, 1, true, false, on and off are", text);
}

bool trace_bench_is_number(const char *text, double *number, const char **end)
{
    char *behind;

    *number = strtod(text, &behind);
    *end = behind;
    return behind != text && isfinite(*number);
}

/* "60.00/40.00"; llama-bench prints 0.00 where nobody asked for shares. */
static int read_shares(const struct trace_bench_record *record, enum trace_bench_column column,
                       json_t **list, struct error *err)
{
    const char *text = record->values[column], *at = text;
    bool any = false;
    json_t *shares;

    if (text == NULL || text[0] == '\0')
        return 0;
    shares = json_array();
    for (;;) {
        double share;

        if (!trace_bench_is_number(at, &share, &at) || share < 0 ||
            (*at != '\0' && strchr("/,;", *at) == NULL)) {
            json_decref(shares);
            return trace_bench_refuse_value(
                record, column, err, "\"%.40s\" is no list of shares; one such as 60/40 is", text);
        }
        any |= share > 0;
        json_array_append_new(shares, json_real(share));
        if (*at++ == '\0')
            break;
    }
    if (!any) {
        json_decref(shares);
        return 0;
    }
    *list = shares;
    return 1;
}

/* --- writing the row --- */

void trace_bench_put(struct trace_bench_writing *writing, json_t *object, const char *key,
                     json_t *value)
{
    if (json_object_set_new(object, key, value) != 0)
        writing->failed = true;
}

void trace_bench_put_text(struct trace_bench_writing *writing, json_t *object, const char *key,
                          const char *text)
{
    trace_bench_put(writing, object, key, json_string(text));
}

static void put_split_mode(struct trace_bench_writing *writing, const char *text)
{
    /* llama.h, enum llama_split_mode */
    static const char *const modes[] = {"none", "layer", "row", "tensor"};

    if (text[0] >= '0' && text[0] <= '3' && text[1] == '\0')
        text = modes[text[0] - '0'];
    trace_bench_put_text(writing, writing->plan, "split_mode", text);
}

static bool changes_nothing(const char *text)
{
    static const char *const usual[] = {"", "0", "-1", "false", "none", "auto"};

    for (size_t i = 0; i < sizeof usual / sizeof usual[0]; i++)
        if (strcasecmp(text, usual[i]) == 0)
            return true;
    return false;
}

/* A number stays one. */
static void put_rare(struct trace_bench_writing *writing, const char *key, const char *text)
{
    char *end;
    long number = strtol(text, &end, 10);

    if (end != text && *end == '\0')
        trace_bench_put(writing, writing->plan, key, json_integer(number));
    else
        trace_bench_put_text(writing, writing->plan, key, text);
}

static int put_plan_column(struct trace_bench_writing *writing, enum trace_bench_column column,
                           struct error *err)
{
    const char *key = columns[column].key, *text = writing->record->values[column];
    json_t *list = NULL;
    int64_t integer = 0;
    bool answer = false;
    int result = 0;

    switch (columns[column].kind) {
    case KIND_NONE:
        break;
    case KIND_TEXT:
        if (text[0] != '\0')
            trace_bench_put_text(writing, writing->plan, key, text);
        break;
    case KIND_INTEGER:
    case KIND_LAYERS:
        result = trace_bench_read_integer(writing->record, column, &integer, err);
        if (result == 1 && columns[column].kind == KIND_LAYERS && integer < 0)
            integer = -1;
        if (result == 1 && (integer >= 0 || columns[column].kind == KIND_LAYERS))
            trace_bench_put(writing, writing->plan, key, json_integer(integer));
        break;
    case KIND_ANSWER:
        result = read_answer(writing->record, column, &answer, err);
        if (result == 1)
            trace_bench_put(writing, writing->plan, key, json_boolean(answer));
        break;
    case KIND_SPLIT:
        result = read_shares(writing->record, column, &list, err);
        if (result == 1)
            trace_bench_put(writing, writing->plan, key, list);
        break;
    case KIND_SPLIT_MODE:
        if (text[0] != '\0')
            put_split_mode(writing, text);
        break;
    case KIND_RARE:
        if (!changes_nothing(text))
            put_rare(writing, key, text);
        break;
    }
    return result < 0 ? -1 : 0;
}

int trace_bench_put_plan(struct trace_bench_writing *writing, struct error *err)
{
    const struct trace_bench_record *record = writing->record;
    const char *mode = record->values[TRACE_BENCH_SPLIT_MODE];
    const char *main_gpu = record->values[TRACE_BENCH_MAIN_GPU];

    for (int c = 0; c < TRACE_BENCH_COLUMN_COUNT; c++)
        if (record->values[c] != NULL &&
            put_plan_column(writing, (enum trace_bench_column)c, err) != 0)
            return -1;
    /* the main GPU holds more than others only where nothing is split, or by rows */
    if (mode != NULL && (strcmp(mode, "none") == 0 || strcmp(mode, "0") == 0) && main_gpu != NULL &&
        !changes_nothing(main_gpu))
        put_rare(writing, "main_gpu", main_gpu);
    return 0;
}
