/* Which format a text is in, and the two that are JSON. The others are in
 * trace_bench_text.c; what a result means is in trace_bench_row.c. */
#include "sim/trace_bench.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "sim/json_locate.h"
#include "sim/trace_bench_private.h"

int trace_bench_refuse(const char *text, size_t size, size_t offset, struct error *err,
                       const char *format, ...)
{
    struct json_location location;
    char message[sizeof err->text];
    va_list arguments;

    if (err == NULL || err->code != ERROR_NONE)
        return -1;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    json_locate_offset(text, size, offset, &location);
    error_set_at(err, ERROR_INPUT, "", location.line, location.column, "%s", message);
    snprintf(err->excerpt, sizeof err->excerpt, "%s", location.excerpt);
    return -1;
}

/* --- recognising --- */

static bool starts_with(const char *text, size_t size, const char *start)
{
    size_t length = strlen(start);

    return size >= length && strncasecmp(text, start, length) == 0;
}

static bool contains(const char *text, size_t size, const char *part)
{
    size_t length = strlen(part);
    const char *at = text, *end = text + size;

    while ((size_t)(end - at) >= length &&
           (at = memchr(at, part[0], (size_t)(end - at) - length + 1)) != NULL) {
        if (memcmp(at, part, length) == 0)
            return true;
        at++;
    }
    return false;
}

/* Members that llama-bench always prints; a row of our own has a metric instead. */
static bool has_mark(const char *text, size_t size)
{
    return (contains(text, size, "\"avg_ts\"") || contains(text, size, "\"build_commit\"")) &&
           !contains(text, size, "\"metric\"");
}

/* An array of objects; a line of a log may begin with a bracket, too. */
static bool is_array(const char *text, size_t size)
{
    size_t at = 1;

    while (at < size && strchr(" \t\r\n", text[at]) != NULL && text[at] != '\0')
        at++;
    return at < size && text[at] == '{' && has_mark(text, size);
}

/* `length` is that of the line, `size` that of the rest of the text. */
static enum trace_bench_format format_of(const char *line, size_t length, size_t size)
{
    if (line[0] == '|')
        return TRACE_BENCH_MARKDOWN;
    if (line[0] == '{' && has_mark(line, length))
        return TRACE_BENCH_JSONL;
    if (line[0] == '[' && is_array(line, size))
        return TRACE_BENCH_JSON;
    if (starts_with(line, length, "CREATE TABLE ") || starts_with(line, length, "INSERT INTO "))
        return TRACE_BENCH_SQL;
    if (line[0] != '{' && contains(line, length, "avg_ts") && contains(line, length, ","))
        return TRACE_BENCH_CSV;
    return TRACE_BENCH_NONE;
}

struct trace_bench_start trace_bench_recognise(const char *text, size_t size)
{
    static const char byte_order_mark[] = "\xef\xbb\xbf";
    struct trace_bench_start start = {.line = 1};

    if (starts_with(text, size, byte_order_mark))
        start.offset = sizeof byte_order_mark - 1;
    for (; start.offset < size; start.line++) {
        const char *line = text + start.offset, *end = memchr(line, '\n', size - start.offset);
        size_t length = end ? (size_t)(end - line) : size - start.offset;
        size_t blank = 0;

        while (blank < length && (line[blank] == ' ' || line[blank] == '\t'))
            blank++;
        if (blank < length) {
            start.format = format_of(line + blank, length - blank, size - start.offset - blank);
            if (start.format != TRACE_BENCH_NONE)
                return start;
            if (line[blank] == '{') /* a row of our own, or meant to be one */
                break;
        }
        start.offset += length + 1;
    }
    return (struct trace_bench_start){.line = 1};
}

/* --- JSON --- */

bool trace_bench_is_result(const struct json_cursor *object)
{
    return (json_object_get(object->value, "avg_ts") != NULL ||
            json_object_get(object->value, "build_commit") != NULL) &&
           json_object_get(object->value, "metric") == NULL;
}

/* The text of a value; NULL with `err` set. `text` is "" for null, which says nothing. */
static int value_text(const struct json_cursor *cursor, struct arena *arena, const char **text,
                      struct error *err)
{
    const json_t *value = cursor->value;
    char number[64] = "";

    if (json_is_string(value))
        *text = arena_strdup(arena, json_string_value(value), err);
    else if (json_is_array(value) || json_is_object(value))
        return json_input_refuse(cursor, err, "neither a text nor a number");
    else if (json_is_boolean(value))
        *text = json_is_true(value) ? "true" : "false";
    else if (json_is_integer(value))
        snprintf(number, sizeof number, "%lld", (long long)json_integer_value(value));
    else if (json_is_real(value))
        snprintf(number, sizeof number, "%.17g", json_real_value(value));
    if (number[0] != '\0')
        *text = arena_strdup(arena, number, err);
    return *text ? 0 : -1;
}

int trace_bench_read_object(const struct json_cursor *object, int line, struct trace_draft *draft,
                            struct error *err)
{
    struct trace_bench_record record = {.object = object, .line = line};
    const char *key;
    json_t *value;

    if (json_input_as_object(object, err) != 0)
        return -1;
    json_object_foreach(object->value, key, value)
    {
        int column = trace_bench_find_column(key, strlen(key));
        struct json_cursor member;
        const char *text = "";

        if (strcmp(key, "samples_ts") == 0)
            record.reps = (int64_t)json_array_size(value);
        if (column < 0 || record.values[column] != NULL || json_is_null(value))
            continue;
        member = json_input_member(object, key);
        if (value_text(&member, draft->trace.arena, &text, err) != 0)
            return -1;
        record.names[column] = key;
        record.values[column] = text;
    }
    return trace_bench_add_row(&record, draft, err);
}

/* Steps over valid JSON to the next object of the array, and counts lines. */
struct walk {
    const char *text;
    size_t size, at;
    int line, depth;
};

static void walk_to_next_object(struct walk *walk)
{
    bool in_string = false;

    while (walk->at < walk->size) {
        char c = walk->text[walk->at++];

        if (c == '\n')
            walk->line++;
        if (in_string) {
            walk->at += c == '\\';
            in_string = c != '"';
        } else if (c == '"') {
            in_string = true;
        } else if (c == '{' || c == '[') {
            if (walk->depth++ == 1 && c == '{')
                return;
        } else if (c == '}' || c == ']') {
            walk->depth--;
        }
    }
}

static int read_json(const char *text, size_t size, struct trace_bench_start start,
                     struct trace_draft *draft, struct error *err)
{
    struct walk walk = {.text = text, .size = size, .at = start.offset, .line = start.line};
    struct json_input *input = json_input_load_lines(text + start.offset, size - start.offset,
                                                     draft->trace.source, start.line, err);
    struct json_cursor root;
    int result = 0;

    if (input == NULL)
        return -1;
    root = json_input_root(input);
    for (size_t i = 0; i < json_array_size(root.value) && result == 0; i++) {
        struct json_cursor object = json_input_element(&root, i);

        walk_to_next_object(&walk);
        result = trace_bench_read_object(&object, walk.line, draft, err);
    }
    json_input_free(input);
    return result;
}

int trace_bench_read(const char *text, size_t size, struct trace_bench_start start,
                     struct trace_draft *draft, struct error *err)
{
    switch (start.format) {
    case TRACE_BENCH_MARKDOWN:
        return trace_bench_read_markdown(text, size, start, draft, err);
    case TRACE_BENCH_CSV:
        return trace_bench_read_csv(text, size, start, draft, err);
    case TRACE_BENCH_SQL:
        return trace_bench_read_sql(text, size, start, draft, err);
    case TRACE_BENCH_JSON:
        return read_json(text, size, start, draft, err);
    case TRACE_BENCH_NONE:
    case TRACE_BENCH_JSONL:
        break;
    }
    return error_set(err, ERROR_USAGE, "not a format that is read whole");
}
