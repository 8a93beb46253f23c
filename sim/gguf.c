/* Asking a GGUF header: keys, their values, tensors. Reading one is gguf_parse.c. */
#include "sim/gguf.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sim/gguf_private.h"

static const struct {
    const char *name;
    uint32_t bytes;
} types[GGUF_TYPE_COUNT] = {
#define GGUF_TYPE_ROW(constant, name, id, bytes) [id] = {name, bytes},
    GGUF_TYPES(GGUF_TYPE_ROW)
#undef GGUF_TYPE_ROW
};

const char *gguf_type_name(enum gguf_type type)
{
    return types[type].name;
}

uint32_t gguf_type_bytes(uint32_t type)
{
    return type < GGUF_TYPE_COUNT ? types[type].bytes : 0;
}

uint64_t gguf_number(const unsigned char *data, uint32_t bytes, bool big_endian)
{
    uint64_t number = 0;

    for (uint32_t i = 0; i < bytes; i++)
        number = number << 8 | data[big_endian ? i : bytes - 1 - i];
    return number;
}

void gguf_printable(char *out, size_t size, const char *text, size_t length)
{
    size_t count = length < size - 1 ? length : size - 1;

    if (count < length) /* do not end inside a UTF-8 sequence */
        while (count > 0 && ((unsigned char)text[count] & 0xC0) == 0x80)
            count--;
    for (size_t i = 0; i < count; i++)
        out[i] = (unsigned char)text[i] < 0x20 || text[i] == 0x7F ? '?' : text[i];
    out[count] = '\0';
}

int gguf_grow(void **entries, size_t count, size_t *capacity, size_t bytes, struct error *err)
{
    size_t wanted = *capacity ? *capacity * 2 : 16;
    void *moved;

    if (count < *capacity)
        return 0;
    moved = wanted <= SIZE_MAX / bytes ? realloc(*entries, wanted * bytes) : NULL;
    if (!moved)
        return error_set(err, ERROR_MEMORY, "no memory for %zu entries of a GGUF header", wanted);
    *entries = moved;
    *capacity = wanted;
    return 0;
}

void gguf_free(struct gguf *gguf)
{
    if (!gguf)
        return;
    free(gguf->header);
    free(gguf->keys);
    free(gguf->keys_by_name);
    free(gguf->tensors);
    free(gguf->tensors_by_name);
    free(gguf->parts);
    arena_free(gguf->arena);
    free(gguf);
}

uint32_t gguf_version(const struct gguf *gguf)
{
    return gguf->version;
}

bool gguf_is_big_endian(const struct gguf *gguf)
{
    return gguf->big_endian;
}

uint64_t gguf_alignment(const struct gguf *gguf)
{
    return gguf->alignment;
}

uint32_t gguf_part_count(const struct gguf *gguf)
{
    return gguf->part_count;
}

const char *gguf_part_path(const struct gguf *gguf, uint32_t part)
{
    return gguf->parts[part].path;
}

uint64_t gguf_data_offset(const struct gguf *gguf, uint32_t part)
{
    return gguf->parts[part].data_offset;
}

size_t gguf_tensor_count(const struct gguf *gguf)
{
    return gguf->tensor_count;
}

const struct gguf_tensor *gguf_tensor_at(const struct gguf *gguf, size_t index)
{
    return &gguf->tensors[index];
}

size_t gguf_key_count(const struct gguf *gguf)
{
    return gguf->key_count;
}

const struct gguf_key *gguf_key_at(const struct gguf *gguf, size_t index)
{
    return &gguf->keys[index];
}

static int compare_with_tensor(const void *name, const void *entry)
{
    const struct gguf_tensor *const *tensor = entry;

    return strcmp(name, (*tensor)->name);
}

const struct gguf_tensor *gguf_find_tensor(const struct gguf *gguf, const char *name)
{
    const struct gguf_tensor **found = NULL;

    if (gguf->tensor_count != 0)
        found = bsearch(name, gguf->tensors_by_name, gguf->tensor_count,
                        sizeof *gguf->tensors_by_name, compare_with_tensor);
    return found ? *found : NULL;
}

static int compare_with_key(const void *name, const void *entry)
{
    const struct gguf_key *const *key = entry;

    return strcmp(name, (*key)->name);
}

const struct gguf_key *gguf_find_key(const struct gguf *gguf, const char *name)
{
    const struct gguf_key **found = NULL;

    if (gguf->key_count != 0)
        found = bsearch(name, gguf->keys_by_name, gguf->key_count, sizeof *gguf->keys_by_name,
                        compare_with_key);
    return found ? *found : NULL;
}

/* Finds element `index` of a key of fixed-size elements; false without one. */
static bool find_element(const struct gguf *gguf, const char *name, uint64_t index,
                         enum gguf_type *type, uint64_t *bits)
{
    const struct gguf_key *key = gguf_find_key(gguf, name);
    uint32_t bytes;

    if (!key)
        return false;
    bytes = gguf_type_bytes(key->element_type);
    if (key->type != GGUF_TYPE_ARRAY)
        index = 0;
    if (bytes == 0 || index >= key->count)
        return false;
    *type = key->element_type;
    *bits = gguf_number(gguf->header + key->offset + index * bytes, bytes, gguf->big_endian);
    return true;
}

static bool is_scalar(const struct gguf *gguf, const char *name)
{
    const struct gguf_key *key = gguf_find_key(gguf, name);

    return key && key->type != GGUF_TYPE_ARRAY;
}

static bool is_signed(enum gguf_type type)
{
    return type == GGUF_TYPE_INT8 || type == GGUF_TYPE_INT16 || type == GGUF_TYPE_INT32 ||
           type == GGUF_TYPE_INT64;
}

static bool is_unsigned(enum gguf_type type)
{
    return type == GGUF_TYPE_UINT8 || type == GGUF_TYPE_UINT16 || type == GGUF_TYPE_UINT32 ||
           type == GGUF_TYPE_UINT64;
}

/* Reads two's complement of any width. */
static int64_t sign_extended(uint64_t bits, enum gguf_type type)
{
    uint64_t sign = UINT64_C(1) << (8 * gguf_type_bytes(type) - 1);

    return bits & sign ? -(int64_t)(~bits & (sign - 1)) - 1 : (int64_t)bits;
}

bool gguf_get_u64_at(const struct gguf *gguf, const char *name, uint64_t index, uint64_t *value)
{
    enum gguf_type type;
    uint64_t bits;

    if (!find_element(gguf, name, index, &type, &bits))
        return false;
    if (!is_unsigned(type) && !(is_signed(type) && sign_extended(bits, type) >= 0))
        return false;
    *value = bits;
    return true;
}

bool gguf_get_u64(const struct gguf *gguf, const char *name, uint64_t *value)
{
    return is_scalar(gguf, name) && gguf_get_u64_at(gguf, name, 0, value);
}

bool gguf_get_bool_at(const struct gguf *gguf, const char *name, uint64_t index, bool *value)
{
    enum gguf_type type;
    uint64_t bits;

    if (!find_element(gguf, name, index, &type, &bits))
        return false;
    if (type != GGUF_TYPE_BOOL && !is_unsigned(type) && !is_signed(type))
        return false;
    *value = bits != 0;
    return true;
}

bool gguf_get_bool(const struct gguf *gguf, const char *name, bool *value)
{
    return is_scalar(gguf, name) && gguf_get_bool_at(gguf, name, 0, value);
}

static float float_of_bits(uint64_t bits)
{
    uint32_t low = (uint32_t)bits;
    float value;

    memcpy(&value, &low, sizeof value);
    return value;
}

static double double_of_bits(uint64_t bits)
{
    double value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

/* C leaves a double beyond the range of float undefined; here it is an infinity. */
static float rounded(double value)
{
    if (value > (double)FLT_MAX)
        return INFINITY;
    return value < -(double)FLT_MAX ? -INFINITY : (float)value;
}

bool gguf_get_f32_at(const struct gguf *gguf, const char *name, uint64_t index, float *value)
{
    enum gguf_type type;
    uint64_t bits;

    if (!find_element(gguf, name, index, &type, &bits))
        return false;
    if (type == GGUF_TYPE_FLOAT32)
        *value = float_of_bits(bits);
    else if (type == GGUF_TYPE_FLOAT64)
        *value = rounded(double_of_bits(bits));
    else if (is_signed(type))
        *value = (float)sign_extended(bits, type);
    else if (is_unsigned(type))
        *value = (float)bits;
    else
        return false;
    return true;
}

bool gguf_get_f32(const struct gguf *gguf, const char *name, float *value)
{
    return is_scalar(gguf, name) && gguf_get_f32_at(gguf, name, 0, value);
}

bool gguf_get_string_at(const struct gguf *gguf, const char *name, uint64_t index,
                        const char **text, size_t *length)
{
    const struct gguf_key *key = gguf_find_key(gguf, name);
    size_t position, bytes;

    if (!key || key->element_type != GGUF_TYPE_STRING)
        return false;
    if (key->type != GGUF_TYPE_ARRAY)
        index = 0;
    if (index >= key->count)
        return false;
    position = key->offset;
    for (;; index--) {
        bytes = (size_t)gguf_number(gguf->header + position, 8, gguf->big_endian);
        position += 8;
        if (index == 0)
            break;
        position += bytes;
    }
    *text = (const char *)gguf->header + position;
    *length = bytes;
    return true;
}

bool gguf_get_string_after(const struct gguf *gguf, const char *name, uint64_t index,
                           const char **text, size_t *length)
{
    const struct gguf_key *key = gguf_find_key(gguf, name);
    const unsigned char *next;

    if (!key || key->type != GGUF_TYPE_ARRAY || key->element_type != GGUF_TYPE_STRING ||
        index >= key->count || index + 1 == key->count)
        return false;
    next = (const unsigned char *)*text + *length;
    *length = (size_t)gguf_number(next, 8, gguf->big_endian);
    *text = (const char *)next + 8;
    return true;
}

bool gguf_get_string(const struct gguf *gguf, const char *name, const char **text, size_t *length)
{
    return is_scalar(gguf, name) && gguf_get_string_at(gguf, name, 0, text, length);
}
