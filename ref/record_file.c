/* Records as JSON files.
 *
 *   {"lopside_record": 1, "model": "tiny-llama Q8_0", "weights": ..., "cache": ..., "sampling":
 * ..., "context_shift": ..., "checksum": "0123456789abcdef", "operations": [{"layer": 0,
 * "operation": "matmul", "value": "key", "tensor": "..."}, ...], "slots": [{"prompt": [1, 2],
 * "tokens": [3], "checksums": ["..."], "inputs": [1, 2], "digests":
 * ["0123456789abcdef----------------", ...]}, ...]}
 *
 * A token's digests are one string, 16 characters an operation in their order, dashes where
 * there is none. */
#include "ref/record_private.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "sim/json_input.h"

enum { VERSION = 1, DIGITS = 16 };

/* ---- saving ---- */

static json_t *hex(uint64_t number)
{
    char text[DIGITS + 1];

    snprintf(text, sizeof text, "%016" PRIx64, number);
    return json_string(text);
}

static json_t *numbers(const uint32_t *values, uint32_t count)
{
    json_t *array = json_array();

    for (uint32_t i = 0; i < count; i++)
        json_array_append_new(array, json_integer(values[i]));
    return array;
}

static json_t *digests_of(const struct record *record, const struct record_row *row)
{
    char *text = malloc((size_t)record->op_count * DIGITS + 1);
    json_t *string;

    if (text == NULL)
        return NULL;
    text[0] = '\0';
    for (uint32_t i = 0; i < record->op_count; i++) {
        uint32_t op = record->order[i];
        bool has = op < row->count && row->entries[op].covered > 0;

        if (has)
            snprintf(text + (size_t)i * DIGITS, DIGITS + 1, "%016" PRIx64, row->entries[op].digest);
        else
            memcpy(text + (size_t)i * DIGITS, "----------------", DIGITS + 1);
    }
    string = json_string(text);
    free(text);
    return string;
}

static json_t *slot_to_json(const struct record *record, const struct record_slot *slot)
{
    json_t *checksums = json_array(), *inputs = json_array(), *digests = json_array();

    for (uint32_t i = 0; i < slot->token_count; i++)
        json_array_append_new(checksums, hex(slot->checksums[i]));
    for (uint32_t i = 0; i < slot->row_count; i++) {
        json_array_append_new(inputs, json_integer(slot->rows[i].token));
        json_array_append_new(digests, digests_of(record, &slot->rows[i]));
    }
    return json_pack("{s:o, s:o, s:o, s:o, s:o}", "prompt",
                     numbers(slot->prompt, slot->prompt_count), "tokens",
                     numbers(slot->tokens, slot->token_count), "checksums", checksums, "inputs",
                     inputs, "digests", digests);
}

static json_t *to_json(const struct record *record)
{
    json_t *root = json_pack("{s:i}", "lopside_record", VERSION);
    json_t *operations = json_array(), *slots = json_array();

    for (int term = 0; term < RECORD_TERMS; term++)
        json_object_set_new(root, record_term_names[term], json_string(record->terms[term]));
    json_object_set_new(root, "checksum", hex(record->checksum));
    for (uint32_t i = 0; i < record->op_count; i++) {
        const struct record_op *op = &record->ops[record->order[i]];

        json_array_append_new(operations,
                              json_pack("{s:i, s:s, s:s, s:s}", "layer", op->layer, "operation",
                                        program_op_name(op->kind), "value",
                                        program_value_name(op->value), "tensor", op->tensor));
    }
    for (uint32_t i = 0; i < record->slot_count; i++)
        json_array_append_new(slots, slot_to_json(record, &record->slots[i]));
    json_object_set_new(root, "operations", operations);
    json_object_set_new(root, "slots", slots);
    return root;
}

int record_save(const struct record *record, const char *path, struct error *err)
{
    FILE *file = fopen(path, "w");
    json_t *root;
    int status;

    if (file == NULL)
        return error_set_at(err, ERROR_IO, path, 0, 0, "cannot be written: %s", strerror(errno));
    root = to_json(record);
    status = root != NULL ? json_dumpf(root, file, JSON_INDENT(1)) : -1;
    json_decref(root);
    if (fputc('\n', file) == EOF)
        status = -1;
    if (fclose(file) != 0 || status != 0)
        return error_set_at(err, ERROR_IO, path, 0, 0, "cannot be written: %s", strerror(errno));
    return 0;
}

/* ---- loading ---- */

static int value_of(char digit)
{
    if (digit >= '0' && digit <= '9')
        return digit - '0';
    return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

static bool read_hex(const char *text, uint64_t *number)
{
    *number = 0;
    for (int i = 0; i < DIGITS; i++) {
        int digit = value_of(text[i]);

        if (digit < 0)
            return false;
        *number = *number << 4 | (uint64_t)digit;
    }
    return true;
}

static int as_checksum(const struct json_cursor *cursor, uint64_t *checksum, struct error *err)
{
    const char *text;

    if (json_input_as_string(cursor, "a checksum", &text, err) != 0)
        return -1;
    if (strlen(text) != DIGITS || !read_hex(text, checksum))
        return json_input_refuse(cursor, err, "\"%.40s\" is not a checksum; 16 hex digits are",
                                 text);
    return 0;
}

/* The words of both lists, so that a name becomes its number. */
static int read_operation(const struct json_cursor *object, struct record *record,
                          struct error *err)
{
    static const char *const keys[] = {"layer", "operation", "value", "tensor"};
    static const struct json_integer_rule layers = {"a block", -1, INT32_MAX};
    const char *kinds[OP_KIND_COUNT], *values[OP_VALUE_COUNT], *tensor;
    struct record_op *op = record_add_op(record, err);
    size_t kind, value;
    int64_t layer;

    for (size_t i = 0; i < OP_KIND_COUNT; i++)
        kinds[i] = program_op_name((enum op_kind)i);
    for (size_t i = 0; i < OP_VALUE_COUNT; i++)
        values[i] = program_value_name((enum op_value)i);
    if (op == NULL || json_input_as_object(object, err) != 0 ||
        json_input_refuse_unknown_keys(object, keys, 4, err) != 0 ||
        json_input_integer(object, "layer", &layers, &layer, err) != 0 ||
        json_input_word(object, "operation", "an operation", kinds, OP_KIND_COUNT, &kind, err) !=
            0 ||
        json_input_word(object, "value", "a value", values, OP_VALUE_COUNT, &value, err) != 0 ||
        json_input_string(object, "tensor", "a tensor's name", &tensor, err) != 0)
        return -1;
    op->layer = (int32_t)layer;
    op->kind = (enum op_kind)kind;
    op->value = (enum op_value)value;
    snprintf(op->tensor, sizeof op->tensor, "%s", tensor);
    return 0;
}

/* An array of whole numbers below 2^32, owned; empty ones are not NULL. */
static int read_numbers(const struct json_cursor *object, const char *key, uint32_t **values,
                        uint32_t *count, struct error *err)
{
    static const struct json_integer_rule tokens = {"a token", 0, UINT32_MAX};
    struct json_cursor array;
    size_t size;

    if (json_input_array(object, key, &array, err) != 0)
        return -1;
    size = json_array_size(array.value);
    *values = calloc(size + 1, sizeof **values);
    if (*values == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for %zu numbers", size);
    *count = (uint32_t)size;
    for (size_t i = 0; i < size; i++) {
        struct json_cursor element = json_input_element(&array, i);
        int64_t value;

        if (json_input_as_integer(&element, &tokens, &value, err) != 0)
            return -1;
        (*values)[i] = (uint32_t)value;
    }
    return 0;
}

/* An array as long as another one. */
static int array_of(const struct json_cursor *object, const char *key, uint32_t count,
                    const char *other, struct json_cursor *array, struct error *err)
{
    if (json_input_array(object, key, array, err) != 0)
        return -1;
    if (json_array_size(array->value) != count)
        return json_input_refuse(array, err, "there are %zu, but %" PRIu32 " of \"%s\"",
                                 json_array_size(array->value), count, other);
    return 0;
}

static int read_checksums(const struct json_cursor *object, struct record_slot *slot,
                          struct error *err)
{
    struct json_cursor array;

    if (array_of(object, "checksums", slot->token_count, "tokens", &array, err) != 0)
        return -1;
    slot->checksums = calloc((size_t)slot->token_count + 1, sizeof *slot->checksums);
    if (slot->checksums == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for %" PRIu32 " checksums",
                         slot->token_count);
    for (uint32_t i = 0; i < slot->token_count; i++) {
        struct json_cursor element = json_input_element(&array, i);

        if (as_checksum(&element, &slot->checksums[i], err) != 0)
            return -1;
    }
    return 0;
}

static int read_digests(const struct json_cursor *cursor, const struct record *record,
                        struct record_row *row, struct error *err)
{
    const char *text;

    if (json_input_as_string(cursor, "the digests of a token", &text, err) != 0)
        return -1;
    if (strlen(text) != (size_t)record->op_count * DIGITS)
        return json_input_refuse(cursor, err,
                                 "%zu characters for %" PRIu32 " operations; 16 each are expected",
                                 strlen(text), record->op_count);
    for (uint32_t i = 0; i < record->op_count; i++) {
        const char *at = text + (size_t)i * DIGITS;

        if (strncmp(at, "----------------", DIGITS) == 0)
            continue;
        if (!read_hex(at, &row->entries[i].digest))
            return json_input_refuse(cursor, err,
                                     "\"%.16s\" is not a digest; 16 hex digits are, or 16 dashes "
                                     "for none",
                                     at);
        row->entries[i].covered = 1;
    }
    return 0;
}

static int read_rows(const struct json_cursor *object, const struct record *record,
                     struct record_slot *slot, struct error *err)
{
    uint32_t *inputs = NULL, count = 0;
    struct json_cursor array;
    int status = read_numbers(object, "inputs", &inputs, &count, err);

    if (status == 0)
        status = array_of(object, "digests", count, "inputs", &array, err);
    for (uint32_t i = 0; i < count && status == 0; i++) {
        struct json_cursor element = json_input_element(&array, i);
        struct record_row *row = record_row(slot, i, record->op_count, err);

        status = row != NULL ? read_digests(&element, record, row, err) : -1;
        if (status == 0)
            row->token = inputs[i];
    }
    free(inputs);
    return status;
}

static int read_slot(const struct json_cursor *object, const struct record *record,
                     struct record_slot *slot, struct error *err)
{
    static const char *const keys[] = {"prompt", "tokens", "checksums", "inputs", "digests"};

    if (json_input_as_object(object, err) != 0 ||
        json_input_refuse_unknown_keys(object, keys, 5, err) != 0 ||
        read_numbers(object, "prompt", &slot->prompt, &slot->prompt_count, err) != 0 ||
        read_numbers(object, "tokens", &slot->tokens, &slot->token_count, err) != 0 ||
        read_checksums(object, slot, err) != 0)
        return -1;
    return read_rows(object, record, slot, err);
}

static int read_head(const struct json_cursor *root, struct record *record, struct error *err)
{
    static const struct json_integer_rule version = {"the version of a record's format; 1 is known",
                                                     VERSION, VERSION};
    struct json_cursor checksum;
    int64_t number;

    if (json_input_integer(root, "lopside_record", &version, &number, err) != 0)
        return -1;
    for (int term = 0; term < RECORD_TERMS; term++) {
        const char *text;

        if (json_input_string(root, record_term_names[term], NULL, &text, err) != 0)
            return -1;
        snprintf(record->terms[term], sizeof record->terms[term], "%s", text);
    }
    checksum = json_input_member(root, "checksum");
    return as_checksum(&checksum, &record->checksum, err);
}

static struct record *read_record(const struct json_cursor *root, struct error *err)
{
    struct json_cursor operations, slots;
    struct record *record;

    if (json_input_as_object(root, err) != 0 || json_input_array(root, "slots", &slots, err) != 0 ||
        json_input_array(root, "operations", &operations, err) != 0)
        return NULL;
    record = record_empty((uint32_t)json_array_size(slots.value), err);
    if (record == NULL || read_head(root, record, err) != 0)
        goto fail;
    for (size_t i = 0; i < json_array_size(operations.value); i++) {
        struct json_cursor element = json_input_element(&operations, i);

        if (read_operation(&element, record, err) != 0)
            goto fail;
        record->ops[i].order = i;
    }
    for (uint32_t i = 0; i < record->slot_count; i++) {
        struct json_cursor element = json_input_element(&slots, i);

        if (read_slot(&element, record, &record->slots[i], err) != 0)
            goto fail;
    }
    if (record_sort(record, err) == 0)
        return record;
fail:
    record_free(record);
    return NULL;
}

struct record *record_load(const char *path, struct error *err)
{
    struct json_input *input = json_input_load_file(path, err);
    struct record *record = NULL;

    if (input != NULL) {
        struct json_cursor root = json_input_root(input);

        record = read_record(&root, err);
    }
    json_input_free(input);
    return record;
}
