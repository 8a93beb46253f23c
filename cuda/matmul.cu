/* Products: by the fast kernels where the weight is packed for them, by others with float weights.
 * The plain ones for quantised weights quantise the activations, then compute up to MATVEC_TOKENS
 * rows of a result by matrix-vector kernels, more by tiles; experts take MATVEC_ROUTES so. */
#include "cuda/matmul_private.h"

#include "cuda/cuda_check.h"
#include "cuda/launch.cuh"
#include "cuda/matmul_fast.h"

extern "C" {
#include "ref/arith.h"
}

enum { QUANTISE_THREADS = 128, EXPERTS_MAX = 1024 };

/* ---- activations ---- */

/* A thread quantises a block of 32: (blocks). */
__global__ void quantise(struct launch_stamp stamp, const float *x, uint64_t blocks, int8_t *q,
                         float *scales, int *sums)
{
    uint64_t block = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
    float values[ARITH_BLOCK];
    int8_t quantised[ARITH_BLOCK];
    float scale;
    int32_t sum;

    launch_begin(stamp);
    if (block >= blocks)
        return;
    for (int i = 0; i < ARITH_BLOCK; i++)
        values[i] = x[block * ARITH_BLOCK + i];
    arith_quantise_block(values, quantised, &scale, &sum);
    for (int i = 0; i < ARITH_BLOCK; i += 4)
        *(int *)(q + block * ARITH_BLOCK + i) =
            (int)((uint8_t)quantised[i] | (uint32_t)(uint8_t)quantised[i + 1] << 8 |
                  (uint32_t)(uint8_t)quantised[i + 2] << 16 |
                  (uint32_t)(uint8_t)quantised[i + 3] << 24);
    scales[block] = scale;
    sums[block] = sum;
}

/* ---- experts ---- */

/* Sorts the rows of a result by expert, and cuts each expert's into tiles: one block. */
__global__ void plan_tiles(struct launch_stamp stamp, const struct program_route *routes,
                           uint32_t count, uint32_t experts, struct matmul_tiles tiles)
{
    __shared__ uint32_t counts[EXPERTS_MAX], next[EXPERTS_MAX];

    launch_begin(stamp);
    for (uint32_t e = threadIdx.x; e < experts; e += blockDim.x)
        counts[e] = 0;
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < count; i += blockDim.x)
        atomicAdd(&counts[routes[i].expert], 1u);
    __syncthreads();
    if (threadIdx.x == 0) {
        uint32_t first = 0, tile = 0;

        for (uint32_t e = 0; e < experts; e++) {
            next[e] = first;
            for (uint32_t at = 0; at < counts[e]; at += MATMUL_TILE) {
                uint32_t left = counts[e] - at;

                tiles.list[tile].expert = e;
                tiles.list[tile].first = first + at;
                tiles.list[tile++].count = left < MATMUL_TILE ? left : MATMUL_TILE;
            }
            first += counts[e];
        }
        *tiles.count = tile;
    }
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < count; i += blockDim.x)
        tiles.order[atomicAdd(&next[routes[i].expert], 1u)] = i;
}

/* ---- scratch ---- */

uint32_t matmul_tile_count(const struct cuda_product *product)
{
    uint64_t tiles = ((uint64_t)product->tokens + MATMUL_TILE - 1) / MATMUL_TILE;

    if (product->routes != nullptr)
        tiles += product->weight->experts;
    return (uint32_t)(tiles < product->tokens ? tiles : product->tokens);
}

static bool uses_tiles(const struct cuda_product *product)
{
    return product->tokens > (product->routes != nullptr ? MATVEC_ROUTES : MATVEC_TOKENS);
}

/* Cuts the scratch into its parts; only sizes are right where `scratch` is NULL. */
static size_t cut_scratch(const struct cuda_product *product, char *scratch,
                          struct matmul_inputs *inputs)
{
    uint64_t values = product->tokens / product->x_divide * product->weight->columns;
    size_t used = 0;

    if (arith_type_is_quantised(product->weight->type)) {
        inputs->q = (int8_t *)(scratch + used);
        used += cuda_padded(values);
        inputs->scales = (float *)(scratch + used);
        used += cuda_padded(values / ARITH_BLOCK * sizeof(float));
        inputs->block_sums = (int *)(scratch + used);
        used += cuda_padded(values / ARITH_BLOCK * sizeof(int));
    }
    if (product->routes != nullptr && uses_tiles(product)) {
        inputs->tiles.count = (uint32_t *)(scratch + used);
        used += cuda_padded(sizeof(uint32_t));
        inputs->tiles.order = (uint32_t *)(scratch + used);
        used += cuda_padded(product->tokens * sizeof(uint32_t));
        inputs->tiles.list = (struct matmul_tile *)(scratch + used);
        used += cuda_padded(matmul_tile_count(product) * sizeof(struct matmul_tile));
    }
    return used;
}

/* ---- fast products ---- */

static struct matmul_fast fast_of(const struct cuda_weight *weight)
{
    struct matmul_fast fast = {};

    fast.type = weight->type;
    fast.group = weight->group;
    fast.rows = weight->rows;
    fast.count = weight->columns / weight->segments;
    fast.segments = weight->segments;
    fast.groups_total = weight->groups_total;
    return fast;
}

bool cuda_matmul_packs(const struct cuda_weight *weight)
{
    struct matmul_fast fast = fast_of(weight);

    return weight->experts == 1 && matmul_fast_takes(&fast);
}

size_t cuda_matmul_packed_bytes(const struct cuda_weight *weight)
{
    struct matmul_fast fast = fast_of(weight);

    return matmul_fast_packed_bytes(&fast);
}

int cuda_matmul_pack(const struct cuda_weight *weight, void *packed, cudaStream_t stream,
                     struct error *err)
{
    struct matmul_fast fast = fast_of(weight);

    return cuda_check(matmul_fast_pack(&fast, weight->data, weight->row_bytes, fast.count, 0, 0,
                                       weight->rows, packed, stream),
                      "matmul_fast_pack", err);
}

size_t cuda_matmul_activation_bytes(const struct cuda_weight *weight, uint32_t tokens)
{
    struct matmul_fast fast = fast_of(weight);

    return matmul_fast_activation_bytes(&fast, tokens);
}

struct activations cuda_matmul_activations(const struct cuda_weight *weight, uint32_t tokens,
                                           void *bytes)
{
    struct matmul_fast fast = fast_of(weight);

    return activations_of(&fast, tokens, bytes);
}

int cuda_matmul_quantise(const struct cuda_product *product, void *activations, cudaStream_t stream,
                         struct error *err)
{
    struct matmul_fast fast = fast_of(product->weight);

    return cuda_check(matmul_fast_quantise(&fast, product->x, product->weight->columns,
                                           product->tokens, activations, MATMUL_FAST_OVERLAP,
                                           stream),
                      "matmul_fast_quantise", err);
}

static struct matmul_fast_part part_of(const struct cuda_product *product)
{
    struct matmul_fast_part part = {};

    part.packed = product->weight->packed;
    part.rows = product->weight->rows;
    part.output.f32 = product->out;
    part.output.sums = product->sums;
    part.output.stride = product->weight->rows;
    return part;
}

int cuda_matmul_packed(const struct cuda_product *products, uint32_t count, const void *activations,
                       void *workspace, cudaStream_t stream, struct error *err)
{
    struct matmul_fast fast = fast_of(products[0].weight);
    struct matmul_fast_part parts[MATMUL_FAST_PARTS];

    for (uint32_t p = 0; p < count; p++)
        parts[p] = part_of(&products[p]);
    if (count == 1)
        return cuda_check(matmul_fast_product(&fast, parts[0].packed, activations,
                                              products[0].tokens, nullptr, parts[0].output,
                                              workspace, MATMUL_FAST_OVERLAP, stream),
                          "matmul_fast_product", err);
    return cuda_check(matmul_fast_decode_parts(&fast, parts, count, activations, products[0].tokens,
                                               nullptr, workspace, MATMUL_FAST_OVERLAP, stream),
                      "matmul_fast_decode_parts", err);
}

size_t cuda_matmul_workspace(const struct cuda_product *products, uint32_t count)
{
    uint64_t rows = 0;

    for (uint32_t p = 0; p < count; p++)
        rows += (uint64_t)matmul_fast_row_tiles(products[p].weight->rows) * MATMUL_FAST_ROWS;
    return count > 0 ? matmul_fast_workspace_bytes(rows) : 0;
}

size_t cuda_matmul_scratch(const struct cuda_product *product)
{
    struct matmul_inputs inputs;
    char base; /* pointers are only counted from it */

    return product->weight->packed != nullptr ? 0 : cut_scratch(product, &base, &inputs);
}

/* ---- products ---- */

static int check_product(const struct cuda_product *product, struct error *err)
{
    const struct cuda_weight *weight = product->weight;
    bool quantised = arith_type_is_quantised(weight->type);

    if (!quantised && !arith_type_is_float(weight->type))
        return error_set(err, ERROR_UNSUPPORTED, "no products with weights of %s",
                         tensor_type_info(weight->type)->name);
    if (quantised &&
        (weight->group % ARITH_BLOCK != 0 || weight->columns / weight->segments % ARITH_BLOCK != 0))
        return error_set(err, ERROR_UNSUPPORTED, "columns that are not whole blocks of 32");
    if (product->routes != nullptr && weight->experts > EXPERTS_MAX)
        return error_set(err, ERROR_UNSUPPORTED, "%u experts; %d at most", weight->experts,
                         EXPERTS_MAX);
    return 0;
}

int cuda_matmul(const struct cuda_product *product, void *scratch, cudaStream_t stream,
                struct error *err)
{
    const struct cuda_weight *weight = product->weight;
    struct matmul_inputs inputs = {};

    if (product->tokens == 0 || weight->rows == 0)
        return 0;
    if (check_product(product, err) != 0)
        return -1;
    cut_scratch(product, (char *)scratch, &inputs);
    if (product->routes != nullptr && uses_tiles(product)) {
        launch_overlapping(plan_tiles, dim3(1), 256, 0, stream, product->routes, product->tokens,
                           weight->experts, inputs.tiles);
        if (cuda_launched("plan_tiles", err) != 0)
            return -1;
    }
    if (!arith_type_is_quantised(weight->type))
        return matmul_float(product, &inputs, stream, err);

    uint64_t blocks = product->tokens / product->x_divide * weight->columns / ARITH_BLOCK;
    dim3 grid((unsigned)((blocks + QUANTISE_THREADS - 1) / QUANTISE_THREADS));

    launch_overlapping(quantise, grid, QUANTISE_THREADS, 0, stream, product->x, blocks, inputs.q,
                       inputs.scales, inputs.block_sums);
    if (cuda_launched("quantise", err) != 0)
        return -1;
    return uses_tiles(product) ? matmul_tiles_run(product, &inputs, stream, err)
                               : matmul_vector(product, &inputs, stream, err);
}
