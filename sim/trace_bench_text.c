/* The formats of llama-bench that are no JSON: tables, csv and sql. Each finds the names
 * of the columns, and then the texts of every result. */
#include "sim/trace_bench_private.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum {
    FIELDS_MAX = 160, /* columns of a file */
    GPUS_TEXT_MAX = 1000,
};

/* A line of fields, or the names that stand above them. */
struct fields {
    const char *texts[FIELDS_MAX];
    size_t offsets[FIELDS_MAX];
    size_t count;
    size_t offset; /* of the first */
    int line;
};

struct reader {
    const char *text;
    size_t size, at;
    int line;
    struct trace_draft *draft;
    struct fields names;
};

static struct reader reader_at(const char *text, size_t size, struct trace_bench_start start,
                               struct trace_draft *draft)
{
    return (struct reader){
        .text = text, .size = size, .at = start.offset, .line = start.line, .draft = draft};
}

static void begin(const struct reader *reader, struct fields *fields)
{
    fields->count = 0;
    fields->offset = reader->at;
    fields->line = reader->line;
}

/* Takes `text`, which the arena owns. */
static int add_taken(const struct reader *reader, struct fields *fields, size_t offset,
                     const char *text, struct error *err)
{
    if (text == NULL)
        return -1;
    if (fields->count == FIELDS_MAX)
        return trace_bench_refuse(reader->text, reader->size, offset, err,
                                  "more than %d columns; that is no output of llama-bench",
                                  FIELDS_MAX);
    fields->texts[fields->count] = text;
    fields->offsets[fields->count] = offset;
    fields->count++;
    return 0;
}

static int add(const struct reader *reader, struct fields *fields, size_t offset, size_t length,
               struct error *err)
{
    return add_taken(reader, fields, offset,
                     arena_strndup(reader->draft->trace.arena, reader->text + offset, length, err),
                     err);
}

/* The quoted text that begins at `reader->at`; a doubled quote stands for one. Sets
 * `reader->at` behind it. */
static int add_quoted(struct reader *reader, struct fields *fields, struct error *err)
{
    size_t start = reader->at++, used = 0, end;
    char quote = reader->text[start], *copy;

    for (end = start + 1; end < reader->size; end++) {
        if (reader->text[end] != quote)
            continue;
        if (end + 1 == reader->size || reader->text[end + 1] != quote)
            break;
        end++;
    }
    if (end >= reader->size)
        return trace_bench_refuse(reader->text, reader->size, start, err,
                                  "a text without its closing %c", quote);
    copy = arena_alloc(reader->draft->trace.arena, end - start, err);
    if (copy == NULL)
        return -1;
    for (; reader->at < end; reader->at++) {
        reader->line += reader->text[reader->at] == '\n';
        copy[used++] = reader->text[reader->at];
        reader->at += reader->text[reader->at] == quote;
    }
    reader->at = end + 1;
    return add_taken(reader, fields, start, copy, err);
}

/* One result: as many texts as names. */
static int add_row(const struct reader *reader, const struct fields *fields,
                   const struct trace_bench_record *given, struct error *err)
{
    struct trace_bench_record record = *given;

    if (fields->count != reader->names.count)
        return trace_bench_refuse(reader->text, reader->size, fields->offset, err,
                                  "%zu fields; %zu belong here, one for each column", fields->count,
                                  reader->names.count);
    record.text = reader->text;
    record.size = reader->size;
    record.offset = fields->offset;
    record.line = fields->line;
    for (size_t i = 0; i < fields->count; i++) {
        const char *name = reader->names.texts[i];
        int column = trace_bench_find_column(name, strlen(name));

        if (column < 0 || record.names[column] != NULL)
            continue;
        record.names[column] = name;
        record.values[column] = fields->texts[i];
        record.offsets[column] = fields->offsets[i];
    }
    return trace_bench_add_row(&record, reader->draft, err);
}

/* --- lines --- */

/* From `reader->at` to the end of the line, without it. */
static size_t line_length(const struct reader *reader)
{
    size_t left = reader->size - reader->at;
    const char *end = memchr(reader->text + reader->at, '\n', left);
    size_t length = end ? (size_t)(end - (reader->text + reader->at)) : left;

    return length > 0 && reader->text[reader->at + length - 1] == '\r' ? length - 1 : length;
}

static void next_line(struct reader *reader)
{
    const char *end = memchr(reader->text + reader->at, '\n', reader->size - reader->at);

    reader->at = end ? (size_t)(end - reader->text) + 1 : reader->size;
    reader->line++;
}

static size_t skip_blanks(const struct reader *reader, size_t at, size_t end)
{
    while (at < end && (reader->text[at] == ' ' || reader->text[at] == '\t'))
        at++;
    return at;
}

/* --- tables --- */

static bool is_table_line(const struct reader *reader)
{
    size_t end = reader->at + line_length(reader), at = skip_blanks(reader, reader->at, end);

    return at < end && reader->text[at] == '|';
}

/* "| ---: | --- |" */
static bool is_ruler(const struct reader *reader)
{
    size_t length = line_length(reader);

    for (size_t i = 0; i < length; i++)
        if (strchr("|-: \t", reader->text[reader->at + i]) == NULL)
            return false;
    return is_table_line(reader);
}

/* The cells of a line, without the emphasis that people add (**52.07**). */
static int read_cells(const struct reader *reader, struct fields *fields, struct error *err)
{
    size_t end = reader->at + line_length(reader), at = skip_blanks(reader, reader->at, end);

    begin(reader, fields);
    while (end > at && isspace((unsigned char)reader->text[end - 1]))
        end--;
    while (++at <= end) {
        const char *bar = memchr(reader->text + at, '|', end - at);
        size_t stop = bar ? (size_t)(bar - reader->text) : end, behind = stop;

        if (!bar && skip_blanks(reader, at, end) == end) /* behind the last bar */
            break;
        while (at < stop && strchr(" \t*`", reader->text[at]) != NULL)
            at++;
        while (stop > at && strchr(" \t*`", reader->text[stop - 1]) != NULL)
            stop--;
        if (add(reader, fields, at, stop - at, err) != 0)
            return -1;
        at = behind;
    }
    return 0;
}

/* The text behind the first `key` of the line, or NULL; `*length` is what is left of it. */
static const char *behind(const struct reader *reader, const char *key, size_t *length)
{
    size_t all = line_length(reader), key_length = strlen(key);
    const char *line = reader->text + reader->at;

    for (size_t i = 0; i + key_length <= all; i++) {
        if (memcmp(line + i, key, key_length) == 0) {
            *length = all - i - key_length;
            return line + i + key_length;
        }
    }
    return NULL;
}

/* What the engine logs before a table: "  Device 0: NVIDIA GeForce RTX 4070, compute
 * capability 8.9, VMM: yes". Device 0 begins a new list. */
static void read_log_line(const struct reader *reader, char gpus[GPUS_TEXT_MAX])
{
    size_t length, used, digits = 0, name_length;
    const char *device = behind(reader, "Device ", &length);

    while (device != NULL && digits < length && isdigit((unsigned char)device[digits]))
        digits++;
    if (digits == 0 || length < digits + 2 || device[digits] != ':' || device[digits + 1] != ' ')
        return;
    if (digits == 1 && device[0] == '0')
        gpus[0] = '\0';
    device += digits + 2;
    length -= digits + 2;
    for (name_length = 0; name_length < length && device[name_length] != ','; name_length++)
        if (device[name_length] == '\0')
            return;
    used = strlen(gpus);
    if (used + name_length + 3 < GPUS_TEXT_MAX)
        snprintf(gpus + used, GPUS_TEXT_MAX - used, "%s%.*s", used > 0 ? ", " : "",
                 (int)name_length, device);
}

/* A line of names: the ruler is below it. */
static bool is_head(struct reader reader)
{
    if (!is_table_line(&reader) || is_ruler(&reader))
        return false;
    next_line(&reader);
    return reader.at < reader.size && is_ruler(&reader);
}

/* "build: 8cf6b42d (6730)" stands behind the table; looked for up to the next one. */
static int find_build(struct reader reader, const char **build, struct error *err)
{
    size_t length;

    *build = NULL;
    for (next_line(&reader); reader.at < reader.size && !is_head(reader); next_line(&reader)) {
        const char *found = is_table_line(&reader) ? NULL : behind(&reader, "build: ", &length);

        if (found == NULL)
            continue;
        if (length > 0 && found[length - 1] == ')') {
            while (length > 0 && found[length - 1] != '(')
                length--;
            length -= length > 0;
        }
        while (length > 0 && isspace((unsigned char)found[length - 1]))
            length--;
        *build = arena_strndup(reader.draft->trace.arena, found, length, err);
        return *build ? 0 : -1;
    }
    return 0;
}

/* The head of a table, with what the lines around it say about all its results. */
static int read_head(struct reader *reader, const char *gpus, struct trace_bench_record *shared,
                     struct error *err)
{
    struct fields *names = &reader->names;
    bool has_model = false, has_speed = false;

    *shared = (struct trace_bench_record){.line = 0};
    if (read_cells(reader, names, err) != 0 ||
        find_build(*reader, &shared->values[TRACE_BENCH_BUILD_COMMIT], err) != 0)
        return -1;
    for (size_t i = 0; i < names->count; i++) {
        int column = trace_bench_find_column(names->texts[i], strlen(names->texts[i]));

        has_model |= column == TRACE_BENCH_MODEL_TYPE;
        has_speed |= column == TRACE_BENCH_SPEED;
    }
    if (!has_model || !has_speed)
        return trace_bench_refuse(reader->text, reader->size, names->offset, err,
                                  "no column \"%s\"; a table of llama-bench begins with a line "
                                  "such as | model | ... | test | t/s |",
                                  has_model ? "t/s" : "model");
    if (gpus[0] != '\0') {
        shared->values[TRACE_BENCH_GPU_INFO] = arena_strdup(reader->draft->trace.arena, gpus, err);
        if (shared->values[TRACE_BENCH_GPU_INFO] == NULL)
            return -1;
    }
    return 0;
}

int trace_bench_read_markdown(const char *text, size_t size, struct trace_bench_start start,
                              struct trace_draft *draft, struct error *err)
{
    struct reader reader = reader_at(text, size, (struct trace_bench_start){.line = 1}, draft);
    struct trace_bench_record shared = {.line = 0};
    char gpus[GPUS_TEXT_MAX] = "";

    (void)start; /* what the engine logs before the table counts, too */
    for (; reader.at < reader.size; next_line(&reader)) {
        struct fields cells;

        if (!is_table_line(&reader)) { /* also between the lines of a table, with --progress */
            read_log_line(&reader, gpus);
        } else if (reader.names.count == 0 || is_head(reader)) {
            if (read_head(&reader, gpus, &shared, err) != 0)
                return -1;
        } else if (!is_ruler(&reader)) {
            if (read_cells(&reader, &cells, err) != 0 ||
                add_row(&reader, &cells, &shared, err) != 0)
                return -1;
        }
    }
    return 0;
}

/* --- csv --- */

/* One line of fields; a quoted one may hold the end of a line. */
static int read_csv_line(struct reader *reader, struct fields *fields, struct error *err)
{
    begin(reader, fields);
    for (;;) {
        size_t end = reader->at + line_length(reader), stop = reader->at;

        if (reader->at < end && reader->text[reader->at] == '"') {
            if (add_quoted(reader, fields, err) != 0)
                return -1;
            end = reader->at + line_length(reader);
            if (reader->at < end && reader->text[reader->at] != ',')
                return trace_bench_refuse(reader->text, reader->size, reader->at, err,
                                          "a comma or the end of the line belongs here");
        } else {
            while (stop < end && reader->text[stop] != ',')
                stop++;
            if (add(reader, fields, reader->at, stop - reader->at, err) != 0)
                return -1;
            reader->at = stop;
        }
        if (reader->at >= end)
            break;
        reader->at++;
    }
    next_line(reader);
    return 0;
}

int trace_bench_read_csv(const char *text, size_t size, struct trace_bench_start start,
                         struct trace_draft *draft, struct error *err)
{
    struct reader reader = reader_at(text, size, start, draft);
    static const struct trace_bench_record nothing;

    while (reader.at < reader.size) {
        struct fields fields;

        if (line_length(&reader) == 0) {
            next_line(&reader);
            continue;
        }
        if (read_csv_line(&reader, &fields, err) != 0)
            return -1;
        /* files that were joined have more than one line of names */
        if (reader.names.count == 0 || strcmp(fields.texts[0], reader.names.texts[0]) == 0)
            reader.names = fields;
        else if (add_row(&reader, &fields, &nothing, err) != 0)
            return -1;
    }
    return 0;
}

/* --- sql --- */

static void skip_space(struct reader *reader)
{
    while (reader->at < reader->size) {
        if (reader->size - reader->at >= 2 && memcmp(reader->text + reader->at, "--", 2) == 0)
            reader->at += line_length(reader);
        else if (isspace((unsigned char)reader->text[reader->at]))
            reader->line += reader->text[reader->at++] == '\n';
        else
            break;
    }
}

/* Moves past a word that is next, case ignored. */
static bool take(struct reader *reader, const char *word)
{
    size_t length = strlen(word);

    skip_space(reader);
    if (reader->size - reader->at < length ||
        strncasecmp(reader->text + reader->at, word, length) != 0)
        return false;
    reader->at += length;
    return true;
}

static bool is_quote(char c)
{
    return c == '\'' || c == '"' || c == '`';
}

static int expect(struct reader *reader, const char *word, struct error *err)
{
    if (take(reader, word))
        return 0;
    return trace_bench_refuse(reader->text, reader->size, reader->at, err, "%s belongs here", word);
}

/* A name, a number or a quoted text. */
static int read_sql_word(struct reader *reader, struct fields *fields, struct error *err)
{
    size_t start;

    skip_space(reader);
    start = reader->at;
    if (start < reader->size && is_quote(reader->text[start]))
        return add_quoted(reader, fields, err);
    while (reader->at < reader->size &&
           (isalnum((unsigned char)reader->text[reader->at]) ||
            strchr("_.+-", reader->text[reader->at]) != NULL) &&
           reader->text[reader->at] != '\0')
        reader->at++;
    if (reader->at == start)
        return trace_bench_refuse(reader->text, reader->size, start, err,
                                  "a name or a value belongs here");
    return add(reader, fields, start, reader->at - start, err);
}

/* Moves to one of `ends`, or to the end of the text; quoted texts are stepped over. */
static int skip_to(struct reader *reader, const char *ends, struct error *err)
{
    struct fields ignored = {.count = 0};

    while (reader->at < reader->size) {
        char c = reader->text[reader->at];

        if (is_quote(c)) {
            ignored.count = 0;
            if (add_quoted(reader, &ignored, err) != 0)
                return -1;
            continue;
        }
        if (c != '\0' && strchr(ends, c) != NULL)
            return 0;
        reader->line += c == '\n';
        reader->at++;
    }
    return 0;
}

/* "(a, b, c)", or "(a TEXT, b INTEGER)" with `typed`. */
static int read_list(struct reader *reader, bool typed, struct fields *fields, struct error *err)
{
    skip_space(reader);
    begin(reader, fields);
    if (expect(reader, "(", err) != 0)
        return -1;
    do {
        if (read_sql_word(reader, fields, err) != 0 || (typed && skip_to(reader, ",)", err) != 0))
            return -1;
    } while (take(reader, ","));
    return expect(reader, ")", err);
}

/* INSERT INTO llama_bench (names) VALUES (texts), (texts); */
static int read_insert(struct reader *reader, struct error *err)
{
    static const struct trace_bench_record nothing;
    struct fields fields = {.count = 0};

    if (read_sql_word(reader, &fields, err) != 0) /* the table */
        return -1;
    skip_space(reader);
    if (reader->at < reader->size && reader->text[reader->at] == '(' &&
        read_list(reader, false, &reader->names, err) != 0)
        return -1;
    if (expect(reader, "VALUES", err) != 0)
        return -1;
    do {
        if (read_list(reader, false, &fields, err) != 0 ||
            add_row(reader, &fields, &nothing, err) != 0)
            return -1;
    } while (take(reader, ","));
    return expect(reader, ";", err);
}

/* CREATE TABLE IF NOT EXISTS llama_bench (name TYPE, ...); */
static int read_create(struct reader *reader, struct error *err)
{
    struct fields table = {.count = 0};

    if (take(reader, "IF NOT EXISTS "))
        skip_space(reader);
    if (read_sql_word(reader, &table, err) != 0 ||
        read_list(reader, true, &reader->names, err) != 0)
        return -1;
    return expect(reader, ";", err);
}

int trace_bench_read_sql(const char *text, size_t size, struct trace_bench_start start,
                         struct trace_draft *draft, struct error *err)
{
    struct reader reader = reader_at(text, size, start, draft);

    for (skip_space(&reader); reader.at < size; skip_space(&reader)) {
        int result;

        if (take(&reader, "CREATE TABLE ")) {
            result = read_create(&reader, err);
        } else if (take(&reader, "INSERT INTO ")) {
            result = read_insert(&reader, err);
        } else { /* BEGIN, COMMIT, PRAGMA: what a dump of a database has around them */
            result = skip_to(&reader, ";", err);
            reader.at += reader.at < size;
        }
        if (result != 0)
            return -1;
    }
    return 0;
}
