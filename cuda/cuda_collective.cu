/* Sums over devices: those of one GPU by a kernel, then over GPUs by NCCL, or by copies of each
 * GPU's sum to every other one. */
#include "cuda/cuda_private.h"

#include <stdlib.h>

#include "cuda/nccl.h"

/* Of one GPU. Two collectives may be under way: one on the computing streams, one beside. */
struct meeting {
    int64_t *own;            /* the sum of this GPU's devices, then of all */
    int64_t *inbox;          /* (GPUs, capacity) sums of the others */
    size_t capacity;         /* values */
    cudaEvent_t ready, read; /* its sum is there; it has read its inbox */
    bool used;
};

struct cuda_collective {
    uint32_t gpu_count;
    const int *gpus;   /* borrowed */
    struct nccl *nccl; /* NULL: copies */
    struct meeting meetings[2][MACHINE_DEVICES_MAX];
};

static int open_meetings(struct cuda_collective *collective, struct error *err)
{
    for (uint32_t g = 0; g < collective->gpu_count; g++) {
        if (cuda_check(cudaSetDevice(collective->gpus[g]), "cudaSetDevice", err) != 0)
            return -1;
        for (int beside = 0; beside < 2; beside++) {
            struct meeting *meeting = &collective->meetings[beside][g];

            if (cuda_check(cudaEventCreateWithFlags(&meeting->ready, cudaEventDisableTiming),
                           "cudaEventCreate", err) != 0 ||
                cuda_check(cudaEventCreateWithFlags(&meeting->read, cudaEventDisableTiming),
                           "cudaEventCreate", err) != 0)
                return -1;
        }
    }
    return 0;
}

struct cuda_collective *cuda_collective_new(const struct cuda_executor *executor, bool no_nccl,
                                            struct error *err)
{
    struct cuda_collective *collective = (struct cuda_collective *)calloc(1, sizeof *collective);
    struct error absent = {};

    if (collective == nullptr) {
        error_set(err, ERROR_MEMORY, "no memory for a collective");
        return nullptr;
    }
    collective->gpu_count = executor->gpu_count;
    collective->gpus = executor->gpus;
    if (executor->gpu_count < 2)
        return collective;
    if (open_meetings(collective, err) != 0) {
        cuda_collective_free(collective);
        return nullptr;
    }
    if (no_nccl)
        return collective;
    collective->nccl = nccl_open(executor->gpus, executor->gpu_count, &absent);
    if (collective->nccl == nullptr && absent.code != ERROR_UNSUPPORTED) {
        error_set(err, absent.code, "%s", absent.text);
        cuda_collective_free(collective);
        return nullptr;
    }
    return collective;
}

void cuda_collective_free(struct cuda_collective *collective)
{
    if (collective == nullptr)
        return;
    nccl_close(collective->nccl);
    for (uint32_t g = 0; g < collective->gpu_count; g++)
        for (int beside = 0; beside < 2; beside++) {
            struct meeting *meeting = &collective->meetings[beside][g];

            cudaSetDevice(collective->gpus[g]);
            cudaFree(meeting->own);
            cudaFree(meeting->inbox);
            if (meeting->ready != nullptr)
                cudaEventDestroy(meeting->ready);
            if (meeting->read != nullptr)
                cudaEventDestroy(meeting->read);
        }
    free(collective);
}

/* ---- one GPU ---- */

/* The parts and results that lie on a GPU, from value `first` on. */
static int find_members(struct cuda_executor *executor, const struct program_op *op, int gpu,
                        uint64_t first, uint64_t n, struct cuda_members *members, struct error *err)
{
    *members = {};
    for (uint32_t d = 0; d < executor->placement->device_count; d++) {
        struct program_operand part = op->a, total = op->out;
        int64_t *sums;

        if (executor->device_gpus[d] != gpu)
            continue;
        part.space = total.space = (int16_t)d;
        if ((op->members >> d & 1) != 0) {
            sums = (int64_t *)cuda_memory_find(executor->memory, part, op->layer,
                                               (first + n) * sizeof *sums, err);
            if (sums == nullptr)
                return -1;
            members->parts[members->part_count++] = sums + first;
        }
        sums = cuda_sums_out(executor, total, op, err);
        if (sums == nullptr)
            return -1;
        members->totals[members->total_count++] = sums + first;
    }
    return 0;
}

/* ---- between GPUs ---- */

static int make_room(struct cuda_collective *collective, struct meeting *meetings, size_t n,
                     struct error *err)
{
    if (n <= meetings[0].capacity)
        return 0;
    for (uint32_t g = 0; g < collective->gpu_count; g++)
        if (cuda_check(cudaSetDevice(collective->gpus[g]), "cudaSetDevice", err) != 0 ||
            cuda_check(cudaDeviceSynchronize(), "waiting for the GPU", err) != 0)
            return -1;
    for (uint32_t g = 0; g < collective->gpu_count; g++) {
        struct meeting *meeting = &meetings[g];

        cudaSetDevice(collective->gpus[g]);
        cudaFree(meeting->own);
        cudaFree(meeting->inbox);
        meeting->own = meeting->inbox = nullptr;
        meeting->capacity = 0;
        if (cuda_allocate((void **)&meeting->own, n * sizeof(int64_t), (int)g, "sums", err) != 0 ||
            (collective->nccl == nullptr &&
             cuda_allocate((void **)&meeting->inbox, collective->gpu_count * n * sizeof(int64_t),
                           (int)g, "sums of other GPUs", err) != 0))
            return -1;
    }
    for (uint32_t g = 0; g < collective->gpu_count; g++)
        meetings[g].capacity = n;
    return 0;
}

/* Each GPU's sum to every other one's inbox, once that one has read what was there before. */
static int exchange(struct cuda_collective *collective, struct meeting *meetings, size_t n,
                    const cudaStream_t *streams, struct error *err)
{
    for (uint32_t g = 0; g < collective->gpu_count; g++) {
        if (cuda_check(cudaSetDevice(collective->gpus[g]), "cudaSetDevice", err) != 0)
            return -1;
        for (uint32_t to = 0; to < collective->gpu_count; to++) {
            int64_t *place = meetings[to].inbox + g * meetings[to].capacity;

            if (to == g)
                continue;
            if ((meetings[to].used &&
                 cuda_check(cudaStreamWaitEvent(streams[g], meetings[to].read, 0),
                            "cudaStreamWaitEvent", err) != 0) ||
                cuda_check(cudaMemcpyPeerAsync(place, collective->gpus[to], meetings[g].own,
                                               collective->gpus[g], n * sizeof(int64_t),
                                               streams[g]),
                           "cudaMemcpyPeerAsync", err) != 0)
                return -1;
        }
        if (cuda_check(cudaEventRecord(meetings[g].ready, streams[g]), "cudaEventRecord", err) != 0)
            return -1;
    }
    return 0;
}

/* The sum of a GPU's own and its inbox, to its devices. */
static int add_inbox(struct cuda_collective *collective, struct meeting *meetings, uint32_t g,
                     struct cuda_members *members, size_t n, const cudaStream_t *streams,
                     struct error *err)
{
    members->part_count = 0;
    for (uint32_t from = 0; from < collective->gpu_count; from++) {
        if (from != g && cuda_check(cudaStreamWaitEvent(streams[g], meetings[from].ready, 0),
                                    "cudaStreamWaitEvent", err) != 0)
            return -1;
        members->parts[members->part_count++] =
            from == g ? meetings[g].own : meetings[g].inbox + from * meetings[g].capacity;
    }
    if (cuda_check(cudaSetDevice(collective->gpus[g]), "cudaSetDevice", err) != 0 ||
        cuda_sum_parts(members, n, streams[g], err) != 0)
        return -1;
    meetings[g].used = true;
    return cuda_check(cudaEventRecord(meetings[g].read, streams[g]), "cudaEventRecord", err);
}

static int reduce_over_gpus(struct cuda_executor *executor, const struct program_op *op,
                            uint64_t first, uint64_t n, const cudaStream_t *streams, bool beside,
                            struct error *err)
{
    struct cuda_collective *collective = executor->collective;
    struct meeting *meetings = collective->meetings[beside];
    struct cuda_members members[MACHINE_DEVICES_MAX];
    int64_t *own[MACHINE_DEVICES_MAX];

    if (make_room(collective, meetings, n, err) != 0)
        return -1;
    for (uint32_t g = 0; g < collective->gpu_count; g++) {
        struct cuda_members local;

        if (find_members(executor, op, collective->gpus[g], first, n, &members[g], err) != 0)
            return -1;
        local = members[g];
        own[g] = meetings[g].own;
        local.totals[0] = own[g];
        local.total_count = 1;
        if (cuda_check(cudaSetDevice(collective->gpus[g]), "cudaSetDevice", err) != 0 ||
            cuda_sum_parts(&local, n, streams[g], err) != 0)
            return -1;
    }
    if (collective->nccl != nullptr ? nccl_sum(collective->nccl, own, n, streams, err) != 0
                                    : exchange(collective, meetings, n, streams, err) != 0)
        return -1;
    for (uint32_t g = 0; g < collective->gpu_count; g++) {
        if (collective->nccl == nullptr) {
            if (add_inbox(collective, meetings, g, &members[g], n, streams, err) != 0)
                return -1;
            continue;
        }
        members[g].parts[0] = own[g];
        members[g].part_count = 1;
        if (cuda_check(cudaSetDevice(collective->gpus[g]), "cudaSetDevice", err) != 0 ||
            cuda_sum_parts(&members[g], n, streams[g], err) != 0)
            return -1;
    }
    return 0;
}

int cuda_reduce(struct cuda_executor *executor, const struct program_op *op,
                const cudaStream_t *streams, bool beside, struct error *err)
{
    uint64_t first = op->token_first * op->columns;
    uint64_t n = layout_rows(executor->program, op) * op->columns;
    struct cuda_members members;

    if (executor->gpu_count > 1)
        return reduce_over_gpus(executor, op, first, n, streams, beside, err);
    if (find_members(executor, op, executor->gpus[0], first, n, &members, err) != 0 ||
        cuda_check(cudaSetDevice(executor->gpus[0]), "cudaSetDevice", err) != 0)
        return -1;
    return cuda_sum_parts(&members, n, streams[0], err);
}
