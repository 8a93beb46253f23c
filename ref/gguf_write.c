/* Bytes of a GGUF file. The two lists grow apart and are joined when the file is written. */
#include "ref/gguf_write.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sim/checked.h"

#define FIXED_BYTES 24 /* magic, version, two counts */

struct bytes {
    unsigned char *data;
    size_t size, capacity;
};

struct gguf_write {
    struct bytes keys, tensors;
    uint64_t key_count;
    uint64_t *tensor_bytes; /* of each tensor, without padding */
    size_t tensor_count, tensor_capacity;
    uint64_t next_offset; /* of the next tensor, from the first weight on */
};

/* ---- growing lists ---- */

static int reserve(struct bytes *bytes, size_t more, struct error *err)
{
    size_t wanted = bytes->capacity ? bytes->capacity : 4096;
    unsigned char *moved;

    if (more <= bytes->capacity - bytes->size)
        return 0;
    while (wanted - bytes->size < more && wanted <= SIZE_MAX / 2)
        wanted *= 2;
    moved = wanted - bytes->size >= more ? realloc(bytes->data, wanted) : NULL;
    if (!moved)
        return error_set(err, ERROR_MEMORY, "no memory for a GGUF header");
    bytes->data = moved;
    bytes->capacity = wanted;
    return 0;
}

static int put_bytes(struct bytes *bytes, const void *data, size_t size, struct error *err)
{
    if (size == 0)
        return 0;
    if (reserve(bytes, size, err))
        return -1;
    memcpy(bytes->data + bytes->size, data, size);
    bytes->size += size;
    return 0;
}

static void store_number(unsigned char *out, uint64_t number, uint32_t size)
{
    for (uint32_t i = 0; i < size; i++)
        out[i] = (unsigned char)(number >> 8 * i);
}

static int put_number(struct bytes *bytes, uint64_t number, uint32_t size, struct error *err)
{
    unsigned char data[8];

    store_number(data, number, size);
    return put_bytes(bytes, data, size, err);
}

static int put_string(struct bytes *bytes, const char *text, struct error *err)
{
    return put_number(bytes, strlen(text), 8, err) || put_bytes(bytes, text, strlen(text), err) ? -1
                                                                                                : 0;
}

static uint64_t aligned(uint64_t offset)
{
    return (offset + GGUF_DEFAULT_ALIGNMENT - 1) / GGUF_DEFAULT_ALIGNMENT * GGUF_DEFAULT_ALIGNMENT;
}

struct gguf_write *gguf_write_new(struct error *err)
{
    struct gguf_write *writer = calloc(1, sizeof *writer);

    if (!writer)
        error_set(err, ERROR_MEMORY, "no memory for a GGUF header");
    return writer;
}

void gguf_write_free(struct gguf_write *writer)
{
    if (!writer)
        return;
    free(writer->keys.data);
    free(writer->tensors.data);
    free(writer->tensor_bytes);
    free(writer);
}

/* ---- keys ---- */

static int check_name(const char *what, const char *name, struct error *err)
{
    if (name[0] != '\0' && strlen(name) <= GGUF_NAME_LIMIT)
        return 0;
    return error_set(err, ERROR_USAGE, "a %s of %zu bytes; names of 1 to %d can be", what,
                     strlen(name), GGUF_NAME_LIMIT);
}

/* Bytes of a value in memory and in the file; 0 for strings and arrays. */
static uint32_t value_bytes(enum gguf_type type)
{
    switch (type) {
#define VALUE_BYTES(constant, name, id, bytes)                                                     \
    case GGUF_TYPE_##constant:                                                                     \
        return bytes;
        GGUF_TYPES(VALUE_BYTES)
#undef VALUE_BYTES
    }
    return 0;
}

/* The bits of a number of `size` bytes in this host's order. */
static uint64_t load_number(const void *value, uint32_t size)
{
    uint64_t number_64;
    uint32_t number_32;
    uint16_t number_16;

    switch (size) {
    case 8:
        memcpy(&number_64, value, sizeof number_64);
        return number_64;
    case 4:
        memcpy(&number_32, value, sizeof number_32);
        return number_32;
    case 2:
        memcpy(&number_16, value, sizeof number_16);
        return number_16;
    default:
        return *(const unsigned char *)value;
    }
}

static int put_value(struct bytes *bytes, enum gguf_type type, const void *values, uint64_t index,
                     struct error *err)
{
    uint32_t size = value_bytes(type);

    if (type == GGUF_TYPE_STRING)
        return put_string(bytes, ((const char *const *)values)[index], err);
    return put_number(bytes, load_number((const char *)values + index * size, size), size, err);
}

static int put_key(struct gguf_write *writer, const char *name, enum gguf_type type,
                   struct error *err)
{
    if (check_name("key", name, err))
        return -1;
    return put_string(&writer->keys, name, err) || put_number(&writer->keys, type, 4, err) ? -1 : 0;
}

/* What half a key has left behind goes away again. */
static int end_key(struct gguf_write *writer, size_t size_before, int failed)
{
    if (failed) {
        writer->keys.size = size_before;
        return -1;
    }
    writer->key_count++;
    return 0;
}

static int check_type(const char *name, enum gguf_type type, struct error *err)
{
    if (type == GGUF_TYPE_STRING || value_bytes(type) != 0)
        return 0;
    return error_set(err, ERROR_USAGE, "key \"%.60s\": values of type %d cannot be written", name,
                     (int)type);
}

int gguf_write_value(struct gguf_write *writer, const char *name, enum gguf_type type,
                     const void *value, struct error *err)
{
    size_t before = writer->keys.size;

    if (check_type(name, type, err))
        return -1;
    return end_key(writer, before,
                   put_key(writer, name, type, err) ||
                       put_value(&writer->keys, type, value, 0, err));
}

int gguf_write_array(struct gguf_write *writer, const char *name, enum gguf_type element_type,
                     const void *values, uint64_t count, struct error *err)
{
    size_t before = writer->keys.size;
    int failed;

    if (check_type(name, element_type, err))
        return -1;
    failed = put_key(writer, name, GGUF_TYPE_ARRAY, err) ||
             put_number(&writer->keys, element_type, 4, err) ||
             put_number(&writer->keys, count, 8, err);
    for (uint64_t i = 0; i < count && !failed; i++)
        failed = put_value(&writer->keys, element_type, values, i, err);
    return end_key(writer, before, failed);
}

int gguf_write_u32(struct gguf_write *writer, const char *name, uint32_t value, struct error *err)
{
    return gguf_write_value(writer, name, GGUF_TYPE_UINT32, &value, err);
}

int gguf_write_f32(struct gguf_write *writer, const char *name, float value, struct error *err)
{
    return gguf_write_value(writer, name, GGUF_TYPE_FLOAT32, &value, err);
}

int gguf_write_bool(struct gguf_write *writer, const char *name, bool value, struct error *err)
{
    return gguf_write_value(writer, name, GGUF_TYPE_BOOL, &value, err);
}

int gguf_write_string(struct gguf_write *writer, const char *name, const char *value,
                      struct error *err)
{
    return gguf_write_value(writer, name, GGUF_TYPE_STRING, &value, err);
}

/* ---- tensors ---- */

/* Bytes of a tensor and where the next can begin; false when there is no such shape. */
static bool size_tensor(const struct gguf_write *writer, enum tensor_type type,
                        const uint64_t ne[GGUF_DIMS_LIMIT], uint64_t *bytes)
{
    const struct tensor_type_info *info = tensor_type_info(type);
    uint64_t end;

    if (!info || ne[0] == 0 || ne[0] % info->block_elements != 0 ||
        !checked_multiply(ne[0] / info->block_elements, info->block_bytes, bytes))
        return false;
    for (int i = 1; i < GGUF_DIMS_LIMIT; i++)
        if (ne[i] == 0 || !checked_multiply(*bytes, ne[i], bytes))
            return false;
    return checked_add(writer->next_offset, *bytes, &end) &&
           checked_add(end, GGUF_DEFAULT_ALIGNMENT, &end);
}

static int grow_tensor_bytes(struct gguf_write *writer, struct error *err)
{
    size_t wanted = writer->tensor_capacity ? writer->tensor_capacity * 2 : 64;
    uint64_t *moved;

    if (writer->tensor_count < writer->tensor_capacity)
        return 0;
    moved = realloc(writer->tensor_bytes, wanted * sizeof *moved);
    if (!moved)
        return error_set(err, ERROR_MEMORY, "no memory for a list of %zu tensors", wanted);
    writer->tensor_bytes = moved;
    writer->tensor_capacity = wanted;
    return 0;
}

static int put_tensor(struct gguf_write *writer, const char *name, enum tensor_type type,
                      const uint64_t ne[GGUF_DIMS_LIMIT], struct error *err)
{
    struct bytes *list = &writer->tensors;
    uint32_t dims = GGUF_DIMS_LIMIT;

    while (dims > 1 && ne[dims - 1] == 1)
        dims--;
    if (put_string(list, name, err) || put_number(list, dims, 4, err))
        return -1;
    for (uint32_t i = 0; i < dims; i++)
        if (put_number(list, ne[i], 8, err))
            return -1;
    return put_number(list, type, 4, err) || put_number(list, writer->next_offset, 8, err) ? -1 : 0;
}

int gguf_write_tensor(struct gguf_write *writer, const char *name, enum tensor_type type,
                      const uint64_t ne[GGUF_DIMS_LIMIT], struct error *err)
{
    size_t before = writer->tensors.size;
    uint64_t bytes;

    if (check_name("tensor's name", name, err))
        return -1;
    if (!size_tensor(writer, type, ne, &bytes))
        return error_set(err, ERROR_USAGE,
                         "tensor \"%.60s\": %" PRIu64 " x %" PRIu64 " x %" PRIu64 " x %" PRIu64
                         " values of type %d are no tensor of a file",
                         name, ne[0], ne[1], ne[2], ne[3], (int)type);
    if (grow_tensor_bytes(writer, err) || put_tensor(writer, name, type, ne, err)) {
        writer->tensors.size = before;
        return -1;
    }
    writer->tensor_bytes[writer->tensor_count++] = bytes;
    writer->next_offset = aligned(writer->next_offset + bytes);
    return 0;
}

/* ---- the file ---- */

unsigned char *gguf_write_header(const struct gguf_write *writer, size_t *size, struct error *err)
{
    size_t used = FIXED_BYTES + writer->keys.size + writer->tensors.size;
    size_t padded = (size_t)aligned(used);
    unsigned char *header = calloc(1, padded);

    if (!header) {
        error_set(err, ERROR_MEMORY, "no memory for a GGUF header of %zu bytes", padded);
        return NULL;
    }
    memcpy(header, "GGUF", 4);
    store_number(header + 4, 3, 4);
    store_number(header + 8, writer->tensor_count, 8);
    store_number(header + 16, writer->key_count, 8);
    if (writer->keys.size > 0)
        memcpy(header + FIXED_BYTES, writer->keys.data, writer->keys.size);
    if (writer->tensors.size > 0)
        memcpy(header + FIXED_BYTES + writer->keys.size, writer->tensors.data,
               writer->tensors.size);
    *size = padded;
    return header;
}

struct output {
    FILE *file;
    const char *path;
    unsigned char *piece; /* GGUF_WRITE_PIECE bytes and an alignment */
};

static int emit(struct output *output, const void *data, size_t size, struct error *err)
{
    if (size == 0 || fwrite(data, 1, size, output->file) == size)
        return 0;
    return error_set_at(err, ERROR_IO, output->path, 0, 0, "cannot be written: %s",
                        strerror(errno));
}

/* One tensor and the padding behind it. */
static int emit_tensor(struct output *output, size_t index, uint64_t bytes, gguf_write_fill *fill,
                       void *context, struct error *err)
{
    for (uint64_t offset = 0; offset < bytes;) {
        size_t size =
            bytes - offset < GGUF_WRITE_PIECE ? (size_t)(bytes - offset) : GGUF_WRITE_PIECE;
        size_t padding = 0;

        if (fill(context, index, offset, output->piece, size, err))
            return -1;
        offset += size;
        if (offset == bytes)
            padding = (size_t)(aligned(bytes) - bytes);
        memset(output->piece + size, 0, padding);
        if (emit(output, output->piece, size + padding, err))
            return -1;
    }
    return 0;
}

static int emit_all(const struct gguf_write *writer, struct output *output, gguf_write_fill *fill,
                    void *context, struct error *err)
{
    size_t size = 0;
    unsigned char *header = gguf_write_header(writer, &size, err);
    int result;

    if (!header)
        return -1;
    result = emit(output, header, size, err);
    free(header);
    for (size_t i = 0; i < writer->tensor_count && !result; i++)
        result = emit_tensor(output, i, writer->tensor_bytes[i], fill, context, err);
    return result;
}

/* Closes; what the system had kept back can still fail. */
static int end_file(struct output *output, int result, struct error *err)
{
    struct stat status;
    bool is_file = fstat(fileno(output->file), &status) == 0 && S_ISREG(status.st_mode);

    if (fclose(output->file) != 0 && result == 0)
        result = error_set_at(err, ERROR_IO, output->path, 0, 0, "cannot be written: %s",
                              strerror(errno));
    if (result != 0 && is_file)
        unlink(output->path);
    return result;
}

int gguf_write_file(const struct gguf_write *writer, const char *path, gguf_write_fill *fill,
                    void *context, struct error *err)
{
    struct output output = {.path = path};
    int result;

    output.piece = malloc(GGUF_WRITE_PIECE + GGUF_DEFAULT_ALIGNMENT);
    if (!output.piece)
        return error_set(err, ERROR_MEMORY, "no memory for a piece of %zu bytes", GGUF_WRITE_PIECE);
    output.file = fopen(path, "wb");
    if (!output.file) {
        result = error_set_at(err, ERROR_IO, path, 0, 0, "cannot be written: %s", strerror(errno));
        goto free_piece;
    }
    result = end_file(&output, emit_all(writer, &output, fill, context, err), err);

free_piece:
    free(output.piece);
    return result;
}
