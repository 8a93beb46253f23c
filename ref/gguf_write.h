/* Writes GGUF files, version 3, little-endian (the format: sim/gguf.h).
 *
 *     writer = gguf_write_new(err);
 *     gguf_write_string(writer, "general.architecture", "llama", err);     keys and tensors
 *     gguf_write_tensor(writer, "output.weight", TENSOR_TYPE_Q8_0, ne, err);   in any order,
 *     gguf_write_file(writer, path, fill, context, err);                   then the file
 *     gguf_write_free(writer);
 *
 * Keys and the list of tensors are held in memory, weights never. */
#ifndef REF_GGUF_WRITE_H
#define REF_GGUF_WRITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/error.h"
#include "sim/gguf.h"

struct gguf_write; /* see gguf_write.c */

/** A file without keys and tensors for gguf_write_free(), or NULL with `err` set. */
struct gguf_write *gguf_write_new(struct error *err);
void gguf_write_free(struct gguf_write *writer);

/*
 * Keys and tensors. Names are copied; that of a key must be new, which the readers check.
 * All return 0, or -1 with `err` set: ERROR_MEMORY, ERROR_USAGE for what a file cannot hold.
 */

/**
 * A key of one value.
 *
 * @param value a value of the C type of `type` (uint8_t for UINT8, bool for BOOL, float for
 *              FLOAT32, const char * for STRING, and so on); not for ARRAY
 */
int gguf_write_value(struct gguf_write *writer, const char *name, enum gguf_type type,
                     const void *value, struct error *err);

/** A key of `count` values, one behind the other in memory. */
int gguf_write_array(struct gguf_write *writer, const char *name, enum gguf_type element_type,
                     const void *values, uint64_t count, struct error *err);

/* The common ones. */
int gguf_write_u32(struct gguf_write *writer, const char *name, uint32_t value, struct error *err);
int gguf_write_f32(struct gguf_write *writer, const char *name, float value, struct error *err);
int gguf_write_bool(struct gguf_write *writer, const char *name, bool value, struct error *err);
int gguf_write_string(struct gguf_write *writer, const char *name, const char *value,
                      struct error *err);

/**
 * A tensor behind those before, aligned to GGUF_DEFAULT_ALIGNMENT.
 *
 * @param ne unused dimensions are 1 and are not written; ne[0] is a multiple of the block
 */
int gguf_write_tensor(struct gguf_write *writer, const char *name, enum tensor_type type,
                      const uint64_t ne[GGUF_DIMS_LIMIT], struct error *err);

/**
 * The header as it will stand in the file, padding included: gguf_parse() reads it.
 *
 * @return bytes for free(), or NULL with `err` set (ERROR_MEMORY)
 */
unsigned char *gguf_write_header(const struct gguf_write *writer, size_t *size, struct error *err);

/**
 * Gives bytes of a tensor: `size` of them from `offset` on. Called for tensors in order and
 * for each from its first byte to its last, with pieces of at most GGUF_WRITE_PIECE bytes.
 *
 * @param index  counts the calls of gguf_write_tensor()
 * @param bytes  aligned for any type
 * @return 0, or -1 with `err` set, which ends the writing
 */
typedef int gguf_write_fill(void *context, size_t index, uint64_t offset, void *bytes, size_t size,
                            struct error *err);

#define GGUF_WRITE_PIECE ((size_t)1 << 20)

/**
 * Writes the file: header, then weights as `fill` gives them. An existing file is replaced;
 * after a failure no file of that name is left, unless it is something else than a file.
 *
 * @return 0, or -1 with `err` set (ERROR_IO, or what `fill` says)
 */
int gguf_write_file(const struct gguf_write *writer, const char *path, gguf_write_fill *fill,
                    void *context, struct error *err);

#endif
