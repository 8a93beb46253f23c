/* A machine: devices, host and the links between them, with the constants of
 * the time model that belong to hardware and driver. docs/time-model.md has the
 * formulas in which they stand. */
#ifndef SIM_MACHINE_H
#define SIM_MACHINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/error.h"
#include "sim/tensor_type.h"

enum {
    MACHINE_DEVICES_MAX = 16,
    MACHINE_NODES_MAX = 40, /* host, devices, switches */
    MACHINE_LINKS_MAX = 48,
    MACHINE_FAMILIES_MAX = 16,
    MACHINE_VARIANTS_MAX = 8,
};

/* Weight types that kernels treat alike. */
#define MACHINE_WEIGHT_CLASSES(CLASS)                                                              \
    CLASS(FLOAT, "float")       /* F32, F16, BF16, F64 */                                          \
    CLASS(BLOCK, "block")       /* Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q1_0, Q2_0 */                     \
    CLASS(K_QUANT, "k_quant")   /* Q2_K to Q6_K */                                                 \
    CLASS(I_QUANT, "i_quant")   /* IQ1 to IQ3: codebook look-ups; TQ */                            \
    CLASS(I4_QUANT, "i4_quant") /* IQ4_NL, IQ4_XS, MXFP4, NVFP4: 16-entry tables */

enum machine_weight_class {
#define MACHINE_WEIGHT_CLASS_ENUM(class, name) MACHINE_WEIGHT_##class,
    MACHINE_WEIGHT_CLASSES(MACHINE_WEIGHT_CLASS_ENUM)
#undef MACHINE_WEIGHT_CLASS_ENUM
        MACHINE_WEIGHT_CLASS_COUNT
};

enum machine_weight_class machine_weight_class_of(enum tensor_type type);

/* What kernels of one GPU generation reach of their hardware's rates. */
struct machine_family {
    char name[16];       /* "ada" */
    double memory_ratio; /* share of memory bandwidth that a streaming kernel reaches */
    double kernel_s;     /* fixed time of a kernel within a graph: node, ramp, drain */
    /* weights decoded per multiprocessor and clock in a matrix-vector product;
     * a product lasts the longer of reading and decoding */
    double matvec_rate[MACHINE_WEIGHT_CLASS_COUNT];
    /* a matrix-matrix product: share of the tensor cores' int8 rate (fp16 rate for floats) ... */
    double matmul_ratio[MACHINE_WEIGHT_CLASS_COUNT];
    /* ... and operations per multiprocessor and clock that loading, decoding and scaling
     * would allow without them, as their time adds; 0: no such time */
    double matmul_rate[MACHINE_WEIGHT_CLASS_COUNT];
    double row_clocks;        /* clocks of a multiprocessor that a row of a matrix-vector product
                                 costs beside reading and decoding */
    double column_ratio;      /* cost of each further column of a matrix-vector product, in
                                 units of decoding the weights */
    double tile_decode_ratio; /* share of matvec_rate at which a matrix-matrix kernel decodes */
    double attn_vec_ratio;    /* share of the fp32 rate: one-token attention, vector kernel */
    double attn_tile_ratio;   /* share of the fp32 rate: many tokens without tensor cores */
    double attn_one_ratio;    /* share of the fp16 rate: one-token attention on tensor cores */
    double attn_mma_ratio;    /* share of the fp16 rate: many-token attention on tensor cores */
    double gdn_step_s;        /* one token's step of a gated delta net, one wave of blocks */
};

struct machine_device {
    char name[16];          /* "CUDA0" */
    char gpu[64];           /* "GeForce RTX 4070" */
    int compute_capability; /* 89 for 8.9; 0 for other vendors */
    uint32_t family;        /* into machine.families */
    uint32_t node;          /* into machine.nodes */
    uint64_t memory_bytes;  /* what programs can use */
    uint64_t other_bytes;   /* what others use of it: a display, say */
    uint64_t l2_bytes;      /* 0 when unknown */
    double memory_gbs;
    uint32_t sm_count;
    double clock_ghz;
    double fp32_tflops;
    double fp16_tflops; /* tensor cores, fp32 accumulation; ordinary units where there are none */
    double int8_tops;   /* tensor cores; dp4a where there are none */
    bool has_int8_tensor_cores, has_fp16_tensor_cores;
    double slowdown; /* its kernels take so many times as long, on purpose; up to 1: they do not */
};

struct machine_host {
    char cpu[96];
    uint32_t threads;
    double memory_gbs;   /* all threads reading */
    double thread_gbs;   /* one thread reading */
    double thread_flops; /* attention over a cache, one thread, per second */
    double launch_s;     /* host thread: launching one kernel, or one graph */
    double copy_s;       /* host thread: a small blocking copy, its latency included */
    double sync_s;       /* host thread: noticing that a device has become idle */
    double split_s;      /* one more graph split with its staging (decode with a host cache) */
    double sample_s;     /* sampling on the host: one logit of one token */
    double rope_s;       /* CPU, all threads: rotating one value of K */
    double reserve_s;    /* planning the buffers of the worst case anew, after a context shift */
    double build_s;      /* building, splitting and allocating a graph that is not reused */
    double collective_issue_s; /* host thread: one collective call */
};

enum machine_node_kind { MACHINE_NODE_HOST, MACHINE_NODE_DEVICE, MACHINE_NODE_SWITCH };

struct machine_node {
    char name[16];
    enum machine_node_kind kind;
    uint32_t device; /* for MACHINE_NODE_DEVICE */
};

/* A link joins two nodes; "down" goes from `from` to `to` (host to device). */
struct machine_link {
    char class_name[24];                        /* "PCIe 4.0 x16"; "" when only figures are given */
    uint32_t from, to;                          /* nodes */
    double down_gbs, up_gbs;                    /* one direction alone, pinned memory */
    double duplex_gbs;                          /* both directions together */
    double pageable_gbs;                        /* a copy from or to pageable host memory */
    double latency_s;                           /* of a copy or message */
    double packet_bytes, packet_overhead_bytes; /* of one transaction; see cost_row_ratio */
    double row_s;                               /* fixed time of each row of a strided copy */
    double paced_gbs; /* most that copies are let, on purpose; 0: they are let go */
};

/* All-reduce over the devices. */
struct machine_collective {
    double latency_s; /* of a small one, launch and barrier included */
    double ratio;     /* share of the links' bandwidth that its kernels reach */
};

struct kernel_table; /* sim/kernel_table.h */

struct machine {
    char name[96], about[256], source[160];
    struct machine_device devices[MACHINE_DEVICES_MAX];
    uint32_t device_count;
    struct machine_host host;
    struct machine_node nodes[MACHINE_NODES_MAX]; /* node 0 is the host */
    uint32_t node_count;
    struct machine_link links[MACHINE_LINKS_MAX];
    uint32_t link_count;
    struct machine_collective collective;
    struct machine_family families[MACHINE_FAMILIES_MAX];
    uint32_t family_count;
    uint64_t context_bytes;    /* per device: driver context, library handles and code */
    uint64_t collective_bytes; /* per device: buffers of the collective library */
    char variants[MACHINE_VARIANTS_MAX][24]; /* that the profile offers besides "stock" */
    uint32_t variant_count;
    char variant[24];        /* the one in force; "stock" for none */
    char (*fitted_rows)[32]; /* ids of the rows that the constants were fitted to */
    size_t fitted_row_count;
    /* measured kernels of our own runtime: a table for each GPU model that has one, so no more
     * than there are devices */
    struct kernel_table *kernel_tables;
    uint32_t kernel_table_count;
};

/**
 * Opens a profile by file name or by the name of a built-in one
 * ("rtx4070-gen4x16+rtx3060-gen3x4").
 *
 * @param variant name of a variant in the profile ("oc"); NULL or "stock" for none
 * @return a machine for machine_free(), or NULL with `err` set
 */
struct machine *machine_open(const char *name_or_path, const char *variant, struct error *err);

/** As machine_open, from text; `source` names it in errors. */
struct machine *machine_parse(const char *text, size_t size, const char *source,
                              const char *variant, struct error *err);

/**
 * Composes a machine from the catalogue: one "GPU@LINK" a device, as in
 * "RTX 4070@gen4x16", "RTX 3060@gen3x4", "RTX 4090" (the card's own widest link),
 * "2x RTX 3090@gen4x8". Names match on any unambiguous part, case ignored.
 */
struct machine *machine_compose(const char *const *gpus, size_t count, struct error *err);

void machine_free(struct machine *machine);

/** Names of the built-in profiles, NULL-terminated. */
const char *const *machine_builtin_names(void);

/** A row of the GPU catalogue, for listing; NULL past the end. */
const struct machine_device *machine_catalogue_gpu(size_t index);

/** The name of the link class that a GPU of the catalogue plugs into ("PCIe 4.0 x16"). */
const char *machine_catalogue_gpu_link(size_t index);

/** A link class of the catalogue, for listing; NULL past the end. */
const struct machine_link *machine_catalogue_link(size_t index);

/** A family of the catalogue, for listing; NULL past the end. A row's `family` is an index. */
const struct machine_family *machine_catalogue_family(size_t index);

/**
 * The links from one node to another, nearest first: the way of fewest links, the
 * first listed among equals. Data passes through the host and switches, not through
 * a third device.
 *
 * @param links  set to link indices; `down[i]` says whether link i is crossed from -> to
 * @return number of links, 0 for the same node, or -1 when there is no way
 */
int machine_route(const struct machine *machine, uint32_t from_node, uint32_t to_node,
                  uint32_t links[MACHINE_NODES_MAX], bool down[MACHINE_NODES_MAX]);

/** The device of a name ("CUDA1"), or -1. */
int machine_find_device(const struct machine *machine, const char *name);

/** The link that ends at a device, on its way from the host, or -1 for an index past the end. */
int machine_device_link(const struct machine *machine, uint32_t device);

/**
 * Keeps only the devices of `order`, in that order, renamed CUDA0, CUDA1, ...; the nodes
 * and links of the others go, and the rest are renumbered without changing their order;
 * kernel tables of GPUs that are no device any more go, too.
 *
 * @param order  indices of devices, each at most once
 */
int machine_keep_devices(struct machine *machine, const uint32_t *order, size_t count,
                         struct error *err);

/** The kernel table of a GPU model, by machine_device.gpu; NULL when there is none. */
const struct kernel_table *machine_kernel_table(const struct machine *machine, const char *gpu);

/**
 * Gives the machine a kernel table, which replaces the one of the same GPU. The rows of `table`
 * become the machine's, and `table` is left without rows; on failure it keeps them.
 *
 * @return 0, or -1 with `err` set: no device of the machine is such a GPU, no memory
 */
int machine_set_kernel_table(struct machine *machine, struct kernel_table *table,
                             struct error *err);

/* One number that calibration may change. */
struct machine_constant {
    char name[64]; /* "ada.memory_ratio", "collective.latency_us", "CUDA1.duplex_gbs" */
    const char *unit, *meaning;
    double min, max; /* bounds in `unit` */
    double scale;    /* value in the struct = value in `unit` x scale */
    double *value;   /* into the machine */
};

/**
 * Lists the constants of a machine: of its families in use, its links, the collective
 * and the host. A link is named after the node it leads to ("CUDA1.down_gbs"), or after
 * both ("CUDA0-CUDA1.down_gbs") when it is no node's way to the host.
 *
 * @return their number, which may exceed `capacity`; `constants` may be NULL
 */
size_t machine_constants(struct machine *machine, struct machine_constant *constants,
                         size_t capacity);

/**
 * Writes a machine as a profile that machine_parse() reads back: every figure in full,
 * the families in use, no variants.
 *
 * @return text for free(), or NULL with `err` set
 */
char *machine_to_json(const struct machine *machine, struct error *err);

#endif
