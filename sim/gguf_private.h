/* What the files of the GGUF reader share: gguf.c asks, gguf_parse.c reads
 * bytes, gguf_load.c opens files. */
#ifndef SIM_GGUF_PRIVATE_H
#define SIM_GGUF_PRIVATE_H

#include "sim/arena.h"
#include "sim/gguf.h"

struct gguf_part {
    const char *path;
    uint64_t data_offset;
};

struct gguf {
    uint32_t version;
    bool big_endian;
    uint64_t alignment;
    unsigned char *header; /* a copy of the first part's header; values are read from it */
    size_t header_bytes;
    struct gguf_key *keys;
    const struct gguf_key **keys_by_name;
    size_t key_count, key_capacity;
    struct gguf_tensor *tensors;
    const struct gguf_tensor **tensors_by_name;
    size_t tensor_count, tensor_capacity;
    struct gguf_part *parts;
    uint32_t part_count;
    struct arena *arena; /* names */
};

/** Bytes of a value of a type; 0 for strings, arrays and ids that no type has. */
uint32_t gguf_type_bytes(uint32_t type);

/** The low `bytes` (1 to 8) bytes at `data` as a number. */
uint64_t gguf_number(const unsigned char *data, uint32_t bytes, bool big_endian);

/** Copies text for a message: at most `size` - 1 bytes, unprintable ones as '?'. */
void gguf_printable(char *out, size_t size, const char *text, size_t length);

/** Makes room for one more entry of `bytes`; 0, or -1 with `err` set. */
int gguf_grow(void **entries, size_t count, size_t *capacity, size_t bytes, struct error *err);

/**
 * Sorts the tensors by name.
 *
 * @return 0, or -1 with `err` set: two tensors of one name, or no memory
 */
int gguf_index_tensors(struct gguf *gguf, struct error *err);

#endif
