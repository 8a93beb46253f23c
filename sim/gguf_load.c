/* GGUF headers from files. A file is mapped, so that only the pages of its
 * header are read; the parts of a split file are read one after the other and
 * become one list of tensors. */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sim/gguf_private.h"

#define SUFFIX_LENGTH (sizeof "-00001-of-00002.gguf" - 1)
#define PARTS_LIMIT 65535 /* split.count is a uint16 */

/* ---- one file ---- */

static struct gguf *parse_open_file(int file, const char *path, struct error *err)
{
    struct stat status;
    struct gguf *gguf;
    void *data = NULL;
    size_t size;

    if (fstat(file, &status)) {
        error_set_at(err, ERROR_IO, path, 0, 0, "cannot be read: %s", strerror(errno));
        return NULL;
    }
    if (!S_ISREG(status.st_mode) || (uintmax_t)status.st_size > SIZE_MAX) {
        error_set_at(err, ERROR_IO, path, 0, 0, "is not a regular file that can be mapped");
        return NULL;
    }
    size = (size_t)status.st_size;
    if (size != 0) {
        data = mmap(NULL, size, PROT_READ, MAP_PRIVATE, file, 0);
        if (data == MAP_FAILED) {
            error_set_at(err, ERROR_IO, path, 0, 0, "cannot be mapped: %s", strerror(errno));
            return NULL;
        }
    }
    gguf = gguf_parse(data, size, path, err);
    if (size != 0)
        munmap(data, size);
    return gguf;
}

static struct gguf *load_file(const char *path, struct error *err)
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    struct gguf *gguf;

    if (file < 0) {
        error_set_at(err, ERROR_IO, path, 0, 0, "cannot be opened: %s", strerror(errno));
        return NULL;
    }
    gguf = parse_open_file(file, path, err);
    close(file);
    return gguf;
}

/* ---- split files ---- */

/* Fails naming a key of the file that `gguf` was read from. */
static int fail_at_key(const struct gguf *gguf, const char *name, const char *text,
                       struct error *err)
{
    const struct gguf_key *key = gguf_find_key(gguf, name);

    return error_set_at(err, ERROR_INPUT, gguf_part_path(gguf, 0), 0, 0,
                        "offset %zu: key \"%s\": %s", key ? key->offset : (size_t)8, name, text);
}

/* Sets `*count` to the number of files, 1 without a split. */
static int read_split_count(const struct gguf *gguf, uint64_t *count, struct error *err)
{
    *count = 1;
    if (!gguf_find_key(gguf, "split.count"))
        return 0;
    if (!gguf_get_u64(gguf, "split.count", count) || *count > PARTS_LIMIT)
        return fail_at_key(gguf, "split.count", "is not a count of files up to 65535", err);
    if (*count == 0)
        *count = 1;
    return 0;
}

/* Checks what a part says about itself. */
static int check_split(const struct gguf *gguf, uint64_t part, uint64_t count, struct error *err)
{
    uint64_t said;
    char text[80];

    if (!gguf_get_u64(gguf, "split.count", &said) || said != count) {
        snprintf(text, sizeof text, "is not %" PRIu64 ", as in the other parts", count);
        return fail_at_key(gguf, "split.count", text, err);
    }
    if (!gguf_get_u64(gguf, "split.no", &said) || said != part) {
        snprintf(text, sizeof text, "is not %" PRIu64 ", as the file's name says", part);
        return fail_at_key(gguf, "split.no", text, err);
    }
    return 0;
}

static uint64_t five_digits(const char *text)
{
    uint64_t number = 0;

    for (int i = 0; i < 5; i++) {
        if (!isdigit((unsigned char)text[i]))
            return UINT64_MAX;
        number = number * 10 + (uint64_t)(text[i] - '0');
    }
    return number;
}

/* Whether a name ends in "-00001-of-0000N.gguf", for `count` parts. */
static bool is_part_name(const char *path, uint64_t count)
{
    size_t length = strlen(path);
    const char *suffix = path + length - SUFFIX_LENGTH;

    return length >= SUFFIX_LENGTH && suffix[0] == '-' && five_digits(suffix + 1) <= count &&
           five_digits(suffix + 1) >= 1 && strncmp(suffix + 6, "-of-", 4) == 0 &&
           five_digits(suffix + 10) == count && strcmp(suffix + 15, ".gguf") == 0;
}

/* Writes the name of `part`, counted from 0, over that of a sibling. */
static void rename_part(char *path, uint64_t part)
{
    char number[24];

    snprintf(number, sizeof number, "%05" PRIu64, part + 1);
    memcpy(path + strlen(path) - SUFFIX_LENGTH + 1, number, 5);
}

static int add_part(struct gguf *gguf, const struct gguf *other, struct error *err)
{
    struct gguf_part *parts =
        realloc(gguf->parts, (gguf->part_count + (size_t)1) * sizeof *gguf->parts);
    const char *path;

    if (!parts)
        return error_set(err, ERROR_MEMORY, "no memory for the parts of a split file");
    gguf->parts = parts;
    path = arena_strdup(gguf->arena, gguf_part_path(other, 0), err);
    if (!path)
        return -1;
    parts[gguf->part_count++] =
        (struct gguf_part){.path = path, .data_offset = other->parts[0].data_offset};
    for (size_t i = 0; i < other->tensor_count; i++) {
        struct gguf_tensor tensor = other->tensors[i];

        tensor.part = gguf->part_count - 1;
        tensor.name = arena_strdup(gguf->arena, tensor.name, err);
        if (!tensor.name || gguf_grow((void **)&gguf->tensors, gguf->tensor_count,
                                      &gguf->tensor_capacity, sizeof tensor, err))
            return -1;
        gguf->tensors[gguf->tensor_count++] = tensor;
    }
    return 0;
}

static int load_part(struct gguf *gguf, const char *path, uint64_t part, uint64_t count,
                     struct error *err)
{
    struct gguf *other;
    int result;

    if (access(path, F_OK))
        return error_set_at(err, ERROR_IO, path, 0, 0,
                            "part %" PRIu64 " of %" PRIu64 " of a split model is missing", part + 1,
                            count);
    other = load_file(path, err);
    if (!other)
        return -1;
    result = check_split(other, part, count, err);
    if (!result)
        result = add_part(gguf, other, err);
    gguf_free(other);
    return result;
}

/* `split.tensors.count` of the first part counts the tensors of all. */
static int check_tensor_total(const struct gguf *gguf, struct error *err)
{
    uint64_t said;
    char text[80];

    if (!gguf_get_u64(gguf, "split.tensors.count", &said) || said == gguf->tensor_count)
        return 0;
    snprintf(text, sizeof text, "is %" PRIu64 ", but the parts hold %zu tensors", said,
             gguf->tensor_count);
    return fail_at_key(gguf, "split.tensors.count", text, err);
}

/* Loads all parts; `path` is that of any, and comes back as that of the last. */
static struct gguf *load_parts(char *path, uint64_t count, struct error *err)
{
    struct gguf *gguf;

    rename_part(path, 0);
    if (access(path, F_OK)) {
        error_set_at(err, ERROR_IO, path, 0, 0, "part 1 of %" PRIu64 " of a split model is missing",
                     count);
        return NULL;
    }
    gguf = load_file(path, err);
    if (!gguf)
        return NULL;
    if (check_split(gguf, 0, count, err))
        goto free_gguf;
    for (uint64_t part = 1; part < count; part++) {
        rename_part(path, part);
        if (load_part(gguf, path, part, count, err))
            goto free_gguf;
    }
    if (gguf_index_tensors(gguf, err) || check_tensor_total(gguf, err))
        goto free_gguf;
    return gguf;

free_gguf:
    gguf_free(gguf);
    return NULL;
}

struct gguf *gguf_load(const char *path, struct error *err)
{
    struct gguf *gguf = load_file(path, err), *whole = NULL;
    uint64_t count;
    char *sibling;

    if (!gguf)
        return NULL;
    if (read_split_count(gguf, &count, err))
        goto free_gguf;
    if (count == 1)
        return gguf;
    if (!is_part_name(path, count)) {
        char text[160];

        snprintf(text, sizeof text,
                 "is %" PRIu64 ", but the file's name does not end in -NNNNN-of-%05" PRIu64
                 ".gguf, so the other parts cannot be found",
                 count, count);
        fail_at_key(gguf, "split.count", text, err);
        goto free_gguf;
    }
    sibling = arena_strdup(gguf->arena, path, err);
    if (sibling)
        whole = load_parts(sibling, count, err);
free_gguf:
    gguf_free(gguf);
    return whole;
}
