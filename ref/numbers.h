/* What a model's formulas need beside shapes: epsilons, rotary bases, activations. */
#ifndef REF_NUMBERS_H
#define REF_NUMBERS_H

#include "sim/gguf.h"
#include "sim/model.h"

enum numbers_rope {
    NUMBERS_ROPE_PAIRS,  /* values 2i and 2i+1 turn together (llama) */
    NUMBERS_ROPE_HALVES, /* values i and i + rope_dim/2 turn together (qwen, gemma) */
};

enum numbers_activation { NUMBERS_SILU, NUMBERS_GELU_TANH };

struct numbers {
    float norm_eps;
    float embedding_scale;  /* multiplies token embeddings; 1 where there is none */
    float attention_scale;  /* multiplies q.k; 0: 1/sqrt(head_dim_k) of the layer */
    float logit_softcap;    /* c tanh(x / c); 0: none */
    float expert_scale;     /* multiplies the router's weights; 1 */
    bool router_normalised; /* the chosen experts' weights are divided by their sum */
    enum numbers_activation activation;
    enum numbers_rope rope;
    double rope_base, rope_base_sliding; /* of full and of sliding-window layers */
    uint32_t rope_dim, rope_dim_sliding; /* leading values of a head that turn */
    double rope_scale;                   /* positions are multiplied by it: 1 / linear factor */
};

/**
 * Fills them from the keys of a file, and from the architecture's usual values where a key is
 * absent or `gguf` is NULL.
 *
 * @return 0, or -1 with `err` set: ERROR_UNSUPPORTED for an architecture or a kind of
 *         scaling that the reference does not compute, naming those it does
 */
int numbers_of(const struct model *model, const struct gguf *gguf, struct numbers *numbers,
               struct error *err);

#endif
