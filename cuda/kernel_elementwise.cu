/* What is computed value by value: a thread takes every so many-th. */
#include "cuda/cuda_check.h"
#include "cuda/kernels.h"
#include "cuda/launch.cuh"

extern "C" {
#include "ref/arith.h"
}

enum { THREADS = 256 };

static const uint64_t blocks_max = 4096, many_values = 1 << 20;

static unsigned blocks_for(uint64_t n)
{
    uint64_t blocks = (n + THREADS - 1) / THREADS;

    return (unsigned)(blocks < blocks_max ? blocks : blocks_max);
}

template <typename F>
__global__ void __launch_bounds__(THREADS) each_kernel(struct launch_stamp stamp, uint64_t n, F f)
{
    launch_begin(stamp);
    for (uint64_t i = (uint64_t)blockIdx.x * THREADS + threadIdx.x; i < n;
         i += (uint64_t)gridDim.x * THREADS)
        f(i);
}

template <typename F>
static int each(const char *name, uint64_t n, cudaStream_t stream, struct error *err, F f)
{
    if (n == 0)
        return 0;
    launch_overlapping(each_kernel<F>, dim3(blocks_for(n)), THREADS, 0, stream, n, f);
    return cuda_launched(name, err);
}

/* Grid: (rows, columns / THREADS): values as a product reads them. */
template <typename F>
__global__ void __launch_bounds__(THREADS)
    quantised_kernel(struct launch_stamp stamp, uint32_t columns, struct activations to, F f)
{
    const uint32_t column = blockIdx.y * THREADS + threadIdx.x;

    launch_begin(stamp);
    if (column < columns)
        activations_store(to, blockIdx.x, column, f.value((uint64_t)blockIdx.x * columns + column));
}

/* The same of many: grid (rows, columns / THREADS / 4). */
template <typename F>
__global__ void __launch_bounds__(THREADS)
    quantised_fours_kernel(struct launch_stamp stamp, uint32_t columns, struct activations to, F f)
{
    const uint32_t column = (blockIdx.y * THREADS + threadIdx.x) * 4;
    float4 four = make_float4(0.0f, 0.0f, 0.0f, 0.0f);

    launch_begin(stamp);
    if (column < columns)
        four = f.four((uint64_t)blockIdx.x * columns + column);
    activations_store_four(to, blockIdx.x, column, four, column < columns);
}

/* Rows of `columns`, written by f, or quantised where `to` has bytes. */
template <typename F>
static int each_of_rows(const char *name, uint64_t n, uint64_t columns,
                        const struct activations *to, cudaStream_t stream, struct error *err, F f)
{
    if (to->bytes == nullptr || n == 0)
        return each(name, n, stream, err, f);

    const uint32_t each = n < many_values || columns % ARITH_BLOCK != 0 ? 1 : 4;
    const uint64_t across = (uint64_t)THREADS * each;
    dim3 grid((unsigned)(n / columns), (unsigned)((columns + across - 1) / across));

    if (each == 1)
        launch_overlapping(quantised_kernel<F>, grid, THREADS, 0, stream, (uint32_t)columns, *to,
                           f);
    else
        launch_overlapping(quantised_fours_kernel<F>, grid, THREADS, 0, stream, (uint32_t)columns,
                           *to, f);
    return cuda_launched(name, err);
}

struct join_values {
    const float *a, *b;
    float *y;

    __device__ void operator()(uint64_t i) const
    {
        y[i] = arith_canonical(a[i] + b[i]);
    }
};

int cuda_join(const float *a, const float *b, uint64_t n, float *y, cudaStream_t stream,
              struct error *err)
{
    return each("join", n, stream, err, join_values{a, b, y});
}

struct gate_values {
    const float *x, *gate;
    float *y;

    static __device__ float of(float x, float gate)
    {
        return arith_canonical(x * arith_sigmoid(gate));
    }

    __device__ float value(uint64_t i) const
    {
        return of(x[i], gate[i]);
    }

    __device__ float4 four(uint64_t i) const
    {
        const float4 a = *(const float4 *)(x + i), b = *(const float4 *)(gate + i);

        return make_float4(of(a.x, b.x), of(a.y, b.y), of(a.z, b.z), of(a.w, b.w));
    }

    __device__ void operator()(uint64_t i) const
    {
        y[i] = value(i);
    }
};

int cuda_gate(const float *x, const float *gate, uint64_t n, float *y, uint64_t columns,
              const struct activations *quantised, cudaStream_t stream, struct error *err)
{
    return each_of_rows("gate", n, columns, quantised, stream, err, gate_values{x, gate, y});
}

struct glu_values {
    const float *gate, *up;
    bool gelu;
    float *y;

    __device__ float of(float gate, float up) const
    {
        return arith_canonical((gelu ? arith_gelu_tanh(gate) : arith_silu(gate)) * up);
    }

    __device__ float value(uint64_t i) const
    {
        return of(gate[i], up[i]);
    }

    __device__ float4 four(uint64_t i) const
    {
        const float4 a = *(const float4 *)(gate + i), b = *(const float4 *)(up + i);

        return make_float4(of(a.x, b.x), of(a.y, b.y), of(a.z, b.z), of(a.w, b.w));
    }

    __device__ void operator()(uint64_t i) const
    {
        y[i] = value(i);
    }
};

int cuda_glu(const float *gate, const float *up, bool gelu, uint64_t n, float *y, uint64_t columns,
             const struct activations *quantised, cudaStream_t stream, struct error *err)
{
    return each_of_rows("glu", n, columns, quantised, stream, err, glu_values{gate, up, gelu, y});
}

struct softcap_values {
    const float *x;
    float cap;
    float *y;

    __device__ void operator()(uint64_t i) const
    {
        y[i] = arith_canonical(cap * arith_tanh(x[i] / cap));
    }
};

int cuda_softcap(const float *x, float cap, uint64_t n, float *y, cudaStream_t stream,
                 struct error *err)
{
    return each("softcap", n, stream, err, softcap_values{x, cap, y});
}

struct scale_values {
    const float *x, *factors;
    uint64_t columns;
    float root;
    float *y;

    __device__ void operator()(uint64_t i) const
    {
        y[i] =
            arith_canonical(columns == 0 ? x[i] * factors[0] : x[i] * factors[i % columns] * root);
    }
};

int cuda_scale(const float *x, const float *factors, uint64_t columns, float root, uint64_t n,
               float *y, cudaStream_t stream, struct error *err)
{
    return each("scale", n, stream, err, scale_values{x, factors, columns, root, y});
}

struct shared_gate_values {
    const float *x, *gates;
    uint64_t columns;
    float *y;

    __device__ void operator()(uint64_t i) const
    {
        y[i] = arith_canonical(x[i] * arith_sigmoid(gates[i / columns]));
    }
};

int cuda_shared_gate(const float *x, const float *gates, uint64_t columns, uint64_t n, float *y,
                     cudaStream_t stream, struct error *err)
{
    return each("shared_gate", n, stream, err, shared_gate_values{x, gates, columns, y});
}

struct finish_values {
    const int64_t *sums;
    float *y;

    __device__ void operator()(uint64_t i) const
    {
        y[i] = arith_from_fixed(sums[i]);
    }
};

int cuda_finish(const int64_t *sums, uint64_t n, float *y, cudaStream_t stream, struct error *err)
{
    return each("finish", n, stream, err, finish_values{sums, y});
}

struct split_gate_values {
    const float *x;
    uint64_t n;
    float *query, *gate;

    __device__ void operator()(uint64_t i) const
    {
        uint64_t head = i / n, j = i % n;

        query[i] = x[2 * head * n + j];
        gate[i] = x[(2 * head + 1) * n + j];
    }
};

int cuda_split_gate(const float *x, uint64_t heads, uint64_t n, float *query, float *gate,
                    cudaStream_t stream, struct error *err)
{
    return each("split_gate", heads * n, stream, err, split_gate_values{x, n, query, gate});
}

/* Grid: (tokens). A block counts the outputs before its token. */
__global__ void select_kernel(struct launch_stamp stamp, const float *x,
                              const struct program_token *tokens, uint64_t n, float *y)
{
    uint32_t t = blockIdx.x;
    uint64_t row = 0;

    launch_begin(stamp);
    if (tokens[t].output == 0)
        return;
    for (uint32_t i = 0; i < t; i++)
        row += tokens[i].output != 0;
    for (uint64_t i = threadIdx.x; i < n; i += blockDim.x)
        y[row * n + i] = x[t * n + i];
}

int cuda_select(const float *x, const struct program_token *tokens, uint32_t count, uint64_t n,
                float *y, cudaStream_t stream, struct error *err)
{
    launch_overlapping(select_kernel, dim3(count), THREADS, 0, stream, x, tokens, n, y);
    return cuda_launched("select", err);
}

struct expert_sums {
    const int64_t *parts;
    uint32_t used;
    uint64_t n;
    int64_t *sums;

    __device__ void operator()(uint64_t i) const
    {
        const int64_t *part = parts + i / n * used * n + i % n;
        int64_t sum = 0;

        for (uint32_t u = 0; u < used; u++)
            sum = arith_fixed_add(sum, part[u * n]);
        sums[i] = sum;
    }
};

int cuda_sum_experts(const int64_t *parts, uint32_t tokens, uint32_t used, uint64_t n,
                     int64_t *sums, cudaStream_t stream, struct error *err)
{
    return each("sum_experts", tokens * n, stream, err, expert_sums{parts, used, n, sums});
}

struct rounded_sums {
    const float *floats;
    int64_t *sums;

    __device__ void operator()(uint64_t i) const
    {
        sums[i] = arith_to_fixed(floats[i], 0x1p29f);
    }
};

int cuda_sums_to_floats(const int64_t *sums, uint64_t n, float *floats, cudaStream_t stream,
                        struct error *err)
{
    return each("sums_to_floats", n, stream, err, finish_values{sums, floats});
}

int cuda_floats_to_sums(const float *floats, uint64_t n, int64_t *sums, cudaStream_t stream,
                        struct error *err)
{
    return each("floats_to_sums", n, stream, err, rounded_sums{floats, sums});
}
