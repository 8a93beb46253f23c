#include "cuda/peer_sum.h"

#include <stdlib.h>

#include "cuda/cuda_check.h"
#include "cuda/launch.cuh"

#define PATIENCE_NS UINT64_C(20000000000)

enum { THREADS = 256, EACH = 4, BLOCKS = PEER_SUM_MAX / (THREADS * EACH) };

/* What a GPU has for the others to write to. Blocks of a number meet; each has slots of its own,
 * two by turns: who writes to one again has seen the other's next round, so that one has read it.
 * Two rounds on no flag is taken for an older one, since counts only grow. */
struct inbox {
    uint64_t values[2][MACHINE_DEVICES_MAX][BLOCKS][THREADS * EACH];
    uint32_t rounds[MACHINE_DEVICES_MAX][BLOCKS]; /* that have arrived from a GPU */
    uint32_t round[BLOCKS];                       /* of this GPU's blocks */
};

struct peer_sum {
    uint32_t count;
    int gpus[MACHINE_DEVICES_MAX];
    struct inbox *inboxes[MACHINE_DEVICES_MAX];
};

struct meeting_point {
    struct inbox *inboxes[MACHINE_DEVICES_MAX];
    uint32_t count, own;
};

static __device__ __forceinline__ void publish(uint32_t *flag, uint32_t value)
{
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(flag), "r"(value) : "memory");
}

static __device__ __forceinline__ uint32_t observe(const uint32_t *flag)
{
    uint32_t value;

    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
    return value;
}

static __device__ __forceinline__ uint64_t now_ns(void)
{
    uint64_t now;

    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

/* Waits for a GPU's round; one that does not come in time, as its launch has failed, is an error.
 */
static __device__ __forceinline__ void await_round(const uint32_t *flag, uint32_t round)
{
    const uint64_t begin = now_ns();

    while ((int32_t)(observe(flag) - round) < 0)
        if (now_ns() - begin > PATIENCE_NS)
            __trap();
}

/* Grid: (values / (THREADS x EACH)), the same on all GPUs. */
static __global__ void __launch_bounds__(THREADS)
    peer_sum_kernel(struct launch_stamp stamp, struct meeting_point point,
                    struct cuda_members members, uint32_t n)
{
    const uint32_t b = blockIdx.x, own = point.own;
    struct inbox *here = point.inboxes[own];
    uint64_t sums[EACH];

    launch_begin(stamp);

    const uint32_t round = here->round[b] + 1;

#pragma unroll
    for (uint32_t e = 0; e < EACH; e++) {
        const uint32_t at = e * THREADS + threadIdx.x, i = b * (THREADS * EACH) + at;

        sums[e] = 0;
        if (i >= n)
            break;
        for (uint32_t p = 0; p < members.part_count; p++)
            sums[e] += (uint64_t)members.parts[p][i];
        for (uint32_t g = 0; g < point.count; g++)
            if (g != own)
                point.inboxes[g]->values[round % 2][own][b][at] = sums[e];
    }
    __threadfence_system();
    __syncthreads();
    if (threadIdx.x < point.count && threadIdx.x != own) {
        publish(&point.inboxes[threadIdx.x]->rounds[own][b], round);
        await_round(&here->rounds[threadIdx.x][b], round);
    }
    if (threadIdx.x == 0)
        here->round[b] = round;
    __syncthreads();
#pragma unroll
    for (uint32_t e = 0; e < EACH; e++) {
        const uint32_t at = e * THREADS + threadIdx.x, i = b * (THREADS * EACH) + at;

        if (i >= n)
            break;
        for (uint32_t g = 0; g < point.count; g++)
            if (g != own)
                sums[e] += *(volatile uint64_t *)&here->values[round % 2][g][b][at];
        for (uint32_t t = 0; t < members.total_count; t++)
            members.totals[t][i] = (int64_t)sums[e];
    }
}

struct peer_sum *peer_sum_new(const int *gpus, uint32_t count, struct error *err)
{
    struct peer_sum *sum = (struct peer_sum *)calloc(1, sizeof *sum);
    struct cudaFuncAttributes attributes;

    if (sum == nullptr) {
        error_set(err, ERROR_MEMORY, "no memory for a sum over GPUs");
        return nullptr;
    }
    sum->count = count;
    for (uint32_t g = 0; g < count; g++) {
        sum->gpus[g] = gpus[g];
        /* The kernel is loaded now: loading may wait for GPUs that wait for each other. */
        if (cuda_check(cudaSetDevice(gpus[g]), "cudaSetDevice", err) != 0 ||
            cuda_check(cudaFuncGetAttributes(&attributes, peer_sum_kernel), "peer_sum", err) != 0 ||
            cuda_allocate((void **)&sum->inboxes[g], sizeof(struct inbox), (int)g,
                          "sums of other GPUs", err) != 0 ||
            cuda_check(cudaMemset(sum->inboxes[g], 0, sizeof(struct inbox)), "cudaMemset", err) !=
                0 ||
            cuda_check(cudaDeviceSynchronize(), "waiting for the GPU", err) != 0) {
            peer_sum_free(sum);
            return nullptr;
        }
    }
    return sum;
}

void peer_sum_free(struct peer_sum *sum)
{
    for (uint32_t g = 0; sum != nullptr && g < sum->count; g++) {
        cudaSetDevice(sum->gpus[g]);
        cudaFree(sum->inboxes[g]);
    }
    free(sum);
}

int peer_sum_run(struct peer_sum *sum, const struct cuda_members *members, uint64_t n,
                 const cudaStream_t *streams, struct error *err)
{
    struct meeting_point point = {};

    if (n == 0)
        return 0;
    if (n > PEER_SUM_MAX)
        return error_set(err, ERROR_UNSUPPORTED, "a sum of %llu values; %d at most",
                         (unsigned long long)n, (int)PEER_SUM_MAX);
    point.count = sum->count;
    for (uint32_t g = 0; g < sum->count; g++)
        point.inboxes[g] = sum->inboxes[g];
    for (uint32_t g = 0; g < sum->count; g++) {
        dim3 grid((unsigned)((n + THREADS * EACH - 1) / (THREADS * EACH)));

        point.own = g;
        if (cuda_check(cudaSetDevice(sum->gpus[g]), "cudaSetDevice", err) != 0)
            return -1;
        launch_overlapping(peer_sum_kernel, grid, THREADS, 0, streams[g], point, members[g],
                           (uint32_t)n);
        if (cuda_launched("peer_sum", err) != 0)
            return -1;
    }
    return 0;
}
