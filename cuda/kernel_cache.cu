/* Rows into a cache, and rows of K turned where they lie. */
#include "cuda/cuda_check.h"
#include "cuda/kernel_cache_value.cuh"
#include "cuda/kernel_turn.cuh"
#include "cuda/kernels.h"
#include "cuda/launch.cuh"

enum { THREADS = 128 };

__device__ __forceinline__ char *cache_block(enum tensor_type type, void *cache, uint64_t index)
{
    return (char *)cache + index / arith_type_columns(type) * arith_type_bytes(type);
}

/* Values that a thread stores. */
__host__ __device__ static uint32_t stored_at_once(enum tensor_type type)
{
    return type == TENSOR_TYPE_F16 ? 1 : ARITH_BLOCK;
}

/* Grid: (tokens, width / stored_at_once() / THREADS). */
__global__ void store_kernel(struct launch_stamp stamp, struct cuda_store store, const float *x,
                             void *cache)
{
    uint64_t at = ((uint64_t)blockIdx.y * THREADS + threadIdx.x) * stored_at_once(store.type);
    uint32_t t = blockIdx.x;

    launch_begin(stamp);
    if (at >= store.width)
        return;

    uint64_t out = store.tokens[t].cell[store.sliding] * store.row + store.first + at;
    const float *in = x + t * store.width + at;
    float values[ARITH_BLOCK];

    if (store.type == TENSOR_TYPE_F16) {
        ((uint16_t *)cache)[out] = arith_f16_from_f32(*in);
        return;
    }
    for (int i = 0; i < ARITH_BLOCK; i++)
        values[i] = in[i];
    arith_cache_block(store.type, values, cache_block(store.type, cache, out));
}

int cuda_store(const struct cuda_store *store, const float *x, void *cache, cudaStream_t stream,
               struct error *err)
{
    uint64_t threads = store->width / stored_at_once(store->type);

    if (store->token_count == 0 || store->width == 0)
        return 0;

    dim3 grid(store->token_count, (unsigned)((threads + THREADS - 1) / THREADS));

    launch_overlapping(store_kernel, grid, THREADS, 0, stream, *store, x, cache);
    return cuda_launched("store", err);
}

/* Grid: (rows, heads); dim floats of shared memory. */
__global__ void shift_kernel(struct launch_stamp stamp, struct cuda_shift shift, void *cache)
{
    extern __shared__ float head[];

    launch_begin(stamp);

    uint32_t moved = shift.shifts[blockIdx.x], pairs = shift.turned / 2;
    uint64_t at = blockIdx.x * shift.row + shift.first + (uint64_t)blockIdx.y * shift.dim;

    if (moved == 0)
        return;
    for (uint32_t i = threadIdx.x; i < shift.dim; i += blockDim.x)
        head[i] = cache_value(shift.type, cache, at + i);
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < pairs; i += blockDim.x) {
        uint32_t first, second;
        float sine, cosine;

        arith_sincos((double)moved * -shift.frequencies[i], &sine, &cosine);
        pair_places(i, pairs, shift.halves, &first, &second);
        turn_pair(cosine, sine, head + first, head + second);
    }
    __syncthreads();
    if (shift.type == TENSOR_TYPE_F16) {
        for (uint32_t i = threadIdx.x; i < shift.dim; i += blockDim.x)
            ((uint16_t *)cache)[at + i] = arith_f16_from_f32(head[i]);
        return;
    }
    for (uint32_t i = threadIdx.x * ARITH_BLOCK; i < shift.dim; i += blockDim.x * ARITH_BLOCK)
        arith_cache_block(shift.type, head + i, cache_block(shift.type, cache, at + i));
}

int cuda_shift(const struct cuda_shift *shift, void *cache, cudaStream_t stream, struct error *err)
{
    if (shift->rows == 0 || shift->heads == 0)
        return 0;

    dim3 grid((unsigned)shift->rows, shift->heads);

    launch_overlapping(shift_kernel, grid, THREADS, shift->dim * sizeof(float), stream, *shift,
                       cache);
    return cuda_launched("shift", err);
}
