/* Softmax attention on a GPU: random shapes against the reference's kernel, then how fast it is.
 *
 * Without arguments both; "check [CASES [SEED]]" or "time" does one half. Exits with 77 without a
 * GPU. */
#include <string.h>

extern "C" {
#include "sim/tensor_type.h"
}

#include "cuda/activations.cuh"
#include "cuda/kernels.h"
#include "tests/bench_cuda.cuh"

#define POISON 0xa5

static uint64_t random_state = 1;

static uint32_t random_word(void)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(random_state >> 33) ^ (uint32_t)(random_state >> 20);
}

/* 0 to n - 1 */
static uint32_t pick(uint32_t n)
{
    return random_word() % n;
}

template <typename T> static T *upload(const std::vector<T> &from)
{
    void *p;

    CUDA(cudaMalloc(&p, from.size() * sizeof(T) + 16));
    CUDA(cudaMemcpy(p, from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice));
    return (T *)p;
}

static const char *type_name(enum tensor_type type)
{
    return type == TENSOR_TYPE_F16 ? "f16" : type == TENSOR_TYPE_Q8_0 ? "q8_0" : "q4_0";
}

/* ---- cases ---- */

enum wildness { TAME, UNEVEN, WILD }; /* UNEVEN: many magnitudes; WILD: NaN and infinities too */

/* A step in the host's memory. */
struct step {
    struct attend attend;
    std::vector<float> query;
    std::vector<struct program_token> tokens;
    std::vector<uint8_t> k, v;
    std::vector<int32_t> cells;
    uint32_t sequences;
};

static float random_value(enum wildness wildness)
{
    float value = ((float)(random_word() & 0xffffff) - 8388608.0f) * 0x1p-22f;

    if (wildness != TAME && pick(37) == 0)
        value = arith_scale(value, (int32_t)pick(60) - 50);
    if (wildness == WILD && pick(20011) == 0)
        value = pick(2) != 0 ? arith_nan() : pick(2) != 0 ? INFINITY : -INFINITY;
    return value;
}

static std::vector<uint8_t> random_cache(enum tensor_type type, uint64_t values,
                                         enum wildness wildness)
{
    std::vector<uint8_t> cache(tensor_type_row_bytes(type, values) + 64);

    if (type == TENSOR_TYPE_F16)
        for (uint64_t i = 0; i < values; i++)
            ((uint16_t *)cache.data())[i] = arith_f16_from_f32(random_value(wildness));
    else
        for (uint64_t i = 0; i < values; i += ARITH_BLOCK) {
            float x[ARITH_BLOCK];

            for (float &value : x)
                value = random_value(wildness);
            arith_cache_block(type, x, cache.data() + tensor_type_row_bytes(type, i));
        }
    return cache;
}

/* Rows of all sequences in a random order, some positions without. */
static void random_cells(struct step *step, uint32_t rows)
{
    std::vector<int32_t> order(rows);
    uint32_t holes = pick(3), next = 0;

    for (uint32_t i = 0; i < rows; i++)
        order[i] = (int32_t)i;
    if (pick(2) != 0)
        for (uint32_t i = rows - 1; i > 0; i--)
            std::swap(order[i], order[pick(i + 1)]);
    step->cells.resize((uint64_t)step->sequences * step->attend.positions);
    for (int32_t &cell : step->cells)
        cell = holes != 0 && pick(holes == 1 ? 50 : 3) == 0 ? -1 : order[next++ % rows];
    if (pick(4) == 0) /* a whole chunk and more without */
        for (uint32_t i = 0; i < step->attend.positions && i < 600; i++)
            step->cells[i] = -1;
}

/* Runs of positions of one sequence; now and then any positions. */
static void random_tokens(struct step *step, uint32_t count)
{
    const uint32_t positions = step->attend.positions;
    uint32_t left = 0, sequence = 0, position = 0;
    const bool scattered = pick(8) == 0;

    for (uint32_t t = 0; t < count; t++, left--, position++) {
        struct program_token token = {};

        if (left == 0 || position >= positions || scattered) {
            left = pick(3) != 0 ? count : 1 + pick(20);
            sequence = pick(step->sequences);
            position = pick(3) == 0 ? pick(12) : pick(positions);
            position = pick(3) == 0 ? 0 : position;
        }
        token.position = position;
        token.sequence = sequence;
        step->tokens.push_back(token);
    }
}

static uint32_t random_dim(enum tensor_type type)
{
    static const uint32_t dims[] = {32, 64, 64, 96, 128, 128, 128, 192, 256};
    static const uint32_t odd[] = {36, 44, 72, 80, 100};

    return type == TENSOR_TYPE_F16 && pick(8) == 0 ? odd[pick(5)] : dims[pick(9)];
}

static struct step random_step(void)
{
    static const enum tensor_type types[] = {TENSOR_TYPE_F16, TENSOR_TYPE_Q8_0, TENSOR_TYPE_Q4_0};
    const enum wildness wildness = (enum wildness)pick(3);
    struct step step = {};
    struct attend *a = &step.attend;
    uint32_t rows;

    a->type_k = types[pick(3)];
    a->type_v = pick(2) != 0 ? a->type_k : types[pick(3)];
    a->dim_k = random_dim(a->type_k);
    a->dim_v = pick(2) != 0 && a->type_k == a->type_v ? a->dim_k : random_dim(a->type_v);
    a->kv_heads = 1 + pick(3);
    a->kv_first = pick(2);
    a->row_heads = a->kv_first + a->kv_heads + pick(2);
    a->heads = a->kv_heads * (pick(12) == 0 ? 17 + pick(4) : 1 + pick(16));
    a->positions = pick(2) != 0 ? 1 + pick(520) : 1 + pick(1500);
    a->window = pick(2) != 0 ? 0 : 1 + pick(700);
    a->scale = 1.0f / sqrtf((float)a->dim_k);
    step.sequences = 1 + pick(4);
    rows = 1 + pick(step.sequences * a->positions);
    random_cells(&step, rows);
    random_tokens(&step, pick(3) == 0 ? 1 + pick(8) : 1 + pick(70));
    a->token_count = (uint32_t)step.tokens.size();
    step.query.resize((uint64_t)a->token_count * a->heads * a->dim_k);
    for (float &value : step.query)
        value = random_value(wildness) * 4.0f;
    step.k = random_cache(a->type_k, (uint64_t)rows * a->row_heads * a->dim_k, wildness);
    step.v = random_cache(a->type_v, (uint64_t)rows * a->row_heads * a->dim_v, wildness);
    return step;
}

/* ---- checks ---- */

static uint64_t checked, failures, blocks_checked;

static void check_quantised(const struct step &step, const struct activations &to,
                            const std::vector<float> &expected, const std::vector<uint8_t> &got)
{
    const uint32_t columns = step.attend.heads * step.attend.dim_v;
    const uint64_t all = (uint64_t)to.windows * to.atoms;
    const float *all_scales = (const float *)(got.data() + all * MATMUL_FAST_ATOM);
    const float *all_sums = all_scales + all * 32;

    for (uint32_t token = 0; token < step.attend.token_count; token++)
        for (uint32_t column = 0; column < columns; column += ARITH_BLOCK) {
            const uint32_t window = column / 128, b = column / 32 % 4, t = token % 8;
            const uint64_t atom = (uint64_t)window * to.atoms + token / 8;
            const uint8_t *q = got.data() + atom * MATMUL_FAST_ATOM;
            const float *scales = all_scales, *sums = all_sums;
            uint64_t at = matmul_fast_scale_at(window, to.atoms, token, b);
            int8_t want[ARITH_BLOCK];
            float scale;
            int32_t sum;
            bool same;

            if (to.atoms == 1) {
                scales = (const float *)(got.data() + (uint64_t)window * MATMUL_FAST_RECORD);
                sums = scales + 32;
                q = (const uint8_t *)(scales + 64);
                at = b * 8 + t;
            }
            arith_quantise_block(expected.data() + (uint64_t)token * columns + column, want, &scale,
                                 &sum);
            scale *= 0x1p30f;
            same = arith_bits(arith_canonical(scale)) == arith_bits(scales[at]) &&
                   (float)sum == sums[at];
            for (uint32_t i = 0; i < ARITH_BLOCK; i++)
                same =
                    same && (uint8_t)want[i] == q[t * 128 + ((2 * b + i / 16) ^ t) * 16 + i % 16];
            blocks_checked++;
            if (!same && failures++ < 20)
                printf("WRONG activations: token %u column %u\n", token, column);
        }
}

static void describe(const struct step &step, int number)
{
    const struct attend &a = step.attend;

    printf("case %d: %u tokens, %u/%u heads of %u %s and %u %s, %u positions, window %u, "
           "%u sequences\n",
           number, a.token_count, a.heads, a.kv_heads, a.dim_k, type_name(a.type_k), a.dim_v,
           type_name(a.type_v), a.positions, a.window, step.sequences);
}

static void check(const struct step &step, int number)
{
    const struct attend &a = step.attend;
    struct attend host = a, device = a;
    const uint64_t n = (uint64_t)a.token_count * a.heads * a.dim_v;
    const bool quantise = a.dim_v % ARITH_BLOCK == 0 && number % 2 == 0;
    struct activations quantised = {};
    std::vector<float> expected(n), got(n);
    std::vector<uint8_t> activations;
    const uint32_t chunks = cuda_attend_chunks(step.tokens.data(), a.token_count, a.window);
    struct error err = {};
    void *scratch;
    float *out = upload(got);
    uint64_t wrong = 0, first = 0;

    host.query = step.query.data();
    host.tokens = step.tokens.data();
    host.cells = step.cells.data();
    host.cache_k = step.k.data();
    host.cache_v = step.v.data();
    ref_kernels_find(NULL)->attend(&host, expected.data());
    device.query = upload(step.query);
    device.tokens = upload(step.tokens);
    device.cells = upload(step.cells);
    device.cache_k = upload(step.k);
    device.cache_v = upload(step.v);
    if (quantise) {
        quantised.windows = (a.heads * a.dim_v + 127) / 128;
        quantised.atoms = matmul_fast_padded_tokens(a.token_count) / 8;
        activations.resize((uint64_t)quantised.windows * quantised.atoms * MATMUL_FAST_RECORD);
        quantised.bytes = upload(activations);
    }
    CUDA(cudaMalloc(&scratch, cuda_attend_scratch(&device, chunks)));
    CUDA(cudaMemset(scratch, 0xff, cuda_attend_scratch(&device, chunks)));
    CUDA(cudaMemset(out, POISON, n * sizeof(float)));
    if (cuda_attend(&device, chunks, scratch, out, &quantised, 0, &err) != 0) {
        printf("%s\n", err.text);
        failures++;
    }
    CUDA(cudaMemcpy(got.data(), out, n * sizeof(float), cudaMemcpyDeviceToHost));
    for (uint64_t i = 0; i < n; i++)
        if (arith_bits(expected[i]) != arith_bits(got[i]) && wrong++ == 0)
            first = i;
    checked += n;
    if (wrong != 0 && failures++ < 20) {
        describe(step, number);
        printf("WRONG %lu of %lu, first: token %lu head %lu value %lu: %a, not %a\n",
               (unsigned long)wrong, (unsigned long)n, (unsigned long)(first / a.dim_v / a.heads),
               (unsigned long)(first / a.dim_v % a.heads), (unsigned long)(first % a.dim_v),
               got[first], expected[first]);
    }
    if (quantise) {
        CUDA(cudaMemcpy(activations.data(), quantised.bytes, activations.size(),
                        cudaMemcpyDeviceToHost));
        check_quantised(step, quantised, expected, activations);
        CUDA(cudaFree(quantised.bytes));
    }
    for (const void *p :
         {(const void *)device.query, (const void *)device.tokens, (const void *)device.cells,
          device.cache_k, device.cache_v, (const void *)scratch, (const void *)out})
        CUDA(cudaFree((void *)p));
}

/* ---- times ---- */

enum { FMA_CHAINS = 16, FMA_STEPS = 4096 };

static __global__ void fma_kernel(float factor, float *out)
{
    float chains[FMA_CHAINS], sum = 0.0f;

    for (int c = 0; c < FMA_CHAINS; c++)
        chains[c] = (float)(threadIdx.x + c);
    for (int i = 0; i < FMA_STEPS; i++)
#pragma unroll
        for (int c = 0; c < FMA_CHAINS; c++)
            chains[c] = fmaf(chains[c], factor, 0.25f);
    for (float chain : chains)
        sum += chain;
    if (sum == 1.5f)
        *out = sum;
}

/* Multiply-adds a second. */
static double fma_rate(cudaStream_t stream)
{
    const int blocks = 132 * 8, threads = 256;
    void *out;
    double s;

    CUDA(cudaMalloc(&out, 16));
    s = graph_s(stream, 7, [&] { fma_kernel<<<blocks, threads, 0, stream>>>(0.5f, (float *)out); });
    CUDA(cudaFree(out));
    return (double)blocks * threads * FMA_CHAINS * FMA_STEPS / s;
}

struct timing {
    const char *name;
    uint32_t tokens, sequences, before; /* positions in the cache before the first token */
    uint32_t heads, kv_heads, dim, window;
    enum tensor_type type;
};

static void time_one(const struct timing &timing, double bandwidth, double rate,
                     cudaStream_t stream)
{
    const uint32_t each = timing.tokens / timing.sequences;
    const uint32_t positions = timing.before + each;
    const uint64_t rows = (uint64_t)positions * timing.sequences;
    const uint64_t values = rows * timing.kv_heads * timing.dim;
    const uint64_t bytes = tensor_type_row_bytes(timing.type, values);
    const int copies = (int)std::min<uint64_t>(UINT64_C(300000000) / bytes + 1, 32);
    std::vector<float> query((uint64_t)timing.tokens * timing.heads * timing.dim);
    std::vector<int32_t> cells(rows);
    std::vector<struct program_token> tokens(timing.tokens);
    std::vector<uint8_t> sample = random_cache(timing.type, 1 << 16, TAME);
    struct activations quantised = {};
    struct error err = {};
    struct attend a = {};
    uint32_t chunks;
    double pairs = 0.0, once, s;
    void *out, *scratch, *cache;
    uint64_t sample_bytes = sample.size() - 64, size = (bytes + 255) / 256 * 256;

    for (float &value : query)
        value = random_value(TAME) * 4.0f;
    for (uint64_t i = 0; i < rows; i++)
        cells[i] = (int32_t)i;
    for (uint32_t t = 0; t < timing.tokens; t++) {
        tokens[t].sequence = t / each;
        tokens[t].position = timing.before + t % each;
        pairs += timing.window == 0 ? tokens[t].position + 1
                                    : std::min(timing.window, tokens[t].position + 1);
    }
    CUDA(cudaMalloc(&cache, 2 * copies * size));
    for (uint64_t at = 0; at < 2 * copies * size; at += sample_bytes)
        CUDA(cudaMemcpy((char *)cache + at, sample.data(),
                        std::min(sample_bytes, 2 * copies * size - at), cudaMemcpyHostToDevice));
    a.query = upload(query);
    a.tokens = upload(tokens);
    a.cells = upload(cells);
    a.token_count = timing.tokens;
    a.heads = timing.heads;
    a.kv_heads = a.row_heads = timing.kv_heads;
    a.dim_k = a.dim_v = timing.dim;
    a.type_k = a.type_v = timing.type;
    a.positions = positions;
    a.window = timing.window;
    a.scale = 1.0f / sqrtf((float)timing.dim);
    chunks = cuda_attend_chunks(tokens.data(), timing.tokens, timing.window);
    CUDA(cudaMalloc(&scratch, cuda_attend_scratch(&a, chunks)));
    CUDA(cudaMalloc(&out, query.size() * sizeof(float)));
    quantised.windows = timing.heads * timing.dim / 128;
    quantised.atoms = matmul_fast_padded_tokens(timing.tokens) / 8;
    CUDA(cudaMalloc((void **)&quantised.bytes,
                    (uint64_t)quantised.windows * quantised.atoms * MATMUL_FAST_RECORD));

    const int launches = bytes < 50000000 && timing.tokens < 64 ? 32 : copies;

    s = graph_s(stream, 5,
                [&] {
                    for (int i = 0; i < launches; i++) {
                        a.cache_k = (char *)cache + i % copies * 2 * size;
                        a.cache_v = (const char *)a.cache_k + size;
                        if (cuda_attend(&a, chunks, scratch, (float *)out, &quantised, stream,
                                        &err) != 0) {
                            printf("%s\n", err.text);
                            exit(1);
                        }
                    }
                }) /
        launches;
    once = (timing.window == 0 ? 1.0 : std::min(1.0, (double)(timing.window + each) / positions)) *
           2.0 * bytes / bandwidth;
    pairs *= timing.heads * 2.0 * timing.dim;
    printf("%-22s %4u tokens, %u/%u heads of %u %s: %9.2f us; bytes %8.2f us (%.2f), fma %8.2f us "
           "(%.2f)\n",
           timing.name, timing.tokens, timing.heads, timing.kv_heads, timing.dim,
           type_name(timing.type), s * 1e6, once * 1e6, once / s, pairs / rate * 1e6,
           pairs / rate / s);
    fflush(stdout);
    for (const void *p :
         {(const void *)a.query, (const void *)a.tokens, (const void *)a.cells, (const void *)cache,
          (const void *)scratch, (const void *)out, (const void *)quantised.bytes})
        CUDA(cudaFree((void *)p));
}

static void time_all(void)
{
    const enum tensor_type f16 = TENSOR_TYPE_F16, q8_0 = TENSOR_TYPE_Q8_0, q4_0 = TENSOR_TYPE_Q4_0;
    const struct timing timings[] = {
        {"decode at 6", 1, 1, 6, 32, 8, 128, 0, f16},
        {"decode at 255", 1, 1, 255, 32, 8, 128, 0, f16},
        {"decode at 255", 1, 1, 255, 64, 8, 128, 0, q8_0},
        {"decode at 1000", 1, 1, 1000, 32, 8, 128, 0, f16},
        {"decode at 4095", 1, 1, 4095, 32, 8, 128, 0, f16},
        {"decode at 16383", 1, 1, 16383, 32, 8, 128, 0, f16},
        {"decode at 16383", 1, 1, 16383, 32, 8, 128, 0, q8_0},
        {"decode at 16383", 1, 1, 16383, 32, 8, 128, 0, q4_0},
        {"decode at 65535", 1, 1, 65535, 32, 8, 128, 0, f16},
        {"decode at 65535", 1, 1, 65535, 32, 8, 128, 0, q8_0},
        {"decode at 65535", 1, 1, 65535, 32, 8, 128, 0, q4_0},
        {"decode at 65535", 1, 1, 65535, 64, 8, 128, 0, f16},
        {"decode at 65535", 1, 1, 65535, 40, 8, 128, 0, f16},
        {"decode at 16383", 1, 1, 16383, 16, 8, 256, 0, f16},
        {"window at 16383", 1, 1, 16383, 16, 8, 256, 1024, f16},
        {"guesses at 6", 8, 1, 6, 32, 8, 128, 0, f16},
        {"guesses at 16376", 4, 1, 16376, 32, 8, 128, 0, f16},
        {"guesses at 16376", 8, 1, 16376, 32, 8, 128, 0, f16},
        {"sequences at 6", 8, 8, 6, 32, 8, 128, 0, f16},
        {"sequences at 4095", 8, 8, 4095, 32, 8, 128, 0, f16},
        {"sequences at 4095", 32, 32, 4095, 32, 8, 128, 0, f16},
        {"prompt at 16384", 16, 1, 16384, 32, 8, 128, 0, f16},
        {"prompt at 16384", 64, 1, 16384, 32, 8, 128, 0, f16},
        {"prompt at 0", 64, 1, 0, 32, 8, 128, 0, f16},
        {"prompt at 0", 512, 1, 0, 32, 8, 128, 0, f16},
        {"prompt at 0", 2048, 1, 0, 32, 8, 128, 0, f16},
        {"prompt at 4096", 512, 1, 4096, 32, 8, 128, 0, f16},
        {"prompt at 16384", 512, 1, 16384, 32, 8, 128, 0, f16},
        {"prompt at 16384", 512, 1, 16384, 32, 8, 128, 0, q8_0},
        {"prompt at 65024", 512, 1, 65024, 32, 8, 128, 0, f16},
        {"prompt at 16384", 512, 1, 16384, 16, 8, 256, 0, f16},
        {"window at 16384", 512, 1, 16384, 16, 8, 256, 1024, f16},
    };
    cudaStream_t stream;
    double bandwidth, rate;

    CUDA(cudaStreamCreate(&stream));
    bandwidth = read_bandwidth(stream);
    rate = fma_rate(stream);
    printf("read bandwidth %.0f GB/s, %.1f T multiply-adds a second; us a launch, and two floors: "
           "K and V read once, and the multiply-adds (floor / time)\n",
           bandwidth * 1e-9, rate * 1e-12);
    for (const struct timing &timing : timings)
        time_one(timing, bandwidth, rate, stream);
    CUDA(cudaStreamDestroy(stream));
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    const int cases = argc > 2 ? atoi(argv[2]) : 400;
    int devices = 0;

    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        printf("no GPU\n");
        return SKIP;
    }
    random_state = argc > 3 ? (uint64_t)atoll(argv[3]) : 1;
    for (int i = 0; i < cases && strcmp(what, "time") != 0; i++)
        check(random_step(), i);
    if (strcmp(what, "time") != 0)
        printf("checked %lu values and %lu blocks of activations: %lu failures\n",
               (unsigned long)checked, (unsigned long)blocks_checked, (unsigned long)failures);
    fflush(stdout);
    if (strcmp(what, "check") != 0)
        time_all();
    return failures == 0 ? 0 : 1;
}
