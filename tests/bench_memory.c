#include "tests/bench_memory.h"

#include <time.h>

#ifdef _OPENMP
#define PARALLEL_SUM _Pragma("omp parallel for schedule(static) reduction(+ : sum)")
#else
#define PARALLEL_SUM
#endif

double bench_now_s(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static uint64_t sum_words(const uint64_t *words, uint64_t bytes, int64_t streams)
{
    const int64_t stream_words = 512, tile_words = streams * stream_words;
    const int64_t tiles = (int64_t)(bytes / 8) / tile_words;
    uint64_t sum = 0;

    PARALLEL_SUM
    for (int64_t tile = 0; tile < tiles; tile++)
        for (int64_t i = 0; i < stream_words; i += 8)
            for (int64_t stream = 0; stream < streams; stream++) {
                const uint64_t *line = words + tile * tile_words + stream * stream_words + i;

                sum += ((line[0] ^ line[1]) + (line[2] ^ line[3])) ^
                       ((line[4] ^ line[5]) + (line[6] ^ line[7]));
            }
    return sum;
}

double bench_memory_read_s(const uint64_t *words, uint64_t bytes, int64_t streams)
{
    double start_s = bench_now_s();
    volatile uint64_t sum = sum_words(words, bytes, streams);

    (void)sum;
    return bench_now_s() - start_s;
}
