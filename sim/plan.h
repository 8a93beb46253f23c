/* A plan: who holds what, in llama.cpp's own terms, and its placement on a machine. */
#ifndef SIM_PLAN_H
#define SIM_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/machine.h"
#include "sim/model.h"
#include "sim/share.h"

enum plan_split { PLAN_SPLIT_NONE, PLAN_SPLIT_LAYER, PLAN_SPLIT_TENSOR };

/* Which layers get device memory when -kvgl N leaves some of the cache on the host. */
enum plan_kv_policy {
    PLAN_KV_LAYER_ORDER,   /* the first N layers that own a cache */
    PLAN_KV_ROUND_ROBIN,   /* one layer of each device in turn */
    PLAN_KV_SLOWEST_FIRST, /* devices behind the slowest link first; within 15 % in turn */
};

/* How an engine issues a program. */
enum plan_schedule {
    PLAN_SCHEDULE_LLAMA_CPP,      /* llama.cpp as of August 2026 */
    PLAN_SCHEDULE_LLAMA_CPP_FORK, /* its fork with the placement flags */
    PLAN_SCHEDULE_LOPSIDE,        /* our own runtime, with the fork's flags */
};

enum plan_tristate { PLAN_AUTO = -1, PLAN_OFF = 0, PLAN_ON = 1 };

/* What happens at the end of each part of a layer under a tensor split. */
enum plan_all_reduce {
    PLAN_ALL_REDUCE_PLAIN,      /* sum, then go on */
    PLAN_ALL_REDUCE_SKIPPED,    /* wrong output; what a measurement of its cost leaves out */
    PLAN_ALL_REDUCE_CHUNKED,    /* the last projection in chunks, each summed at once */
    PLAN_ALL_REDUCE_OVERLAPPED, /* the same, summed beside the next chunk's projection */
};

enum { PLAN_DELIVERY_DEPTH_MAX = 32 };

struct plan {
    enum plan_schedule schedule;
    enum plan_split split;
    uint32_t main_gpu;                       /* the device of PLAN_SPLIT_NONE */
    float tensor_split[MACHINE_DEVICES_MAX]; /* -ts */
    uint32_t tensor_split_count;             /* 0: the engine's default */
    float attn_split[MACHINE_DEVICES_MAX];   /* -as */
    uint32_t attn_split_count;               /* 0: follows -ts */
    bool kv_on_host;                         /* -nkvo */
    bool kv_pinned;                          /* -kvcp */
    bool recurrent_on_device;                /* -rso; without -nkvo it always is */
    int32_t kv_gpu_layers;                   /* -kvgl; -1: not given */
    enum plan_kv_policy kv_policy;
    /* explicit residency: bit d of kv_resident[layer]: device d keeps its part of the
     * layer's cache. NULL: by kv_gpu_layers and kv_policy. Owned by the caller. */
    const uint32_t *kv_resident;
    uint32_t kv_resident_count;
    enum tensor_type type_k, type_v; /* -ctk, -ctv */
    enum plan_tristate flash_attn;   /* -fa */
    bool attn_on_host;               /* -ah: attention over a host cache on the CPU */
    enum plan_tristate pipeline; /* -pipe: four copies of inputs; PLAN_AUTO: the engine's rule */
    enum plan_tristate output_mirrored; /* -om: the head whole on each device; PLAN_AUTO: rule */
    bool backend_sampling;              /* -bs: sampling on the device */
    enum plan_all_reduce all_reduce;    /* -ar */
    uint32_t ff_exp_rows[MACHINE_DEVICES_MAX]; /* -fer: expert rows of each device ... */
    uint32_t ff_exp_rows_count;                /* ... 0: by -ts */
    uint32_t n_slots;                          /* -np: sequences decoded together */
    bool kv_unified;                           /* -kvu: they share one cache */
    uint32_t n_cpu_moe;                        /* -ncmoe: layers whose experts stay on the host */
    uint32_t delivery_depth;    /* -kvd: layers whose windows are sent ahead; 0: blocking */
    int32_t n_gpu_layers;       /* -ngl; below 0: all */
    uint32_t n_ctx;             /* -c; 0: as long as the workload needs */
    uint32_t n_batch, n_ubatch; /* -b, -ub */
    uint32_t n_threads;         /* -t; 0: the machine's */
    bool all_logits;            /* buffers hold logits of every token of a ubatch */
};

/** llama-bench's defaults: layer split, f16 cache, batch 2048, ubatch 512. */
struct plan plan_default(void);

/* Where everything of a model lies, after all rounding. */
struct placement {
    const struct model *model;
    const struct machine *machine;
    struct plan plan;                      /* with defaults filled in */
    uint32_t device_count;                 /* devices the plan uses: those of the machine, or one */
    uint32_t devices[MACHINE_DEVICES_MAX]; /* into machine.devices */
    uint32_t layer_count;                  /* blocks, nextn included */
    int *owner;                  /* per block and for the head: device index, or SHARE_ON_HOST;
                                    device 0 under a tensor split */
    struct share_slices *slices; /* per block; whole layers unless split by tensor; a
                                    layer on the host has them on device 0 */
    uint64_t output_rows[MACHINE_DEVICES_MAX]; /* rows of the head on each device */
    uint32_t *kv_resident; /* per block: bit d, the cache part of device d is on it */
    bool recurrent_on_device;
    bool attn_on_host; /* over caches that are not resident */
    uint32_t n_ctx;    /* padded to 256 */
    bool pipeline;     /* the engine keeps four copies of inputs */
};

/**
 * Places a model. Fills in the engine's defaults, rounds shares, chooses
 * resident layers.
 *
 * @param context_needed tokens of the workload, for n_ctx when the plan leaves it open
 * @return a placement for placement_free(), or NULL with `err` set: ERROR_USAGE for a
 *         plan that cannot be, with the reason and what would work
 */
struct placement *placement_new(const struct model *model, const struct machine *machine,
                                const struct plan *plan, uint32_t context_needed,
                                struct error *err);
void placement_free(struct placement *placement);

/** Whether device `d` takes part in block `layer` at all. */
bool placement_has_layer(const struct placement *placement, uint32_t layer, uint32_t d);

/** Whether the experts of block `layer` stay in host memory (-ncmoe). */
bool placement_has_experts_on_host(const struct placement *placement, uint32_t layer);

/** Whether a recurrent state of block `layer` would lie in host memory. */
bool placement_has_state_on_host(const struct placement *placement, uint32_t layer);

/** Whether the host reads logits of device `d`: of a head that devices have whole, of the first. */
bool placement_gives_logits(const struct placement *placement, uint32_t d);

/** Cells padded to the 256 that caches come in. */
uint32_t plan_pad_cells(uint64_t cells);

/** Cache rows of block `layer` on device `d`: values of K and of V a cell. */
void placement_kv_row(const struct placement *placement, uint32_t layer, uint32_t d,
                      uint64_t *k_values, uint64_t *v_values);

/** Bytes of tensor `tensor` that device `d` holds: slice, whole or 0. */
uint64_t placement_tensor_bytes(const struct placement *placement,
                                const struct model_tensor *tensor, uint32_t d);

/** Whether a KV cache can be of this type. */
bool plan_is_cache_type(enum tensor_type type);

/** Whether llama.cpp splits tensors of an architecture ("qwen35"). */
bool plan_can_split_tensors(const char *arch);

/** Words for flags and listings. */
const char *plan_split_name(enum plan_split split);
const char *plan_kv_policy_name(enum plan_kv_policy policy);
const char *plan_schedule_name(enum plan_schedule schedule);
const char *plan_all_reduce_name(enum plan_all_reduce all_reduce);

#endif
