/* Which plans an engine cannot run, or runs with wrong output, and why. No time and no
 * memory: those are sim/predict.h and sim/memory.h.
 * Sources: src/llama-context.cpp, src/llama-arch.cpp, ggml/src/ggml-backend-meta.cpp and
 * ggml/src/ggml-cuda/fattn.cu of llama.cpp; rows s000-nkvo-status, s000-sampling06b,
 * s000-iswa, s000-aroverlap and s002-quantabort of traces/. */
#ifndef SIM_FEASIBILITY_H
#define SIM_FEASIBILITY_H

#include "sim/plan.h"

/* The graver, the higher. */
enum feasibility_verdict {
    FEASIBILITY_WORKS,
    FEASIBILITY_WRONG,   /* it runs, and its output is wrong */
    FEASIBILITY_ABORTS,  /* it ends in an assertion or a fault */
    FEASIBILITY_REFUSED, /* the engine says no when the model is loaded */
};

enum feasibility_rule {
    FEASIBILITY_TENSOR_ARCHITECTURE,
    FEASIBILITY_TENSOR_FLASH_ATTENTION,
    FEASIBILITY_QUANTISED_V,
    FEASIBILITY_TENSOR_HOST_CACHE,
    FEASIBILITY_TENSOR_HOST_STATE,
    FEASIBILITY_QUERY_GROUPS,
    FEASIBILITY_QUANTISED_HOST_CACHE,
    FEASIBILITY_MIXED_SLIDING_CACHE,
    FEASIBILITY_TENSOR_SAMPLING,
    FEASIBILITY_SKIPPED_ALL_REDUCE,
    FEASIBILITY_CHUNKED_ALL_REDUCE,
    FEASIBILITY_RULE_COUNT
};

struct feasibility_rule_info {
    const char *name; /* "tensor-host-cache" */
    enum feasibility_verdict verdict;
    const char *why;     /* one sentence, without its full stop */
    const char *instead; /* what would work */
};

const struct feasibility_rule_info *feasibility_rule_info(enum feasibility_rule rule);

/**
 * Checks a plan, also one that placement_new() refuses.
 *
 * @return a bit for each rule that applies: 1 << rule
 */
uint32_t feasibility_check(const struct model *model, const struct machine *machine,
                           const struct plan *plan);

/** The gravest verdict of the rules of feasibility_check(). */
enum feasibility_verdict feasibility_verdict(uint32_t rules);

#endif
