/* The router of cuda/kernels.h: every choice and weight against the loops of the reference, bit by
 * bit, then how fast it is.
 *
 * Without arguments both; "check" or "time" does one. Exits with 77 without a GPU. */
#include <math.h>
#include <string.h>

#include "cuda/kernels.h"
#include "tests/bench_cuda.cuh"

extern "C" {
#include "ref/arith.h"
}

/* ---- inputs ---- */

/* Logits of a token, by turns of many kinds. */
static void fill_logits(uint32_t kind, uint32_t experts, float *logits)
{
    static const float odd[] = {INFINITY, -INFINITY, NAN, 0.0f, -0.0f, 1e-42f, 3e38f, -3e38f};
    const uint32_t odd_count = sizeof(odd) / sizeof(odd[0]);

    for (uint32_t e = 0; e < experts; e++) {
        const float usual = ((float)(random32() >> 8) - 8388608.0f) * 0x1p-20f;

        switch (kind) {
        case 0: /* usual ones */
            logits[e] = usual;
            break;
        case 1: /* ties */
            logits[e] = (float)below(4);
            break;
        case 2:
            logits[e] = 0.25f;
            break;
        case 3: /* all others become equal zeros */
            logits[e] = e == experts / 2 ? 200.0f : usual;
            break;
        case 4: /* zeros of both signs */
            logits[e] = below(2) == 0 ? 0.0f : -0.0f;
            break;
        case 5: /* a few odd values */
            logits[e] = below(experts) < 2 ? odd[below(odd_count)] : usual;
            break;
        case 6: /* many */
            logits[e] = below(2) == 0 ? odd[below(odd_count)] : usual;
            break;
        case 7: /* fewer numbers than are chosen */
            logits[e] = below(experts) < 3 ? usual : NAN;
            break;
        case 8: /* a NaN before all others, and behind */
            logits[e] = e == 0 ? NAN : usual;
            break;
        case 9:
            logits[e] = e == 1 || e == experts - 1 ? NAN : usual;
            break;
        case 10: /* the same one everywhere */
            logits[e] = -INFINITY;
            break;
        case 11:
            logits[e] = NAN;
            break;
        default: /* any bits */
            logits[e] = arith_float(random32());
        }
    }
}

enum { KINDS = 13 };

/* ---- the reference: interpret_route() of ref/interpret_matmul.c ---- */

static void choose(const float *logits, const struct cuda_route &r, float *probabilities,
                   struct program_route *route)
{
    float maximum = logits[0], sum = 0.0f;

    for (uint32_t e = 1; e < r.experts; e++)
        maximum = logits[e] > maximum ? logits[e] : maximum;
    for (uint32_t e = 0; e < r.experts; e++) {
        probabilities[e] = arith_exp(logits[e] - maximum);
        sum += probabilities[e];
    }
    for (uint32_t u = 0; u < r.used; u++) {
        uint32_t best = UINT32_MAX;

        for (uint32_t e = 0; e < r.experts; e++)
            if (probabilities[e] != -1.0f &&
                (best == UINT32_MAX || probabilities[e] > probabilities[best]))
                best = e;
        route[u] = {best, probabilities[best] / sum};
        probabilities[best] = -1.0f;
    }
}

static void plain_route(const float *logits, const float *scales, const struct cuda_route &r,
                        struct program_route *out)
{
    std::vector<float> probabilities(r.experts);

    for (uint32_t t = 0; t < r.tokens; t++) {
        struct program_route *chosen = out + (size_t)t * r.used;
        float sum = 0.0f;

        choose(logits + (size_t)t * r.experts, r, probabilities.data(), chosen);
        for (uint32_t u = 0; u < r.used; u++)
            sum += chosen[u].weight;
        for (uint32_t u = 0; u < r.used; u++) {
            float weight = chosen[u].weight;

            if (r.normalised)
                weight = weight / sum;
            if (scales != NULL)
                weight = weight * scales[chosen[u].expert];
            chosen[u].weight = arith_canonical(weight * r.expert_scale);
        }
    }
}

/* ---- checks ---- */

static uint64_t checked, failures;

static void launch(const struct cuda_route &r, struct program_route *out, cudaStream_t stream)
{
    struct error err = {};

    if (cuda_route(&r, out, stream, &err) != 0) {
        printf("%s\n", err.text);
        exit(1);
    }
}

template <typename T> static T *allocate(size_t n)
{
    void *p;

    CUDA(cudaMalloc(&p, n * sizeof(T)));
    CUDA(cudaMemset(p, 0xff, n * sizeof(T)));
    return (T *)p;
}

static void check(uint32_t experts, uint32_t used, bool normalised, bool scaled)
{
    const uint32_t tokens = 20 * KINDS;
    const size_t count = (size_t)tokens * used;
    std::vector<float> logits((size_t)tokens * experts), scales(experts);
    std::vector<struct program_route> expected(count), got(count);
    float *gpu_logits = allocate<float>(logits.size()), *gpu_scales = allocate<float>(experts);
    struct program_route *out = allocate<struct program_route>(count);
    struct cuda_route r = {};

    for (uint32_t t = 0; t < tokens; t++)
        fill_logits(t % KINDS, experts, &logits[(size_t)t * experts]);
    for (float &scale : scales)
        scale = (float)(random32() >> 8) * 0x1p-23f;
    CUDA(cudaMemcpy(gpu_logits, logits.data(), logits.size() * 4, cudaMemcpyHostToDevice));
    CUDA(cudaMemcpy(gpu_scales, scales.data(), scales.size() * 4, cudaMemcpyHostToDevice));
    r.tokens = tokens;
    r.experts = experts;
    r.used = used;
    r.normalised = normalised;
    r.expert_scale = scaled ? 2.5f : 1.0f;
    r.logits = gpu_logits;
    r.scales = scaled ? gpu_scales : NULL;
    plain_route(logits.data(), scaled ? scales.data() : NULL, r, expected.data());
    launch(r, out, 0);
    CUDA(cudaMemcpy(got.data(), out, count * sizeof(got[0]), cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < count; i++)
        if ((got[i].expert != expected[i].expert ||
             arith_bits(got[i].weight) != arith_bits(expected[i].weight)) &&
            failures++ < 40)
            printf("WRONG %u of %u experts%s%s, kind %u, choice %u: %u %08x, not %u %08x\n", used,
                   experts, normalised ? ", normalised" : "", scaled ? ", scaled" : "",
                   (uint32_t)(i / used % KINDS), (uint32_t)(i % used), got[i].expert,
                   arith_bits(got[i].weight), expected[i].expert, arith_bits(expected[i].weight));
    checked += count;
    for (void *p : {(void *)gpu_logits, (void *)gpu_scales, (void *)out})
        CUDA(cudaFree(p));
}

static void check_all(void)
{
    for (uint32_t experts : {1u, 2u, 7u, 8u, 32u, 60u, 64u, 100u, 127u, 128u, 129u, 160u, 256u,
                             300u, 384u, 512u, 1024u, 1500u})
        for (uint32_t used : {1u, 2u, 4u, 6u, 8u, 10u, 16u})
            for (int way = 0; way < 4; way++)
                if (used <= experts)
                    check(experts, used, way % 2 != 0, way / 2 != 0);
    printf("checked %lu choices: %lu failures\n", (unsigned long)checked, (unsigned long)failures);
}

/* ---- times ---- */

static void time_all(void)
{
    static const struct {
        uint32_t experts, used;
    } shapes[] = {{8, 2}, {32, 4}, {128, 8}, {256, 8}, {512, 10}};
    const uint32_t tokens_max = 512, launches = 100;
    cudaStream_t stream;

    CUDA(cudaStreamCreate(&stream));
    for (auto &shape : shapes) {
        std::vector<float> logits((size_t)tokens_max * shape.experts);
        float *gpu_logits = allocate<float>(logits.size());
        struct program_route *out = allocate<struct program_route>(tokens_max * shape.used);

        for (uint32_t t = 0; t < tokens_max; t++)
            fill_logits(0, shape.experts, &logits[(size_t)t * shape.experts]);
        CUDA(cudaMemcpy(gpu_logits, logits.data(), logits.size() * 4, cudaMemcpyHostToDevice));
        printf("%u of %u experts, us of tokens:", shape.used, shape.experts);
        for (uint32_t tokens : {1u, 2u, 4u, 8u, 16u, 64u, 512u}) {
            struct cuda_route r = {gpu_logits, NULL, tokens, shape.experts, shape.used, true, 1.0f};
            double s = graph_s(stream, 9, [&] {
                for (uint32_t i = 0; i < launches; i++)
                    launch(r, out, stream);
            });

            printf(" %u %.2f", tokens, s / launches * 1e6);
        }
        printf("\n");
        CUDA(cudaFree(gpu_logits));
        CUDA(cudaFree(out));
    }
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
        check_all();
    if (strcmp(what, "check") != 0)
        time_all();
    return failures == 0 ? 0 : 1;
}
