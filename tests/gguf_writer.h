/* Writes GGUF headers into memory, right or wrong, for tests.
 *
 *     gguf_writer_init(&writer, 3, false);
 *     gguf_writer_key_u32(&writer, "llama.block_count", 1);   all keys first,
 *     gguf_writer_tensor(&writer, "blk.0.ffn_up.weight", TENSOR_TYPE_F32, 2,
 *                        (uint64_t[]){8, 4}, 0);              then the tensors
 *     (use writer.data, writer.size)
 *     gguf_writer_close(&writer);
 *
 * Running out of memory ends the program: tests have nothing better to do. */
#ifndef TESTS_GGUF_WRITER_H
#define TESTS_GGUF_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/gguf.h"

#define GGUF_WRITER_TENSOR_COUNT_OFFSET 8
#define GGUF_WRITER_KEY_COUNT_OFFSET 16

struct gguf_writer {
    unsigned char *data;
    size_t size, capacity;
    bool big_endian;
    uint64_t tensor_count, key_count; /* kept up to date in the bytes */
    uint64_t next_offset;             /* of the weights of the next gguf_writer_weight() */
};

/** Starts with magic, version and two counts of 0. */
void gguf_writer_init(struct gguf_writer *writer, uint32_t version, bool big_endian);
void gguf_writer_close(struct gguf_writer *writer);

/* Raw values at the end. */
void gguf_writer_bytes(struct gguf_writer *writer, const void *data, size_t size);
void gguf_writer_number(struct gguf_writer *writer, uint64_t number, uint32_t bytes);
void gguf_writer_u32(struct gguf_writer *writer, uint32_t number);
void gguf_writer_u64(struct gguf_writer *writer, uint64_t number);
void gguf_writer_f32(struct gguf_writer *writer, float number);
void gguf_writer_string(struct gguf_writer *writer, const char *text);

/** Replaces `bytes` bytes at an offset already written. */
void gguf_writer_patch(struct gguf_writer *writer, size_t offset, uint64_t number, uint32_t bytes);

/** A name and a value's type; the value follows by raw calls. */
void gguf_writer_key(struct gguf_writer *writer, const char *name, enum gguf_type type);
void gguf_writer_key_u32(struct gguf_writer *writer, const char *name, uint32_t value);
void gguf_writer_key_bool(struct gguf_writer *writer, const char *name, bool value);
void gguf_writer_key_string(struct gguf_writer *writer, const char *name, const char *value);
void gguf_writer_key_u32s(struct gguf_writer *writer, const char *name, const uint32_t *values,
                          size_t count);
void gguf_writer_key_bools(struct gguf_writer *writer, const char *name, const bool *values,
                           size_t count);

/** Starts an array; `count` elements follow by raw calls. */
void gguf_writer_key_array(struct gguf_writer *writer, const char *name,
                           enum gguf_type element_type, uint64_t count);

/** An entry of the tensor list, as given. `type` may be an id that no type has. */
void gguf_writer_tensor(struct gguf_writer *writer, const char *name, uint32_t type, uint32_t dims,
                        const uint64_t *ne, uint64_t offset);

/** An entry behind the one before, aligned to 32; a dimension of 0 ends the shape. */
void gguf_writer_weight(struct gguf_writer *writer, const char *name, enum tensor_type type,
                        uint64_t ne0, uint64_t ne1, uint64_t ne2);

/** Writes the bytes to a file; false when that fails. */
bool gguf_writer_save(const struct gguf_writer *writer, const char *path);

#endif
