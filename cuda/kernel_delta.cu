/* Gated delta net: sequences, channels, heads and rows of a state run side by side, tokens of a
 * sequence one after the other. ref/kernel_delta.c has the order of additions.
 *
 * What these kernels read before launch_begin() is weights, tokens and states. A copy brings the
 * tokens, and a state that lies elsewhere, and no launch overlaps a copy; else only the same
 * operation of an earlier step wrote the state, and each step ends before the next begins. */
#include "cuda/cuda_check.h"
#include "cuda/kernel_convolve.cuh"
#include "cuda/kernel_delta.cuh"
#include "cuda/kernels.h"
#include "cuda/launch.cuh"

extern "C" {
#include "ref/arith.h"
}

enum { WARP = DELTA_WARP, ALL = -1 };

/* The next tokens of a sequence, `most` at most, from *next on; a warp calls it.
 * @return how many it wrote to `list` */
__device__ static uint32_t find_tokens(const struct program_token *tokens, uint32_t count,
                                       uint32_t sequence, uint32_t most, uint32_t *next,
                                       uint32_t *list)
{
    const uint32_t lane = threadIdx.x % WARP;
    uint32_t found = 0;

    __syncwarp(); /* the list may hold what other lanes have just read */
    while (found < most && *next < count) {
        const uint32_t t = *next + lane;
        const bool hit = t < count && tokens[t].sequence == sequence;
        const uint32_t hits = __ballot_sync((unsigned)ALL, hit);
        const uint32_t rank = found + (uint32_t)__popc(hits & ((1u << lane) - 1));
        const uint32_t over = __ballot_sync((unsigned)ALL, hit && rank >= most);

        if (hit && rank < most)
            list[rank] = t;
        found += (uint32_t)__popc(hits & ~over);
        *next += over != 0 ? (uint32_t)__ffs((int)over) - 1 : WARP;
    }
    __syncwarp();
    return found;
}

/* Bytes of global memory to shared memory, in the background: 4, 8 or 16. */
template <int BYTES> __device__ __forceinline__ void copy(float *to, const float *from)
{
#if __CUDA_ARCH__ >= 800
    asm volatile(
        "cp.async.ca.shared.global [%0], [%1], %2;" ::"r"((uint32_t)__cvta_generic_to_shared(to)),
        "l"(from), "n"(BYTES)
        : "memory");
#else
    for (int i = 0; i < BYTES / 4; i++)
        to[i] = from[i];
#endif
}

/* Ends a group of copies; waits until but the last `GROUPS` of this thread are there. */
__device__ __forceinline__ void copies_commit(void)
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

template <int GROUPS> __device__ __forceinline__ void copies_wait(void)
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(GROUPS) : "memory");
#endif
}

/* ---- convolution ---- */

enum {
    TAPS_MAX = CONVOLVE_TAPS_MAX,
    CONVOLVE_WARPS = 8,
    CONVOLVE_BATCH = 8, /* tokens that a warp loads ahead */
};

/* What a warp has to know of its sequence's tokens, of which it has those in [begin, end). */
struct part {
    uint32_t begin, end;
    uint32_t before, own, all; /* tokens of the sequence before `begin`, here, in the step */
    uint32_t first;            /* the sequence's first token */
};

/* The whole block; each warp counts its own. */
__device__ static struct part part_of(const struct convolve &c, uint32_t sequence)
{
    __shared__ uint32_t counts[CONVOLVE_WARPS], firsts[CONVOLVE_WARPS];
    const uint32_t warps = blockDim.x / WARP, warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const uint32_t each = (c.token_count + warps - 1) / warps;
    struct part part = {};

    part.begin = min(warp * each, c.token_count);
    part.end = min(part.begin + each, c.token_count);
    part.first = c.token_count;
    for (uint32_t base = part.begin; base < part.end; base += WARP) {
        const uint32_t t = base + lane;
        const uint32_t hits =
            __ballot_sync((unsigned)ALL, t < part.end && c.tokens[t].sequence == sequence);

        if (part.own == 0 && hits != 0)
            part.first = base + (uint32_t)__ffs((int)hits) - 1;
        part.own += (uint32_t)__popc(hits);
    }
    if (lane == 0) {
        counts[warp] = part.own;
        firsts[warp] = part.first;
    }
    __syncthreads();
    for (uint32_t w = 0; w < warps; w++) {
        part.before += w < warp ? counts[w] : 0;
        part.all += counts[w];
        part.first = min(part.first, firsts[w]);
    }
    return part;
}

/* Inputs before token `begin`, the youngest first: of the tokens of the step, as far as it has
 * some. `channel` of x is this thread's. */
template <int TAPS>
__device__ static void load_halo(const struct convolve &c, const float *x, uint32_t sequence,
                                 const struct part &part, float (&history)[TAPS])
{
    uint32_t end = part.begin;

#pragma unroll
    for (uint32_t age = 0; age + 1 < TAPS; age++)
        if (age + 1 < c.taps && age < part.before) {
            while (c.tokens[end - 1].sequence != sequence)
                end--;
            end--;
            history[age] = x[end * c.channels];
        }
}

/* Grid: (channels / WARP, sequences). A lane has a channel, a warp a part of the tokens. */
template <int TAPS, bool EXACT>
__global__ void __launch_bounds__(CONVOLVE_WARPS *WARP)
    convolve_kernel(struct launch_stamp stamp, const struct convolve c, float *x)
{
    __shared__ uint32_t lists[CONVOLVE_WARPS][2 * CONVOLVE_BATCH];
    __shared__ float inputs[CONVOLVE_WARPS][2 * CONVOLVE_BATCH][WARP];
    const uint64_t channel = (uint64_t)blockIdx.x * WARP + threadIdx.x % WARP;
    const uint64_t kept = (c.taps - 1) * c.channels;
    const bool some = channel < c.channels;
    const struct part part = part_of(c, blockIdx.y);
    uint32_t *list = lists[threadIdx.x / WARP];
    float *input = &inputs[threadIdx.x / WARP][0][threadIdx.x % WARP];
    uint32_t next = part.begin, left = part.all - part.before;
    float history[TAPS] = {}, weight[TAPS] = {};
    float *state = convolve_state(c, blockIdx.y, channel);
    struct program_token first = {};

    if (part.all > 0)
        first = c.tokens[part.first];
    if (part.all > 0 && some) {
        const float *weights =
            c.weight +
            (channel / c.count * c.segment_channels + c.first + channel % c.count) * c.taps;

#pragma unroll
        for (uint32_t age = 0; age < TAPS; age++) {
            if (EXACT || age < c.taps)
                weight[age] = weights[c.taps - 1 - age];
            if (age + 1 < c.taps && age >= part.before && first.from_zero == 0)
                history[age] =
                    state[first.undone * kept + (c.taps - 2 - (age - part.before)) * c.channels];
        }
    }
    launch_begin(stamp);
    if (part.all == 0)
        return;
    x += channel;
    if (some)
        load_halo<TAPS>(c, x, blockIdx.y, part, history);
    __syncthreads(); /* before inputs become results, and planes other ones */
    if (part.all < c.planes) {
        if (some && threadIdx.x < WARP)
            age_planes<1>(state, c.planes, first.undone, part.all, c.taps - 1, c.channels, kept);
        __syncthreads();
    }

    auto fetch = [&](uint32_t batch) {
        const uint32_t found = find_tokens(c.tokens, part.end, blockIdx.y, CONVOLVE_BATCH, &next,
                                           list + batch % 2 * CONVOLVE_BATCH);

        for (uint32_t i = batch % 2 * CONVOLVE_BATCH; i < batch % 2 * CONVOLVE_BATCH + found; i++)
            if (some)
                copy<4>(&input[i * WARP], x + list[i] * c.channels);
        copies_commit();
        return found;
    };

    uint32_t found = fetch(0);

    for (uint32_t batch = 0; found > 0; batch++) {
        const uint32_t behind = fetch(batch + 1), at = batch % 2 * CONVOLVE_BATCH;

        copies_wait<1>();
#pragma unroll 1
        for (uint32_t i = at; i < at + found && some; i++) {
#pragma unroll
            for (int age = TAPS - 1; age > 0; age--)
                history[age] = history[age - 1];
            history[0] = input[i * WARP];
            x[list[i] * c.channels] = convolve_input(
                convolve_before<TAPS, EXACT>(c.taps, weight, history), weight[0], history[0]);
            left--;
            if (left < c.planes)
#pragma unroll
                for (uint32_t age = 0; age + 1 < TAPS; age++)
                    if (EXACT || age + 1 < c.taps)
                        state[left * kept + (c.taps - 2 - age) * c.channels] = history[age];
        }
        found = behind;
    }
}

int cuda_convolve(const struct convolve *convolve, uint32_t sequences, float *x,
                  cudaStream_t stream, struct error *err)
{
    const uint32_t batches = (convolve->token_count + CONVOLVE_BATCH - 1) / CONVOLVE_BATCH;
    const unsigned threads = WARP * (batches < CONVOLVE_WARPS ? batches : CONVOLVE_WARPS);

    if (convolve->taps > TAPS_MAX)
        return error_set(err, ERROR_UNSUPPORTED, "a convolution of %u taps; %d at most",
                         convolve->taps, TAPS_MAX);
    if (convolve->channels == 0 || convolve->token_count == 0)
        return 0;

    dim3 grid((unsigned)((convolve->channels + WARP - 1) / WARP), sequences);

    launch_overlapping(convolve->taps == 4 ? convolve_kernel<4, true>
                                           : convolve_kernel<TAPS_MAX, false>,
                       grid, threads, 0, stream, *convolve, x);
    return cuda_launched("convolve", err);
}

/* ---- delta rule ---- */

/* A step of few tokens takes one kernel, in which each block makes what it needs of q, k and the
 * gates; one of more has them made once, by a kernel before, in the shape that slots have. */
enum {
    LANES = DELTA_LANES,
    THREADS = DELTA_THREADS,
    ROWS = DELTA_ROWS,
    FEW = 8,
    TILES = 3, /* of a ring */
    PREPARE_THREADS = 256,
};

/* Tiles of tokens follow each other in a ring. */
template <int DIM, int HEADS> struct slots : delta_slots<DIM, HEADS> {
    static constexpr int TILE = DIM > 128 ? 4 : 8;
    static constexpr int COUNT = TILE * TILES; /* of a ring; FEW tokens take as many */
};

/* A warp: delta_unit() of a row of the mix. */
template <int DIM>
__device__ __forceinline__ void unit(const float *x, float eps, float factor, float *y)
{
    float value[DIM / WARP];

#pragma unroll
    for (int i = 0; i < DIM / WARP; i++)
        value[i] = x[i * WARP + threadIdx.x % WARP];
    delta_unit<DIM>(value, eps, factor, y);
}

/* Those of a token's head, which the layer has at `at`. */
__device__ __forceinline__ float2 gates_of(const struct delta &d, uint64_t gate, uint64_t at)
{
    return delta_gates(d.beta[gate], d.alpha[gate], d.dt[at], d.a[at]);
}

/* What is made once of a step's tokens: q and k (tokens, k_heads, 2, dim), gates (tokens,
 * v_heads). */
struct prepared {
    float *units;
    float2 *gates;
};

/* Grid: (tokens). */
template <int DIM>
__global__ void __launch_bounds__(PREPARE_THREADS)
    prepare_kernel(struct launch_stamp stamp, const struct delta d,
                   const struct cuda_delta_heads heads, const struct prepared prepared)
{
    const uint64_t t = blockIdx.x;
    const float *mix = d.mix + t * (2 * d.k_heads + d.v_heads) * DIM;
    float *units = prepared.units + t * 2 * d.k_heads * DIM;

    launch_begin(stamp);
    for (uint32_t i = threadIdx.x / WARP; i < 2 * d.k_heads; i += PREPARE_THREADS / WARP)
        unit<DIM>(mix + i * DIM, d.eps, i < d.k_heads ? arith_rsqrt((float)DIM) : 1.0f,
                  units + (i % d.k_heads * 2 + i / d.k_heads) * DIM);
    for (uint32_t h = threadIdx.x; h < d.v_heads; h += PREPARE_THREADS)
        prepared.gates[t * d.v_heads + h] = gates_of(d, t * d.v_heads + h, delta_gate_at(heads, h));
}

/* Which rows of which heads a block has: `HEADS` heads of one k head. */
struct block {
    uint32_t k_head, head, row; /* the first head, of those `k_heads` apart, and row */
};

/* A warp fills the slots of `n` tokens from what is prepared. */
template <int DIM, int HEADS>
__device__ __forceinline__ void
fill_prepared(const struct delta &d, const struct prepared &prepared, const struct block &block,
              const uint32_t *list, uint32_t n, float *to)
{
    using slots = slots<DIM, HEADS>;
    constexpr uint32_t UNITS = 2 * DIM / 4, VALUES = HEADS * ROWS / 4;

    for (uint32_t i = threadIdx.x % WARP; i < n * UNITS; i += WARP)
        copy<16>(to + i / UNITS * slots::SIZE + i % UNITS * 4,
                 prepared.units + ((uint64_t)list[i / UNITS] * d.k_heads + block.k_head) * 2 * DIM +
                     i % UNITS * 4);
    for (uint32_t i = threadIdx.x % WARP; i < n * VALUES; i += WARP) {
        const uint64_t head = (uint64_t)list[i / VALUES] * (2 * d.k_heads + d.v_heads) +
                              2 * d.k_heads + block.head + i % VALUES / (ROWS / 4) * d.k_heads;

        copy<16>(to + i / VALUES * slots::SIZE + slots::VALUES + i % VALUES * 4,
                 d.mix + head * DIM + block.row + i % (ROWS / 4) * 4);
    }
    for (uint32_t i = threadIdx.x % WARP; i < n * HEADS; i += WARP)
        copy<8>(to + i / HEADS * slots::SIZE + slots::GATES + i % HEADS * 2,
                (const float *)&prepared.gates[(uint64_t)list[i / HEADS] * d.v_heads + block.head +
                                               i % HEADS * d.k_heads]);
}

/* The warp that fills slots, two tiles ahead of those that take them. */
template <int DIM, int HEADS>
__device__ __forceinline__ void bring_slots(const struct delta &d, const struct prepared &prepared,
                                            const struct block &block, uint32_t left,
                                            uint32_t *list, float *ring)
{
    using slots = slots<DIM, HEADS>;
    const uint32_t tiles = (left + slots::TILE - 1) / slots::TILE;
    uint32_t next = 0;

    for (uint32_t tile = 0; tile < tiles + 2; tile++) {
        const uint32_t at = tile % TILES * slots::TILE;
        uint32_t n;

        if (tile >= 2) {
            copies_commit();
            copies_wait<0>();
            __syncthreads();
        }
        n = find_tokens(d.tokens, d.token_count, blockIdx.z, slots::TILE, &next, list + at);
        fill_prepared<DIM, HEADS>(d, prepared, block, list + at, n, ring + at * slots::SIZE);
    }
    copies_commit();
    copies_wait<0>();
}

/* Makes what the slots of `n` tokens hold. The kinds begin at different warps. */
template <int DIM, int HEADS>
__device__ __forceinline__ void fill_made(const struct delta &d, const struct block &block,
                                          const struct cuda_delta_heads &heads,
                                          const uint32_t *list, uint32_t n, float *to)
{
    using slots = slots<DIM, HEADS>;
    constexpr uint32_t VALUES = HEADS * ROWS;
    const uint64_t width = 2 * d.k_heads + d.v_heads;

    for (uint32_t i = threadIdx.x / WARP; i < 2 * n; i += THREADS / WARP)
        unit<DIM>(d.mix + (list[i / 2] * width + i % 2 * d.k_heads + block.k_head) * DIM, d.eps,
                  i % 2 == 0 ? arith_rsqrt((float)DIM) : 1.0f,
                  to + i / 2 * slots::SIZE + i % 2 * slots::K);
    for (uint32_t i = threadIdx.x ^ 2 * WARP; i < n * VALUES; i += THREADS) {
        const uint64_t head =
            list[i / VALUES] * width + 2 * d.k_heads + block.head + i % VALUES / ROWS * d.k_heads;

        to[i / VALUES * slots::SIZE + slots::VALUES + i % VALUES] =
            d.mix[head * DIM + block.row + i % ROWS];
    }
    for (uint32_t i = threadIdx.x ^ 3 * WARP; i < n * HEADS; i += THREADS) {
        const uint32_t h = block.head + i % HEADS * d.k_heads;

        *(float2 *)(to + i / HEADS * slots::SIZE + slots::GATES + i % HEADS * 2) =
            gates_of(d, (uint64_t)list[i / HEADS] * d.v_heads + h, delta_gate_at(heads, h));
    }
}

/* How many tokens the sequence has, and the first of them; each warp counts. */
__device__ static uint32_t count_tokens(const struct delta &d, uint32_t sequence, uint32_t *first)
{
    uint32_t all = 0;

    for (uint32_t base = 0; base < d.token_count; base += WARP) {
        const uint32_t t = base + threadIdx.x % WARP;
        const uint32_t hits =
            __ballot_sync((unsigned)ALL, t < d.token_count && d.tokens[t].sequence == sequence);

        if (all == 0 && hits != 0)
            *first = base + (uint32_t)__ffs((int)hits) - 1;
        all += (uint32_t)__popc(hits);
    }
    return all;
}

/* Grid: (v_heads / HEADS, dim / ROWS, sequences). PREPARED: a kernel before has made what is in
 * `prepared`, and one warp more than those that have rows brings it. Else there are FEW tokens at
 * most, and they fit two tiles. */
template <int DIM, int HEADS, bool PREPARED>
__global__ void __launch_bounds__(PREPARED ? THREADS + WARP : THREADS, 1)
    delta_kernel(struct launch_stamp stamp, const struct delta d,
                 const struct cuda_delta_heads heads, const struct prepared prepared, float *out)
{
    using slots = slots<DIM, HEADS>;
    constexpr int EACH = DIM / LANES;
    constexpr uint32_t COUNT = PREPARED ? slots::COUNT : FEW;
    __shared__ __align__(16) float ring[COUNT * slots::SIZE];
    __shared__ uint32_t lists[PREPARED ? 1 : THREADS / WARP][COUNT];
    const uint32_t lane = threadIdx.x % LANES, sequence = blockIdx.z;
    const uint32_t k_head = blockIdx.x % d.k_heads;
    const struct block block = {k_head, k_head + blockIdx.x / d.k_heads * HEADS * d.k_heads,
                                blockIdx.y * ROWS};
    const uint64_t row = block.row + threadIdx.x / LANES, size = (uint64_t)DIM * DIM;
    const uint64_t plane_size = d.v_heads * size, stride = d.k_heads * size;
    float *state =
        d.state + sequence * (uint64_t)d.planes * plane_size + block.head * size + row * DIM + lane;
    float *results = out + (block.head + (uint64_t)lane * d.k_heads) * DIM + row;
    uint32_t *list = lists[PREPARED ? 0 : threadIdx.x / WARP];
    uint32_t first = 0, left = count_tokens(d, sequence, &first), next = 0;
    struct delta_rows<DIM, HEADS> rows;

    if (left == 0) {
        launch_begin(stamp);
        return;
    }
    if (PREPARED && threadIdx.x >= THREADS) {
        launch_begin(stamp);
        bring_slots<DIM, HEADS>(d, prepared, block, left, list, ring);
        return;
    }

    const struct program_token begin = d.tokens[first];

#pragma unroll
    for (int h = 0; h < HEADS; h++)
#pragma unroll
        for (int i = 0; i < EACH; i++)
            rows.s[h][i] = begin.from_zero != 0
                               ? 0.0f
                               : state[begin.undone * plane_size + h * stride + i * LANES];
    if (!PREPARED)
        find_tokens(d.tokens, d.token_count, sequence, FEW, &next, list);
    launch_begin(stamp);
    for (int h = 0; h < HEADS && left < d.planes; h++)
        age_planes<EACH>(state + h * stride, d.planes, begin.undone, left, EACH, LANES, plane_size);
    if (!PREPARED)
        fill_made<DIM, HEADS>(d, block, heads, list, left, ring);
    for (uint32_t tile = 0; left > 0; tile++) {
        __syncthreads(); /* this tile and the next are there, the one before is done with */
        if (tile == 0) {
            delta_load_key<DIM, HEADS>(rows, ring);
            delta_load_query<DIM, HEADS>(rows, ring);
            delta_decay<DIM, HEADS>(rows);
#pragma unroll
            for (int h = 0; h < HEADS; h++)
                rows.dot[h] = delta_tree(rows.dot[h]);
        }
#pragma unroll 1
        for (uint32_t j = 0; j < slots::TILE && left > 0; j++) {
            const uint32_t at = tile % TILES * slots::TILE + j;
            /* Behind the last token it is any slot, and what comes of it is of no use. */
            const float *behind = ring + (at + 1 < COUNT ? at + 1 : 0) * slots::SIZE;
            float result[HEADS], mine = 0.0f;

            delta_change<DIM, HEADS>(rows);
            left--;
            if (left < d.planes)
                delta_store<DIM, HEADS>(rows, state + left * plane_size, stride);
            delta_load_key<DIM, HEADS>(rows, behind);
            delta_query<DIM, HEADS>(rows, result);
            delta_load_query<DIM, HEADS>(rows, behind);
#pragma unroll
            for (int h = 0; h < HEADS; h++) {
                result[h] = delta_tree(result[h]);
                mine = lane == h ? result[h] : mine;
            }
            if (lane < HEADS)
                results[(uint64_t)list[at] * d.v_heads * DIM] = arith_canonical(mine);
            delta_decay<DIM, HEADS>(rows);
#pragma unroll
            for (int h = 0; h < HEADS; h++)
                rows.dot[h] = delta_tree(rows.dot[h]);
        }
    }
}

static struct prepared prepared_of(const struct delta *delta, void *scratch)
{
    struct prepared prepared = {(float *)scratch, nullptr};

    prepared.gates =
        (float2 *)(prepared.units + (size_t)delta->token_count * 2 * delta->k_heads * delta->dim);
    return prepared;
}

size_t cuda_delta_scratch(const struct delta *delta)
{
    return (size_t)delta->token_count * (2 * (size_t)delta->k_heads * delta->dim * sizeof(float) +
                                         delta->v_heads * sizeof(float2));
}

template <int DIM, int HEADS>
static void launch_delta(const struct delta &delta, const struct cuda_delta_heads &heads,
                         uint32_t sequences, void *scratch, float *out, cudaStream_t stream)
{
    const struct prepared prepared = prepared_of(&delta, scratch);
    const dim3 grid(delta.v_heads / HEADS, DIM / ROWS, sequences);

    launch_overlapping(prepare_kernel<DIM>, dim3(delta.token_count), PREPARE_THREADS, 0, stream,
                       delta, heads, prepared);
    /* Its blocks have a multiprocessor each, if they begin while none is busy: where they met
     * those of the kernel before, several went to the same one, which took 2.5 times as long. */
    delta_kernel<DIM, HEADS, true>
        <<<grid, THREADS + WARP, 0, stream>>>(launch_take_stamp(), delta, heads, prepared, out);
}

/* With many tokens heads of one k head share a block, as far as their rows fit the registers: so
 * there are fewer loads of q and k. With few, more blocks have more loads of states under way. */
template <int DIM>
static void launch_delta_of(const struct delta &delta, const struct cuda_delta_heads &heads,
                            uint32_t sequences, void *scratch, float *out, cudaStream_t stream)
{
    const uint32_t each = delta.v_heads % delta.k_heads == 0 ? delta.v_heads / delta.k_heads : 1;

    if (delta.token_count <= FEW)
        launch_overlapping(delta_kernel<DIM, 1, false>, dim3(delta.v_heads, DIM / ROWS, sequences),
                           THREADS, 0, stream, delta, heads, prepared_of(&delta, scratch), out);
    else if (DIM <= 128 && each % 3 == 0)
        launch_delta<DIM, DIM <= 128 ? 3 : 1>(delta, heads, sequences, scratch, out, stream);
    else if (each % 2 == 0)
        launch_delta<DIM, 2>(delta, heads, sequences, scratch, out, stream);
    else
        launch_delta<DIM, 1>(delta, heads, sequences, scratch, out, stream);
}

int cuda_delta(const struct delta *delta, struct cuda_delta_heads heads, uint32_t sequences,
               void *scratch, float *out, cudaStream_t stream, struct error *err)
{
    if (delta->v_heads == 0 || delta->token_count == 0)
        return 0;
    switch (delta->dim) {
    case 32:
        launch_delta_of<32>(*delta, heads, sequences, scratch, out, stream);
        break;
    case 64:
        launch_delta_of<64>(*delta, heads, sequences, scratch, out, stream);
        break;
    case 128:
        launch_delta_of<128>(*delta, heads, sequences, scratch, out, stream);
        break;
    case 256:
        launch_delta_of<256>(*delta, heads, sequences, scratch, out, stream);
        break;
    default:
        return error_set(err, ERROR_UNSUPPORTED, "a delta rule of %u dimensions; 32, 64, 128, 256",
                         delta->dim);
    }
    return cuda_launched("delta", err);
}
