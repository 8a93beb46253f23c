#include "cuda/peer_sum.h"

#include <stdlib.h>

#include "cuda/cuda_check.h"
#include "cuda/launch.cuh"

#define PATIENCE_NS UINT64_C(20000000000)

enum { THREADS = 256, BLOCKS = PEER_SUM_MAX / THREADS };

/* A value on its way, each half beside the round that it is of: what arrives at once, 8 bytes,
 * tells by itself that it has come, so that nothing is fenced and no flag follows. */
struct letter {
    uint32_t low, low_round, high, high_round;
};

/* What a GPU has for the others to write to: behind this, of two rounds by turns and of each GPU,
 * PEER_SUM_MAX letters. Who writes to one again has the other's letter of the round between, which
 * that one sent after it had read. */
struct inbox {
    uint32_t round[BLOCKS]; /* of this GPU's blocks */
};

static __host__ __device__ constexpr size_t inbox_bytes(uint32_t gpus)
{
    return sizeof(struct inbox) + 2 * (size_t)gpus * PEER_SUM_MAX * sizeof(struct letter);
}

struct peer_sum {
    uint32_t count;
    int gpus[MACHINE_DEVICES_MAX];
    struct inbox *inboxes[MACHINE_DEVICES_MAX];
};

struct meeting_point {
    struct inbox *inboxes[MACHINE_DEVICES_MAX];
    uint32_t count, own;
};

static __device__ __forceinline__ void send(struct letter *to, uint64_t value, uint32_t round)
{
    asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %2};" ::"l"(to),
                 "r"((uint32_t)value), "r"(round), "r"((uint32_t)(value >> 32))
                 : "memory");
}

static __device__ __forceinline__ struct letter look(const struct letter *from)
{
    struct letter seen;

    asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(seen.low), "=r"(seen.low_round), "=r"(seen.high), "=r"(seen.high_round)
                 : "l"(from)
                 : "memory");
    return seen;
}

static __device__ __forceinline__ uint64_t now_ns(void)
{
    uint64_t now;

    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

/* Waits for a GPU's value; one that does not come in time, as its launch has failed, is an error.
 */
static __device__ __forceinline__ uint64_t receive(const struct letter *from, uint32_t round)
{
    const uint64_t begin = now_ns();
    struct letter seen = look(from);

    while (seen.low_round != round || seen.high_round != round) {
        if (now_ns() - begin > PATIENCE_NS)
            __trap();
        seen = look(from);
    }
    return (uint64_t)seen.high << 32 | seen.low;
}

static __device__ __forceinline__ struct letter *
letter_at(const struct meeting_point &point, uint32_t to, uint32_t from, uint32_t round, uint32_t i)
{
    return (struct letter *)(point.inboxes[to] + 1) +
           ((uint64_t)(round % 2) * point.count + from) * PEER_SUM_MAX + i;
}

/* Grid: (values / THREADS), the same on all GPUs; a thread a value. */
static __global__ void __launch_bounds__(THREADS)
    peer_sum_kernel(struct launch_stamp stamp, struct meeting_point point,
                    struct cuda_members members, uint32_t n)
{
    const uint32_t i = blockIdx.x * THREADS + threadIdx.x, own = point.own;
    struct inbox *here = point.inboxes[own];
    uint64_t sum = 0;

    launch_begin(stamp);

    const uint32_t round = here->round[blockIdx.x] + 1;

    if (i < n) {
        for (uint32_t p = 0; p < members.part_count; p++)
            sum += (uint64_t)members.parts[p][i];
        for (uint32_t g = 0; g < point.count; g++)
            if (g != own)
                send(letter_at(point, g, own, round, i), sum, round);
        for (uint32_t g = 0; g < point.count; g++)
            if (g != own)
                sum += receive(letter_at(point, own, g, round, i), round);
        for (uint32_t t = 0; t < members.total_count; t++)
            members.totals[t][i] = (int64_t)sum;
    }
    __syncthreads(); /* all have read the round */
    if (threadIdx.x == 0)
        here->round[blockIdx.x] = round;
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
            cuda_allocate((void **)&sum->inboxes[g], inbox_bytes(count), (int)g,
                          "sums of other GPUs", err) != 0 ||
            cuda_check(cudaMemset(sum->inboxes[g], 0, inbox_bytes(count)), "cudaMemset", err) !=
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
        dim3 grid((unsigned)((n + THREADS - 1) / THREADS));

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
