/* Small copies between a GPU and pinned memory of the host, several as one kernel: a copy engine
 * takes some us to begin each, and what follows it cannot start early. */
#include "cuda/cuda_check.h"
#include "cuda/kernels.h"
#include "cuda/launch.cuh"

enum { THREADS = 256 };

static const uint64_t blocks_max = 256;

template <typename UNIT> __device__ static void copy_part(const struct cuda_copy_part &part)
{
    const uint32_t units = (uint32_t)(part.width / sizeof(UNIT)), count = units * part.rows;

    for (uint32_t i = blockIdx.x * THREADS + threadIdx.x; i < count; i += gridDim.x * THREADS) {
        const uint32_t row = i / units, unit = i % units;

        ((UNIT *)(part.to + row * part.to_row))[unit] =
            ((const UNIT *)(part.from + row * part.from_row))[unit];
    }
}

/* Grid: (blocks, parts). What goes to the host lets the next kernel start. What comes from it does
 * not, as kernels may read it before they wait; and as the one that is launched next may overlap
 * all the same when this one's blocks have ended, another stands between, which begins when all
 * that this one has written is there. */
template <typename UNIT, bool TO_HOST>
__global__ void __launch_bounds__(THREADS)
    copy_kernel(struct launch_stamp stamp, const __grid_constant__ struct cuda_copies copies)
{
    if (TO_HOST)
        launch_next();
    launch_wait(stamp);
    copy_part<UNIT>(copies.parts[blockIdx.y]);
}

__global__ void settle_kernel()
{
}

static bool is_aligned(const struct cuda_copies *copies, uint64_t size)
{
    for (uint32_t p = 0; p < copies->count; p++) {
        const struct cuda_copy_part *part = &copies->parts[p];

        if (((uint64_t)part->to | (uint64_t)part->from | part->to_row | part->from_row |
             part->width) %
                size !=
            0)
            return false;
    }
    return true;
}

template <typename UNIT>
static void launch(const struct cuda_copies *copies, bool to_host, uint64_t units,
                   cudaStream_t stream)
{
    const uint64_t blocks = (units + THREADS - 1) / THREADS;
    const dim3 grid((unsigned)(blocks < blocks_max ? blocks : blocks_max), copies->count);

    if (to_host) {
        launch_overlapping(copy_kernel<UNIT, true>, grid, THREADS, 0, stream, *copies);
        return;
    }
    copy_kernel<UNIT, false><<<grid, THREADS, 0, stream>>>(launch_take_stamp(), *copies);
    settle_kernel<<<1, 1, 0, stream>>>();
}

int cuda_copy_small(const struct cuda_copies *copies, bool to_host, cudaStream_t stream,
                    struct error *err)
{
    uint64_t most = 0;

    for (uint32_t p = 0; p < copies->count; p++) {
        uint64_t bytes = copies->parts[p].width * copies->parts[p].rows;

        most = bytes > most ? bytes : most;
    }
    if (most == 0)
        return 0;
    if (is_aligned(copies, sizeof(uint4)))
        launch<uint4>(copies, to_host, most / sizeof(uint4), stream);
    else
        launch<uint32_t>(copies, to_host, most / sizeof(uint32_t), stream);
    return cuda_launched("copy", err);
}
