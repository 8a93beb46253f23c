#include "tests/gguf_writer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void gguf_writer_init(struct gguf_writer *writer, uint32_t version, bool big_endian)
{
    *writer = (struct gguf_writer){.big_endian = big_endian};
    gguf_writer_bytes(writer, "GGUF", 4);
    gguf_writer_u32(writer, version);
    gguf_writer_u64(writer, 0);
    gguf_writer_u64(writer, 0);
}

void gguf_writer_close(struct gguf_writer *writer)
{
    free(writer->data);
    *writer = (struct gguf_writer){0};
}

void gguf_writer_bytes(struct gguf_writer *writer, const void *data, size_t size)
{
    if (writer->size + size > writer->capacity) {
        writer->capacity = 2 * (writer->size + size);
        writer->data = realloc(writer->data, writer->capacity);
        if (!writer->data)
            abort();
    }
    if (size != 0)
        memcpy(writer->data + writer->size, data, size);
    writer->size += size;
}

void gguf_writer_patch(struct gguf_writer *writer, size_t offset, uint64_t number, uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes; i++) {
        uint32_t shift = 8 * (writer->big_endian ? bytes - 1 - i : i);

        writer->data[offset + i] = (unsigned char)(number >> shift);
    }
}

void gguf_writer_number(struct gguf_writer *writer, uint64_t number, uint32_t bytes)
{
    static const unsigned char room[8];

    gguf_writer_bytes(writer, room, bytes);
    gguf_writer_patch(writer, writer->size - bytes, number, bytes);
}

void gguf_writer_u32(struct gguf_writer *writer, uint32_t number)
{
    gguf_writer_number(writer, number, 4);
}

void gguf_writer_u64(struct gguf_writer *writer, uint64_t number)
{
    gguf_writer_number(writer, number, 8);
}

void gguf_writer_f32(struct gguf_writer *writer, float number)
{
    uint32_t bits;

    memcpy(&bits, &number, sizeof bits);
    gguf_writer_u32(writer, bits);
}

void gguf_writer_string(struct gguf_writer *writer, const char *text)
{
    gguf_writer_u64(writer, strlen(text));
    gguf_writer_bytes(writer, text, strlen(text));
}

void gguf_writer_key(struct gguf_writer *writer, const char *name, enum gguf_type type)
{
    gguf_writer_patch(writer, GGUF_WRITER_KEY_COUNT_OFFSET, ++writer->key_count, 8);
    gguf_writer_string(writer, name);
    gguf_writer_u32(writer, type);
}

void gguf_writer_key_u32(struct gguf_writer *writer, const char *name, uint32_t value)
{
    gguf_writer_key(writer, name, GGUF_TYPE_UINT32);
    gguf_writer_u32(writer, value);
}

void gguf_writer_key_bool(struct gguf_writer *writer, const char *name, bool value)
{
    gguf_writer_key(writer, name, GGUF_TYPE_BOOL);
    gguf_writer_number(writer, value, 1);
}

void gguf_writer_key_string(struct gguf_writer *writer, const char *name, const char *value)
{
    gguf_writer_key(writer, name, GGUF_TYPE_STRING);
    gguf_writer_string(writer, value);
}

void gguf_writer_key_array(struct gguf_writer *writer, const char *name,
                           enum gguf_type element_type, uint64_t count)
{
    gguf_writer_key(writer, name, GGUF_TYPE_ARRAY);
    gguf_writer_u32(writer, element_type);
    gguf_writer_u64(writer, count);
}

void gguf_writer_key_u32s(struct gguf_writer *writer, const char *name, const uint32_t *values,
                          size_t count)
{
    gguf_writer_key_array(writer, name, GGUF_TYPE_UINT32, count);
    for (size_t i = 0; i < count; i++)
        gguf_writer_u32(writer, values[i]);
}

void gguf_writer_key_bools(struct gguf_writer *writer, const char *name, const bool *values,
                           size_t count)
{
    gguf_writer_key_array(writer, name, GGUF_TYPE_BOOL, count);
    for (size_t i = 0; i < count; i++)
        gguf_writer_number(writer, values[i], 1);
}

void gguf_writer_tensor(struct gguf_writer *writer, const char *name, uint32_t type, uint32_t dims,
                        const uint64_t *ne, uint64_t offset)
{
    gguf_writer_patch(writer, GGUF_WRITER_TENSOR_COUNT_OFFSET, ++writer->tensor_count, 8);
    gguf_writer_string(writer, name);
    gguf_writer_u32(writer, dims);
    for (uint32_t i = 0; i < dims; i++)
        gguf_writer_u64(writer, ne[i]);
    gguf_writer_u32(writer, type);
    gguf_writer_u64(writer, offset);
}

void gguf_writer_weight(struct gguf_writer *writer, const char *name, enum tensor_type type,
                        uint64_t ne0, uint64_t ne1, uint64_t ne2)
{
    uint64_t ne[3] = {ne0, ne1, ne2};
    uint32_t dims = ne1 == 0 ? 1 : ne2 == 0 ? 2 : 3;
    uint64_t bytes = tensor_type_row_bytes(type, ne0) * (ne1 == 0 ? 1 : ne1) * (ne2 == 0 ? 1 : ne2);

    gguf_writer_tensor(writer, name, type, dims, ne, writer->next_offset);
    writer->next_offset += (bytes + 31) / 32 * 32;
}

bool gguf_writer_save(const struct gguf_writer *writer, const char *path)
{
    FILE *file = fopen(path, "wb");
    bool written;

    if (!file)
        return false;
    written = writer->size == 0 || fwrite(writer->data, 1, writer->size, file) == writer->size;
    return fclose(file) == 0 && written;
}
