/* The flags that say which plans are meant: llama-bench's and llama.cpp's own
 * names, each with a list of values. Every combination is a plan. */
#ifndef CLI_PLAN_OPTIONS_H
#define CLI_PLAN_OPTIONS_H

#include "cli/list.h"
#include "sim/plan.h"

/* Short name, long name, default, whether lists are swept, argument as help shows it,
 * help. The order is that of the sweep, outermost first, as in llama-bench. */
#define PLAN_OPTIONS(OPTION)                                                                       \
    OPTION(MODEL, "m", "model", NULL, true, "FILE.gguf|NAME:QUANT", "model")                       \
    OPTION(ENGINE, "engine", "engine", "llama.cpp-fork", true, "llama.cpp|llama.cpp-fork|lopside", \
           "whose schedule: all but llama.cpp have -as, -kvgl, -kvcp and -rso")                    \
    OPTION(N_GPU_LAYERS, "ngl", "n-gpu-layers", "-1", true, "N", "layers on devices; -1: all")     \
    OPTION(N_CPU_MOE, "ncmoe", "n-cpu-moe", "0", true, "N",                                        \
           "first layers whose experts stay on the host")                                          \
    OPTION(SPLIT, "sm", "split-mode", "layer", true, "none|layer|tensor", "split mode")            \
    OPTION(MAIN_GPU, "mg", "main-gpu", "0", true, "N", "device of -sm none")                       \
    OPTION(DEVICES, "dev", "device", "auto", true, "CUDA0/CUDA1", "devices to use, in this order") \
    OPTION(TENSOR_SPLIT, "ts", "tensor-split", "0", true, "A/B[,A/B]",                             \
           "share of each device, as 60/40")                                                       \
    OPTION(ATTN_SPLIT, "as", "attn-split", "0", true, "A/B[,A/B]",                                 \
           "share of attention heads, as 1/0; -sm tensor only")                                    \
    OPTION(OVERRIDE, "ot", "override-tensor", NULL, false, "exps=CPU",                             \
           "experts of all layers stay on the host")                                               \
    OPTION(N_BATCH, "b", "batch-size", "2048", true, "N", "batch")                                 \
    OPTION(N_UBATCH, "ub", "ubatch-size", "512", true, "N", "ubatch")                              \
    OPTION(TYPE_K, "ctk", "cache-type-k", "f16", true, "TYPE", "K cache type")                     \
    OPTION(TYPE_V, "ctv", "cache-type-v", "f16", true, "TYPE", "V cache type")                     \
    OPTION(NKVO, "nkvo", "no-kv-offload", "0", true, "0|1", "KV cache in host memory")             \
    OPTION(KV_GPU_LAYERS, "kvgl", "kv-gpu-layers", "-1", true, "N",                                \
           "with -nkvo 1: layers whose cache stays on devices")                                    \
    OPTION(KV_POLICY, "kvp", "kv-policy", "slowest-first", true,                                   \
           "round-robin|slowest-first|layer-order", "which layers -kvgl takes")                    \
    OPTION(KV_PINNED, "kvcp", "kv-cpu-pinned", "0", true, "0|1", "host cache in pinned memory")    \
    OPTION(DELIVERY_DEPTH, "kvd", "kv-delivery-depth", "0", true, "N",                             \
           "with -nkvo 1: layers whose windows are sent ahead, beside computing")                  \
    OPTION(ATTN_HOST, "ah", "attn-host", "0", true, "0|1",                                         \
           "with -nkvo 1: the CPU computes attention over the cache")                              \
    OPTION(RECURRENT, "rso", "recurrent-state-offload", "0", true, "0|1",                          \
           "with -nkvo 1: recurrent state stays on devices")                                       \
    OPTION(KV_RESIDENT, "kvr", "kv-resident", NULL, false, "LAYERS[@DEVICES],...",                 \
           "exactly these layers keep their cache on devices: 3-31+4@CUDA1,35@CUDA0+CUDA1")        \
    OPTION(FLASH_ATTN, "fa", "flash-attn", "auto", true, "0|1|auto", "flash attention")            \
    OPTION(N_SLOTS, "np", "parallel", "1", true, "N", "sequences decoded together")                \
    OPTION(KV_UNIFIED, "kvu", "kv-unified", "1", true, "0|1", "they share one cache")              \
    OPTION(N_CTX, "c", "ctx-size", "0", true, "N", "context; 0: what the test needs")              \
    OPTION(PIPELINE, "pipe", "pipeline-parallel", "auto", true, "0|1|auto",                        \
           "-sm layer: ubatches follow each other from device to device")                          \
    OPTION(OUTPUT_MIRRORED, "om", "output-mirrored", "auto", true, "0|1|auto",                     \
           "-sm tensor: the output head whole on each device, or cut")                             \
    OPTION(ALL_REDUCE, "ar", "all-reduce", "plain", true, "plain|skipped|chunked|overlapped",      \
           "-sm tensor: how parts of a layer are summed")                                          \
    OPTION(FF_EXP_ROWS, "fer", "ff-exp-rows", "0", true, "A/B[,A/B]",                              \
           "-sm tensor: expert rows of each device; 0: by -ts")                                    \
    OPTION(SAMPLING, "bs", "backend-sampling", "none", true, "none|0|1",                           \
           "sample each generated token on the host (0) or a device (1)")                          \
    OPTION(MODEL_DRAFT, "md", "model-draft", "none", true, "FILE.gguf|NAME:QUANT",                 \
           "model that drafts for -m")                                                             \
    OPTION(DRAFT_MAX, "draft-max", "draft-max", "3", true, "N",                                    \
           "tokens drafted a round (also --draft, --draft-n); alone: by the model's own block")    \
    OPTION(DRAFT_ACCEPTANCE, "draft-acceptance", "draft-acceptance", "0.77", true, "P",            \
           "probability that a drafted token is kept")

enum plan_option {
#define PLAN_OPTION_ENUM(id, ...) PLAN_OPTION_##id,
    PLAN_OPTIONS(PLAN_OPTION_ENUM)
#undef PLAN_OPTION_ENUM
        PLAN_OPTION_COUNT
};

struct plan_options {
    struct list values[PLAN_OPTION_COUNT]; /* as typed; the default where nothing was */
    bool given[PLAN_OPTION_COUNT];
    struct list gpus;    /* --gpu: a machine composed of them */
    const char *machine; /* --machine, or NULL */
    const char *variant; /* --variant, or NULL */
    const char *hf;      /* -hf, which is refused, or NULL */
    bool draft_ignored;  /* a flag of drafts that is not modelled was given */
};

struct option;

/** Long options for getopt_long_only(): value PLAN_OPTION_BASE + id, and the machine's. */
enum {
    PLAN_OPTION_BASE = 1000,
    PLAN_OPTION_GPU = 2000,
    PLAN_OPTION_MACHINE,
    PLAN_OPTION_VARIANT,
    PLAN_OPTION_HF,
    PLAN_OPTION_IGNORED,                           /* llama.cpp's, without effect here */
    PLAN_OPTION_LONGS = 2 * PLAN_OPTION_COUNT + 24 /* entries that plan_options_longs() needs */
};
size_t plan_options_longs(struct option *longs, size_t capacity);

/** Takes an option if it is one of these. @return 1 taken, 0 not one, -1 no memory */
int plan_options_take(struct plan_options *options, int value, const char *argument);

/* Options of one command beside those of plans. */
struct plan_options_own {
    const char *command;        /* for messages */
    const struct option *longs; /* ended by an empty one, as getopt_long_only() has them */
    /* Takes one. @return CLI_OK, or CLI_USAGE after a message */
    int (*take)(void *context, int option, const char *argument);
    void *context;
};

/**
 * Reads a call. What is left then begins at getopt's `optind`.
 *
 * @return CLI_OK, or CLI_USAGE after a message
 */
int plan_options_parse(struct plan_options *options, struct plan_options_own own, int argc,
                       char **argv);

/** Whether the call has given a plan or a machine. */
bool plan_options_are_given(const struct plan_options *options);

/**
 * Fills in defaults and answers what llama-bench's users get wrong: commas within
 * a ratio, -sm row.
 *
 * @return 0, or -1 with `err` set
 */
int plan_options_finish(struct plan_options *options, struct error *err);
void plan_options_close(struct plan_options *options);

/**
 * The plan and machine options of the call again, as flags and values: what another call needs
 * for the same plan. Of each option the value of the first combination.
 *
 * @param words appended to; list_close() in either case
 * @return 0, or -1 with `err` set (ERROR_MEMORY)
 */
int plan_options_words(const struct plan_options *options, struct list *words, struct error *err);

/**
 * Takes such words where the call does not say otherwise: an option of the call stays, and so
 * does its machine. The words are borrowed for as long as the options live.
 *
 * @return 0, or -1 with `err` set: ERROR_INPUT for a word that is no option, or one without value
 */
int plan_options_take_words(struct plan_options *options, const char *const *words, size_t count,
                            struct error *err);

/** Replaces ranges in a list, "8-32*2" and "0-4+1", by their numbers. */
int plan_options_expand(const char *flag, struct list *list, struct error *err);

/** Warns of flags that have no effect together. */
void plan_options_warn(const struct plan_options *options);

/** Prints a help line for each. */
void plan_options_print_help(void);

/** Number of combinations, and the value of an option in the combination `index`. */
size_t plan_options_combinations(const struct plan_options *options);
const char *plan_options_value(const struct plan_options *options, size_t index,
                               enum plan_option option);

/** Opens the machine that --machine or --gpu names; without either, this one. */
struct machine *plan_options_machine(const struct plan_options *options, struct error *err);

/**
 * The plan of a combination.
 *
 * @param resident buffer of one mask a block for -kvr, which the plan borrows
 */
int plan_options_plan(const struct plan_options *options, size_t index, const struct model *model,
                      const struct machine *machine, uint32_t *resident, uint32_t resident_count,
                      struct plan *plan, struct error *err);

/* The draft of a combination, as typed. */
struct plan_draft {
    const char *name; /* of -md; NULL: the model's own block */
    uint32_t n_max;   /* 0: no drafting */
    double acceptance;
};

/** Reads -md, --draft-max and --draft-acceptance of a combination. @return 0, or -1 with `err` set
 */
int plan_options_draft(const struct plan_options *options, size_t index, struct plan_draft *draft,
                       struct error *err);

/** Whether the call asks for drafts at all: by -md or --draft-max. */
bool plan_options_drafts(const struct plan_options *options);

/** Whether -bs of a combination has generated tokens sampled, where it may be. */
bool plan_options_sample(const struct plan_options *options, size_t index);

/** Keeps the devices that -dev of a combination names. */
int plan_options_select(const struct plan_options *options, size_t index, struct machine *machine,
                        struct error *err);

#endif
