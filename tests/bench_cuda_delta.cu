/* The gated delta net's kernels of cuda/kernels.h: convolution, delta rule and gated norm against
 * the reference's, bit by bit, then how fast they are.
 *
 * Without arguments both; "check" or "time" does one; "check LAYERS" or "time TOKENS" of so many.
 * Exits with 77 without a GPU. */
#include <math.h>
#include <string.h>

#include "cuda/activations.cuh"
#include "cuda/kernels.h"
#include "tests/bench_cuda.cuh"

extern "C" {
#include "ref/arith.h"
}

#define LAUNCH(call)                                                                               \
    do {                                                                                           \
        struct error err_ = {};                                                                    \
        if (call != 0) {                                                                           \
            printf("%s:%d: %s\n", __FILE__, __LINE__, err_.text);                                  \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

/* ---- inputs ---- */

/* Of both signs, around 1; wild: some of any magnitude, a few of any bits. */
static std::vector<float> floats(size_t n, bool wild)
{
    std::vector<float> x(n);

    for (float &value : x) {
        value = ((float)(random32() >> 8) - 8388608.0f) * 0x1p-22f;
        if (wild && below(50) == 0)
            value = ldexpf(value, (int)below(120) - 90);
        if (wild && below(20000) == 0)
            value = arith_float(random32());
    }
    return x;
}

/* ---- memory of the GPU ---- */

template <typename T> static T *allocate(size_t n)
{
    void *p;

    CUDA(cudaMalloc(&p, n * sizeof(T) + 16));
    CUDA(cudaMemset(p, 0xff, n * sizeof(T) + 16));
    return (T *)p;
}

template <typename T> static T *upload(const std::vector<T> &x)
{
    T *p = allocate<T>(x.size());

    CUDA(cudaMemcpy(p, x.data(), x.size() * sizeof(T), cudaMemcpyHostToDevice));
    return p;
}

/* ---- a layer ---- */

struct shape {
    uint32_t k_heads, v_heads, dim, taps, planes, sequences;
    /* heads of the whole layer, of which these are a part; of each segment: of k heads, as q, k
     * and each multiple of them among the v heads are */
    uint32_t total, first;
};

/* Inputs of a layer on both sides. */
struct layer {
    struct shape shape;
    uint64_t channels;
    std::vector<float> weight, dt, a, norm; /* of the whole layer */
    std::vector<float> own_dt, own_a;       /* of the part */
    std::vector<float> history, state;      /* as they are on the CPU */
    float *gpu_weight, *gpu_dt, *gpu_a, *gpu_norm;
    float *gpu_history, *gpu_state;
};

static struct layer make_layer(const struct shape &shape, bool wild)
{
    const uint32_t segments = 2 + (shape.v_heads + shape.k_heads - 1) / shape.k_heads;
    struct layer layer;

    layer.shape = shape;
    layer.channels = (uint64_t)(2 * shape.k_heads + shape.v_heads) * shape.dim;
    layer.weight = floats((size_t)segments * shape.total * shape.dim * shape.taps, wild);
    layer.dt = floats((size_t)segments * shape.total, false);
    layer.a = floats(layer.dt.size(), false);
    layer.norm = floats(shape.dim, wild);
    for (float &a : layer.a)
        a = -fabsf(a);
    for (uint32_t h = 0; h < shape.v_heads; h++) {
        uint32_t at = h / shape.k_heads * shape.total + shape.first + h % shape.k_heads;

        layer.own_dt.push_back(layer.dt[at]);
        layer.own_a.push_back(layer.a[at]);
    }
    layer.history =
        floats(shape.sequences * shape.planes * (shape.taps - 1) * layer.channels, wild);
    layer.state = floats(
        (size_t)shape.sequences * shape.planes * shape.v_heads * shape.dim * shape.dim, false);
    layer.gpu_weight = upload(layer.weight);
    layer.gpu_dt = upload(layer.dt);
    layer.gpu_a = upload(layer.a);
    layer.gpu_norm = upload(layer.norm);
    layer.gpu_history = upload(layer.history);
    layer.gpu_state = upload(layer.state);
    return layer;
}

static void free_layer(struct layer &layer)
{
    for (float *p : {layer.gpu_weight, layer.gpu_dt, layer.gpu_a, layer.gpu_norm, layer.gpu_history,
                     layer.gpu_state})
        CUDA(cudaFree(p));
}

static struct convolve convolve_of(const struct layer &layer, const struct program_token *tokens,
                                   uint32_t count, bool on_gpu)
{
    const struct shape &shape = layer.shape;
    struct convolve convolve = {};

    convolve.tokens = tokens;
    convolve.token_count = count;
    convolve.channels = layer.channels;
    convolve.taps = shape.taps;
    convolve.weight = on_gpu ? layer.gpu_weight : layer.weight.data();
    convolve.segment_channels = (uint64_t)shape.total * shape.dim;
    convolve.first = (uint64_t)shape.first * shape.dim;
    convolve.count = (uint64_t)shape.k_heads * shape.dim;
    convolve.state = on_gpu ? layer.gpu_history : (float *)layer.history.data();
    convolve.planes = shape.planes;
    return convolve;
}

static struct delta delta_of(const struct layer &layer, const struct program_token *tokens,
                             uint32_t count, bool on_gpu)
{
    const struct shape &shape = layer.shape;
    struct delta delta = {};

    delta.tokens = tokens;
    delta.token_count = count;
    delta.k_heads = shape.k_heads;
    delta.v_heads = shape.v_heads;
    delta.dim = shape.dim;
    delta.dt = on_gpu ? layer.gpu_dt : layer.own_dt.data();
    delta.a = on_gpu ? layer.gpu_a : layer.own_a.data();
    delta.eps = 1e-6f;
    delta.state = on_gpu ? layer.gpu_state : (float *)layer.state.data();
    delta.planes = shape.planes;
    return delta;
}

static struct cuda_norm_gate norm_of(const struct layer &layer, const float *x, const float *gate,
                                     uint64_t rows, float *y)
{
    struct cuda_norm_gate norm = {};

    norm.x = x;
    norm.weight = layer.gpu_norm;
    norm.gate = gate;
    norm.eps = 1e-6f;
    norm.rows = rows;
    norm.n = layer.shape.dim;
    norm.y = y;
    return norm;
}

/* ---- checks ---- */

static uint64_t checked, failures;

static void compare(const char *what, const struct shape &shape, uint32_t count,
                    const std::vector<float> &expected, const float *gpu)
{
    std::vector<float> got(expected.size());
    size_t wrong = 0, at = 0;

    CUDA(cudaMemcpy(got.data(), gpu, got.size() * sizeof(float), cudaMemcpyDeviceToHost));
    for (size_t i = got.size(); i-- > 0;)
        if (arith_bits(got[i]) != arith_bits(expected[i])) {
            wrong++;
            at = i;
        }
    checked += got.size();
    if (wrong != 0 && failures++ < 40)
        printf("WRONG %s: %u k heads, %u v heads, dim %u, taps %u, planes %u, sequences %u, "
               "tokens %u: %zu of %zu, first %zu: %a, not %a\n",
               what, shape.k_heads, shape.v_heads, shape.dim, shape.taps, shape.planes,
               shape.sequences, count, wrong, got.size(), at, (double)got[at],
               (double)expected[at]);
}

/* Tokens of sequences that alternate at random, one behind the other, or all of one. */
static std::vector<struct program_token> tokens_of(const struct shape &shape, uint32_t count)
{
    std::vector<struct program_token> tokens(count);
    const uint32_t way = below(3);
    uint32_t sequence = below(shape.sequences);

    for (uint32_t t = 0; t < count; t++) {
        if (way == 0 || (way == 1 && below(8) == 0))
            sequence = below(shape.sequences);
        tokens[t] = {};
        tokens[t].sequence = sequence;
        tokens[t].undone = below(3) == 0 ? below(shape.planes) : 0;
        tokens[t].from_zero = below(4) == 0;
    }
    return tokens;
}

/* The norm's result as activations, by the kernel that quantises them. */
static void check_quantised(const struct shape &shape, uint32_t count,
                            const struct activations &got, const float *y)
{
    const uint64_t width = (uint64_t)shape.v_heads * shape.dim;
    struct matmul_fast matmul = {TENSOR_TYPE_Q8_0, 128, 64, width, 1, width / 128};
    const size_t bytes = matmul_fast_activation_bytes(&matmul, count);
    std::vector<uint8_t> a(bytes), b(bytes);
    uint8_t *expected = allocate<uint8_t>(bytes);

    CUDA(cudaMemset(expected, 0, bytes));
    CUDA(matmul_fast_quantise(&matmul, y, width, count, expected, 0, 0));
    CUDA(cudaMemcpy(a.data(), expected, bytes, cudaMemcpyDeviceToHost));
    CUDA(cudaMemcpy(b.data(), got.bytes, bytes, cudaMemcpyDeviceToHost));
    checked += bytes;
    if (a != b && failures++ < 40)
        printf("WRONG activations: %u v heads, dim %u, tokens %u\n", shape.v_heads, shape.dim,
               count);
    CUDA(cudaFree(expected));
}

/* Of as many sequences a token each, in any order. */
static std::vector<struct program_token> one_each(const struct shape &shape, uint32_t count)
{
    std::vector<struct program_token> tokens = tokens_of(shape, count);

    for (uint32_t t = 0; t < count; t++)
        tokens[t].sequence = t;
    for (uint32_t t = count; t > 1; t--)
        std::swap(tokens[t - 1].sequence, tokens[below(t)].sequence);
    return tokens;
}

/* One step of a layer: its kernels one after the other, each on what the one before made. `fused`:
 * no sequence has more than one token, and two kernels do it, which leave the mix as it was. */
static void check_step(struct layer &layer, std::vector<struct program_token> tokens, bool fused,
                       bool wild)
{
    const uint32_t count = (uint32_t)tokens.size();
    const struct ref_kernels *ref = ref_kernels_find("base");
    const struct shape &shape = layer.shape;
    const uint64_t heads = (uint64_t)count * shape.v_heads, outputs = heads * shape.dim;
    const bool quantises = shape.v_heads * shape.dim % 128 == 0;
    struct matmul_fast matmul = {
        TENSOR_TYPE_Q8_0, 128, 64, (uint64_t)shape.v_heads * shape.dim, 1, 1};
    std::vector<float> mix = floats(count * layer.channels, wild), beta = floats(heads, wild),
                       alpha = floats(heads, wild), gate = floats(outputs, wild), out(outputs),
                       y(outputs);
    const std::vector<float> raw = mix;
    struct program_token *gpu_tokens = upload(tokens);
    float *gpu_mix = upload(mix), *gpu_beta = upload(beta), *gpu_alpha = upload(alpha),
          *gpu_gate = upload(gate), *gpu_out = allocate<float>(outputs),
          *gpu_y = allocate<float>(outputs);
    struct convolve convolve = convolve_of(layer, tokens.data(), count, false),
                    gpu_convolve = convolve_of(layer, gpu_tokens, count, true);
    struct delta delta = delta_of(layer, tokens.data(), count, false),
                 gpu_delta = delta_of(layer, gpu_tokens, count, true);
    struct cuda_delta_heads of_heads = {shape.total, shape.first, shape.k_heads};
    struct activations activations = {};
    struct cuda_norm_gate norm;
    uint8_t *scratch = allocate<uint8_t>(cuda_delta_scratch(&gpu_delta));

    if (quantises) {
        const size_t bytes = matmul_fast_activation_bytes(&matmul, count);

        activations = activations_of(&matmul, count, allocate<uint8_t>(bytes));
        CUDA(cudaMemset(activations.bytes, 0, bytes));
    }
    gpu_delta.mix = gpu_mix;
    gpu_delta.beta = gpu_beta;
    gpu_delta.alpha = gpu_alpha;
    norm = norm_of(layer, gpu_out, gpu_gate, heads, gpu_y);
    norm.quantised = activations;
    if (fused) {
        if (!cuda_delta_step_fits(&gpu_convolve, &gpu_delta) && failures++ < 40)
            printf("WRONG: a step of %u tokens does not fit\n", count);
        norm.convolve = gpu_convolve;
        norm.mix = gpu_mix;
        LAUNCH(cuda_delta_step(&gpu_convolve, &gpu_delta, of_heads, gpu_out, 0, &err_));
    } else {
        LAUNCH(cuda_convolve(&gpu_convolve, shape.sequences, gpu_mix, 0, &err_));
        LAUNCH(cuda_delta(&gpu_delta, of_heads, shape.sequences, scratch, gpu_out, 0, &err_));
    }
    LAUNCH(cuda_norm_gate(&norm, 0, &err_));
    ref->convolve(&convolve, mix.data());
    delta.mix = mix.data();
    delta.beta = beta.data();
    delta.alpha = alpha.data();
    ref->delta(&delta, out.data());
    ref->rms_norm(out.data(), layer.norm.data(), 1e-6f, heads, shape.dim, y.data());
    ref->silu_gate(y.data(), gate.data(), outputs, y.data());
    CUDA(cudaDeviceSynchronize());
    compare(fused ? "mix of a fused step" : "convolution", shape, count, fused ? raw : mix,
            gpu_mix);
    compare(fused ? "history of a fused step" : "history", shape, count, layer.history,
            layer.gpu_history);
    compare(fused ? "fused step" : "delta", shape, count, out, gpu_out);
    compare("state", shape, count, layer.state, layer.gpu_state);
    compare("norm", shape, count, y, gpu_y);
    if (quantises)
        check_quantised(shape, count, activations, gpu_y);
    for (void *p : {(void *)gpu_tokens, (void *)gpu_mix, (void *)gpu_beta, (void *)gpu_alpha,
                    (void *)gpu_gate, (void *)gpu_out, (void *)gpu_y, (void *)scratch,
                    (void *)activations.bytes})
        CUDA(cudaFree(p));
}

/* A gated norm of rows that no layer has. */
static void check_norm(uint32_t n, uint32_t rows, bool wild)
{
    const struct ref_kernels *ref = ref_kernels_find("base");
    const struct shape shape = {0, 0, n, 0, 0, 0, 0, 0};
    std::vector<float> x = floats((size_t)n * rows, wild), gate = floats((size_t)n * rows, wild),
                       weight = floats(n, wild), y(x.size());
    float *gpu_x = upload(x), *gpu_gate = upload(gate), *gpu_weight = upload(weight);
    struct cuda_norm_gate norm = {};

    norm.x = norm.y = gpu_x;
    norm.weight = gpu_weight;
    norm.gate = gpu_gate;
    norm.eps = 1e-5f;
    norm.rows = rows;
    norm.n = n;
    LAUNCH(cuda_norm_gate(&norm, 0, &err_));
    ref->rms_norm(x.data(), weight.data(), 1e-5f, rows, n, y.data());
    ref->silu_gate(y.data(), gate.data(), y.size(), y.data());
    compare("norm of rows", shape, rows, y, gpu_x);
    for (float *p : {gpu_x, gpu_gate, gpu_weight})
        CUDA(cudaFree(p));
}

static void check_all(int layers)
{
    static const uint32_t dims[] = {32, 64, 128, 256};

    for (int i = 0; i < layers; i++) {
        struct shape shape = {};
        const bool wild = below(2) == 0;
        struct layer layer;

        shape.k_heads = 1 + below(4);
        shape.v_heads = below(5) == 0 ? 1 + below(8) : shape.k_heads * (1 + below(6));
        shape.dim = dims[below(4)];
        if (shape.dim == 256)
            shape.v_heads = std::min(shape.v_heads, 2 * shape.k_heads);
        shape.taps = below(2) == 0 ? 4 : 1 + below(8);
        shape.planes = 1 + below(4);
        shape.sequences = below(4) == 0 ? 1 + below(8) : 1 + below(3);
        shape.total = shape.k_heads + below(3);
        shape.first = below(shape.total - shape.k_heads + 1);
        layer = make_layer(shape, wild);
        for (int step = 0; step < 3; step++) {
            check_step(layer, tokens_of(shape, below(3) == 0 ? 1 + below(9) : 1 + below(70)), false,
                       wild);
            check_step(layer, one_each(shape, 1 + below(shape.sequences)), below(4) != 0, wild);
        }
        if (i % 60 == 0)
            check_step(layer, tokens_of(shape, 200 + below(500)), false, wild);
        free_layer(layer);
    }
    for (uint32_t n : {1u, 7u, 32u, 100u, 128u, 200u, 256u, 257u, 512u, 1000u, 1024u})
        check_norm(n, 1 + below(20), n % 3 == 0);
    printf("checked %lu values: %lu failures\n", (unsigned long)checked, (unsigned long)failures);
    fflush(stdout);
}

/* ---- times ---- */

/* Bytes that a copy reads and writes in a second. */
static double copy_bandwidth(cudaStream_t stream)
{
    const size_t bytes = (size_t)1 << 30;
    uint8_t *from = allocate<uint8_t>(bytes), *to = allocate<uint8_t>(bytes);
    double s = graph_s(stream, 7, [&] {
        CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream));
    });

    CUDA(cudaFree(from));
    CUDA(cudaFree(to));
    return 2.0 * (double)bytes / s;
}

/* Cycles of a chain of additions that takes some milliseconds. */
static __global__ void spin_kernel(float x, float *out, int64_t *cycles)
{
    const int64_t begin = clock64();

    for (int i = 0; i < 1 << 20; i++)
        x = x * 0.5f + 1.0f;
    *cycles = clock64() - begin;
    *out = x;
}

/* Clock of the multiprocessors, after some time of work. */
static double clock_hz(cudaStream_t stream)
{
    float *out = allocate<float>(1);
    int64_t *gpu_cycles = allocate<int64_t>(1), cycles;
    double s;

    for (int i = 0; i < 5; i++)
        s = graph_s(stream, 7, [&] { spin_kernel<<<1, 1, 0, stream>>>(1.0f, out, gpu_cycles); });
    CUDA(cudaMemcpy(&cycles, gpu_cycles, sizeof cycles, cudaMemcpyDeviceToHost));
    CUDA(cudaFree(out));
    CUDA(cudaFree(gpu_cycles));
    return (double)cycles / s;
}

enum { LAYERS = 48 }; /* whose states are more than the L2 cache holds */

static void print_time(const char *what, uint32_t tokens, double s, double bytes, double bandwidth)
{
    const double floor_s = bytes / bandwidth;

    printf("%-22s %4u tokens %9.2f us, floor by bytes %7.2f us, ratio %5.1f; %.3f us a token\n",
           what, tokens, s * 1e6, floor_s * 1e6, s / floor_s, s * 1e6 / tokens);
    fflush(stdout);
}

/* Layers of a 27B model one behind the other, so many tokens of one sequence. */
static void time_tokens(std::vector<struct layer> &layers, uint32_t count, double bandwidth,
                        cudaStream_t stream)
{
    const struct shape &shape = layers[0].shape;
    const uint64_t heads = (uint64_t)count * shape.v_heads, outputs = heads * shape.dim;
    std::vector<struct program_token> tokens(count);
    struct program_token *gpu_tokens = upload(tokens);
    float *mix = upload(floats(count * layers[0].channels, false)),
          *beta = upload(floats(heads, false)), *alpha = upload(floats(heads, false)),
          *gate = upload(floats(outputs, false)), *out = upload(floats(outputs, false)),
          *y = allocate<float>(outputs);
    struct delta some = delta_of(layers[0], gpu_tokens, count, true);
    uint8_t *scratch = allocate<uint8_t>(cuda_delta_scratch(&some));
    struct cuda_delta_heads of_heads = {shape.total, shape.first, shape.k_heads};
    const double state = 8.0 * shape.v_heads * shape.dim * shape.dim;
    const double mixed = 4.0 * (double)count * (double)layers[0].channels;
    const double history = 4.0 * (double)layers[0].channels * (3 * shape.taps - 2);
    const double result = 4.0 * (double)outputs;
    auto convolve = [&](struct layer &layer) {
        struct convolve c = convolve_of(layer, gpu_tokens, count, true);

        LAUNCH(cuda_convolve(&c, 1, mix, stream, &err_));
    };
    auto delta = [&](struct layer &layer) {
        struct delta d = delta_of(layer, gpu_tokens, count, true);

        d.mix = mix;
        d.beta = beta;
        d.alpha = alpha;
        LAUNCH(cuda_delta(&d, of_heads, 1, scratch, out, stream, &err_));
    };
    auto norm = [&](struct layer &layer) {
        struct cuda_norm_gate n = norm_of(layer, out, gate, heads, y);

        LAUNCH(cuda_norm_gate(&n, stream, &err_));
    };
    auto fused = [&](struct layer &layer) {
        struct convolve c = convolve_of(layer, gpu_tokens, count, true);
        struct delta d = delta_of(layer, gpu_tokens, count, true);
        struct cuda_norm_gate n = norm_of(layer, out, gate, heads, y);

        d.mix = n.mix = mix;
        d.beta = beta;
        d.alpha = alpha;
        n.convolve = c;
        LAUNCH(cuda_delta_step(&c, &d, of_heads, out, stream, &err_));
        LAUNCH(cuda_norm_gate(&n, stream, &err_));
    };
    auto time = [&](const char *what, double bytes, auto work) {
        double s = graph_s(stream, 7, [&] {
            for (struct layer &layer : layers)
                work(layer);
        });

        print_time(what, count, s / (double)layers.size(), bytes, bandwidth);
    };

    time("convolve", 2 * mixed + history, convolve);
    time("delta", mixed + state + result, delta);
    time("norm_gate", 3 * result, norm);
    time("convolve, delta", 3 * mixed + history + state + result, [&](struct layer &layer) {
        convolve(layer);
        delta(layer);
    });
    time("convolve, delta, norm", 3 * mixed + history + state + 4 * result,
         [&](struct layer &layer) {
             convolve(layer);
             delta(layer);
             norm(layer);
         });
    if (count == 1)
        time("the same, fused", 2 * mixed + history + state + 4 * result, fused);
    for (void *p : {(void *)gpu_tokens, (void *)mix, (void *)beta, (void *)alpha, (void *)gate,
                    (void *)out, (void *)y, (void *)scratch})
        CUDA(cudaFree(p));
}

static void time_all(std::vector<uint32_t> counts)
{
    const struct shape shape = {16, 48, 128, 4, 1, 1, 16, 0};
    std::vector<struct layer> layers;
    cudaStream_t stream;
    double bandwidth;

    CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    bandwidth = copy_bandwidth(stream);
    printf("a copy reads and writes %.0f GB/s, clock %.0f MHz\n", bandwidth * 1e-9,
           clock_hz(stream) * 1e-6);
    for (int i = 0; i < LAYERS; i++)
        layers.push_back(make_layer(shape, false));
    for (uint32_t count : counts)
        time_tokens(layers, count, bandwidth, stream);
    for (struct layer &layer : layers)
        free_layer(layer);
    CUDA(cudaStreamDestroy(stream));
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    int devices = 0;

    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        printf("no GPU\n");
        return SKIP;
    }
    if (strcmp(what, "time") != 0)
        check_all(argc > 2 ? atoi(argv[2]) : 300);
    if (strcmp(what, "check") != 0)
        time_all(argc > 2 ? std::vector<uint32_t>{(uint32_t)atoi(argv[2])}
                          : std::vector<uint32_t>{1, 2, 4, 8, 16, 64, 512});
    return failures == 0 ? 0 : 1;
}
