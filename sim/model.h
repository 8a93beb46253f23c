/* A language model as far as placing and timing it needs: what its layers are
 * and which tensors they own. Weights are never read. */
#ifndef SIM_MODEL_H
#define SIM_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/error.h"
#include "sim/tensor_role.h"
#include "sim/tensor_type.h"

enum model_mixer {
    MODEL_MIXER_ATTENTION,       /* softmax attention over the whole context */
    MODEL_MIXER_SLIDING_WINDOW,  /* softmax attention over the last `window` tokens */
    MODEL_MIXER_MLA,             /* attention over one latent row a token */
    MODEL_MIXER_GATED_DELTA_NET, /* recurrent state, no growing cache */
};

struct model_tensor {
    const char *name; /* as in the GGUF file; owned by the model */
    enum tensor_role role;
    int layer; /* block number; -1 for globals */
    enum tensor_type type;
    uint64_t ne[4]; /* ggml order: ne[0] is the row length; unused are 1 */
    uint64_t bytes;
};

struct model_layer {
    enum model_mixer mixer;
    bool is_nextn; /* a next-token-prediction block behind the trunk */
    /* attention kinds; zero for a gated delta net */
    uint32_t n_head, n_head_kv, head_dim_k, head_dim_v;
    uint32_t window; /* sliding window in tokens; 0 elsewhere */
    bool q_gated;    /* attn_q holds the query and a gate: twice the rows */
    bool v_from_k;   /* no attn_v tensor; the cache still holds K and V */
    bool v_in_k;     /* MLA: V is a view of the K row, there is no V cache */
    /* gated delta net; zero elsewhere */
    uint32_t gdn_k_heads, gdn_v_heads, gdn_state_dim, gdn_conv_kernel;
    /* feed-forward */
    uint32_t n_ff;                              /* dense width; 0 without a dense part */
    uint32_t n_expert, n_expert_used, n_ff_exp; /* 0 without experts */
    uint32_t n_ff_shexp;                 /* width of the shared experts together; 0 without */
    uint32_t tensor_first, tensor_count; /* into model.tensors, in file order */
};

struct model {
    char name[96];          /* "Qwen3.8-27B" */
    char quant[48];         /* "UD-Q5_K_M"; the file type's name for a GGUF file */
    char arch[32];          /* llama.cpp's architecture name, "qwen35" */
    char size_label[24];    /* "27B", as llama-bench prints it; "" when unknown */
    char source[256];       /* file name, or "catalogue" */
    char mix_note[256];     /* how certain the types of the tensors are; "" when exact */
    uint32_t n_layer;       /* trunk blocks */
    uint32_t n_layer_nextn; /* blocks behind them */
    uint32_t n_embd, n_vocab, n_ctx_train;
    bool tied_embeddings;       /* no output.weight: the head reuses token_embd.weight */
    struct model_layer *layers; /* n_layer + n_layer_nextn entries */
    struct model_tensor *tensors;
    size_t tensor_count;
    uint64_t tensor_bytes; /* sum over tensors, without padding */
    uint64_t params;       /* sum of elements over tensors */
    void *arena;           /* names; private */
};

/**
 * Reads a GGUF header (and those of the other parts of a split file). The
 * weights need not be there: a file cut off after the header reads the same.
 *
 * @return a model for model_free(), or NULL with `err` set
 */
struct model *model_load_gguf(const char *path, struct error *err);

/**
 * Builds a model from the catalogue: "qwen3.8-27b:UD-Q5_K_M", case ignored.
 * An unknown name or mix lists what is known.
 *
 * @return a model for model_free(), or NULL with `err` set
 */
struct model *model_from_catalogue(const char *name_and_quant, struct error *err);

/** A file if `spec` names one that exists or ends in ".gguf", else the catalogue. */
struct model *model_open(const char *spec, struct error *err);

/** Keeps the first `count` blocks, of which there are more, and no next-token-prediction blocks: for
 * measuring what a block costs. */
void model_keep_layers(struct model *model, uint32_t count);

void model_free(struct model *model);

/** Number of models in the catalogue, and the card at `index`. */
size_t model_catalogue_count(void);

struct model_card {
    const char *name, *arch;
    uint32_t n_layer, n_layer_nextn, n_embd;
    uint64_t params;
    const char *const *quants; /* mixes that model_from_catalogue accepts */
    size_t quant_count;
};

/** A borrowed card; valid until the next call. */
const struct model_card *model_catalogue_card(size_t index);

/** The tensor of a role in a layer, or NULL. `layer` -1 asks for globals. */
const struct model_tensor *model_find_tensor(const struct model *model, int layer,
                                             enum tensor_role role);

/** Values of one row of the cache of a layer, K and V. */
uint64_t
model_layer_k_row(const struct model_layer *layer); /* values in a K row; 0 for a GDN layer */
uint64_t
model_layer_v_row(const struct model_layer *layer); /* values in a V row; 0 if V is a view */

/** The longest window of the trunk's sliding-window layers; 0 without any. */
uint32_t model_widest_window(const struct model *model);

/** Whether the layer owns rows in the attention cache. */
bool model_layer_has_kv(const struct model_layer *layer);

/** f32 values of the recurrent state of one sequence: convolution part and state part. */
uint64_t model_layer_conv_state(const struct model_layer *layer);
uint64_t model_layer_recurrent_state(const struct model_layer *layer);

#endif
