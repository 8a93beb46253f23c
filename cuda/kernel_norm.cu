/* Norms: a block a row, of which 256 threads are the lanes of arith_sum_squares(). Of few rows each
 * is a cluster of blocks: one multiprocessor would take most of the time to quantise a row. Of many
 * a block is those threads alone. */
#include "cuda/cuda_check.h"
#include "cuda/kernels.h"
#include "cuda/launch.cuh"

#include <cuda_pipeline.h>

extern "C" {
#include "ref/arith.h"
}

enum {
    THREADS_MAX = 1024,
    SHARED_USUAL = 40960,
    LONGEST = 12, /* values of a thread in shared memory */
    CLUSTER = 8,
    CLUSTER_ROWS = 16, /* at most; more rows keep the GPU busy as they are */
    CLUSTER_SHORTEST = 1024,
    MANY_ROWS = 128, /* at least: several blocks on a multiprocessor, as many threads as lanes */
    MANY_LONGEST = 8192,
};

/* The tree of arith_sum_squares() over its lanes; every warp computes it for itself. */
static __device__ __forceinline__ float sum_of_lanes(const float *lanes)
{
    const uint32_t l = threadIdx.x % 32;
    float sums[8];

#pragma unroll
    for (int k = 0; k < 8; k++)
        sums[k] = lanes[l + 32 * k];
#pragma unroll
    for (int s = 4; s > 0; s /= 2)
#pragma unroll
        for (int k = 0; k < s; k++)
            sums[k] += sums[k + s];
#pragma unroll
    for (int s = 16; s > 0; s /= 2)
        sums[0] += __shfl_down_sync(0xffffffffu, sums[0], s);
    return arith_canonical(__shfl_sync(0xffffffffu, sums[0], 0));
}

[[maybe_unused]] static __device__ __forceinline__ void cluster_arrive(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#endif
}

[[maybe_unused]] static __device__ __forceinline__ void cluster_wait(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

/* Stores in the shared memory of a block of the cluster. */
[[maybe_unused]] static __device__ __forceinline__ void cluster_store(float *at, uint32_t rank,
                                                                      float value)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("{\n"
                 ".reg .b32 there;\n"
                 "mapa.shared::cluster.u32 there, %0, %1;\n"
                 "st.shared::cluster.f32 [there], %2;\n"
                 "}\n" ::"r"((uint32_t)__cvta_generic_to_shared(at)),
                 "r"(rank), "f"(value)
                 : "memory");
#endif
}

/* Of a row of n values: those of a block of a cluster, whole blocks of activations. */
static __host__ __device__ constexpr uint32_t slice_of(uint32_t n)
{
    return (n + CLUSTER * ARITH_BLOCK - 1) / (CLUSTER * ARITH_BLOCK) * ARITH_BLOCK;
}

static_assert(slice_of(SHARED_USUAL / sizeof(float)) <= 5 * ARITH_LANES,
              "threads have at most 5 values of the longest row");

/* Weights come once a token from far away: they are on their way before the row is there. */
static __device__ __forceinline__ void load_weights(const float *weight, uint32_t n, float *to)
{
    for (uint32_t i = threadIdx.x * 4; i + 4 <= n; i += blockDim.x * 4)
        __pipeline_memcpy_async(to + i, weight + i, 16);
    __pipeline_commit();
    for (uint32_t i = n / 4 * 4 + threadIdx.x; i < n; i += blockDim.x)
        to[i] = weight[i];
}

/* Values `first`, `first` + `step`, ... before `end` of a row, joined with their sums. Loads go out
 * together: what is joined may be stored where they read. */
template <int EACH>
static __device__ __forceinline__ void load_values(const struct cuda_norm &norm, uint64_t row,
                                                   uint32_t first, uint32_t step, uint32_t end,
                                                   float (&values)[EACH])
{
    int64_t sums[EACH];

#pragma unroll
    for (int e = 0; e < EACH; e++)
        values[e] = first + e * step < end ? norm.x[row + first + e * step] : 0.0f;
    if (norm.sums == nullptr)
        return;
#pragma unroll
    for (int e = 0; e < EACH; e++)
        sums[e] = first + e * step < end ? norm.sums[row + first + e * step] : 0;
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        values[e] = arith_canonical(values[e] + arith_from_fixed(sums[e]));
        if (first + e * step < end)
            norm.joined[row + first + e * step] = values[e];
    }
}

/* Grid: (rows). EACH: values of a thread, n / blockDim.x or more. Few registers: a block finds room
 * beside one of a product. */
template <int EACH>
__global__ void __launch_bounds__(THREADS_MAX)
    rms_norm_kernel(struct launch_stamp stamp, struct cuda_norm norm)
{
    extern __shared__ __align__(16) float values[]; /* (n), then weights (n) */
    __shared__ float lanes[ARITH_LANES];
    const uint32_t n = (uint32_t)norm.n, threads = blockDim.x;
    const uint64_t row = (uint64_t)blockIdx.x * n;
    const float *weights = values + (n + 3) / 4 * 4;
    float own[EACH], sum = 0.0f;

    if (norm.weight != nullptr)
        load_weights(norm.weight, n, values + (n + 3) / 4 * 4);
    launch_begin(stamp);
    load_values(norm, row, threadIdx.x, threads, n, own);
#pragma unroll
    for (int e = 0; e < EACH; e++)
        if (threadIdx.x + e * threads < n)
            values[threadIdx.x + e * threads] = own[e];
    __pipeline_wait_prior(0);
    __syncthreads();
    if (threadIdx.x < ARITH_LANES) {
#pragma unroll 8
        for (uint32_t i = threadIdx.x; i < n; i += ARITH_LANES)
            sum = fmaf(values[i], values[i], sum);
        lanes[threadIdx.x] = sum;
    }
    __syncthreads();

    const float scale = arith_rsqrt(sum_of_lanes(lanes) / (float)n + norm.eps);

#pragma unroll
    for (int e = 0; e < EACH; e++) {
        const uint32_t i = threadIdx.x + e * threads;
        float value;

        if (i >= n)
            break;
        value = arith_canonical(own[e] * scale * (norm.weight != nullptr ? weights[i] : 1.0f));
        norm.y[row + i] = value;
        if (norm.quantised.bytes != nullptr)
            activations_store(norm.quantised, blockIdx.x, i, value);
    }
}

/* Four values from `at` on, joined with their sums. */
static __device__ __forceinline__ float4 load_four(const struct cuda_norm &norm, uint64_t at)
{
    float4 four = *(const float4 *)(norm.x + at);

    if (norm.sums != nullptr) {
        const longlong2 low = *(const longlong2 *)(norm.sums + at);
        const longlong2 high = *(const longlong2 *)(norm.sums + at + 2);

        four.x = arith_canonical(four.x + arith_from_fixed(low.x));
        four.y = arith_canonical(four.y + arith_from_fixed(low.y));
        four.z = arith_canonical(four.z + arith_from_fixed(high.x));
        four.w = arith_canonical(four.w + arith_from_fixed(high.y));
    }
    return four;
}

/* Grid: (rows). FOURS: fours of values of a thread, n / ARITH_LANES / 4 or more; n is a multiple of
 * 32. */
template <int FOURS>
static __global__ void __launch_bounds__(ARITH_LANES, 4)
    rows_rms_norm_kernel(struct launch_stamp stamp, struct cuda_norm norm)
{
    extern __shared__ __align__(16) float values[]; /* (n) */
    __shared__ float lanes[ARITH_LANES];
    const uint32_t n = (uint32_t)norm.n, l = threadIdx.x;
    const uint64_t row = (uint64_t)blockIdx.x * n;
    float4 own[FOURS];
    float sum = 0.0f;

    launch_begin(stamp);
#pragma unroll
    for (int e = 0; e < FOURS; e++)
        if ((l + e * ARITH_LANES) * 4 < n)
            own[e] = load_four(norm, row + (l + e * ARITH_LANES) * 4);
#pragma unroll
    for (int e = 0; e < FOURS; e++) {
        const uint32_t i = (l + e * ARITH_LANES) * 4;

        if (i >= n)
            break;
        *(float4 *)(values + i) = own[e];
        if (norm.sums != nullptr)
            *(float4 *)(norm.joined + row + i) = own[e];
    }
    __syncthreads();
#pragma unroll 4
    for (uint32_t i = l; i < n; i += ARITH_LANES)
        sum = fmaf(values[i], values[i], sum);
    lanes[l] = sum;
    __syncthreads();

    const float scale = arith_rsqrt(sum_of_lanes(lanes) / (float)n + norm.eps);

#pragma unroll
    for (int e = 0; e < FOURS; e++) {
        const uint32_t i = (l + e * ARITH_LANES) * 4;
        const bool is_there = i < n;
        float4 weight = make_float4(1.0f, 1.0f, 1.0f, 1.0f), four = weight;

        if (is_there) {
            if (norm.weight != nullptr)
                weight = __ldg((const float4 *)(norm.weight + i));
            four.x = arith_canonical(own[e].x * scale * weight.x);
            four.y = arith_canonical(own[e].y * scale * weight.y);
            four.z = arith_canonical(own[e].z * scale * weight.z);
            four.w = arith_canonical(own[e].w * scale * weight.w);
            *(float4 *)(norm.y + row + i) = four;
        }
        if (norm.quantised.bytes != nullptr)
            activations_store_four(norm.quantised, blockIdx.x, i, four, is_there);
    }
}

/* Grid: (CLUSTER, rows). Each block of a cluster gets all values and adds all squares, and writes a
 * slice of whole blocks of activations. EACH: values of a thread of the slice, or more. */
template <int EACH>
static __global__ void __launch_bounds__(ARITH_LANES)
    cluster_rms_norm_kernel(struct launch_stamp stamp, struct cuda_norm norm)
{
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    extern __shared__ __align__(16) float values[]; /* (n) */
    __shared__ float lanes[ARITH_LANES];
    const uint32_t n = (uint32_t)norm.n, slice = slice_of(n), first = blockIdx.x * slice;
    const uint32_t end = first + slice < n ? first + slice : n, l = threadIdx.x;
    const uint64_t row = (uint64_t)blockIdx.y * n;
    float own[EACH], weight[EACH], sum = 0.0f;

    cluster_arrive();
    launch_next();
#pragma unroll
    for (int e = 0; e < EACH; e++)
        weight[e] = norm.weight != nullptr && first + l + e * ARITH_LANES < end
                        ? norm.weight[first + l + e * ARITH_LANES]
                        : 1.0f;
    cluster_wait(); /* all blocks are there */
    launch_wait(stamp);
    load_values(norm, row, first + l, ARITH_LANES, end, own);
#pragma unroll
    for (uint32_t rank = 0; rank < CLUSTER; rank++)
#pragma unroll
        for (int e = 0; e < EACH; e++)
            if (first + l + e * ARITH_LANES < end)
                cluster_store(values + first + l + e * ARITH_LANES, rank, own[e]);
    cluster_arrive();
    cluster_wait();
#pragma unroll 8
    for (uint32_t i = l; i < n; i += ARITH_LANES)
        sum = fmaf(values[i], values[i], sum);
    lanes[l] = sum;
    __syncthreads();

    const float scale = arith_rsqrt(sum_of_lanes(lanes) / (float)n + norm.eps);

#pragma unroll
    for (int e = 0; e < EACH; e++) {
        const uint32_t i = first + l + e * ARITH_LANES;
        float value;

        if (i >= end)
            break;
        value = arith_canonical(own[e] * scale * weight[e]);
        norm.y[row + i] = value;
        if (norm.quantised.bytes != nullptr)
            activations_store(norm.quantised, blockIdx.y, i, value);
    }
#else
    __trap(); /* not launched on this card */
#endif
}

/* Grid: (rows); a thread a lane, which reads its values again. For rows that do not fit in shared
 * memory. */
static __global__ void __launch_bounds__(ARITH_LANES)
    long_rms_norm_kernel(struct launch_stamp stamp, struct cuda_norm norm)
{
    __shared__ float lanes[ARITH_LANES];
    const uint64_t row = blockIdx.x * norm.n;
    const float *values = norm.sums != nullptr ? norm.joined : norm.x;
    float sum = 0.0f;

    launch_begin(stamp);
    for (uint64_t i = threadIdx.x; i < norm.n; i += ARITH_LANES) {
        float value = norm.x[row + i];

        if (norm.sums != nullptr) {
            value = arith_canonical(value + arith_from_fixed(norm.sums[row + i]));
            norm.joined[row + i] = value;
        }
        sum = fmaf(value, value, sum);
    }
    lanes[threadIdx.x] = sum;
    __syncthreads();

    const float scale = arith_rsqrt(sum_of_lanes(lanes) / (float)norm.n + norm.eps);

    for (uint64_t i = threadIdx.x; i < norm.n; i += ARITH_LANES) {
        float weight = norm.weight != nullptr ? norm.weight[i] : 1.0f;
        float value = arith_canonical(values[row + i] * scale * weight);

        norm.y[row + i] = value;
        if (norm.quantised.bytes != nullptr)
            activations_store(norm.quantised, blockIdx.x, (uint32_t)i, value);
    }
}

template <int EACH>
static int launch_cluster_norm(const struct cuda_norm *norm, uint64_t rows, cudaStream_t stream,
                               struct error *err)
{
    launch_clusters(cluster_rms_norm_kernel<EACH>, CLUSTER, dim3(CLUSTER, (unsigned)rows),
                    ARITH_LANES, norm->n * sizeof(float), stream, *norm);
    return cuda_launched("rms_norm", err);
}

template <int EACH>
static int launch_norm(const struct cuda_norm *norm, uint64_t rows, unsigned threads,
                       cudaStream_t stream, struct error *err)
{
    size_t shared_bytes = 2 * ((norm->n + 3) / 4 * 4) * sizeof(float);

    if (shared_bytes > SHARED_USUAL &&
        cuda_check(cudaFuncSetAttribute(rms_norm_kernel<EACH>,
                                        cudaFuncAttributeMaxDynamicSharedMemorySize,
                                        (int)shared_bytes),
                   "rms_norm", err) != 0)
        return -1;
    launch_overlapping(rms_norm_kernel<EACH>, dim3((unsigned)rows), threads, shared_bytes, stream,
                       *norm);
    return cuda_launched("rms_norm", err);
}

/* Whether rows can be read by four; weights of a part of a tensor may begin anywhere. */
static bool is_aligned(const struct cuda_norm *norm)
{
    return ((uintptr_t)norm->x | (uintptr_t)norm->sums | (uintptr_t)norm->joined |
            (uintptr_t)norm->y | (uintptr_t)norm->weight) %
               sizeof(float4) ==
           0;
}

template <int FOURS>
static int launch_many_norms(const struct cuda_norm *norm, uint64_t rows, cudaStream_t stream,
                             struct error *err)
{
    launch_overlapping(rows_rms_norm_kernel<FOURS>, dim3((unsigned)rows), ARITH_LANES,
                       norm->n * sizeof(float), stream, *norm);
    return cuda_launched("rms_norm", err);
}

static int many_norms(const struct cuda_norm *norm, uint64_t rows, cudaStream_t stream,
                      struct error *err)
{
    if (norm->n <= 2 * 4 * ARITH_LANES)
        return launch_many_norms<2>(norm, rows, stream, err);
    if (norm->n <= 4 * 4 * ARITH_LANES)
        return launch_many_norms<4>(norm, rows, stream, err);
    if (norm->n <= 5 * 4 * ARITH_LANES)
        return launch_many_norms<5>(norm, rows, stream, err);
    return launch_many_norms<MANY_LONGEST / 4 / ARITH_LANES>(norm, rows, stream, err);
}

int cuda_rms_norm(const struct cuda_norm *norm, uint64_t rows, cudaStream_t stream,
                  struct error *err)
{
    if (rows == 0)
        return 0;
    if (rows <= CLUSTER_ROWS && norm->n >= CLUSTER_SHORTEST && norm->n % ARITH_BLOCK == 0 &&
        norm->n * sizeof(float) <= SHARED_USUAL && launch_is_hopper()) {
        if (slice_of((uint32_t)norm->n) <= 2 * ARITH_LANES)
            return launch_cluster_norm<2>(norm, rows, stream, err);
        if (slice_of((uint32_t)norm->n) <= 3 * ARITH_LANES)
            return launch_cluster_norm<3>(norm, rows, stream, err);
        return launch_cluster_norm<5>(norm, rows, stream, err);
    }
    if (rows >= MANY_ROWS && norm->n > ARITH_LANES && norm->n <= MANY_LONGEST &&
        norm->n % ARITH_BLOCK == 0 && is_aligned(norm))
        return many_norms(norm, rows, stream, err);
    if (norm->n <= ARITH_LANES)
        return launch_norm<1>(norm, rows, ARITH_LANES, stream, err);
    if (norm->n <= 2 * THREADS_MAX)
        return launch_norm<2>(norm, rows, THREADS_MAX, stream, err);
    if (norm->n <= 4 * THREADS_MAX)
        return launch_norm<4>(norm, rows, THREADS_MAX, stream, err);
    if (norm->n <= 5 * THREADS_MAX)
        return launch_norm<5>(norm, rows, THREADS_MAX, stream, err);
    if (norm->n <= 8 * THREADS_MAX)
        return launch_norm<8>(norm, rows, THREADS_MAX, stream, err);
    if (norm->n <= LONGEST * THREADS_MAX)
        return launch_norm<LONGEST>(norm, rows, THREADS_MAX, stream, err);
    launch_overlapping(long_rms_norm_kernel, dim3((unsigned)rows), ARITH_LANES, 0, stream, *norm);
    return cuda_launched("rms_norm", err);
}
