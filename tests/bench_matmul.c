/* How fast matmul reads weights for one token, against the rate at which the same threads read
 * memory: a ratio of 1 means that arithmetic costs nothing. The working set is larger than
 * caches are. Both are measured in turn, and each figure is the best of several rounds, since
 * whatever else the computer does only takes away. Then the rate of products of 64 tokens. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "ref/arith.h"
#include "ref/host_probe.h"
#include "ref/kernels.h"

#define ROUNDS 6
#define COLUMNS 4096
#define ROWS 14336
#define WORKING_SET_BYTES (UINT64_C(1) << 30)
#define TOKENS_MAX 64

static const char *const variants[] = {"base", "avx2", "avx512"};

static const struct {
    const char *name;
    enum tensor_type type;
} types[] = {
    {"Q8_0", TENSOR_TYPE_Q8_0}, {"Q4_0", TENSOR_TYPE_Q4_0}, {"Q4_K", TENSOR_TYPE_Q4_K},
    {"Q5_K", TENSOR_TYPE_Q5_K}, {"Q6_K", TENSOR_TYPE_Q6_K}, {"F16", TENSOR_TYPE_F16},
    {"BF16", TENSOR_TYPE_BF16}, {"F32", TENSOR_TYPE_F32},
};

static struct matmul matmul_of(enum tensor_type type, const uint8_t *weight)
{
    return (struct matmul){
        .type = type,
        .weight = weight,
        .row_bytes = COLUMNS / arith_type_columns(type) * arith_type_bytes(type),
        .rows = ROWS,
        .segment_columns = COLUMNS,
        .segments = 1,
        .count = COLUMNS,
        .group = 256,
        .groups_total = COLUMNS / 256,
    };
}

struct operands {
    const uint8_t *weights;
    const float *x;
    int64_t *sums;
};

/* Time of one product, the mean of those that read the working set once. */
static double one_token_s(const struct ref_kernels *kernels, enum tensor_type type,
                          const struct operands *operands)
{
    struct matmul matmul = matmul_of(type, operands->weights);
    uint64_t bytes = ROWS * matmul.row_bytes, products = WORKING_SET_BYTES / bytes;
    double start_s = host_probe_now_s();

    for (uint64_t product = 0; product < products; product++) {
        matmul.weight = operands->weights + product * bytes;
        kernels->matmul(&matmul, operands->x, NULL, 1, operands->sums, ROWS);
    }
    return (host_probe_now_s() - start_s) / (double)products;
}

static double many_tokens_s(const struct ref_kernels *kernels, enum tensor_type type,
                            const struct operands *operands)
{
    struct matmul matmul = matmul_of(type, operands->weights);
    double start_s = host_probe_now_s();

    kernels->matmul(&matmul, operands->x, NULL, TOKENS_MAX, operands->sums, ROWS);
    return host_probe_now_s() - start_s;
}

static double least(double a, double b)
{
    return a < b ? a : b;
}

static void print_type(const struct ref_kernels *kernels, size_t t, const struct operands *operands)
{
    static const int64_t streams[] = {1, 8,
                                      16}; /* of a thread; which is best is the CPU's affair */
    enum tensor_type type = types[t].type;
    double one_s = 1e9, many_s = many_tokens_s(kernels, type, operands), memory_s = 1e9;

    for (int round = 0; round < ROUNDS; round++) {
        const uint64_t *words = (const uint64_t *)(const void *)operands->weights;

        memory_s =
            least(memory_s, host_probe_read_s(words, WORKING_SET_BYTES, streams[round % 3], false));
        one_s = least(one_s, one_token_s(kernels, type, operands));
    }

    double memory_gbs = (double)WORKING_SET_BYTES / memory_s / 1e9;
    double gbs = (double)(ROWS * matmul_of(type, NULL).row_bytes) / one_s / 1e9;

    printf("%-7s %-5s %8.1f %8.1f %6.2f %12.1f\n", kernels->isa, types[t].name, memory_gbs, gbs,
           gbs / memory_gbs, 2.0 * ROWS * COLUMNS * TOKENS_MAX / many_s / 1e9);
}

int main(void)
{
    uint64_t *words = malloc(WORKING_SET_BYTES);
    float *x = malloc(sizeof(*x) * COLUMNS * TOKENS_MAX);
    int64_t *sums = calloc((size_t)ROWS * TOKENS_MAX, sizeof(*sums));

    if (words == NULL || x == NULL || sums == NULL) {
        fprintf(stderr, "bench_matmul: no memory for %d MiB of weights\n",
                (int)(WORKING_SET_BYTES >> 20));
        return 1;
    }
    /* Every 16-bit number is an f16 of 2^-3 to 2 and a bf16 of 2^-31 to 2, so that no product
     * is subnormal, which would be slow. */
    for (uint64_t i = 0, state = 1; i < WORKING_SET_BYTES / 8; i++) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        words[i] =
            ((state ^ state >> 32) & UINT64_C(0x8fff8fff8fff8fff)) | UINT64_C(0x3000300030003000);
    }
    for (int i = 0; i < COLUMNS * TOKENS_MAX; i++)
        x[i] = (float)(i * 37 % 101 - 50) / 50.0f;

    struct operands operands = {(const uint8_t *)words, x, sums};

    printf("products of %d x %d, %d MiB of weights; rates in GB/s\n", ROWS, COLUMNS,
           (int)(WORKING_SET_BYTES >> 20));
    printf("%-7s %-5s %8s %8s %6s %12s\n", "isa", "type", "memory", "matmul", "ratio",
           "GFLOP/s @ 64");
    for (size_t v = 0; v < sizeof(variants) / sizeof(variants[0]); v++) {
        const struct ref_kernels *kernels = ref_kernels_find(variants[v]);

        if (kernels == NULL)
            printf("%-7s not on this machine\n", variants[v]);
        else
            for (size_t t = 0; t < sizeof(types) / sizeof(types[0]); t++)
                print_type(kernels, t, &operands);
    }
    free(sums);
    free(x);
    free(words);
    return 0;
}
