/* The canonical operations, and the values that they read and write. A task is an ordered
 * list of operations: `ref` computes them one by one, `cuda` may have one kernel for a list.
 * docs/arithmetic.md says what each computes. */
#ifndef SIM_OP_KINDS_H
#define SIM_OP_KINDS_H

/* in: `a`, `b`; out: `out`; T: tokens of the step. */
#define OP_KINDS(OP)                                                                               \
    OP(EMBED, "embed")         /* out (T, n_embd): rows of the token embeddings, scaled */         \
    OP(JOIN, "join")           /* out = a + b */                                                   \
    OP(FINISH, "finish")       /* out: fixed-point sums a, rounded to fp32 once */                 \
    OP(NORM, "norm")           /* out: RMS norm of rows of a, times a weight if there is one */    \
    OP(SCALE, "scale")         /* out = a times the one value of a tensor */                       \
    OP(SCALE_ROW, "scale-row") /* out = a times a tensor's row, times 1 / sqrt(n_embd) */          \
    OP(MATMUL, "matmul")       /* out (T, rows): product of a with a weight's rows */              \
    OP(PARTIAL, "partial")     /* out: as matmul over some columns, left as fixed-point sums */    \
    OP(SPLIT_GATE, "split-gate") /* a: heads of query and gate; out: query, out2: gate */          \
    OP(COPY, "copy")             /* out = a: a copy between memories, or within one */             \
    OP(ROPE, "rope")             /* out = a, turned by its tokens' positions */                    \
    OP(STORE, "store")           /* rows of a into a cache, in the cache's type */                 \
    OP(ATTEND, "attend")         /* out: softmax attention of a over caches b and c */             \
    OP(GATE, "gate")             /* out = a sigmoid(b) */                                          \
    OP(CONVOLVE, "convolve")     /* out: causal convolution of a with its state, then silu */      \
    OP(DELTA, "delta")           /* out: gated delta rule over a, with b beta, c alpha */          \
    OP(NORM_GATE, "norm-gate")   /* out: RMS norm of heads of a, times silu(b) */                  \
    OP(GLU, "glu")               /* out = activation(a) b */                                       \
    OP(ROUTE, "route")           /* out: chosen experts and their weights, from logits a */        \
    OP(EXPERTS, "experts")       /* out (T, used, rows): products with the chosen experts */       \
    OP(EXPERTS_PARTIAL, "experts-partial") /* out: weighted sum over experts, fixed-point */       \
    OP(SHARED_GATE, "shared-gate")         /* out = a sigmoid(b . tensor) */                       \
    OP(SELECT, "select")                   /* out: rows of a whose tokens have outputs */          \
    OP(SOFTCAP, "softcap")                 /* out = c tanh(a / c) where the model has a cap */     \
    OP(PICK, "pick") /* out: of each row of a, its largest value and the token of that */          \
    OP(SHIFT, "shift") /* K rows of a cache, turned to the positions that they move to */         \
    OP(STAGE, "stage")                     /* a layer's weights come to a device's memory */       \
    OP(REDUCE, "reduce")                   /* sums of a over devices, to each of them */

enum op_kind {
#define OP_KIND_ENUM(kind, name) OP_##kind,
    OP_KINDS(OP_KIND_ENUM)
#undef OP_KIND_ENUM
        OP_KIND_COUNT
};

/* Values: what lies in a memory. (rows, width) is the layout; a device has its heads or its
 * slice of a width. Layered values exist once a layer. */
#define OP_VALUES(V)                                                                               \
    V(NONE, "-", false)                                                                        \
    V(TOKENS, "tokens", false)     /* struct program_token of each token of the step */        \
    V(SHIFTS, "shifts", false) /* slots as CELLS: positions that each row moves down by */        \
    V(CELLS, "cells", false)       /* slot 0: full windows, 1: sliding; cell of a position */  \
    V(RESIDUAL, "residual", false) /* (T, n_embd) f32 */                                       \
    V(NORMED, "normed", false)     /* (T, n_embd) f32 */                                       \
    V(SUMS, "sums", false)         /* (T, n_embd) fixed-point */                               \
    V(RESULT, "result", false)     /* (T, n_embd) f32: a finished part */                      \
    V(DENSE, "dense", false)       /* (T, n_embd) f32: the dense part beside experts */        \
    V(SHARED, "shared", false)     /* (T, n_embd) f32: the shared experts */                   \
    V(QUERY_GATE, "query-gate", false)                                                         \
    V(QUERY, "query", false)       /* (T, heads, head_dim_k) */                                \
    V(KEY, "key", false)           /* (T, kv heads, head_dim_k) */                             \
    V(VALUE, "value", false)       /* (T, kv heads, head_dim_v) */                             \
    V(GATE, "gate", false)         /* (T, heads, head_dim_v) */                                \
    V(ATTENDED, "attended", false) /* (T, heads, head_dim_v), of a delta net too */            \
    V(MIX, "mix", false)           /* (T, q k v of a delta net) */                             \
    V(BETA, "beta", false)         /* (T, v heads) */                                          \
    V(ALPHA, "alpha", false)       /* (T, v heads) */                                          \
    V(FF_GATE, "ff-gate", false)   /* (T, width), of experts (T, used, width) */               \
    V(FF_UP, "ff-up", false)                                                                   \
    V(ROUTER_IN, "router-in", false)                                                           \
    V(ROUTER, "router", false)     /* (T, experts) f32 */                                      \
    V(ROUTE, "route", false)       /* (T, used) struct program_route */                        \
    V(LAST, "last", false)         /* (outputs, n_embd): residual rows with outputs */         \
    V(LOGITS, "logits", false)     /* (outputs, vocabulary) f32 */                             \
    V(PICKS, "picks", false)       /* (outputs, devices) struct program_pick; a device: 1 */   \
    V(WINDOW_K, "window-k", false) /* slot: place in the ring; as CACHE_K */                   \
    V(WINDOW_V, "window-v", false)                                                             \
    V(EMBEDDED, "embedded", false) /* (T, n_embd): a drafter's token embeddings */             \
    V(HIDDEN, "hidden", false)     /* (T, n_embd): the target's hidden rows */                 \
    V(PAIR, "pair", false)         /* (T, 2 n_embd): a drafter's two normed inputs */          \
    V(ROWS_K, "rows-k", true)      /* (T, kv heads of all devices, head_dim_k): on the host */   \
    V(ROWS_V, "rows-v", true)                                                                  \
    V(CACHE_K, "cache-k", true)    /* (streams, cells, kv heads, head_dim_k) cache type */     \
    V(CACHE_V, "cache-v", true)                                                                \
    V(STATE, "state", true)        /* (slots, planes, v heads, dim, dim) f32 */                \
    V(CONV, "conv", true)          /* (slots, planes, kernel - 1, channels) f32 */

enum op_value {
#define OP_VALUE_ENUM(value, name, layered) OP_VALUE_##value,
    OP_VALUES(OP_VALUE_ENUM)
#undef OP_VALUE_ENUM
        OP_VALUE_COUNT
};

#endif
