/* The kinds of task, one a line: name in listings, and where it runs. */
#ifndef SIM_TASK_KINDS_H
#define SIM_TASK_KINDS_H

/* Classes: HOST (the issuing thread or its workers), COPY (over links),
 * KERNEL (a device's compute stream), COLLECTIVE (the streams of all members). */
#define TASK_KINDS(TASK)                                                                           \
    TASK(BUILD, "build", HOST)           /* build, split and allocate the graph */                 \
    TASK(EMBED, "embed", HOST)           /* look up the token embeddings */                        \
    TASK(MASK, "mask", HOST)             /* fill the attention mask */                             \
    TASK(SAMPLE, "sample", HOST)         /* choose the next token of each slot from its logits */  \
    TASK(KV_STORE, "kv-store", HOST)     /* put new K and V rows into the host's cache */          \
    TASK(HOST_STATE, "host-state", HOST) /* a recurrent layer's state operations on the CPU */     \
    TASK(HOST_LAYER, "host-layer", HOST) /* a whole layer, or the head, on the CPU */              \
    TASK(HOST_ATTENTION, "host-attention", HOST) /* attention over a window on the CPU */          \
    TASK(SPLIT, "split", HOST)                   /* start of one more part of the graph */         \
    TASK(SYNC, "sync", WAIT)                     /* wait until a device is idle */                 \
    TASK(WAIT, "wait", WAIT)                     /* a stream waits for another stream's event */   \
    TASK(INPUT, "input", COPY)                   /* embeddings, positions, mask: host to device */ \
    TASK(ACTIVATIONS, "activations",                                                               \
         COPY)                         /* inputs of host experts or attention: device to host */   \
    TASK(KV_ROWS, "kv-rows", COPY)     /* new K or V rows: device to host */                       \
    TASK(KV_WINDOW, "kv-window", COPY) /* a K or V window: host to device */                       \
    TASK(STATE_OUT, "state-out", COPY) /* recurrent state: device to host */                       \
    TASK(STATE_IN, "state-in", COPY)   /* recurrent state: host to device */                       \
    TASK(WEIGHTS, "weights", COPY)     /* weights of a host layer, for a large batch */            \
    TASK(PEER, "peer", COPY)           /* the residual stream: device to device */                 \
    TASK(LOGITS, "logits", COPY)       /* logits: device to host */                                \
    TASK(NORM, "norm", KERNEL)         /* norms, with a residual add before */                     \
    TASK(MATMUL, "matmul", KERNEL)     /* a product with a weight, activations quantised first */  \
    TASK(EXPERTS, "experts", KERNEL)   /* a product with the experts that tokens chose */          \
    TASK(ROUTER, "router", KERNEL)     /* softmax, top k and weights of the router */              \
    TASK(ROPE, "rope", KERNEL)         /* q and k norms, rotary embedding, cache write */          \
    TASK(ATTENTION, "attention", KERNEL) /* softmax attention over the window */                   \
    TASK(DELTA_NET, "delta-net", KERNEL) /* convolution, gates and the gated delta rule */         \
    TASK(GLU, "glu", KERNEL)             /* activation of gate times up */                         \
    TASK(ADD, "add", KERNEL)             /* residual add */                                        \
    TASK(ALL_REDUCE, "all-reduce", COLLECTIVE)

enum task_kind {
#define TASK_KIND_ENUM(kind, name, class) TASK_##kind,
    TASK_KINDS(TASK_KIND_ENUM)
#undef TASK_KIND_ENUM
        TASK_KIND_COUNT
};

enum task_class {
    TASK_CLASS_HOST,
    TASK_CLASS_WAIT,
    TASK_CLASS_COPY,
    TASK_CLASS_KERNEL,
    TASK_CLASS_COLLECTIVE
};

#endif
