/* Measures a machine: memory, links, launches and collectives, for a profile. */
#ifndef CUDA_PROBE_H
#define CUDA_PROBE_H

#ifdef __cplusplus
extern "C" {
#endif

#include "sim/machine.h"
#include "sim/tensor_type.h"

enum { PROBE_SIZES = 6, PROBE_WIDTHS = 4 };

/* Bytes of the copies that make the curves, and widths of the rows of strided ones: those of 1, 2,
 * 4 and 8 heads of 128 in q8_0. */
extern const uint64_t probe_sizes[PROBE_SIZES];
extern const uint32_t probe_widths[PROBE_WIDTHS];

struct probe_device {
    char name[64];
    double memory_gbs;                   /* one kernel reading */
    double launch_s, graph_node_s;       /* the thread's time for a launch; a node of a graph */
    double sync_s, copy_s;               /* a launch and waiting for it; a blocking copy of 64 B */
    double copy_latency_s;               /* a copy of 64 B within a stream of them */
    double down_gbs, up_gbs, duplex_gbs; /* pinned; duplex is both directions' sum */
    double pageable_gbs[PROBE_SIZES];
    double strided_gbs[PROBE_WIDTHS];
    double row_s; /* fixed time of a row, by the narrowest rows */
};

struct probe {
    struct probe_device devices[MACHINE_DEVICES_MAX];
    uint32_t device_count;
    double down_together_gbs;              /* all devices at once, their sum; pinned */
    double peer_gbs;                       /* device 0 to 1; 0 with one device */
    bool peer_access;                      /* without a stop in host memory */
    double reduce_small_s, reduce_large_s; /* int64 sums of 20 KB and 10 MiB a device; 0: no NCCL */
};

/**
 * Measures all visible GPUs; takes some seconds for each, and 1 GiB on it.
 *
 * @return 0, or -1 with `err` set (ERROR_UNSUPPORTED without a GPU)
 */
int probe_run(struct probe *probe, struct error *err);

/** Bytes of weights that products of so many tokens load on a GPU while kernels before them run. */
uint64_t probe_ahead_bytes(int gpu, enum tensor_type type, uint32_t tokens);

/** Puts measured figures into a machine of the same devices in the same order. */
void probe_apply(const struct probe *probe, struct machine *machine);

#ifdef __cplusplus
}
#endif

#endif
