/* The header of a GGUF file: metadata and the list of tensors, never the weights.
 *
 *     magic "GGUF" | version u32 | tensor count u64 | key count u64
 *     keys:    name | type u32 | value          strings are length u64 | bytes,
 *     tensors: name | dims u32 | ne u64 each    arrays are type u32 | count u64 | elements
 *              | type u32 | offset u64
 *     padding to general.alignment | weights
 *
 * Source: docs/gguf.md of ggml; the versions are 2 and 3, in either byte order.
 * Nothing that a file says is believed before it is checked against its size. */
#ifndef SIM_GGUF_H
#define SIM_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/error.h"
#include "sim/tensor_type.h"

/* constant, name, id in a file, bytes of a value (0: it has no fixed size) */
#define GGUF_TYPES(TYPE)                                                                           \
    TYPE(UINT8, "uint8", 0, 1)                                                                     \
    TYPE(INT8, "int8", 1, 1)                                                                       \
    TYPE(UINT16, "uint16", 2, 2)                                                                   \
    TYPE(INT16, "int16", 3, 2)                                                                     \
    TYPE(UINT32, "uint32", 4, 4)                                                                   \
    TYPE(INT32, "int32", 5, 4)                                                                     \
    TYPE(FLOAT32, "float32", 6, 4)                                                                 \
    TYPE(BOOL, "bool", 7, 1)                                                                       \
    TYPE(STRING, "string", 8, 0)                                                                   \
    TYPE(ARRAY, "array", 9, 0)                                                                     \
    TYPE(UINT64, "uint64", 10, 8)                                                                  \
    TYPE(INT64, "int64", 11, 8)                                                                    \
    TYPE(FLOAT64, "float64", 12, 8)

enum gguf_type {
#define GGUF_TYPE_ENUM(constant, name, id, bytes) GGUF_TYPE_##constant = id,
    GGUF_TYPES(GGUF_TYPE_ENUM)
#undef GGUF_TYPE_ENUM
};

#define GGUF_TYPE_COUNT (GGUF_TYPE_FLOAT64 + 1)

#define GGUF_DIMS_LIMIT 4
#define GGUF_NAME_LIMIT 65535 /* bytes in the name of a key or a tensor */
#define GGUF_DEPTH_LIMIT 4    /* arrays in arrays; deeper ones are refused */
#define GGUF_DEFAULT_ALIGNMENT 32

struct gguf_key {
    const char *name;
    enum gguf_type type;
    enum gguf_type element_type; /* of an array; else the same as `type` */
    uint64_t count;              /* of an array; else 1 */
    size_t offset;               /* of the value, or of the first element, in the file */
};

struct gguf_tensor {
    const char *name;
    enum tensor_type type;
    uint32_t dims;                /* as stored; 0 is a single value */
    uint64_t ne[GGUF_DIMS_LIMIT]; /* ne[0] is the row length; those behind `dims` are 1 */
    uint64_t bytes;
    uint32_t part;       /* which file of a split one; 0 else */
    uint64_t offset;     /* from gguf_data_offset() of that part; the weights may be absent */
    size_t entry_offset; /* of this entry, in the header of that part */
};

struct gguf; /* see gguf_private.h */

/**
 * Reads a header that lies in memory. The bytes may go away afterwards. The
 * other parts of a split file are not looked for.
 *
 * @param data   may be NULL when `size` is 0
 * @param source names the bytes in messages
 * @return a header for gguf_free(), or NULL with `err` set; the text of an
 *         ERROR_INPUT gives byte offset and field
 */
struct gguf *gguf_parse(const void *data, size_t size, const char *source, struct error *err);

/**
 * Reads the header of a file, and those of its siblings when it is one part of
 * a split file ("m-00002-of-00003.gguf"; any part may be given). Keys are those
 * of the first part, tensors those of all. Only the pages of the header are read.
 *
 * @return a header for gguf_free(), or NULL with `err` set (ERROR_IO, ERROR_INPUT, ERROR_MEMORY)
 */
struct gguf *gguf_load(const char *path, struct error *err);

void gguf_free(struct gguf *gguf);

uint32_t gguf_version(const struct gguf *gguf);
bool gguf_is_big_endian(const struct gguf *gguf);
uint64_t gguf_alignment(const struct gguf *gguf);

/** Files behind the header: 1, or the parts of a split file. */
uint32_t gguf_part_count(const struct gguf *gguf);

/** The file name of a part, as it was opened. */
const char *gguf_part_path(const struct gguf *gguf, uint32_t part);

/** Where the weights of a part begin; may lie behind the end of a file cut off. */
uint64_t gguf_data_offset(const struct gguf *gguf, uint32_t part);

/** Tensors in file order, part after part. */
size_t gguf_tensor_count(const struct gguf *gguf);
const struct gguf_tensor *gguf_tensor_at(const struct gguf *gguf, size_t index);
const struct gguf_tensor *gguf_find_tensor(const struct gguf *gguf, const char *name);

/** Keys in file order. */
size_t gguf_key_count(const struct gguf *gguf);
const struct gguf_key *gguf_key_at(const struct gguf *gguf, size_t index);

/** The key of a name, or NULL. */
const struct gguf_key *gguf_find_key(const struct gguf *gguf, const char *name);

/** "uint32", "array" and so on. */
const char *gguf_type_name(enum gguf_type type);

/*
 * Values. All return false, leaving the output alone, when there is no such key
 * or its type does not convert. `_at` reads element `index` of an array; a
 * scalar stands for all of its elements, which is how per-layer keys are stored.
 */

/** From any integer type; false for a negative value. */
bool gguf_get_u64(const struct gguf *gguf, const char *name, uint64_t *value);
bool gguf_get_u64_at(const struct gguf *gguf, const char *name, uint64_t index, uint64_t *value);

/** From a bool, or any integer type: true when not 0. */
bool gguf_get_bool(const struct gguf *gguf, const char *name, bool *value);
bool gguf_get_bool_at(const struct gguf *gguf, const char *name, uint64_t index, bool *value);

/** From any float or integer type, rounded to float. */
bool gguf_get_f32(const struct gguf *gguf, const char *name, float *value);
bool gguf_get_f32_at(const struct gguf *gguf, const char *name, uint64_t index, float *value);

/** Borrowed bytes without a zero behind them. `_at` walks the array: O(index). */
bool gguf_get_string(const struct gguf *gguf, const char *name, const char **text, size_t *length);
bool gguf_get_string_at(const struct gguf *gguf, const char *name, uint64_t index,
                        const char **text, size_t *length);

/**
 * Walks an array in O(1) a step: `*text` and `*length` hold element `index`, as
 * gguf_get_string_at() or a step before gave it, and are set to element `index` + 1.
 */
bool gguf_get_string_after(const struct gguf *gguf, const char *name, uint64_t index,
                           const char **text, size_t *length);

#endif
