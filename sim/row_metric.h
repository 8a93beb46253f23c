/* What a measured row can say: the metrics of traces/README.md, of what kind each is, and
 * why some are not predicted. */
#ifndef SIM_ROW_METRIC_H
#define SIM_ROW_METRIC_H

#include <stdbool.h>

enum row_metric {
    ROW_PP,                   /* prompt tokens per second */
    ROW_TG,                   /* generated tokens per second */
    ROW_PREFILL_MS,           /* milliseconds for the prompt */
    ROW_TOKEN_MS,             /* milliseconds a generated token */
    ROW_SHIFT_MS,             /* milliseconds of a context shift above a plain decode step */
    ROW_DELIVERY_MS,          /* milliseconds a decode step: cache on the host, less device */
    ROW_ALL_REDUCE_MS,        /* milliseconds of the all-reduces of one boundary and batch */
    ROW_VRAM,                 /* MiB in use on one device */
    ROW_VRAM_DELTA,           /* MiB that one choice of the plan adds */
    ROW_COMPUTE_BUFFER,       /* MiB of the compute buffer */
    ROW_COMPUTE_BUFFER_SLOPE, /* MiB of it a token of the ubatch */
    ROW_LOGITS_PER_TOKEN,     /* MiB of logits a token of the ubatch */
    ROW_RECURRENT_STATE,      /* MiB of recurrent state */
    ROW_KV_PER_TOKEN,         /* bytes of cache a token of context, where it still grows */
    ROW_KV_PER_WINDOW,        /* MiB of cache of 256 cells */
    ROW_GRAPH_SPLITS,         /* parts that the graph of a decode step is cut into */
    ROW_ALL_REDUCE_BYTES,     /* MiB of payload of a boundary and batch */
    ROW_FITS,                 /* whether the plan fits */
    ROW_STATUS,               /* whether the engine runs it: 0 aborts, 1 wrong output, 2 works */
    ROW_OTHER,                /* not predicted */
};

enum row_metric_kind {
    ROW_KIND_RATE,    /* tokens per second */
    ROW_KIND_TIME,    /* milliseconds */
    ROW_KIND_SIZE,    /* MiB or bytes of memory */
    ROW_KIND_COUNT,   /* what follows from the plan alone: splits, payloads */
    ROW_KIND_VERDICT, /* yes or no */
    ROW_KIND_OTHER,
};

/** The metric of a name ("tg"); ROW_OTHER for one that is not predicted. */
enum row_metric row_metric_find(const char *name);

enum row_metric_kind row_metric_kind(enum row_metric metric);

/** Whether a metric says how fast something is: a rate or a time. */
bool row_metric_is_speed(enum row_metric metric);

/** Whether a metric is about generated tokens. */
bool row_metric_is_generation(enum row_metric metric);

/** Why a metric of that name is not predicted: "an input of the machine profile". */
const char *row_metric_why_not(const char *name);

#endif
