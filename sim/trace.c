/* Rows of measurements: lines, their header, and files. What a row holds is read in
 * trace_row.c; output of llama-bench in trace_bench.c. */
#include "sim/trace.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "sim/json_input.h"
#include "sim/trace_bench.h"
#include "sim/trace_private.h"

/* --- lines --- */

static bool is_blank(const char *line, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (line[i] != ' ' && line[i] != '\t' && line[i] != '\r')
            return false;
    return true;
}

struct trace_row *trace_draft_add(struct trace_draft *draft, struct error *err)
{
    struct trace *trace = &draft->trace;

    if (trace->count == draft->capacity) {
        size_t wanted = draft->capacity ? draft->capacity * 2 : 64;
        struct trace_row *grown = realloc(trace->rows, wanted * sizeof *grown);

        if (!grown) {
            error_set(err, ERROR_MEMORY, "no memory for %zu rows", wanted);
            return NULL;
        }
        trace->rows = grown;
        draft->capacity = wanted;
    }
    return &trace->rows[trace->count++];
}

static int copy_text(const struct json_cursor *root, const char *key, const char *noun,
                     struct arena *arena, const char **copy, struct error *err)
{
    const char *text = "";

    if (json_input_find_string(root, key, noun, &text, err) < 0)
        return -1;
    *copy = arena_strdup(arena, text, err);
    return *copy ? 0 : -1;
}

/* A header with `table` is about the rows of that table. */
static int read_table(const struct json_cursor *root, struct trace *trace, struct error *err)
{
    struct json_cursor at = json_input_member(root, "table");
    struct trace_table *grown, *table;

    if (!at.value || json_is_null(at.value))
        return 0;
    grown = realloc(trace->tables, (trace->table_count + 1) * sizeof *grown);
    if (!grown)
        return error_set(err, ERROR_MEMORY, "no memory for %zu tables", trace->table_count + 1);
    trace->tables = grown;
    table = &grown[trace->table_count];
    if (copy_text(root, "table", "the id of a table", trace->arena, &table->id, err) != 0 ||
        copy_text(root, "title", "a title", trace->arena, &table->title, err) != 0 ||
        copy_text(root, "mechanism", "a text", trace->arena, &table->mechanism, err) != 0 ||
        copy_text(root, "contradiction", "a text", trace->arena, &table->contradiction, err) != 0 ||
        copy_text(root, "gap", "a text", trace->arena, &table->gap, err) != 0)
        return -1;
    if (trace_find_table(trace, table->id))
        return json_input_refuse(&at, err, "a header before this one is about %s", table->id);
    trace->table_count++;
    return 0;
}

/* A header tells the version, and what the rows are about. */
static int read_header(const struct json_cursor *root, struct trace *trace, struct error *err)
{
    static const struct json_integer_rule any = {.min = INT64_MIN, .max = INT64_MAX};
    struct json_cursor version_at = json_input_member(root, "lopside_trace");
    const char *about = "";
    int64_t version;

    if (json_input_integer(root, "lopside_trace", &any, &version, err) != 0)
        return -1;
    if (version != TRACE_VERSION)
        return json_input_refuse(&version_at, err, "version %lld cannot be read; version %d can",
                                 (long long)version, TRACE_VERSION);
    if (json_input_find_string(root, "about", "a description", &about, err) < 0)
        return -1;
    if (trace->about[0] == '\0')
        trace->about = arena_strdup(trace->arena, about, err);
    return trace->about ? read_table(root, trace, err) : -1;
}

static int read_line(const char *line, size_t length, int line_number, struct trace_draft *draft,
                     struct error *err)
{
    struct trace *trace = &draft->trace;
    struct json_input *input = json_input_load_lines(line, length, trace->source, line_number, err);
    struct json_cursor root;
    struct trace_row *row;
    int result = -1;

    if (!input)
        return -1;
    root = json_input_root(input);
    if (json_object_get(root.value, "lopside_trace")) {
        result = read_header(&root, trace, err);
    } else if (trace_bench_is_result(&root)) {
        result = trace_bench_read_object(&root, line_number, draft, err);
    } else if ((row = trace_draft_add(draft, err)) != NULL) {
        result = trace_row_read(&root, trace->arena, row, err);
        row->line = line_number;
    }
    json_input_free(input);
    return result;
}

static int read_lines(const char *text, size_t size, struct trace_bench_start start,
                      struct trace_draft *draft, struct error *err)
{
    int line_number = start.line;

    for (size_t at = start.offset; at < size; line_number++) {
        const char *line = text + at, *end = memchr(line, '\n', size - at);
        size_t length = end ? (size_t)(end - line) : size - at;

        if (!is_blank(line, length) && read_line(line, length, line_number, draft, err) != 0)
            return -1;
        at += length + 1;
    }
    return 0;
}

int trace_parse(const char *text, size_t size, const char *source, struct trace *trace,
                struct error *err)
{
    struct trace_bench_start start = trace_bench_recognise(text, size);
    struct trace_draft draft = {.trace.about = ""};
    int result;

    snprintf(draft.trace.source, sizeof draft.trace.source, "%s", source);
    draft.trace.arena = arena_new(err);
    if (!draft.trace.arena)
        return -1;
    if (start.format == TRACE_BENCH_NONE || start.format == TRACE_BENCH_JSONL)
        result = read_lines(text, size, start, &draft, err);
    else
        result = trace_bench_read(text, size, start, &draft, err);
    if (result != 0) {
        error_name_source(err, source);
        trace_close(&draft.trace);
        return -1;
    }
    *trace = draft.trace;
    return 0;
}

int trace_load_file(const char *path, struct trace *trace, struct error *err)
{
    size_t size;
    char *text;
    int result;

    if (json_input_read_file(path, &text, &size, err) != 0)
        return -1;
    result = trace_parse(text, size, path, trace, err);
    free(text);
    return result;
}

void trace_close(struct trace *trace)
{
    free(trace->rows);
    free(trace->tables);
    arena_free(trace->arena);
    *trace = (struct trace){.about = ""};
}

const struct trace_table *trace_find_table(const struct trace *trace, const char *id)
{
    for (size_t i = 0; i < trace->table_count; i++)
        if (strcmp(trace->tables[i].id, id) == 0)
            return &trace->tables[i];
    return NULL;
}

const struct trace_row *trace_find_row(const struct trace *trace, const char *id)
{
    for (size_t i = 0; i < trace->count; i++)
        if (strcmp(trace->rows[i].id, id) == 0)
            return &trace->rows[i];
    return NULL;
}

/* --- files --- */

static bool is_trace_name(const char *name)
{
    static const char ending[] = ".jsonl";
    size_t length = strlen(name), ending_length = sizeof ending - 1;

    return name[0] != '.' && length > ending_length &&
           strcmp(name + length - ending_length, ending) == 0;
}

/* Adds `folder`/`name`, or `folder` alone where `name` is NULL. */
static int add_file(struct trace_files *files, const char *folder, const char *name,
                    struct error *err)
{
    char **grown = realloc(files->paths, (files->count + 1) * sizeof *grown);
    size_t length = strlen(folder), size = length + (name ? strlen(name) : 0) + 2;
    const char *joint = !name || (length > 0 && folder[length - 1] == '/') ? "" : "/";
    char *path;

    if (!grown)
        return error_set(err, ERROR_MEMORY, "no memory for %zu file names", files->count + 1);
    files->paths = grown;
    path = malloc(size);
    if (!path)
        return error_set(err, ERROR_MEMORY, "no memory for a file name");
    snprintf(path, size, "%s%s%s", folder, joint, name ? name : "");
    files->paths[files->count++] = path;
    return 0;
}

static int compare_paths(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int list_directory(const char *path, struct trace_files *files, struct error *err)
{
    DIR *directory = opendir(path);
    const struct dirent *entry;
    int result = 0;

    if (!directory)
        return error_set_at(err, ERROR_IO, path, 0, 0, "cannot be opened: %s", strerror(errno));
    while (result == 0 && (entry = readdir(directory)) != NULL)
        if (is_trace_name(entry->d_name))
            result = add_file(files, path, entry->d_name, err);
    closedir(directory);
    if (result != 0)
        return -1;
    if (files->count == 0)
        return error_set_at(err, ERROR_IO, path, 0, 0, "holds no trace; a trace ends in .jsonl");
    qsort(files->paths, files->count, sizeof *files->paths, compare_paths);
    return 0;
}

int trace_find_files(const char *path, struct trace_files *files, struct error *err)
{
    struct trace_files found = {0};
    struct stat status;
    int result;

    if (stat(path, &status) != 0)
        return error_set_at(err, ERROR_IO, path, 0, 0, "cannot be opened: %s", strerror(errno));
    result = S_ISDIR(status.st_mode) ? list_directory(path, &found, err)
                                     : add_file(&found, path, NULL, err);
    if (result != 0) {
        trace_files_close(&found);
        return -1;
    }
    *files = found;
    return 0;
}

void trace_files_close(struct trace_files *files)
{
    for (size_t i = 0; i < files->count; i++)
        free(files->paths[i]);
    free(files->paths);
    *files = (struct trace_files){0};
}
