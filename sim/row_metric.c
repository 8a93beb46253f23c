#include "sim/row_metric.h"

#include <stddef.h>
#include <string.h>

static const struct {
    const char *name;
    enum row_metric metric;
} names[] = {
    {"pp", ROW_PP},
    {"tg", ROW_TG},
    {"prefill_ms", ROW_PREFILL_MS},
    {"ms_per_token", ROW_TOKEN_MS},
    {"shift_ms", ROW_SHIFT_MS},
    {"ms_per_graph_host_minus_device", ROW_DELIVERY_MS},
    {"allreduce_ms_per_boundary", ROW_ALL_REDUCE_MS},
    {"vram_mib", ROW_VRAM},
    {"vram_delta_mib", ROW_VRAM_DELTA},
    {"compute_buffer_mib", ROW_COMPUTE_BUFFER},
    {"compute_buffer_mib_per_ubatch_token", ROW_COMPUTE_BUFFER_SLOPE},
    {"logits_mib_per_ubatch_token", ROW_LOGITS_PER_TOKEN},
    {"recurrent_state_mib", ROW_RECURRENT_STATE},
    {"kv_bytes_per_ctx_token", ROW_KV_PER_TOKEN},
    {"kv_mib_per_256_cells", ROW_KV_PER_WINDOW},
    {"graph_splits", ROW_GRAPH_SPLITS},
    {"allreduce_bytes_per_direction", ROW_ALL_REDUCE_BYTES},
    {"fits", ROW_FITS},
    {"status", ROW_STATUS},
};

static const struct {
    const char *name, *reason;
} unpredicted[] = {
    {"h2d_gbs", "an input of the machine profile: bandwidth of a link"},
    {"dram_gbs", "an input of the machine profile: bandwidth of host memory"},
    {"hash", "says which output a plan gives, not a speed or a size"},
    {"ppl", "says how good an output is, not a speed or a size"},
    {"tail_matmul_ms", "the projections' part of a prompt, which no plan runs alone"},
};

enum row_metric row_metric_find(const char *name)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i].name, name) == 0)
            return names[i].metric;
    return ROW_OTHER;
}

enum row_metric_kind row_metric_kind(enum row_metric metric)
{
    switch (metric) {
    case ROW_PP:
    case ROW_TG:
        return ROW_KIND_RATE;
    case ROW_PREFILL_MS:
    case ROW_TOKEN_MS:
    case ROW_SHIFT_MS:
    case ROW_DELIVERY_MS:
    case ROW_ALL_REDUCE_MS:
        return ROW_KIND_TIME;
    case ROW_VRAM:
    case ROW_VRAM_DELTA:
    case ROW_COMPUTE_BUFFER:
    case ROW_COMPUTE_BUFFER_SLOPE:
    case ROW_LOGITS_PER_TOKEN:
    case ROW_RECURRENT_STATE:
    case ROW_KV_PER_TOKEN:
    case ROW_KV_PER_WINDOW:
        return ROW_KIND_SIZE;
    case ROW_GRAPH_SPLITS:
    case ROW_ALL_REDUCE_BYTES:
        return ROW_KIND_COUNT;
    case ROW_FITS:
    case ROW_STATUS:
        return ROW_KIND_VERDICT;
    case ROW_OTHER:
        break;
    }
    return ROW_KIND_OTHER;
}

bool row_metric_is_speed(enum row_metric metric)
{
    enum row_metric_kind kind = row_metric_kind(metric);

    return kind == ROW_KIND_RATE || kind == ROW_KIND_TIME;
}

bool row_metric_is_generation(enum row_metric metric)
{
    return metric == ROW_TG || metric == ROW_TOKEN_MS || metric == ROW_DELIVERY_MS;
}

const char *row_metric_why_not(const char *name)
{
    for (size_t i = 0; i < sizeof unpredicted / sizeof *unpredicted; i++)
        if (strcmp(unpredicted[i].name, name) == 0)
            return unpredicted[i].reason;
    return "not predicted";
}
