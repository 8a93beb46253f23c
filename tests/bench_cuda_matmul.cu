/* The fast products of cuda/matmul_fast.h, and those with float weights: every output against a
 * plain kernel made of ref/arith.h, that kernel against a loop on the CPU, then how fast they are.
 *
 * Without arguments everything; "check" or "time" does one half, "quick" checks small shapes alone;
 * "floats" does both halves of float weights alone; "shapes [TOKENS...]" times all
 * products of a layer of two models; "one TYPE GROUP ROWS COLUMNS TOKENS" launches a product a few
 * times. Exits with 77 without a GPU. */
#include <string.h>
#include <utility>

#include "cuda/matmul.h"
#include "cuda/matmul_fast.h"
#include "ref/arith.h"
#include "tests/bench_cuda.cuh"

#define CHUNK 8 /* tokens of a thread of the plain kernel */

static const struct {
    const char *name;
    enum tensor_type type;
} types[] = {{"Q8_0", TENSOR_TYPE_Q8_0},
             {"Q4_0", TENSOR_TYPE_Q4_0},
             {"Q4_K", TENSOR_TYPE_Q4_K},
             {"Q5_K", TENSOR_TYPE_Q5_K},
             {"Q6_K", TENSOR_TYPE_Q6_K}};

static const char *type_name(enum tensor_type type)
{
    for (auto &entry : types)
        if (entry.type == type)
            return entry.name;
    return "?";
}

/* ---- inputs ---- */

static __host__ __device__ uint32_t hash(uint64_t x)
{
    x ^= x >> 33;
    x *= UINT64_C(0xff51afd7ed558ccd);
    x ^= x >> 33;
    x *= UINT64_C(0xc4ceb9fe1a85ec53);
    x ^= x >> 33;
    return (uint32_t)x;
}

/* A scale around 2^-8; wild: now and then anything. */
static __device__ uint16_t random_half(uint64_t seed, bool wild)
{
    uint32_t h = hash(seed);

    if (wild && h % 997 == 0)
        return (uint16_t)(h >> 16);
    return (uint16_t)((h >> 31) << 15 | (5 + (h >> 16) % 6) << 10 | (h >> 20 & 1023));
}

static __global__ void fill_weights(enum tensor_type type, uint8_t *to, uint64_t blocks,
                                    uint64_t seed, bool wild)
{
    const uint32_t bytes = arith_type_bytes(type);

    for (uint64_t b = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; b < blocks;
         b += (uint64_t)gridDim.x * blockDim.x) {
        uint8_t *block = to + b * bytes;
        uint16_t *d = (uint16_t *)(block + (type == TENSOR_TYPE_Q6_K ? bytes - 2 : 0));

        for (uint32_t i = 0; i < bytes; i += 2)
            *(uint16_t *)(block + i) = (uint16_t)hash(seed + b * 256 + i);
        d[0] = random_half(seed + b * 256 + 253, wild);
        if (arith_type_has_min(type))
            d[1] = random_half(seed + b * 256 + 255, wild);
    }
}

static __global__ void fill_floats(float *to, uint64_t n, uint64_t seed, bool wild)
{
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n;
         i += (uint64_t)gridDim.x * blockDim.x) {
        uint32_t h = hash(seed + i), of_block = hash(seed + 77 + i / 32);
        float value = ((float)(h & 0xffffff) - 8388608.0f) * 0x1p-21f;

        if (wild && of_block % 31 == 0)
            value *= arith_scale(1.0f, (int32_t)(of_block / 31 % 120) - 90);
        if (wild && h % 39989 == 0)
            value = arith_float(h);
        to[i] = value;
    }
}

/* ---- the plain product ---- */

/* The weight as it lies in ggml's layout. */
struct plain {
    struct matmul_fast matmul;
    const uint8_t *weight;
    uint64_t row_bytes, segment_columns, first;
    const float *x; /* (tokens, segments x count) */
    const float *token_scales;
    uint32_t tokens;
    float limit;
    /* activations: (tokens, blocks) */
    int8_t *q;
    float *scales;
    int32_t *sums;
};

static __host__ __device__ void plain_quantise(const struct plain &plain, uint64_t block)
{
    arith_quantise_block(plain.x + block * 32, plain.q + block * 32, plain.scales + block,
                         plain.sums + block);
}

/* Sums of one row and CHUNK tokens from `token` on. */
static __host__ __device__ void plain_product(const struct plain &plain, uint64_t row,
                                              uint32_t token, int64_t *out)
{
    const struct matmul_fast &matmul = plain.matmul;
    const uint32_t columns = arith_type_columns(matmul.type);
    const uint64_t blocks = matmul.segments * matmul.count / 32;

    for (int t = 0; t < CHUNK; t++)
        out[t] = 0;
    for (uint32_t segment = 0; segment < matmul.segments; segment++)
        for (uint64_t group = 0; group < matmul.count; group += matmul.group) {
            uint64_t end =
                group + matmul.group < matmul.count ? group + matmul.group : matmul.count;
            float acc[CHUNK] = {};

            for (uint64_t column = group; column < end; column += 32) {
                uint64_t from = segment * plain.segment_columns + plain.first + column;
                uint64_t block = (segment * matmul.count + column) / 32;
                struct arith_block decoded;

                arith_decode_block(matmul.type,
                                   plain.weight + row * plain.row_bytes +
                                       from / columns * arith_type_bytes(matmul.type),
                                   (uint32_t)(from % columns) / 32, &decoded);
                for (int t = 0; t < CHUNK; t++)
                    if (token + t < plain.tokens) {
                        uint64_t at = (token + t) * blocks + block;

                        acc[t] = arith_decoded_fma(matmul.type, &decoded, plain.q + at * 32,
                                                   plain.scales[at], plain.sums[at], acc[t]);
                    }
            }
            for (int t = 0; t < CHUNK; t++)
                if (token + t < plain.tokens) {
                    float partial = plain.token_scales != NULL
                                        ? acc[t] * plain.token_scales[token + t]
                                        : acc[t];

                    out[t] = arith_fixed_add(out[t], arith_to_fixed(partial, plain.limit));
                }
        }
}

static __global__ void plain_quantise_kernel(const struct plain plain, uint64_t blocks)
{
    uint64_t block = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;

    if (block < blocks)
        plain_quantise(plain, block);
}

static __global__ void plain_kernel(const struct plain plain, int64_t *out)
{
    uint64_t row = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
    uint32_t token = blockIdx.y * CHUNK;
    int64_t sums[CHUNK];

    if (row >= plain.matmul.rows)
        return;
    plain_product(plain, row, token, sums);
    for (int t = 0; t < CHUNK; t++)
        if (token + t < plain.tokens)
            out[(token + t) * plain.matmul.rows + row] = sums[t];
}

/* Counts differences. */
static __global__ void compare_kernel(const int64_t *expected, const float *f32,
                                      const int64_t *sums, uint64_t n, unsigned long long *wrong)
{
    uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
    bool same;

    if (i >= n)
        return;
    if (f32 != NULL)
        same = arith_bits(f32[i]) == arith_bits(arith_from_fixed(expected[i]));
    else
        same = sums[i] == expected[i];
    if (arith_fixed_is_flagged(expected[i]))
        atomicAdd(&wrong[2], 1ULL);
    if (!same && atomicAdd(&wrong[0], 1ULL) == 0)
        wrong[1] = i;
}

static __global__ void poison_kernel(int64_t *to, uint64_t n, int64_t value)
{
    uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;

    if (i < n)
        to[i] = value;
}

static __global__ void nonzero_kernel(const uint32_t *words, uint64_t n, unsigned long long *count)
{
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n;
         i += (uint64_t)gridDim.x * blockDim.x)
        if (words[i] != 0)
            atomicAdd(count, 1ULL);
}

/* ---- checks ---- */

struct shape {
    uint64_t rows, segment_columns;
    uint32_t segments;
    uint64_t first, count;
};

template <typename T> static T *allocate(uint64_t n)
{
    void *p;

    CUDA(cudaMalloc(&p, n * sizeof(T) + 16));
    return (T *)p;
}

static unsigned blocks_of(uint64_t n)
{
    return (unsigned)((n + 255) / 256);
}

static uint64_t checked, failures, flagged_outputs;

/* One weight with several numbers of tokens. */
static void check(enum tensor_type type, uint32_t group, const struct shape &shape, bool wild,
                  const std::vector<uint32_t> &token_counts, int launches, bool on_cpu)
{
    const uint32_t columns = arith_type_columns(type);
    const uint64_t per_segment = (shape.count + group - 1) / group;
    const uint64_t total_columns = shape.segment_columns * shape.segments;
    const uint64_t row_bytes = total_columns / columns * arith_type_bytes(type);
    const uint32_t tokens_max = *std::max_element(token_counts.begin(), token_counts.end());
    const uint64_t n_max = tokens_max * shape.rows, width = shape.segments * shape.count;
    struct matmul_fast matmul = {type,        group,          shape.rows,
                                 shape.count, shape.segments, per_segment * shape.segments + 3};
    size_t workspace_bytes = matmul_fast_workspace_bytes(shape.rows);
    uint8_t *weight = allocate<uint8_t>(row_bytes * shape.rows);
    uint8_t *packed = allocate<uint8_t>(matmul_fast_packed_bytes(&matmul));
    uint8_t *activations =
        allocate<uint8_t>(matmul_fast_activation_bytes(&matmul, tokens_max + 64));
    uint8_t *workspace = allocate<uint8_t>(workspace_bytes);
    float *x = allocate<float>(tokens_max * width), *token_scales = allocate<float>(tokens_max);
    int64_t *expected = allocate<int64_t>(n_max), *got = allocate<int64_t>(n_max);
    unsigned long long *wrong = allocate<unsigned long long>(4), host[4];
    struct plain plain = {matmul,
                          weight,
                          row_bytes,
                          shape.segment_columns,
                          shape.first,
                          x,
                          NULL,
                          0,
                          arith_limit(matmul.groups_total),
                          allocate<int8_t>(tokens_max * width),
                          allocate<float>(tokens_max * width / 32),
                          allocate<int32_t>(tokens_max * width / 32)};
    uint64_t seed = hash(type * 1000 + group + shape.rows * 7919 + shape.count) * UINT64_C(1000003);
    uint64_t half = shape.rows / 2 / 64 * 64; /* packed in two parts */

    fill_weights<<<1024, 256>>>(type, weight, row_bytes * shape.rows / arith_type_bytes(type), seed,
                                wild);
    fill_floats<<<1024, 256>>>(x, tokens_max * width, seed + 5, wild);
    fill_floats<<<1, 256>>>(token_scales, tokens_max, seed + 9, false);
    CUDA(cudaMemset(workspace, 0, workspace_bytes));
    CUDA(cudaMemset(workspace, 0x77, MATMUL_FAST_SCRATCH));
    CUDA(cudaMemset(packed, 0xa5, matmul_fast_packed_bytes(&matmul)));
    CUDA(matmul_fast_pack(&matmul, weight, row_bytes, shape.segment_columns, shape.first, 0, half,
                          packed, 0));
    CUDA(matmul_fast_pack(&matmul, weight + half * row_bytes, row_bytes, shape.segment_columns,
                          shape.first, half, shape.rows - half, packed, 0));
    for (uint32_t tokens : token_counts)
        for (int scaled = 0; scaled < 2; scaled++) {
            const uint64_t n = tokens * shape.rows, blocks = tokens * width / 32;

            plain.tokens = tokens;
            plain.token_scales = scaled ? token_scales : NULL;
            plain_quantise_kernel<<<blocks_of(blocks), 256>>>(plain, blocks);
            plain_kernel<<<dim3((unsigned)((shape.rows + 63) / 64), (tokens + CHUNK - 1) / CHUNK),
                           64>>>(plain, expected);
            CUDA(cudaGetLastError());
            if (on_cpu) {
                struct plain cpu = plain;
                std::vector<uint8_t> w(row_bytes * shape.rows);
                std::vector<float> xs(tokens * width), scales(blocks), factors(tokens);
                std::vector<int8_t> q(blocks * 32);
                std::vector<int32_t> sums(blocks);
                std::vector<int64_t> sums_gpu(n);

                CUDA(cudaMemcpy(w.data(), weight, w.size(), cudaMemcpyDeviceToHost));
                CUDA(cudaMemcpy(xs.data(), x, xs.size() * 4, cudaMemcpyDeviceToHost));
                CUDA(cudaMemcpy(factors.data(), token_scales, tokens * 4, cudaMemcpyDeviceToHost));
                CUDA(cudaMemcpy(sums_gpu.data(), expected, n * 8, cudaMemcpyDeviceToHost));
                cpu.weight = w.data();
                cpu.x = xs.data();
                cpu.q = q.data();
                cpu.scales = scales.data();
                cpu.sums = sums.data();
                cpu.token_scales = scaled ? factors.data() : NULL;
                for (uint64_t b = 0; b < blocks; b++)
                    plain_quantise(cpu, b);
                for (uint64_t row = 0; row < shape.rows; row++)
                    for (uint32_t t = 0; t < tokens; t += CHUNK) {
                        int64_t out[CHUNK];

                        plain_product(cpu, row, t, out);
                        for (uint32_t k = 0; k < CHUNK && t + k < tokens; k++)
                            if (out[k] != sums_gpu[(t + k) * shape.rows + row]) {
                                if (failures++ == 0)
                                    printf("CPU and plain kernel differ: %s row %lu token %u\n",
                                           type_name(type), (unsigned long)row, t + k);
                            }
                    }
                checked += n;
            }
            CUDA(cudaMemset(activations, 0xff,
                            matmul_fast_activation_bytes(&matmul, tokens_max + 64)));
            CUDA(matmul_fast_quantise(&matmul, x, width, tokens, activations, 0, 0));
            for (int launch = 0; launch < launches; launch++)
                for (int portable = 0; portable < (launch < 2 ? 2 : 1); portable++) {
                    const bool to_sums = launch % 2 == 1;
                    struct matmul_fast_output output = {to_sums ? NULL : (float *)got,
                                                        to_sums ? got : NULL, shape.rows};

                    poison_kernel<<<blocks_of(n), 256>>>(got, n, INT64_C(0x123456789abcd));
                    CUDA(cudaMemset(wrong, 0, 32));
                    CUDA(matmul_fast_product(&matmul, packed, activations, tokens,
                                             plain.token_scales, output, workspace,
                                             portable          ? MATMUL_FAST_PORTABLE
                                             : launch % 3 == 2 ? 0
                                                               : MATMUL_FAST_OVERLAP,
                                             0));
                    compare_kernel<<<blocks_of(n), 256>>>(expected, output.f32, output.sums, n,
                                                          wrong);
                    nonzero_kernel<<<1024, 256>>>((uint32_t *)(workspace + MATMUL_FAST_SCRATCH),
                                                  (workspace_bytes - MATMUL_FAST_SCRATCH) / 4,
                                                  wrong + 3);
                    CUDA(cudaMemcpy(host, wrong, 32, cudaMemcpyDeviceToHost));
                    checked += n;
                    if (launch == 0)
                        flagged_outputs += host[2];
                    if (host[0] != 0 || host[3] != 0) {
                        if (failures++ < 40)
                            printf("WRONG %s group %u rows %lu columns %ux%lu of %lu tokens "
                                   "%u%s%s%s%s "
                                   "launch %d: %llu of %lu outputs, first %llu; workspace %llu\n",
                                   type_name(type), group, (unsigned long)shape.rows,
                                   shape.segments, (unsigned long)shape.count,
                                   (unsigned long)shape.segment_columns, tokens,
                                   scaled ? " scaled" : "", wild ? " wild" : "",
                                   portable ? " portable" : "", to_sums ? " sums" : " f32", launch,
                                   host[0], (unsigned long)n, host[1], host[3]);
                        CUDA(cudaMemset(workspace, 0, workspace_bytes));
                    }
                }
        }
    for (void *p : {(void *)weight, (void *)packed, (void *)activations, (void *)workspace,
                    (void *)x, (void *)token_scales, (void *)expected, (void *)got, (void *)wrong,
                    (void *)plain.q, (void *)plain.scales, (void *)plain.sums})
        CUDA(cudaFree(p));
}

static void check_all(bool quick)
{
    static const struct shape small[] = {
        {200, 768, 1, 0, 640},    /* a short last group */
        {77, 2048, 3, 512, 1024}, /* segments, a part of each */
        {1001, 1280, 1, 0, 1056}, /* a last group of one block */
        {3000, 2048, 1, 0, 2048},
    };
    const std::vector<uint32_t> few = {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17, 33, 100, 128};
    const std::vector<uint32_t> many = {1, 4, 8, 16, 100, 512};

    for (auto &entry : types) {
        check(entry.type, 256, {70, 768, 1, 0, 768}, true, {1, 11}, 2, true);
        for (uint32_t group : {256u, 128u})
            for (auto &shape : small)
                for (int wild = 0; wild < 2; wild++)
                    check(entry.type, group, shape, wild != 0, few, 4, false);
        printf("%s: small shapes, %lu failures\n", entry.name, (unsigned long)failures);
        fflush(stdout);
    }
    if (quick)
        return;
    for (auto &entry : types)
        for (uint32_t group : {256u, 128u}) {
            check(entry.type, group, {17408, 5120, 1, 0, 5120}, group == 128, many, 10, false);
            check(entry.type, group, {5120, 17408, 1, 0, 17408}, group == 128, many, 10, false);
            check(entry.type, group, {4096, 4096, 1, 0, 4096}, true, many, 10, false);
        }
}

/* ---- times ---- */

static void time_all(void)
{
    static const struct {
        uint64_t rows, columns;
    } shapes[] = {{17408, 5120}, {5120, 17408}, {4096, 4096}, {14336, 4096}};
    cudaStream_t stream;

    CUDA(cudaStreamCreate(&stream));

    const double bandwidth = read_bandwidth(stream);

    printf("read bandwidth %.0f GB/s\n", bandwidth * 1e-9);
    printf("type group rows columns tokens: us a launch, ggml GB/s (ratio), TOPS; with overlap; "
           "and with quantisation\n");
    for (auto &entry : types)
        for (uint32_t group : {256u, 128u})
            for (auto &shape : shapes) {
                if (group == 128 && entry.type != TENSOR_TYPE_Q8_0 &&
                    entry.type != TENSOR_TYPE_Q4_K)
                    continue;
                struct matmul_fast matmul = {entry.type,    group, shape.rows,
                                             shape.columns, 1,     shape.columns / group};
                const uint32_t columns = arith_type_columns(entry.type);
                const uint64_t row_bytes = shape.columns / columns * arith_type_bytes(entry.type);
                const uint64_t bytes = row_bytes * shape.rows;
                const int copies = (int)(UINT64_C(400000000) / bytes) + 2;
                uint8_t *weight = allocate<uint8_t>(bytes);
                uint8_t *workspace = allocate<uint8_t>(matmul_fast_workspace_bytes(shape.rows));
                float *x = allocate<float>(512 * shape.columns),
                      *out = allocate<float>(512 * shape.rows);
                uint8_t *activations =
                    allocate<uint8_t>(matmul_fast_activation_bytes(&matmul, 512));
                std::vector<uint8_t *> packed;

                fill_weights<<<1024, 256>>>(entry.type, weight,
                                            bytes / arith_type_bytes(entry.type), 7, false);
                fill_floats<<<1024, 256>>>(x, 512 * shape.columns, 8, false);
                CUDA(cudaMemset(workspace, 0, matmul_fast_workspace_bytes(shape.rows)));
                for (int c = 0; c < copies; c++) {
                    packed.push_back(allocate<uint8_t>(matmul_fast_packed_bytes(&matmul)));
                    CUDA(matmul_fast_pack(&matmul, weight, row_bytes, shape.columns, 0, 0,
                                          shape.rows, packed[c], 0));
                }
                CUDA(cudaDeviceSynchronize());
                for (uint32_t tokens : {1u, 2u, 4u, 8u, 16u, 32u, 128u, 512u}) {
                    const int launches = tokens <= 32 ? std::max(20, copies) : copies;
                    struct matmul_fast_output output = {out, NULL, shape.rows};
                    double s[4];

                    if (group == 128 && tokens != 1 && tokens != 8 && tokens != 128 &&
                        tokens != 512)
                        continue;
                    for (int way = 0; way < 4; way++) {
                        unsigned flags = way == 0   ? 0
                                         : way == 3 ? MATMUL_FAST_PORTABLE
                                                    : MATMUL_FAST_OVERLAP;

                        if (way == 3 && (tokens < 128 || group == 128)) {
                            s[way] = 1.0;
                            continue;
                        }
                        CUDA(matmul_fast_quantise(&matmul, x, shape.columns, tokens, activations, 0,
                                                  stream));
                        s[way] =
                            graph_s(stream, way == 3 ? 3 : 7,
                                    [&] {
                                        for (int i = 0; i < launches; i++) {
                                            if (way == 2)
                                                CUDA(matmul_fast_quantise(&matmul, x, shape.columns,
                                                                          tokens, activations,
                                                                          flags, stream));
                                            CUDA(matmul_fast_product(
                                                &matmul, packed[i % copies], activations, tokens,
                                                NULL, output, workspace, flags, stream));
                                        }
                                    }) /
                            launches;
                    }

                    double ops = 2.0 * (double)shape.rows * shape.columns * tokens * 1e-12;

                    printf("%s %3u %5lu %5lu %3u: %7.2f us %5.0f GB/s (%.2f) %4.0f TOPS; overlap "
                           "%7.2f us %5.0f (%.2f) %4.0f; +quantise %7.2f us (%.2f) %4.0f",
                           entry.name, group, (unsigned long)shape.rows,
                           (unsigned long)shape.columns, tokens, s[0] * 1e6, bytes / s[0] * 1e-9,
                           bytes / s[0] / bandwidth, ops / s[0], s[1] * 1e6, bytes / s[1] * 1e-9,
                           bytes / s[1] / bandwidth, ops / s[1], s[2] * 1e6,
                           bytes / s[2] / bandwidth, ops / s[2]);
                    if (s[3] < 1.0)
                        printf("; portable %4.0f", ops / s[3]);
                    printf("\n");
                    fflush(stdout);
                }
                for (uint8_t *p : packed)
                    CUDA(cudaFree(p));
                for (void *p : {(void *)weight, (void *)workspace, (void *)x, (void *)out,
                                (void *)activations})
                    CUDA(cudaFree(p));
            }
    CUDA(cudaStreamDestroy(stream));
}

/* Seconds of a product in a row of overlapping launches over copies of the weight. */
static double time_shape(enum tensor_type type, uint32_t group, uint64_t rows, uint64_t columns,
                         uint32_t tokens, cudaStream_t stream)
{
    struct matmul_fast matmul = {type, group, rows, columns, 1, columns / group};
    const uint64_t row_bytes = columns / arith_type_columns(type) * arith_type_bytes(type);
    const int copies = (int)(UINT64_C(400000000) / (row_bytes * rows)) + 2;
    uint8_t *weight = allocate<uint8_t>(row_bytes * rows);
    uint8_t *workspace = allocate<uint8_t>(matmul_fast_workspace_bytes(rows));
    uint8_t *activations = allocate<uint8_t>(matmul_fast_activation_bytes(&matmul, tokens));
    float *x = allocate<float>(tokens * columns), *out = allocate<float>(tokens * rows);
    struct matmul_fast_output output = {out, NULL, rows};
    std::vector<uint8_t *> packed;
    double s;

    fill_weights<<<1024, 256>>>(type, weight, row_bytes * rows / arith_type_bytes(type), 7, false);
    fill_floats<<<1024, 256>>>(x, tokens * columns, 8, false);
    CUDA(cudaMemset(workspace, 0, matmul_fast_workspace_bytes(rows)));
    CUDA(matmul_fast_quantise(&matmul, x, columns, tokens, activations, 0, 0));
    for (int c = 0; c < copies; c++) {
        packed.push_back(allocate<uint8_t>(matmul_fast_packed_bytes(&matmul)));
        CUDA(matmul_fast_pack(&matmul, weight, row_bytes, columns, 0, 0, rows, packed[c], 0));
    }
    CUDA(cudaDeviceSynchronize());
    s = graph_s(stream, 9,
                [&] {
                    for (uint8_t *copy : packed)
                        CUDA(matmul_fast_product(&matmul, copy, activations, tokens, NULL, output,
                                                 workspace, MATMUL_FAST_OVERLAP, stream));
                }) /
        copies;
    for (uint8_t *p : packed)
        CUDA(cudaFree(p));
    for (void *p : {(void *)weight, (void *)workspace, (void *)activations, (void *)x, (void *)out})
        CUDA(cudaFree(p));
    return s;
}

/* All products of one layer, each once: what a ubatch of so many tokens takes. */
static void time_layers(const std::vector<uint32_t> &token_counts)
{
    struct product {
        uint64_t rows, columns;
        bool halves; /* with 32 values a block, groups of 128: a tensor split cuts between them */
    };
    static const struct {
        const char *name;
        std::vector<product> products;
    } models[] = {{"dense 32B",
                   {{8192, 5120},
                    {1024, 5120},
                    {1024, 5120},
                    {5120, 8192},
                    {25600, 5120},
                    {25600, 5120},
                    {5120, 25600, true}}},
                  {"hybrid 27B",
                   {{10240, 5120},
                    {6144, 5120},
                    {5120, 6144, true},
                    {17408, 5120},
                    {17408, 5120},
                    {5120, 17408, true}}}};
    cudaStream_t stream;

    CUDA(cudaStreamCreate(&stream));
    for (auto &entry : types)
        for (uint32_t tokens : token_counts)
            for (auto &model : models) {
                double ops_all = 0.0, s_all = 0.0;

                printf("%s, %s, %u tokens, TOPS:", entry.name, model.name, tokens);
                for (auto &product : model.products) {
                    const bool small = arith_type_columns(entry.type) == 32;
                    double ops = 2e-12 * (double)product.rows * product.columns * tokens;
                    double s = time_shape(entry.type, product.halves && small ? 128 : 256,
                                          product.rows, product.columns, tokens, stream);

                    printf(" %lux%lu %.0f", (unsigned long)product.rows,
                           (unsigned long)product.columns, ops / s);
                    ops_all += ops;
                    s_all += s;
                }
                printf("; all %.1f\n", ops_all / s_all);
                fflush(stdout);
            }
    CUDA(cudaStreamDestroy(stream));
}

/* ---- products with float weights, by cuda_matmul() ---- */

static const struct {
    const char *name;
    enum tensor_type type;
} float_types[] = {{"F32", TENSOR_TYPE_F32}, {"F16", TENSOR_TYPE_F16}, {"BF16", TENSOR_TYPE_BF16}};

static __global__ void fill_float_weights(enum tensor_type type, void *to, uint64_t n,
                                          const float *values)
{
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n;
         i += (uint64_t)gridDim.x * blockDim.x)
        if (type == TENSOR_TYPE_F32)
            ((float *)to)[i] = values[i];
        else
            ((uint16_t *)to)[i] = type == TENSOR_TYPE_F16 ? arith_f16_from_f32(values[i])
                                                          : arith_bf16_from_f32(values[i]);
}

static __global__ void fill_routes(struct program_route *routes, uint32_t n, uint32_t experts,
                                   uint64_t seed)
{
    for (uint32_t i = threadIdx.x; i < n; i += blockDim.x) {
        uint32_t h = hash(seed + i);

        /* Some experts have many tokens, and the last has none. */
        routes[i].expert = h % 3 == 0 ? 1 : (h >> 8) % (experts - 1);
        routes[i].weight = (float)(h >> 16) * 0x1p-16f;
    }
}

static __host__ __device__ int64_t plain_float(const struct cuda_product &product, uint64_t row,
                                               uint32_t token)
{
    const struct cuda_weight &weight = *product.weight;
    const uint64_t segment_columns = weight.columns / weight.segments;
    const float *x = product.x + token / product.x_divide * weight.columns;
    const uint32_t expert = product.routes != NULL ? product.routes[token].expert : 0;
    const uint8_t *w =
        (const uint8_t *)weight.data + (expert * weight.rows + row) * weight.row_bytes;
    int64_t sum = 0;

    for (uint32_t segment = 0; segment < weight.segments; segment++)
        for (uint64_t group = 0; group < segment_columns; group += weight.group) {
            uint64_t from = segment * segment_columns + group;
            uint64_t left = segment_columns - group;
            float acc = arith_float_fma(weight.type, w + from * arith_type_bytes(weight.type),
                                        x + from, left < weight.group ? left : weight.group, 0.0f);

            if (product.weighted)
                acc = acc * product.routes[token].weight;
            sum = arith_fixed_add(sum, arith_to_fixed(acc, product.limit));
        }
    return sum;
}

/* A product whose weight lies beside it. */
static __global__ void plain_float_kernel(struct cuda_product product,
                                          const struct cuda_weight weight, int64_t *out)
{
    uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;

    product.weight = &weight;
    if (i < product.tokens * weight.rows)
        out[i] = plain_float(product, i % weight.rows, (uint32_t)(i / weight.rows));
}

struct float_shape {
    uint64_t rows, columns;
    uint32_t segments, group;
    uint32_t experts, x_divide; /* 1 expert: no routes */
    uint32_t shifted;           /* values by which x is not aligned */
};

static void check_float_product(const struct cuda_product &product, const char *name, bool on_cpu,
                                int64_t *expected, int64_t *got, unsigned long long *wrong)
{
    const struct cuda_weight &weight = *product.weight;
    const uint64_t n = product.tokens * weight.rows;
    size_t scratch_bytes = cuda_matmul_scratch(&product);
    void *scratch = allocate<uint8_t>(scratch_bytes);
    unsigned long long host[3];

    plain_float_kernel<<<blocks_of(n), 256>>>(product, weight, expected);
    CUDA(cudaGetLastError());
    for (int launch = 0; launch < 4; launch++) {
        struct cuda_product run = product;
        struct error err = {};

        run.sums = launch % 2 == 1 ? got : NULL;
        run.out = launch % 2 == 1 ? NULL : (float *)got;
        poison_kernel<<<blocks_of(n), 256>>>(got, n, INT64_C(0x123456789abcd));
        CUDA(cudaMemset(wrong, 0, 32));
        if (cuda_matmul(&run, scratch, 0, &err) != 0) {
            printf("%s\n", err.text);
            exit(1);
        }
        compare_kernel<<<blocks_of(n), 256>>>(expected, run.out, run.sums, n, wrong);
        CUDA(cudaMemcpy(host, wrong, sizeof(host), cudaMemcpyDeviceToHost));
        checked += n;
        flagged_outputs += launch == 0 ? host[2] : 0;
        if (host[0] != 0 && failures++ < 40)
            printf("WRONG %s rows %lu columns %ux%lu group %u experts %u tokens %u launch %d: "
                   "%llu of %lu outputs, first %llu\n",
                   name, (unsigned long)weight.rows, weight.segments,
                   (unsigned long)(weight.columns / weight.segments), weight.group, weight.experts,
                   product.tokens, launch, host[0], (unsigned long)n, host[1]);
    }
    if (on_cpu) {
        struct cuda_product cpu = product;
        struct cuda_weight cpu_weight = weight;
        std::vector<uint8_t> w(weight.row_bytes * weight.rows);
        std::vector<float> x(product.tokens * weight.columns);
        std::vector<int64_t> sums(n);

        CUDA(cudaMemcpy(w.data(), weight.data, w.size(), cudaMemcpyDeviceToHost));
        CUDA(cudaMemcpy(x.data(), product.x, x.size() * 4, cudaMemcpyDeviceToHost));
        CUDA(cudaMemcpy(sums.data(), expected, n * 8, cudaMemcpyDeviceToHost));
        cpu_weight.data = w.data();
        cpu.weight = &cpu_weight;
        cpu.x = x.data();
        for (uint64_t i = 0; i < n; i++)
            if (plain_float(cpu, i % weight.rows, (uint32_t)(i / weight.rows)) != sums[i] &&
                failures++ < 40)
                printf("CPU and plain kernel differ: %s output %lu\n", name, (unsigned long)i);
        checked += n;
    }
    CUDA(cudaFree(scratch));
}

/* One weight with several numbers of tokens. */
static void check_float(enum tensor_type type, const char *name, const struct float_shape &shape,
                        bool wild, const std::vector<uint32_t> &token_counts, bool on_cpu)
{
    const uint32_t tokens_max = *std::max_element(token_counts.begin(), token_counts.end());
    const uint64_t values = shape.experts * shape.rows * shape.columns;
    const uint64_t segment_columns = shape.columns / shape.segments;
    const uint64_t inputs = tokens_max * shape.columns;
    const uint64_t seed = hash(type * 1000 + shape.rows * 7919 + shape.columns) * UINT64_C(1000003);
    float *numbers = allocate<float>(values), *x = allocate<float>(inputs + shape.shifted);
    struct program_route *routes = allocate<struct program_route>(tokens_max);
    int64_t *expected = allocate<int64_t>(tokens_max * shape.rows);
    int64_t *got = allocate<int64_t>(tokens_max * shape.rows);
    unsigned long long *wrong = allocate<unsigned long long>(4);
    struct cuda_weight weight = {};
    struct cuda_product product = {};
    void *data = allocate<uint8_t>(values * arith_type_bytes(type));

    fill_floats<<<1024, 256>>>(numbers, values, seed, wild);
    fill_float_weights<<<1024, 256>>>(type, data, values, numbers);
    fill_floats<<<1024, 256>>>(x, inputs + shape.shifted, seed + 5, wild);
    fill_routes<<<1, 256>>>(routes, tokens_max, shape.experts > 1 ? shape.experts : 2, seed + 9);
    weight.type = type;
    weight.experts = shape.experts;
    weight.rows = shape.rows;
    weight.columns = shape.columns;
    weight.row_bytes = shape.columns * arith_type_bytes(type);
    weight.segments = shape.segments;
    weight.group = shape.group;
    weight.groups_total = shape.segments * ((segment_columns + shape.group - 1) / shape.group) + 3;
    weight.data = data;
    product.weight = &weight;
    product.x = x + shape.shifted;
    product.x_divide = shape.x_divide;
    product.routes = shape.experts > 1 ? routes : NULL;
    product.limit = arith_limit(weight.groups_total);
    for (uint32_t tokens : token_counts)
        for (int weighted = 0; weighted < (shape.experts > 1 ? 2 : 1); weighted++) {
            product.tokens = tokens;
            product.weighted = weighted != 0;
            check_float_product(product, name, on_cpu, expected, got, wrong);
        }
    for (void *p : {(void *)numbers, (void *)x, (void *)routes, (void *)expected, (void *)got,
                    (void *)wrong, data})
        CUDA(cudaFree(p));
}

static void check_floats(void)
{
    static const struct float_shape shapes[] = {
        {128, 2048, 1, 256, 1, 1, 0}, /* a router */
        {1, 2048, 1, 256, 1, 1, 0},   /* the gate of a shared expert */
        {512, 4096, 1, 256, 1, 1, 0},
        {1001, 1280, 1, 256, 1, 1, 0},
        {200, 1016, 1, 128, 1, 1, 0}, /* a short last group */
        {77, 3 * 328, 3, 256, 1, 1, 0},
        {130, 2 * 203, 2, 128, 1, 1, 0}, /* rows that are not aligned */
        {33, 5, 1, 256, 1, 1, 0},
        {128, 2048, 1, 256, 1, 1, 1}, /* activations that are not */
        {9, 10240, 1, 256, 1, 1, 0},
        {5000, 256, 1, 128, 1, 1, 0},
    };
    static const struct float_shape experts[] = {
        {96, 512, 1, 256, 8, 4, 0}, {200, 136, 1, 128, 16, 1, 0}, {33, 77, 1, 256, 8, 1, 0}};
    const std::vector<uint32_t> counts = {1,  2,  3,  4,  5,  6,   7,   8,  9,
                                          16, 17, 31, 33, 64, 100, 128, 512};
    const std::vector<uint32_t> routed = {4, 8, 64, 1024, 1028, 4096};

    for (auto &entry : float_types) {
        check_float(entry.type, entry.name, {70, 768, 1, 256, 1, 1, 0}, true, {1, 11}, true);
        for (int wild = 0; wild < 2; wild++) {
            for (auto &shape : shapes)
                check_float(entry.type, entry.name, shape, wild != 0, counts, false);
            for (auto &shape : experts)
                check_float(entry.type, entry.name, shape, wild != 0, routed, false);
        }
        printf("%s: %lu failures\n", entry.name, (unsigned long)failures);
        fflush(stdout);
    }
}

/* Microseconds of a product in a row of overlapping launches over copies of the weight. */
static double time_float(enum tensor_type type, uint64_t rows, uint64_t columns, uint32_t tokens,
                         cudaStream_t stream)
{
    const uint64_t bytes = rows * columns * arith_type_bytes(type);
    const int copies = (int)std::min<uint64_t>(UINT64_C(400000000) / bytes + 2, 100);
    float *x = allocate<float>(tokens * columns), *out = allocate<float>(tokens * rows);
    std::vector<struct cuda_weight> weights((size_t)copies);
    double s;

    fill_floats<<<1024, 256>>>(x, tokens * columns, 8, false);
    for (struct cuda_weight &weight : weights) {
        uint8_t *data = allocate<uint8_t>(bytes);

        CUDA(cudaMemset(data, 0x3c, bytes));
        weight = {type, 1,   rows,          columns, columns * arith_type_bytes(type),
                  1,    256, columns / 256, data,    NULL};
    }
    CUDA(cudaDeviceSynchronize());
    s = graph_s(stream, 9, [&] {
        for (const struct cuda_weight &weight : weights) {
            struct cuda_product product = {};
            struct error err = {};

            product.weight = &weight;
            product.x = x;
            product.tokens = tokens;
            product.x_divide = 1;
            product.limit = arith_limit(weight.groups_total);
            product.out = out;
            if (cuda_matmul(&product, NULL, stream, &err) != 0) {
                printf("%s\n", err.text);
                exit(1);
            }
        }
    });
    for (const struct cuda_weight &weight : weights)
        CUDA(cudaFree((void *)weight.data));
    CUDA(cudaFree(x));
    CUDA(cudaFree(out));
    return s / copies * 1e6;
}

static void time_floats(void)
{
    static const struct {
        uint64_t rows, columns;
    } shapes[] = {{128, 2048}, {1, 2048}, {4096, 4096}};
    cudaStream_t stream;

    CUDA(cudaStreamCreate(&stream));
    for (auto &entry : float_types)
        for (auto &shape : shapes) {
            printf("%s %lux%lu, us of tokens:", entry.name, (unsigned long)shape.rows,
                   (unsigned long)shape.columns);
            for (uint32_t tokens : {1u, 2u, 4u, 8u, 16u, 32u, 64u, 128u, 256u, 512u})
                printf(" %u %.2f", tokens,
                       time_float(entry.type, shape.rows, shape.columns, tokens, stream));
            printf("\n");
            fflush(stdout);
        }
    CUDA(cudaStreamDestroy(stream));
}

/* A few launches, for a profiler. */
static void run_one(enum tensor_type type, uint32_t group, uint64_t rows, uint64_t columns,
                    uint32_t tokens)
{
    struct matmul_fast matmul = {type, group, rows, columns, 1, columns / group};
    const uint64_t row_bytes = columns / arith_type_columns(type) * arith_type_bytes(type);
    uint8_t *weight = allocate<uint8_t>(row_bytes * rows);
    uint8_t *packed = allocate<uint8_t>(matmul_fast_packed_bytes(&matmul));
    uint8_t *workspace = allocate<uint8_t>(matmul_fast_workspace_bytes(rows));
    uint8_t *activations = allocate<uint8_t>(matmul_fast_activation_bytes(&matmul, tokens));
    float *x = allocate<float>(tokens * columns), *out = allocate<float>(tokens * rows);
    struct matmul_fast_output output = {out, NULL, rows};

    fill_weights<<<1024, 256>>>(type, weight, row_bytes * rows / arith_type_bytes(type), 7, false);
    fill_floats<<<1024, 256>>>(x, tokens * columns, 8, false);
    CUDA(cudaMemset(workspace, 0, matmul_fast_workspace_bytes(rows)));
    CUDA(matmul_fast_pack(&matmul, weight, row_bytes, columns, 0, 0, rows, packed, 0));
    CUDA(matmul_fast_quantise(&matmul, x, columns, tokens, activations, 0, 0));
    for (int i = 0; i < 3; i++)
        CUDA(matmul_fast_product(&matmul, packed, activations, tokens, NULL, output, workspace, 0,
                                 0));
    CUDA(cudaDeviceSynchronize());
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    int devices = 0;

    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        printf("no GPU\n");
        return SKIP;
    }
    if (argc == 7 && strcmp(what, "one") == 0) {
        run_one((enum tensor_type)atoi(argv[2]), (uint32_t)atoi(argv[3]), (uint64_t)atoi(argv[4]),
                (uint64_t)atoi(argv[5]), (uint32_t)atoi(argv[6]));
        return 0;
    }
    if (strcmp(what, "shapes") == 0) {
        std::vector<uint32_t> token_counts;

        for (int i = 2; i < argc; i++)
            token_counts.push_back((uint32_t)atoi(argv[i]));
        time_layers(token_counts.empty() ? std::vector<uint32_t>{512} : token_counts);
        return 0;
    }
    if (strcmp(what, "time") != 0) {
        if (strcmp(what, "floats") != 0)
            check_all(strcmp(what, "quick") == 0);
        check_floats();
        printf("checked %lu outputs (%lu of them flagged): %lu failures\n", (unsigned long)checked,
               (unsigned long)flagged_outputs, (unsigned long)failures);
        fflush(stdout);
    }
    if (strcmp(what, "check") != 0 && strcmp(what, "quick") != 0) {
        if (strcmp(what, "floats") != 0)
            time_all();
        time_floats();
    }
    return failures == 0 ? 0 : 1;
}
