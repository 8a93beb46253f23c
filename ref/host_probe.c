#include "ref/host_probe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 6 };

#define BUFFER_BYTES (UINT64_C(1) << 30)

double host_probe_now_s(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* One tile: `streams` runs of 512 words, read a cache line each in turn. */
static uint64_t sum_tile(const uint64_t *words, int64_t streams)
{
    const int64_t stream_words = 512;
    uint64_t sum = 0;

    for (int64_t i = 0; i < stream_words; i += 8)
        for (int64_t stream = 0; stream < streams; stream++) {
            const uint64_t *line = words + stream * stream_words + i;

            sum += ((line[0] ^ line[1]) + (line[2] ^ line[3])) ^
                   ((line[4] ^ line[5]) + (line[6] ^ line[7]));
        }
    return sum;
}

static uint64_t sum_words(const uint64_t *words, uint64_t bytes, int64_t streams, bool one_thread)
{
    const int64_t tile_words = streams * 512, tiles = (int64_t)(bytes / 8) / tile_words;
    uint64_t sum = 0;

    (void)one_thread;
#ifdef _OPENMP
#pragma omp parallel for schedule(static) reduction(+ : sum) if (!one_thread)
#endif
    for (int64_t tile = 0; tile < tiles; tile++)
        sum += sum_tile(words + tile * tile_words, streams);
    return sum;
}

double host_probe_read_s(const uint64_t *words, uint64_t bytes, int64_t streams, bool one_thread)
{
    double start_s = host_probe_now_s();
    volatile uint64_t sum = sum_words(words, bytes, streams, one_thread);

    (void)sum;
    return host_probe_now_s() - start_s;
}

static double best_gbs(const uint64_t *words, bool one_thread)
{
    static const int64_t streams[] = {1, 8, 16};
    double best_s = 1e9;

    for (int round = 0; round < ROUNDS; round++) {
        double time_s = host_probe_read_s(words, BUFFER_BYTES, streams[round % 3], one_thread);

        best_s = time_s < best_s ? time_s : best_s;
    }
    return (double)BUFFER_BYTES / best_s / 1e9;
}

/* "model name : AMD Ryzen ..." of the first processor; what was there stays where there is none. */
static void read_cpu(char *cpu, size_t size)
{
    FILE *file = fopen("/proc/cpuinfo", "r");
    char line[256];

    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        char *name = strchr(line, ':');

        if (strncmp(line, "model name", 10) != 0 || name == NULL)
            continue;
        name[1 + strcspn(name + 1, "\n")] = '\0';
        snprintf(cpu, size, "%s", name + 1 + strspn(name + 1, " "));
        break;
    }
    if (file != NULL)
        fclose(file);
}

int host_probe_run(struct machine_host *host, struct error *err)
{
    uint64_t *words = malloc(BUFFER_BYTES);
    long threads = sysconf(_SC_NPROCESSORS_ONLN);

    if (words == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for a buffer of %d MiB",
                         (int)(BUFFER_BYTES >> 20));
    memset(words, 1, BUFFER_BYTES);
    read_cpu(host->cpu, sizeof host->cpu);
    if (threads > 0)
        host->threads = (uint32_t)threads;
    host->thread_gbs = best_gbs(words, true);
    host->memory_gbs = best_gbs(words, false);
    if (host->memory_gbs < host->thread_gbs)
        host->memory_gbs = host->thread_gbs;
    free(words);
    return 0;
}
