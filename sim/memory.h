/* The account of device memory: docs/time-model.md, "Memory". */
#ifndef SIM_MEMORY_H
#define SIM_MEMORY_H

#include "sim/plan.h"

/* Bytes on one device. */
struct memory_device {
    uint64_t weights;   /* slices and mirrored tensors */
    uint64_t kv;        /* resident part of the attention cache */
    uint64_t recurrent; /* recurrent state */
    uint64_t compute;   /* the compute buffer, the pool and places for cast rows */
    uint64_t buffer;    /* the compute buffer alone, as the engine prints it; part of compute */
    uint64_t overhead;  /* driver context, libraries, what others use */
    uint64_t total, available;
};

struct memory_account {
    struct memory_device devices[MACHINE_DEVICES_MAX];
    uint32_t device_count;
    uint64_t host_kv;      /* cache on the host */
    uint64_t host_weights; /* token embedding, and layers left on the host */
    bool fits;
    uint32_t shortest;    /* device that is short by most; meaningful unless `fits` */
    uint64_t short_bytes; /* by how much */
};

/** Counts memory of a placement. */
void memory_count(const struct placement *placement, struct memory_account *account);

/** Finds the device that is short by most, from the devices' totals. */
void memory_judge(struct memory_account *account);

/** "fits", or "short 412 MiB on CUDA1". */
void memory_verdict(const struct placement *placement, const struct memory_account *account,
                    char *text, size_t size);

#endif
