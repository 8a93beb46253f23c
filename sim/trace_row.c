/* One row of a trace. A table says which key fills which field; a key without a line
 * there is kept as text. Nothing is guessed: what a row leaves open stays open. */
#include "sim/trace.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sim/trace_private.h"

enum section {
    SECTION_ROW,
    SECTION_PLAN,
    SECTION_WORKLOAD,
    SECTION_COUNT,
};

enum field_kind {
    KIND_TEXT,       /* const char * */
    KIND_QUANT,      /* const char *; assumed ones may be followed by a reason */
    KIND_INTEGER,    /* int64_t */
    KIND_NUMBER,     /* double */
    KIND_FLAG,       /* bool */
    KIND_ANSWER,     /* enum trace_answer */
    KIND_SPLIT,      /* struct trace_split */
    KIND_SPLIT_MODE, /* enum trace_split_mode */
    KIND_CLOCKS,     /* enum trace_clocks */
    KIND_MACHINE,    /* a name or an object */
};

struct field {
    enum trace_field id;
    enum section section;
    const char *key;
    enum field_kind kind;
    size_t offset;   /* into struct trace_row */
    bool assumable;  /* may stand in `assumed` */
    int64_t minimum; /* of an integer */
};

#define AT(member) offsetof(struct trace_row, member)
#define PLAN(id, key, kind, member)                                                                \
    {                                                                                              \
        TRACE_FIELD_##id, SECTION_PLAN, key, KIND_##kind, AT(member), true, 0                      \
    }
#define WORKLOAD(id, key, kind, member)                                                            \
    {                                                                                              \
        TRACE_FIELD_##id, SECTION_WORKLOAD, key, KIND_##kind, AT(member), true, 0                  \
    }

/* Where two keys fill one field, the first one that a row states counts. The keys
 * marked "scoreboard" are those of the other form. */
static const struct field fields[] = {
    {TRACE_FIELD_SOURCE, SECTION_ROW, "source", KIND_TEXT, AT(source), false, 0},
    {TRACE_FIELD_MACHINE, SECTION_ROW, "machine", KIND_MACHINE, AT(machine), true, 0},
    {TRACE_FIELD_CLOCKS, SECTION_ROW, "clocks", KIND_CLOCKS, AT(clocks), true, 0},
    {TRACE_FIELD_ENGINE, SECTION_ROW, "engine", KIND_TEXT, AT(engine), false, 0},
    {TRACE_FIELD_BUILD, SECTION_ROW, "build", KIND_TEXT, AT(build), false, 0},
    {TRACE_FIELD_MODEL, SECTION_ROW, "model", KIND_TEXT, AT(model), true, 0},
    {TRACE_FIELD_QUANT, SECTION_ROW, "quant", KIND_QUANT, AT(quant), true, 0},
    {TRACE_FIELD_UNIT, SECTION_ROW, "unit", KIND_TEXT, AT(unit), false, 0},
    {TRACE_FIELD_STDDEV, SECTION_ROW, "stddev", KIND_NUMBER, AT(stddev), false, 0},
    {TRACE_FIELD_DERIVED, SECTION_ROW, "derived", KIND_FLAG, AT(derived), false, 0},
    {TRACE_FIELD_NOTE, SECTION_ROW, "note", KIND_TEXT, AT(note), false, 0},
    {TRACE_FIELD_SKIP, SECTION_ROW, "skip", KIND_TEXT, AT(skip), false, 0},
    PLAN(SPLIT_MODE, "split_mode", SPLIT_MODE, split_mode),
    PLAN(TENSOR_SPLIT, "tensor_split", SPLIT, tensor_split),
    PLAN(ATTN_SPLIT, "attn_split", SPLIT, attn_split),
    PLAN(KV_ON_HOST, "kv_on_host", ANSWER, kv_on_host),
    PLAN(KV_ON_HOST, "no_kv_offload", ANSWER, kv_on_host), /* scoreboard */
    PLAN(KV_PINNED, "kv_pinned", ANSWER, kv_pinned),
    PLAN(KV_UNIFIED, "kv_unified", ANSWER, kv_unified),
    PLAN(KV_GPU_LAYERS, "kv_gpu_layers", INTEGER, kv_gpu_layers),
    PLAN(KV_POLICY, "kv_policy", TEXT, kv_policy),
    PLAN(RECURRENT_ON_DEVICE, "recurrent_on_device", ANSWER, recurrent_on_device),
    PLAN(ATTN_ON_HOST, "attn_on_host", ANSWER, attn_on_host),
    PLAN(TYPE_K, "type_k", TEXT, type_k),
    PLAN(TYPE_V, "type_v", TEXT, type_v),
    PLAN(N_CTX, "n_ctx", INTEGER, n_ctx),
    PLAN(N_BATCH, "n_batch", INTEGER, n_batch),
    PLAN(N_UBATCH, "n_ubatch", INTEGER, n_ubatch),
    /* -1 asks the engine for all layers */
    {TRACE_FIELD_N_GPU_LAYERS, SECTION_PLAN, "n_gpu_layers", KIND_INTEGER, AT(n_gpu_layers), true,
     -1},
    PLAN(N_THREADS, "n_threads", INTEGER, n_threads),
    PLAN(FLASH_ATTN, "flash_attn", ANSWER, flash_attn),
    PLAN(DEVICE, "device", TEXT, device),
    PLAN(OUTPUT_HEAD, "output_head", TEXT, output_head),
    WORKLOAD(TOOL, "tool", TEXT, tool),
    {TRACE_FIELD_TOOL, SECTION_ROW, "tool", KIND_TEXT, AT(tool), false, 0}, /* scoreboard */
    WORKLOAD(N_PROMPT, "n_prompt", INTEGER, n_prompt),
    WORKLOAD(N_GEN, "n_gen", INTEGER, n_gen),
    WORKLOAD(N_DEPTH, "n_depth", INTEGER, n_depth),
    WORKLOAD(N_SLOTS, "n_slots", INTEGER, n_slots),
    WORKLOAD(N_SLOTS, "n_parallel", INTEGER, n_slots), /* scoreboard */
    WORKLOAD(REPS, "reps", INTEGER, reps),
};

enum { FIELD_LINES = sizeof fields / sizeof fields[0] };

_Static_assert(TRACE_FIELD_COUNT <= 64, "a row keeps a bit per field in a uint64_t");

/* A row being read: the pieces that every step needs. */
struct reader {
    struct arena *arena;
    struct trace_row *row;
    struct json_cursor sections[SECTION_COUNT]; /* value NULL: absent */
    bool taken[FIELD_LINES];                    /* which lines of the table found their key */
};

static uint64_t field_bit(enum trace_field field)
{
    return (uint64_t)1 << field;
}

bool trace_row_has(const struct trace_row *row, enum trace_field field)
{
    return ((row->stated | row->assumed) & field_bit(field)) != 0;
}

bool trace_row_is_assumed(const struct trace_row *row, enum trace_field field)
{
    return (row->assumed & field_bit(field)) != 0;
}

const char *trace_field_name(enum trace_field field)
{
    for (size_t i = 0; i < FIELD_LINES; i++)
        if (fields[i].id == field)
            return fields[i].key;
    return "";
}

/* --- values of one kind. Each returns 1 when the field now holds the value, 0 when the
 * value says nothing, -1 with `err` set --- */

static int read_text(struct reader *reader, const struct json_cursor *cursor, const char *noun,
                     const char **field, struct error *err)
{
    const char *text, *copy;

    if (json_input_as_string(cursor, noun, &text, err) != 0)
        return -1;
    copy = arena_strdup(reader->arena, text, err);
    if (!copy)
        return -1;
    *field = copy;
    return 1;
}

static int read_answer(const struct json_cursor *cursor, enum trace_answer *field,
                       struct error *err)
{
    bool answer;

    if (json_input_as_bool(cursor, &answer, err) != 0)
        return -1;
    *field = answer ? TRACE_YES : TRACE_NO;
    return 1;
}

static int read_split(const struct json_cursor *cursor, struct trace_split *field,
                      struct error *err)
{
    static const struct json_number_rule share = {.noun = "a share", .min = 0, .max = 1e12};
    struct trace_split split = {.count = json_array_size(cursor->value)};
    double sum = 0;

    if (json_input_as_array(cursor, err) != 0)
        return -1;
    if (split.count > TRACE_DEVICE_LIMIT)
        return json_input_refuse(cursor, err, "%zu shares are too many; up to %d can be read",
                                 split.count, TRACE_DEVICE_LIMIT);
    for (size_t i = 0; i < split.count; i++) {
        struct json_cursor element = json_input_element(cursor, i);

        if (json_input_as_number(&element, &share, &split.share[i], err) != 0)
            return -1;
        sum += split.share[i];
    }
    if (!(sum > 0))
        return json_input_refuse(cursor, err,
                                 "the shares add up to nothing; one above 0 is needed");
    *field = split;
    return 1;
}

/* A comparison ("tensor minus layer") is no mode; it stays among the other keys. */
static int read_split_mode(const struct json_cursor *cursor, enum trace_split_mode *field,
                           struct error *err)
{
    static const char *const words[] = {
        [TRACE_SPLIT_UNKNOWN] = "",      [TRACE_SPLIT_NONE] = "none", [TRACE_SPLIT_LAYER] = "layer",
        [TRACE_SPLIT_TENSOR] = "tensor", [TRACE_SPLIT_ROW] = "row",
    };
    const char *text;

    if (json_input_as_string(cursor, "a split mode", &text, err) != 0)
        return -1;
    for (size_t i = TRACE_SPLIT_NONE; i < sizeof words / sizeof words[0]; i++) {
        if (strcmp(text, words[i]) == 0) {
            *field = (enum trace_split_mode)i;
            return 1;
        }
    }
    return 0;
}

static int read_clocks(const struct json_cursor *cursor, enum trace_clocks *field,
                       struct error *err)
{
    static const char *const words[] = {
        [TRACE_CLOCKS_UNKNOWN] = "unknown",
        [TRACE_CLOCKS_STOCK] = "stock",
        [TRACE_CLOCKS_OC] = "oc",
    };
    size_t index;

    if (json_input_as_word(cursor, "a state of the clocks", words, sizeof words / sizeof words[0],
                           &index, err) != 0)
        return -1;
    *field = (enum trace_clocks)index;
    return index != TRACE_CLOCKS_UNKNOWN;
}

/* The text of a string, or the JSON text of any other value but null. */
static int read_loose_text(struct reader *reader, const struct json_cursor *cursor,
                           const char **field, struct error *err)
{
    char *dumped;

    if (!cursor->value || json_is_null(cursor->value))
        return 0;
    if (json_is_string(cursor->value))
        return read_text(reader, cursor, NULL, field, err);
    dumped = json_dumps(cursor->value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));
    if (!dumped)
        return error_set(err, ERROR_MEMORY, "no memory for the text of a value");
    *field = arena_strdup(reader->arena, dumped, err);
    free(dumped);
    return *field ? 1 : -1;
}

/* Fills `texts` from a list of up to TRACE_DEVICE_LIMIT entries. */
static int read_text_list(struct reader *reader, const struct json_cursor *list,
                          const char *texts[], size_t *count, struct error *err)
{
    size_t found = json_array_size(list->value);

    if (found > TRACE_DEVICE_LIMIT)
        return json_input_refuse(list, err, "%zu entries are too many; up to %d can be read", found,
                                 TRACE_DEVICE_LIMIT);
    for (size_t i = 0; i < found; i++) {
        struct json_cursor element = json_input_element(list, i);

        texts[i] = "";
        if (read_loose_text(reader, &element, &texts[i], err) < 0)
            return -1;
    }
    *count = found;
    return 0;
}

static int read_machine(struct reader *reader, const struct json_cursor *cursor, struct error *err)
{
    struct trace_row *row = reader->row;
    struct json_cursor gpus, links, cpu, ram, backend;
    int has_links;

    if (json_is_string(cursor->value))
        return read_text(reader, cursor, "a machine", &row->machine, err);
    if (!json_is_object(cursor->value))
        return json_input_refuse(cursor, err,
                                 "not a machine; a name or an object with a list \"gpus\" is");
    if (json_input_array(cursor, "gpus", &gpus, err) != 0)
        return -1;
    for (size_t i = 0; i < json_array_size(gpus.value); i++) {
        struct json_cursor gpu = json_input_element(&gpus, i);
        const char *name;

        if (json_input_as_string(&gpu, "a GPU", &name, err) != 0)
            return -1;
    }
    has_links = json_input_find_array(cursor, "links", &links, err);
    cpu = json_input_member(cursor, "cpu");
    ram = json_input_member(cursor, "ram");
    backend = json_input_member(cursor, "backend");
    if (has_links < 0 || read_text_list(reader, &gpus, row->gpus, &row->gpu_count, err) != 0 ||
        (has_links && read_text_list(reader, &links, row->links, &row->link_count, err) != 0) ||
        read_loose_text(reader, &cpu, &row->cpu, err) < 0 ||
        read_loose_text(reader, &ram, &row->ram, err) < 0 ||
        read_loose_text(reader, &backend, &row->backend, err) < 0)
        return -1;
    return 1;
}

static int read_field(struct reader *reader, const struct field *field,
                      const struct json_cursor *cursor, struct error *err)
{
    const struct json_integer_rule integer = {.min = field->minimum, .max = INT64_MAX};
    static const struct json_number_rule number = {.min = 0, .max = INFINITY};
    void *place = (char *)reader->row + field->offset;

    switch (field->kind) {
    case KIND_TEXT:
    case KIND_QUANT:
        return read_text(reader, cursor, NULL, place, err);
    case KIND_INTEGER:
        return json_input_as_integer(cursor, &integer, place, err) == 0 ? 1 : -1;
    case KIND_NUMBER:
        return json_input_as_number(cursor, &number, place, err) == 0 ? 1 : -1;
    case KIND_FLAG:
        return json_input_as_bool(cursor, place, err) == 0 ? 1 : -1;
    case KIND_ANSWER:
        return read_answer(cursor, place, err);
    case KIND_SPLIT:
        return read_split(cursor, place, err);
    case KIND_SPLIT_MODE:
        return read_split_mode(cursor, place, err);
    case KIND_CLOCKS:
        return read_clocks(cursor, place, err);
    case KIND_MACHINE:
        return read_machine(reader, cursor, err);
    }
    return 0;
}

/* --- the parts of a row --- */

static int read_stated(struct reader *reader, struct error *err)
{
    for (size_t i = 0; i < FIELD_LINES; i++) {
        const struct json_cursor *section = &reader->sections[fields[i].section];
        struct json_cursor member;
        int result;

        if (!section->value || (reader->row->stated & field_bit(fields[i].id)) != 0)
            continue;
        member = json_input_member(section, fields[i].key);
        if (!member.value || json_is_null(member.value))
            continue;
        result = read_field(reader, &fields[i], &member, err);
        if (result < 0)
            return -1;
        reader->taken[i] = result == 1;
        if (result == 1)
            reader->row->stated |= field_bit(fields[i].id);
    }
    return 0;
}

/* An assumed text counts when it is one word: more words are a reason or a doubt
 * ("not stated"). A quant may be followed by its reason, and has a digit. */
static bool is_word(const char *text)
{
    return text[0] != '\0' && text[strcspn(text, " \t")] == '\0';
}

static int read_assumed_quant(struct reader *reader, const char *text, struct error *err)
{
    size_t length = strcspn(text, " \t");
    const char *copy;

    if (strcspn(text, "0123456789") >= length)
        return 0;
    copy = arena_strndup(reader->arena, text, length, err);
    if (!copy)
        return -1;
    reader->row->quant = copy;
    return 1;
}

static int read_assumed_field(struct reader *reader, const struct field *field,
                              const struct json_cursor *member, struct error *err)
{
    const char *text = json_string_value(member->value);
    struct error refusal = {0};
    int result;

    if (text && field->kind == KIND_QUANT)
        return read_assumed_quant(reader, text, err);
    if (text && !is_word(text))
        return 0;
    result = read_field(reader, field, member, &refusal);
    if (result < 0 && refusal.code == ERROR_MEMORY)
        return error_set(err, ERROR_MEMORY, "%s", refusal.text);
    return result == 1; /* what does not parse is prose */
}

static int read_assumed(struct reader *reader, const struct json_cursor *assumed, struct error *err)
{
    struct trace_row *row = reader->row;

    for (size_t i = 0; i < FIELD_LINES; i++) {
        struct json_cursor member = json_input_member(assumed, fields[i].key);
        uint64_t bit = field_bit(fields[i].id);
        int result = 1;

        if (!member.value || json_is_null(member.value) || (row->assumed & bit) != 0)
            continue;
        if ((row->stated & bit) == 0)
            result = fields[i].assumable ? read_assumed_field(reader, &fields[i], &member, err) : 0;
        else if (!fields[i].assumable)
            result = 0;
        if (result < 0)
            return -1;
        if (result == 1) {
            row->stated &= ~bit;
            row->assumed |= bit;
        }
    }
    return 0;
}

static bool fills_a_field(const struct reader *reader, enum section section, const char *key)
{
    for (size_t i = 0; i < FIELD_LINES; i++)
        if (fields[i].section == section && strcmp(fields[i].key, key) == 0)
            return reader->taken[i];
    return false;
}

/* Keeps the keys of a section that filled no field; null ones say nothing. */
static int read_other_keys(struct reader *reader, enum section section,
                           const struct trace_other_key **others, size_t *count, struct error *err)
{
    const struct json_cursor *object = &reader->sections[section];
    struct trace_other_key *list;
    size_t used = 0;
    const char *key;
    json_t *value;

    list = arena_alloc_array(reader->arena, json_object_size(object->value), sizeof *list, err);
    if (!list)
        return -1;
    json_object_foreach(object->value, key, value)
    {
        char *dumped;

        if (json_is_null(value) || fills_a_field(reader, section, key))
            continue;
        dumped = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));
        if (!dumped)
            return error_set(err, ERROR_MEMORY, "no memory for the text of a value");
        list[used].key = arena_strdup(reader->arena, key, err);
        list[used].json = arena_strdup(reader->arena, dumped, err);
        free(dumped);
        if (!list[used].key || !list[used].json)
            return -1;
        used++;
    }
    *others = list;
    *count = used;
    return 0;
}

static int read_value(struct reader *reader, const struct json_cursor *root, struct error *err)
{
    struct json_cursor cursor = json_input_member(root, "value");
    struct trace_value *value = &reader->row->value;

    value->text = "";
    if (json_is_number(cursor.value)) {
        value->kind = TRACE_VALUE_NUMBER;
        value->number = json_number_value(cursor.value);
        return 0;
    }
    if (json_is_boolean(cursor.value)) {
        value->kind = TRACE_VALUE_BOOL;
        value->number = json_is_true(cursor.value);
        return 0;
    }
    if (json_is_string(cursor.value)) {
        value->kind = TRACE_VALUE_TEXT;
        return read_text(reader, &cursor, NULL, &value->text, err) == 1 ? 0 : -1;
    }
    return json_input_refuse(&cursor, err, "%s; a number, a string, true or false belongs here",
                             cursor.value ? "not a value" : "missing");
}

/* A text that every row has. */
static int read_required_text(struct reader *reader, const struct json_cursor *root,
                              const char *key, const char *noun, const char **field,
                              struct error *err)
{
    struct json_cursor cursor = json_input_member(root, key);

    if (read_text(reader, &cursor, noun, field, err) != 1)
        return -1;
    if ((*field)[0] == '\0')
        return json_input_refuse(&cursor, err, "empty; %s belongs here", noun);
    return 0;
}

static void set_texts_empty(struct trace_row *row)
{
    const char **texts[] = {&row->id,  &row->metric,  &row->cpu,
                            &row->ram, &row->backend, &row->value.text};

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        *texts[i] = "";
    for (size_t i = 0; i < FIELD_LINES; i++)
        if (fields[i].kind == KIND_TEXT || fields[i].kind == KIND_QUANT ||
            fields[i].kind == KIND_MACHINE)
            *(const char **)(void *)((char *)row + fields[i].offset) = "";
}

int trace_row_read(const struct json_cursor *root, struct arena *arena, struct trace_row *row,
                   struct error *err)
{
    struct reader reader = {.arena = arena, .row = row, .sections[SECTION_ROW] = *root};
    struct json_cursor assumed;
    int has_assumed;

    *row = (struct trace_row){0};
    set_texts_empty(row);
    if (json_input_as_object(root, err) != 0 ||
        read_required_text(&reader, root, "id", "a name for the row", &row->id, err) != 0 ||
        read_required_text(&reader, root, "metric", "a metric", &row->metric, err) != 0 ||
        read_value(&reader, root, err) != 0 ||
        json_input_find_object(root, "plan", &reader.sections[SECTION_PLAN], err) < 0 ||
        json_input_find_object(root, "workload", &reader.sections[SECTION_WORKLOAD], err) < 0)
        return -1;
    has_assumed = json_input_find_object(root, "assumed", &assumed, err);
    if (has_assumed < 0 || read_stated(&reader, err) != 0)
        return -1;
    if (has_assumed && read_assumed(&reader, &assumed, err) != 0)
        return -1;
    if (read_other_keys(&reader, SECTION_PLAN, &row->other_plan_keys, &row->other_plan_key_count,
                        err) != 0)
        return -1;
    return read_other_keys(&reader, SECTION_WORKLOAD, &row->other_workload_keys,
                           &row->other_workload_key_count, err);
}
