/* Reading the bytes of a GGUF header: first numbers and strings, then values,
 * keys and tensors. Each read checks what is left before it moves, and lists
 * grow as entries are read, so a false count costs nothing. Whether the weights
 * are there, and whether they overlap, is not looked at. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/checked.h"
#include "sim/gguf_private.h"

/* The fewest bytes that an entry can take; bounds the counts. */
#define KEY_BYTES_LEAST 14    /* a name of one byte, type, value of one byte */
#define TENSOR_BYTES_LEAST 25 /* a name of one byte, no dimensions, type, offset */
#define STRING_BYTES_LEAST 8
#define ARRAY_BYTES_LEAST 12

struct reader {
    const unsigned char *data;
    size_t size, position;
    bool big_endian;
    const char *source;
    struct error *err;
    /* what is being read, for messages */
    const char *entry; /* "key", "tensor"; NULL in the fixed part */
    uint64_t index;
    const char *name; /* NULL while unread */
};

/* ---- messages ---- */

/* Writes `key "general.name" ` or `tensor 3 `, whichever is known. */
static void describe_entry(const struct reader *reader, char *out, size_t size)
{
    char name[64];

    out[0] = '\0';
    if (reader->entry && reader->name) {
        gguf_printable(name, sizeof name, reader->name, strlen(reader->name));
        snprintf(out, size, "%s \"%s\": ", reader->entry, name);
    } else if (reader->entry) {
        snprintf(out, size, "%s %" PRIu64 ": ", reader->entry, reader->index);
    }
}

__attribute__((format(printf, 3, 4))) static int fail(struct reader *reader, size_t offset,
                                                      const char *format, ...)
{
    char entry[96], text[256];
    va_list arguments;

    describe_entry(reader, entry, sizeof entry);
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return error_set_at(reader->err, ERROR_INPUT, reader->source, 0, 0, "offset %zu: %s%s", offset,
                        entry, text);
}

/* ---- numbers and strings ---- */

static size_t bytes_left(const struct reader *reader)
{
    return reader->size - reader->position;
}

/* Whether `bytes` more are there for `field`; fails if not. */
static int need(struct reader *reader, uint64_t bytes, const char *field)
{
    if (bytes <= bytes_left(reader))
        return 0;
    return fail(reader, reader->position, "%s needs %" PRIu64 " bytes; the file has %zu left",
                field, bytes, bytes_left(reader));
}

static int read_number(struct reader *reader, uint32_t bytes, const char *field, uint64_t *number)
{
    if (need(reader, bytes, field))
        return -1;
    *number = gguf_number(reader->data + reader->position, bytes, reader->big_endian);
    reader->position += bytes;
    return 0;
}

static int read_u32(struct reader *reader, const char *field, uint32_t *number)
{
    uint64_t wide;

    if (read_number(reader, 4, field, &wide))
        return -1;
    *number = (uint32_t)wide;
    return 0;
}

/* Reads a count of entries that take at least `bytes_least` each. */
static int read_count(struct reader *reader, uint32_t bytes_least, const char *field,
                      uint64_t *count)
{
    size_t offset = reader->position;

    if (read_number(reader, 8, field, count))
        return -1;
    if (*count > bytes_left(reader) / bytes_least)
        return fail(reader, offset, "%s %" PRIu64 " cannot be; the file has %zu bytes left", field,
                    *count, bytes_left(reader));
    return 0;
}

/* Moves past a string; `*text` and `*length` say where it was. */
static int read_string(struct reader *reader, const char *field, const char **text, size_t *length)
{
    size_t offset = reader->position;
    uint64_t bytes;

    if (read_number(reader, 8, field, &bytes))
        return -1;
    if (bytes > bytes_left(reader))
        return fail(reader, offset, "%s of %" PRIu64 " bytes cannot be; the file has %zu left",
                    field, bytes, bytes_left(reader));
    *text = (const char *)reader->data + reader->position;
    *length = (size_t)bytes;
    reader->position += *length;
    return 0;
}

/* Reads the name of an entry into the arena. */
static int read_name(struct reader *reader, struct arena *arena, const char **name)
{
    size_t offset = reader->position, length = 0;
    const char *text = NULL;

    if (read_string(reader, "name", &text, &length))
        return -1;
    if (length == 0 || length > GGUF_NAME_LIMIT)
        return fail(reader, offset, "a name of %zu bytes; one of 1 to %d is allowed", length,
                    GGUF_NAME_LIMIT);
    if (memchr(text, '\0', length))
        return fail(reader, offset, "a zero byte inside the name");
    *name = reader->name = arena_strndup(arena, text, length, reader->err);
    return *name ? 0 : -1;
}

/* ---- values ---- */

static int read_value_type(struct reader *reader, const char *field, enum gguf_type *type)
{
    size_t offset = reader->position;
    uint32_t id;

    if (read_u32(reader, field, &id))
        return -1;
    if (id >= GGUF_TYPE_COUNT)
        return fail(reader, offset, "%s %" PRIu32 " is none of the %d there are", field, id,
                    GGUF_TYPE_COUNT);
    *type = (enum gguf_type)id;
    return 0;
}

static int check_bools(struct reader *reader, size_t offset, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (reader->data[offset + i] > 1)
            return fail(reader, offset + i, "value %d is not a bool; 0 and 1 are",
                        reader->data[offset + i]);
    return 0;
}

static int read_array(struct reader *reader, int depth, enum gguf_type *element_type,
                      uint64_t *count, size_t *first);

/* Moves past `count` values of one type, which read_count or need has allowed. */
static int skip_values(struct reader *reader, enum gguf_type type, uint64_t count, int depth)
{
    size_t offset = reader->position, length, first;
    uint32_t bytes = gguf_type_bytes(type);
    enum gguf_type inner;
    uint64_t inner_count;
    const char *text;

    if (bytes != 0) {
        reader->position += (size_t)count * bytes;
        return type == GGUF_TYPE_BOOL ? check_bools(reader, offset, (size_t)count) : 0;
    }
    for (uint64_t i = 0; i < count; i++)
        if (type == GGUF_TYPE_STRING ? read_string(reader, "string", &text, &length)
                                     : read_array(reader, depth + 1, &inner, &inner_count, &first))
            return -1;
    return 0;
}

/* Moves past an array; `*first` is where its elements began. */
static int read_array(struct reader *reader, int depth, enum gguf_type *element_type,
                      uint64_t *count, size_t *first)
{
    size_t offset = reader->position;
    uint32_t bytes;

    if (depth > GGUF_DEPTH_LIMIT)
        return fail(reader, offset, "arrays are nested more than %d deep", GGUF_DEPTH_LIMIT);
    if (read_value_type(reader, "array type", element_type))
        return -1;
    bytes = gguf_type_bytes(*element_type);
    if (bytes == 0)
        bytes = *element_type == GGUF_TYPE_STRING ? STRING_BYTES_LEAST : ARRAY_BYTES_LEAST;
    if (read_count(reader, bytes, "array length", count))
        return -1;
    *first = reader->position;
    return skip_values(reader, *element_type, *count, depth);
}

static int read_value(struct reader *reader, struct gguf_key *key)
{
    if (read_value_type(reader, "value type", &key->type))
        return -1;
    if (key->type == GGUF_TYPE_ARRAY)
        return read_array(reader, 1, &key->element_type, &key->count, &key->offset);
    key->element_type = key->type;
    key->count = 1;
    key->offset = reader->position;
    if (need(reader, gguf_type_bytes(key->type), "value"))
        return -1;
    return skip_values(reader, key->type, 1, 0);
}

/* ---- keys ---- */

static int compare_keys(const void *a, const void *b)
{
    const struct gguf_key *const *left = a, *const *right = b;

    return strcmp((*left)->name, (*right)->name);
}

static int index_keys(struct reader *reader, struct gguf *gguf)
{
    if (gguf->key_count == 0)
        return 0;
    gguf->keys_by_name = calloc(gguf->key_count, sizeof *gguf->keys_by_name);
    if (!gguf->keys_by_name)
        return error_set(reader->err, ERROR_MEMORY, "no memory for %zu keys", gguf->key_count);
    for (size_t i = 0; i < gguf->key_count; i++)
        gguf->keys_by_name[i] = &gguf->keys[i];
    qsort(gguf->keys_by_name, gguf->key_count, sizeof *gguf->keys_by_name, compare_keys);
    for (size_t i = 1; i < gguf->key_count; i++) {
        const struct gguf_key *first = gguf->keys_by_name[i - 1], *second = gguf->keys_by_name[i];

        if (strcmp(first->name, second->name) == 0) {
            reader->name = second->name;
            return fail(reader, first->offset > second->offset ? first->offset : second->offset,
                        "there is a value for it already");
        }
    }
    return 0;
}

static int read_keys(struct reader *reader, struct gguf *gguf, uint64_t count)
{
    reader->entry = "key";
    for (uint64_t i = 0; i < count; i++) {
        struct gguf_key key = {0};

        reader->index = i;
        reader->name = NULL;
        if (read_name(reader, gguf->arena, &key.name) || read_value(reader, &key) ||
            gguf_grow((void **)&gguf->keys, gguf->key_count, &gguf->key_capacity, sizeof key,
                      reader->err))
            return -1;
        gguf->keys[gguf->key_count++] = key;
    }
    return index_keys(reader, gguf);
}

static int find_alignment(struct reader *reader, struct gguf *gguf)
{
    const struct gguf_key *key;

    gguf->header = (unsigned char *)reader->data; /* for the lookup; the caller replaces it */
    gguf->alignment = GGUF_DEFAULT_ALIGNMENT;
    key = gguf_find_key(gguf, "general.alignment");
    if (!key)
        return 0;
    reader->name = key->name;
    if (!gguf_get_u64(gguf, key->name, &gguf->alignment))
        return fail(reader, key->offset, "a value of type %s is no positive integer",
                    gguf_type_name(key->type));
    if (gguf->alignment == 0 || (gguf->alignment & (gguf->alignment - 1)) != 0)
        return fail(reader, key->offset, "%" PRIu64 " is not a power of two", gguf->alignment);
    return 0;
}

/* ---- tensors ---- */

/* Ids that ggml once had. Source: ggml/include/ggml.h of llama.cpp, its comments. */
static const struct {
    uint32_t id;
    const char *name;
} removed_types[] = {
    {4, "Q4_2"},      {5, "Q4_3"},        {31, "Q4_0_4_4"},   {32, "Q4_0_4_8"},
    {33, "Q4_0_8_8"}, {36, "IQ4_NL_4_4"}, {37, "IQ4_NL_4_8"}, {38, "IQ4_NL_8_8"},
};

static int read_tensor_type(struct reader *reader, enum tensor_type *type)
{
    size_t offset = reader->position;
    uint32_t id;

    if (read_u32(reader, "tensor type", &id))
        return -1;
    for (size_t i = 0; i < sizeof removed_types / sizeof *removed_types; i++)
        if (removed_types[i].id == id)
            return fail(reader, offset, "tensor type %" PRIu32 " (%s) was removed from ggml", id,
                        removed_types[i].name);
    if (!tensor_type_info(id))
        return fail(reader, offset, "tensor type %" PRIu32 " is unknown", id);
    *type = (enum tensor_type)id;
    return 0;
}

static int read_dims(struct reader *reader, struct gguf_tensor *tensor)
{
    size_t offset = reader->position;

    if (read_u32(reader, "dimension count", &tensor->dims))
        return -1;
    if (tensor->dims > GGUF_DIMS_LIMIT)
        return fail(reader, offset, "%" PRIu32 " dimensions; at most %d are allowed", tensor->dims,
                    GGUF_DIMS_LIMIT);
    for (uint32_t i = 0; i < GGUF_DIMS_LIMIT; i++)
        tensor->ne[i] = 1;
    for (uint32_t i = 0; i < tensor->dims; i++) {
        offset = reader->position;
        if (read_number(reader, 8, "dimension", &tensor->ne[i]))
            return -1;
        if (tensor->ne[i] == 0)
            return fail(reader, offset, "dimension %" PRIu32 " is 0", i);
    }
    return 0;
}

/* Fills tensor->bytes; `offset` is that of the type. */
static int size_tensor(struct reader *reader, struct gguf_tensor *tensor, size_t offset)
{
    const struct tensor_type_info *info = tensor_type_info(tensor->type);
    uint64_t bytes = tensor->ne[0] / info->block_elements, elements = 1;
    bool fits = checked_multiply(bytes, info->block_bytes, &bytes);

    if (tensor->ne[0] % info->block_elements != 0)
        return fail(reader, offset,
                    "rows of %" PRIu64 " values are not whole %s blocks of %" PRIu32, tensor->ne[0],
                    info->name, info->block_elements);
    for (uint32_t i = 0; i < GGUF_DIMS_LIMIT; i++)
        fits = fits && checked_multiply(elements, tensor->ne[i], &elements) &&
               (i == 0 || checked_multiply(bytes, tensor->ne[i], &bytes));
    if (!fits)
        return fail(reader, offset,
                    "dimensions %" PRIu64 " x %" PRIu64 " x %" PRIu64 " x %" PRIu64
                    " pass 2^64 values or bytes",
                    tensor->ne[0], tensor->ne[1], tensor->ne[2], tensor->ne[3]);
    tensor->bytes = bytes;
    return 0;
}

static uint64_t aligned(uint64_t offset, uint64_t alignment)
{
    return (offset + alignment - 1) & ~(alignment - 1);
}

static int read_tensor_offset(struct reader *reader, uint64_t alignment, struct gguf_tensor *tensor)
{
    size_t offset = reader->position;
    uint64_t end;

    if (read_number(reader, 8, "data offset", &tensor->offset))
        return -1;
    if (tensor->offset % alignment != 0)
        return fail(reader, offset,
                    "data offset %" PRIu64 " is not a multiple of the alignment, %" PRIu64,
                    tensor->offset, alignment);
    /* The weights begin at or before the end of the file, rounded up. */
    if (!checked_add(tensor->offset, tensor->bytes, &end) ||
        !checked_add(end, aligned(reader->size, alignment), &end))
        return fail(reader, offset,
                    "data offset %" PRIu64 " with %" PRIu64 " bytes behind it passes 2^64",
                    tensor->offset, tensor->bytes);
    return 0;
}

static int read_tensor(struct reader *reader, struct gguf *gguf, struct gguf_tensor *tensor)
{
    size_t type_offset;

    tensor->entry_offset = reader->position;
    if (read_name(reader, gguf->arena, &tensor->name) || read_dims(reader, tensor))
        return -1;
    type_offset = reader->position;
    if (read_tensor_type(reader, &tensor->type) || size_tensor(reader, tensor, type_offset))
        return -1;
    return read_tensor_offset(reader, gguf->alignment, tensor);
}

static int read_tensors(struct reader *reader, struct gguf *gguf, uint64_t count)
{
    reader->entry = "tensor";
    for (uint64_t i = 0; i < count; i++) {
        struct gguf_tensor tensor = {0};

        reader->index = i;
        reader->name = NULL;
        if (read_tensor(reader, gguf, &tensor) ||
            gguf_grow((void **)&gguf->tensors, gguf->tensor_count, &gguf->tensor_capacity,
                      sizeof tensor, reader->err))
            return -1;
        gguf->tensors[gguf->tensor_count++] = tensor;
    }
    return gguf_index_tensors(gguf, reader->err);
}

static int compare_tensors(const void *a, const void *b)
{
    const struct gguf_tensor *const *left = a, *const *right = b;
    int order = strcmp((*left)->name, (*right)->name);

    if (order != 0)
        return order;
    if ((*left)->part != (*right)->part)
        return (*left)->part < (*right)->part ? -1 : 1;
    return (*left)->entry_offset < (*right)->entry_offset
               ? -1
               : (*left)->entry_offset > (*right)->entry_offset;
}

int gguf_index_tensors(struct gguf *gguf, struct error *err)
{
    const struct gguf_tensor **sorted;

    if (gguf->tensor_count == 0)
        return 0;
    sorted = calloc(gguf->tensor_count, sizeof *sorted);
    if (!sorted)
        return error_set(err, ERROR_MEMORY, "no memory for %zu tensors", gguf->tensor_count);
    free(gguf->tensors_by_name);
    gguf->tensors_by_name = sorted;
    for (size_t i = 0; i < gguf->tensor_count; i++)
        sorted[i] = &gguf->tensors[i];
    qsort(sorted, gguf->tensor_count, sizeof *sorted, compare_tensors);
    for (size_t i = 1; i < gguf->tensor_count; i++) {
        char name[64];

        if (strcmp(sorted[i - 1]->name, sorted[i]->name) != 0)
            continue;
        gguf_printable(name, sizeof name, sorted[i]->name, strlen(sorted[i]->name));
        return error_set_at(err, ERROR_INPUT, gguf->parts[sorted[i]->part].path, 0, 0,
                            "offset %zu: tensor \"%s\": there is a tensor of this name already",
                            sorted[i]->entry_offset, name);
    }
    return 0;
}

/* ---- the header as a whole ---- */

/* Reads magic and version, which also tell the byte order. */
static int read_version(struct reader *reader, struct gguf *gguf)
{
    static const unsigned char magic[4] = {'G', 'G', 'U', 'F'};
    uint64_t little, big;

    if (need(reader, sizeof magic, "magic"))
        return -1;
    if (memcmp(reader->data, magic, sizeof magic) != 0)
        return fail(reader, 0, "magic %02x %02x %02x %02x is not GGUF", reader->data[0],
                    reader->data[1], reader->data[2], reader->data[3]);
    reader->position = sizeof magic;
    if (need(reader, 4, "version"))
        return -1;
    little = gguf_number(reader->data + reader->position, 4, false);
    big = gguf_number(reader->data + reader->position, 4, true);
    /* One of the two is far too large for a version. */
    reader->big_endian = gguf->big_endian = little > big;
    gguf->version = (uint32_t)(little < big ? little : big);
    if (gguf->version == 1)
        return fail(
            reader, reader->position,
            "version 1 is not read: its counts have 32 bits; convert the file to version 3");
    if (gguf->version != 2 && gguf->version != 3)
        return fail(reader, reader->position, "version %" PRIu32 " is not known; 2 and 3 are",
                    gguf->version);
    reader->position += 4;
    return 0;
}

static int read_header(struct reader *reader, struct gguf *gguf)
{
    uint64_t tensor_count, key_count;

    if (read_version(reader, gguf) ||
        read_count(reader, TENSOR_BYTES_LEAST, "tensor count", &tensor_count) ||
        read_count(reader, KEY_BYTES_LEAST, "key count", &key_count))
        return -1;
    if (read_keys(reader, gguf, key_count) || find_alignment(reader, gguf) ||
        read_tensors(reader, gguf, tensor_count))
        return -1;
    gguf->header_bytes = reader->position;
    gguf->parts[0].data_offset = aligned(reader->position, gguf->alignment);
    return 0;
}

static struct gguf *gguf_new(const char *source, struct error *err)
{
    struct gguf *gguf = calloc(1, sizeof *gguf);

    if (!gguf) {
        error_set(err, ERROR_MEMORY, "no memory for a GGUF header");
        return NULL;
    }
    gguf->arena = arena_new(err);
    gguf->parts = calloc(1, sizeof *gguf->parts);
    if (!gguf->parts)
        error_set(err, ERROR_MEMORY, "no memory for a GGUF header");
    if (gguf->arena && gguf->parts)
        gguf->parts[0].path = arena_strdup(gguf->arena, source, err);
    if (!gguf->arena || !gguf->parts || !gguf->parts[0].path) {
        gguf_free(gguf);
        return NULL;
    }
    gguf->part_count = 1;
    return gguf;
}

struct gguf *gguf_parse(const void *data, size_t size, const char *source, struct error *err)
{
    struct reader reader = {.data = data, .size = size, .source = source, .err = err};
    struct gguf *gguf = gguf_new(source, err);
    unsigned char *copy = NULL;

    if (!gguf)
        return NULL;
    if (read_header(&reader, gguf))
        goto free_gguf;
    copy = malloc(gguf->header_bytes);
    if (!copy) {
        error_set(err, ERROR_MEMORY, "no memory for a header of %zu bytes", gguf->header_bytes);
        goto free_gguf;
    }
    memcpy(copy, data, gguf->header_bytes);
    gguf->header = copy;
    return gguf;

free_gguf:
    gguf->header = NULL; /* it was the caller's */
    gguf_free(gguf);
    return NULL;
}
