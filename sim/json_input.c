/* jansson says what a text holds, json_locate where; this puts both into one sentence.
 * The getters are in json_input_get.c. */
#include "sim/json_input.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/json_locate.h"
#include "sim/word_list.h"

#define FILE_LIMIT_BYTES ((size_t)512 << 20) /* more is not a file people write */

/* Key endings that name a unit, and the unit in words. */
static const struct {
    const char *ending, *unit;
} units[] = {
    {"gbs", "GB/s (1e9 bytes per second)"},
    {"gts", "GT/s (1e9 transfers per second)"},
    {"mts", "MT/s (1e6 transfers per second)"},
    {"bytes", "bytes"},
    {"kib", "KiB (1024 bytes)"},
    {"mib", "MiB (1048576 bytes)"},
    {"gib", "GiB (1073741824 bytes)"},
    {"s", "seconds"},
    {"ms", "milliseconds"},
    {"us", "microseconds"},
    {"ns", "nanoseconds"},
    {"mhz", "MHz"},
    {"ghz", "GHz"},
    {"tflops", "TFLOPS (1e12 operations per second)"},
    {"tops", "TOPS (1e12 operations per second)"},
    {"flop", "operations"},
    {"ratio", "a share between 0 and 1"},
};

/* --- text and files --- */

int json_input_read_file(const char *path, char **text, size_t *size, struct error *err)
{
    FILE *file = fopen(path, "rb");
    size_t used = 0, capacity = 0;
    char *buffer = NULL;

    if (!file)
        return error_set_at(err, ERROR_IO, path, 0, 0, "cannot be opened: %s", strerror(errno));
    do {
        if (used + 1 >= capacity) {
            char *grown = realloc(buffer, capacity = capacity ? capacity * 2 : 16384);

            if (!grown) {
                error_set_at(err, ERROR_MEMORY, path, 0, 0, "no memory for %zu bytes", capacity);
                goto free_buffer;
            }
            buffer = grown;
        }
        used += fread(buffer + used, 1, capacity - used - 1, file);
    } while (!feof(file) && !ferror(file) && used <= FILE_LIMIT_BYTES);
    if (ferror(file)) {
        error_set_at(err, ERROR_IO, path, 0, 0, "cannot be read: %s", strerror(errno));
        goto free_buffer;
    }
    if (used > FILE_LIMIT_BYTES) {
        error_set_at(err, ERROR_IO, path, 0, 0, "is larger than %zu MiB", FILE_LIMIT_BYTES >> 20);
        goto free_buffer;
    }
    fclose(file);
    buffer[used] = '\0';
    *text = buffer;
    *size = used;
    return 0;

free_buffer:
    free(buffer);
    fclose(file);
    return -1;
}

/* Sets a located error unless one is set already. `location` may be NULL. */
static int set_located(struct error *err, const struct json_input *input,
                       const struct json_location *location, const char *text)
{
    if (!err || err->code != ERROR_NONE)
        return -1;
    if (!location)
        return error_set_at(err, ERROR_INPUT, input->source, 0, 0, "%s", text);
    error_set_at(err, ERROR_INPUT, input->source, location->line + input->first_line - 1,
                 location->column, "%s", text);
    snprintf(err->excerpt, sizeof err->excerpt, "%.*s", (int)sizeof err->excerpt - 1,
             location->excerpt);
    return -1;
}

/* First byte of the token that jansson stopped behind, where its message quotes it. */
static size_t syntax_error_offset(const struct json_input *input, const json_error_t *error)
{
    size_t end = error->position > 0 ? (size_t)error->position : 0;
    const char *quoted = strstr(error->text, " near '");
    const char *closing = strrchr(error->text, '\'');

    if (end > input->size)
        end = input->size;
    if (quoted && closing >= quoted + 7) {
        size_t length = (size_t)(closing - quoted) - 7;

        if (length > 0 && length <= end &&
            memcmp(input->text + end - length, quoted + 7, length) == 0)
            return end - length;
    }
    if (strstr(error->text, "end of file"))
        return input->size;
    return end > 0 ? end - 1 : 0;
}

static int refuse_syntax(const struct json_input *input, const json_error_t *error,
                         struct error *err)
{
    struct json_location location;
    char text[sizeof error->text + 16], *end_of_file;

    if (json_error_code(error) == json_error_out_of_memory)
        return error_set(err, ERROR_MEMORY, "no memory for the JSON of %s", input->source);
    snprintf(text, sizeof text, "not JSON: %s", error->text);
    for (char *c = text; *c != '\0'; c++)
        if (iscntrl((unsigned char)*c))
            *c = '?';
    end_of_file = strstr(text, "end of file");
    if (end_of_file) /* the text may be one line of a file */
        memcpy(end_of_file + 7, "text", 4);
    json_locate_offset(input->text, input->size, syntax_error_offset(input, error), &location);
    return set_located(err, input, &location, text);
}

/* Owns `text` from here on. */
static struct json_input *take_text(char *text, size_t size, const char *source, int first_line,
                                    struct error *err)
{
    struct json_input *input = calloc(1, sizeof *input);
    json_error_t error;

    if (!input) {
        free(text);
        error_set(err, ERROR_MEMORY, "no memory to read %s", source);
        return NULL;
    }
    input->text = text;
    input->size = size;
    input->first_line = first_line;
    snprintf(input->source, sizeof input->source, "%s", source);
    input->root = json_loadb(text, size, JSON_REJECT_DUPLICATES, &error);
    if (!input->root) {
        refuse_syntax(input, &error, err);
        json_input_free(input);
        return NULL;
    }
    return input;
}

struct json_input *json_input_load_file(const char *path, struct error *err)
{
    char *text;
    size_t size;

    if (json_input_read_file(path, &text, &size, err) != 0)
        return NULL;
    return take_text(text, size, path, 1, err);
}

struct json_input *json_input_load_lines(const char *text, size_t size, const char *source,
                                         int first_line, struct error *err)
{
    char *copy = size < FILE_LIMIT_BYTES ? malloc(size + 1) : NULL;

    if (!copy) {
        error_set_at(err, ERROR_MEMORY, source, 0, 0, "no memory for %zu bytes", size);
        return NULL;
    }
    if (size > 0)
        memcpy(copy, text, size);
    copy[size] = '\0';
    return take_text(copy, size, source, first_line, err);
}

struct json_input *json_input_load_text(const char *text, size_t size, const char *source,
                                        struct error *err)
{
    return json_input_load_lines(text, size, source, 1, err);
}

void json_input_free(struct json_input *input)
{
    if (!input)
        return;
    json_decref(input->root);
    free(input->text);
    free(input);
}

/* --- cursors --- */

struct json_cursor json_input_root(const struct json_input *input)
{
    return (struct json_cursor){.input = input, .value = input->root};
}

struct json_cursor json_input_member(const struct json_cursor *parent, const char *key)
{
    struct json_cursor member = *parent;

    member.value = json_object_get(parent->value, key);
    json_locate_append_key(member.path, sizeof member.path, key);
    return member;
}

struct json_cursor json_input_element(const struct json_cursor *parent, size_t index)
{
    struct json_cursor element = *parent;

    element.value = json_array_get(parent->value, index);
    json_locate_append_index(element.path, sizeof element.path, index);
    return element;
}

/* --- refusals --- */

static int refuse(const struct json_cursor *cursor, bool at_key, struct error *err,
                  const char *message)
{
    const struct json_input *input = cursor->input;
    struct json_location location;
    char text[sizeof err->text];
    bool found;

    if (!err || err->code != ERROR_NONE)
        return -1;
    found = at_key ? json_locate_key(input->text, input->size, cursor->path, &location)
                   : json_locate_value(input->text, input->size, cursor->path, &location);
    snprintf(text, sizeof text, "%s%s%s", cursor->path, cursor->path[0] ? ": " : "", message);
    return set_located(err, input, found ? &location : NULL, text);
}

int json_input_refuse(const struct json_cursor *cursor, struct error *err, const char *format, ...)
{
    char message[sizeof err->text];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    return refuse(cursor, false, err, message);
}

/* --- unknown keys --- */

/* The unit that the end of a key names ("bandwidth_gbs"), or NULL. `*stem_length` is
 * what comes before it. */
static const char *key_unit(const char *key, size_t *stem_length)
{
    const char *bar = strrchr(key, '_');

    for (size_t i = 0; bar && i < sizeof units / sizeof units[0]; i++) {
        if (strcmp(bar + 1, units[i].ending) == 0) {
            *stem_length = (size_t)(bar - key);
            return units[i].unit;
        }
    }
    return NULL;
}

/* A known key for the same quantity in another unit, or NULL. */
static const char *same_in_other_unit(const char *key, const char *const keys[], size_t key_count)
{
    const char *bar = strrchr(key, '_');
    size_t length = strlen(key);

    for (size_t i = 0; i < key_count; i++) {
        size_t stem;

        if (key_unit(keys[i], &stem) && strncmp(key, keys[i], stem) == 0 &&
            (stem == length || (bar && stem == (size_t)(bar - key))))
            return keys[i];
    }
    return NULL;
}

int json_input_refuse_unknown_keys(const struct json_cursor *object, const char *const keys[],
                                   size_t key_count, struct error *err)
{
    const char *key, *closest, *unit;
    char message[360], known[320];
    struct json_cursor member;
    size_t stem;
    json_t *value;

    json_object_foreach(object->value, key, value)
    {
        size_t i = 0;

        while (i < key_count && strcmp(key, keys[i]) != 0)
            i++;
        if (i == key_count)
            break;
    }
    if (!key)
        return 0;
    member = json_input_member(object, key);
    closest = same_in_other_unit(key, keys, key_count);
    if (!closest)
        closest = word_list_closest(key, keys, key_count);
    unit = closest ? key_unit(closest, &stem) : NULL;
    if (unit) {
        snprintf(message, sizeof message, "unknown key; did you mean %s, in %s?", closest, unit);
    } else if (closest) {
        snprintf(message, sizeof message, "unknown key; did you mean %s?", closest);
    } else {
        word_list_text(keys, key_count, known, sizeof known);
        snprintf(message, sizeof message, "unknown key; known here: %s",
                 key_count ? known : "none");
    }
    return refuse(&member, true, err, message);
}
