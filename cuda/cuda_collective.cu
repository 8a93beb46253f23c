/* Sums over devices: those of one GPU by a kernel, then over GPUs by a kernel of our own where they
 * are small and GPUs reach each other's memory, by NCCL, or by copies of each GPU's sum to every
 * other one. */
#include "cuda/cuda_private.h"

#include <stdlib.h>

#include "cuda/nccl.h"
#include "cuda/peer_sum.h"

/* Of one GPU. Two collectives may be under way: one on the computing streams, one beside. */
struct meeting {
    int64_t *own;            /* the sum of this GPU's devices, then of all; then floats */
    int64_t *inbox;          /* (GPUs, capacity) sums of the others */
    size_t capacity;         /* values */
    cudaEvent_t ready, read; /* its sum is there; it has read its inbox */
    bool used;
};

struct cuda_collective {
    uint32_t gpu_count;
    const int *gpus;  /* borrowed */
    bool reaches_all; /* each GPU the memory of all others */
    enum cuda_reduction way;
    struct peer_sum *peers[2]; /* one beside; NULL: not so */
    struct nccl *nccl;         /* NULL: copies */
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

static int open_ways(struct cuda_collective *collective, struct error *err)
{
    struct error absent = {};

    for (int beside = 0;
         beside < 2 && collective->way == CUDA_REDUCE_AUTO && collective->reaches_all; beside++) {
        collective->peers[beside] = peer_sum_new(collective->gpus, collective->gpu_count, err);
        if (collective->peers[beside] == nullptr)
            return -1;
    }
    if (collective->way == CUDA_REDUCE_COPIES)
        return 0;
    collective->nccl = nccl_open(collective->gpus, collective->gpu_count, &absent);
    if (collective->nccl != nullptr ||
        (absent.code == ERROR_UNSUPPORTED && collective->way == CUDA_REDUCE_AUTO))
        return 0;
    return error_set(err, absent.code, "%s", absent.text);
}

struct cuda_collective *cuda_collective_new(const struct cuda_executor *executor,
                                            enum cuda_reduction way, struct error *err)
{
    struct cuda_collective *collective = (struct cuda_collective *)calloc(1, sizeof *collective);

    if (collective == nullptr) {
        error_set(err, ERROR_MEMORY, "no memory for a collective");
        return nullptr;
    }
    collective->gpu_count = executor->gpu_count;
    collective->gpus = executor->gpus;
    collective->reaches_all = executor->reaches_all;
    collective->way = way;
    if (executor->gpu_count < 2)
        return collective;
    if (open_meetings(collective, err) != 0 || open_ways(collective, err) != 0) {
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
    peer_sum_free(collective->peers[0]);
    peer_sum_free(collective->peers[1]);
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
    bool floats = collective->way == CUDA_REDUCE_NCCL_FLOAT;

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
        if (cuda_allocate((void **)&meeting->own, n * (floats ? 2 : 1) * sizeof(int64_t), (int)g,
                          "sums", err) != 0 ||
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

/* The sum of each GPU's devices, to its `own`. */
static int add_own(struct cuda_collective *collective, struct meeting *meetings,
                   const struct cuda_members *members, size_t n, const cudaStream_t *streams,
                   struct error *err)
{
    for (uint32_t g = 0; g < collective->gpu_count; g++) {
        struct cuda_members local = members[g];

        local.totals[0] = meetings[g].own;
        local.total_count = 1;
        if (cuda_check(cudaSetDevice(collective->gpus[g]), "cudaSetDevice", err) != 0 ||
            cuda_sum_parts(&local, n, streams[g], err) != 0)
            return -1;
    }
    return 0;
}

/* What is in `own` now, to each GPU's devices. */
static int hand_out(struct cuda_collective *collective, struct meeting *meetings,
                    struct cuda_members *members, size_t n, const cudaStream_t *streams,
                    struct error *err)
{
    for (uint32_t g = 0; g < collective->gpu_count; g++) {
        members[g].parts[0] = meetings[g].own;
        members[g].part_count = 1;
        if (cuda_check(cudaSetDevice(collective->gpus[g]), "cudaSetDevice", err) != 0 ||
            cuda_sum_parts(&members[g], n, streams[g], err) != 0)
            return -1;
    }
    return 0;
}

/* Outside the guarantee of equal bits: for comparison. */
static int sum_floats(struct cuda_collective *collective, struct meeting *meetings, size_t n,
                      const cudaStream_t *streams, struct error *err)
{
    void *floats[MACHINE_DEVICES_MAX];

    for (uint32_t g = 0; g < collective->gpu_count; g++) {
        floats[g] = meetings[g].own + meetings[g].capacity;
        if (cuda_check(cudaSetDevice(collective->gpus[g]), "cudaSetDevice", err) != 0 ||
            cuda_sums_to_floats(meetings[g].own, n, (float *)floats[g], streams[g], err) != 0)
            return -1;
    }
    if (nccl_sum(collective->nccl, NCCL_OF_FLOAT, floats, floats, n, streams, err) != 0)
        return -1;
    for (uint32_t g = 0; g < collective->gpu_count; g++)
        if (cuda_check(cudaSetDevice(collective->gpus[g]), "cudaSetDevice", err) != 0 ||
            cuda_floats_to_sums((float *)floats[g], n, meetings[g].own, streams[g], err) != 0)
            return -1;
    return 0;
}

/* Each GPU has one device, which takes part: its sums are summed where they are. */
static bool is_plain(const struct cuda_collective *collective, const struct cuda_members *members)
{
    for (uint32_t g = 0; g < collective->gpu_count; g++)
        if (members[g].part_count != 1 || members[g].total_count != 1)
            return false;
    return collective->nccl != nullptr && collective->way != CUDA_REDUCE_NCCL_FLOAT;
}

static int sum_plain(struct cuda_collective *collective, const struct cuda_members *members,
                     size_t n, const cudaStream_t *streams, struct error *err)
{
    void *from[MACHINE_DEVICES_MAX], *to[MACHINE_DEVICES_MAX];

    for (uint32_t g = 0; g < collective->gpu_count; g++) {
        from[g] = (void *)members[g].parts[0];
        to[g] = members[g].totals[0];
    }
    return nccl_sum(collective->nccl, NCCL_OF_INT64, from, to, n, streams, err);
}

static int sum_in_own(struct cuda_collective *collective, struct meeting *meetings,
                      struct cuda_members *members, size_t n, const cudaStream_t *streams,
                      struct error *err)
{
    void *own[MACHINE_DEVICES_MAX];

    if (make_room(collective, meetings, n, err) != 0 ||
        add_own(collective, meetings, members, n, streams, err) != 0)
        return -1;
    if (collective->nccl == nullptr) {
        if (exchange(collective, meetings, n, streams, err) != 0)
            return -1;
        for (uint32_t g = 0; g < collective->gpu_count; g++)
            if (add_inbox(collective, meetings, g, &members[g], n, streams, err) != 0)
                return -1;
        return 0;
    }
    for (uint32_t g = 0; g < collective->gpu_count; g++)
        own[g] = meetings[g].own;
    if (collective->way == CUDA_REDUCE_NCCL_FLOAT
            ? sum_floats(collective, meetings, n, streams, err) != 0
            : nccl_sum(collective->nccl, NCCL_OF_INT64, own, own, n, streams, err) != 0)
        return -1;
    return hand_out(collective, meetings, members, n, streams, err);
}

static int reduce_over_gpus(struct cuda_executor *executor, const struct program_op *op,
                            uint64_t first, uint64_t n, const cudaStream_t *streams, bool beside,
                            struct error *err)
{
    struct cuda_collective *collective = executor->collective;
    struct cuda_members members[MACHINE_DEVICES_MAX];

    for (uint32_t g = 0; g < collective->gpu_count; g++)
        if (find_members(executor, op, collective->gpus[g], first, n, &members[g], err) != 0)
            return -1;
    if (collective->peers[beside] != nullptr && n <= PEER_SUM_MAX)
        return peer_sum_run(collective->peers[beside], members, n, streams, err);
    if (is_plain(collective, members))
        return sum_plain(collective, members, n, streams, err);
    return sum_in_own(collective, collective->meetings[beside], members, n, streams, err);
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
