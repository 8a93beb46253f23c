#include "sim/tensor_type.h"

#include <stddef.h>
#include <strings.h>

static const struct tensor_type_info types[TENSOR_TYPE_LIMIT] = {
#define TENSOR_TYPE_ROW(name, id, elements, bytes, quantised)                                      \
    [id] = {#name, elements, bytes, quantised},
    TENSOR_TYPES(TENSOR_TYPE_ROW)
#undef TENSOR_TYPE_ROW
};

const struct tensor_type_info *tensor_type_info(uint32_t id)
{
    return id < TENSOR_TYPE_LIMIT && types[id].name != NULL ? &types[id] : NULL;
}

int tensor_type_find(const char *name)
{
    for (int id = 0; id < TENSOR_TYPE_LIMIT; id++)
        if (types[id].name != NULL && strcasecmp(types[id].name, name) == 0)
            return id;
    return -1;
}

uint64_t tensor_type_row_bytes(enum tensor_type type, uint64_t elements)
{
    return elements / types[type].block_elements * types[type].block_bytes;
}
