#include "ref/layout.h"

#include "ref/arith.h"

uint32_t layout_rows(const struct program *program, const struct program_op *op)
{
    if (op->outputs)
        return program->outputs;
    return op->tokens > 0 ? op->tokens : program->tokens;
}

size_t layout_element_bytes(unsigned value)
{
    if (value == OP_VALUE_SUMS)
        return sizeof(int64_t);
    if (value == OP_VALUE_PICKS)
        return sizeof(struct program_pick);
    return value == OP_VALUE_ROUTE ? sizeof(struct program_route) : sizeof(float);
}

bool layout_is_cache(unsigned value)
{
    return value == OP_VALUE_CACHE_K || value == OP_VALUE_CACHE_V || value == OP_VALUE_WINDOW_K ||
           value == OP_VALUE_WINDOW_V;
}

enum tensor_type layout_cache_type(const struct placement *placement, unsigned value)
{
    return value == OP_VALUE_CACHE_K || value == OP_VALUE_WINDOW_K ? placement->plan.type_k
                                                                   : placement->plan.type_v;
}

size_t layout_cache_bytes(const struct placement *placement, const struct layout_room *room,
                          unsigned value, bool sliding, uint64_t row_values)
{
    return (size_t)room->streams * room->cells[sliding] *
           tensor_type_row_bytes(layout_cache_type(placement, value), row_values);
}

uint64_t layout_state_rows(const struct model *model, const struct layout_room *room,
                           unsigned value, int layer)
{
    uint64_t rows = (uint64_t)room->sequences * room->planes;

    return value == OP_VALUE_CONV ? rows * (model->layers[layer].gdn_conv_kernel - 1) : rows;
}

uint32_t layout_turned(const struct numbers *numbers, const struct program_op *op)
{
    uint32_t turned = op->sliding ? numbers->rope_dim_sliding : numbers->rope_dim;

    return turned > 0 && turned < op->columns ? turned : (uint32_t)op->columns;
}

float layout_attention_scale(const struct numbers *numbers, uint64_t dim_k)
{
    return numbers->attention_scale > 0 ? numbers->attention_scale : arith_rsqrt((float)dim_k);
}
