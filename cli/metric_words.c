#include "cli/metric_words.h"

#include <stdio.h>
#include <string.h>

const char *metric_heading(const struct trace_row *row, char *text, size_t size)
{
    static const struct {
        const char *metric, *words;
    } metrics[] = {
        {"allreduce_bytes_per_direction", "payload of all-reduces, MiB"},
        {"allreduce_ms_per_boundary", "all-reduces, ms"},
        {"compute_buffer_mib", "compute buffer, MiB"},
        {"compute_buffer_mib_per_ubatch_token", "compute buffer for each token, MiB"},
        {"fits", "fits"},
        {"graph_splits", "parts of the graph"},
        {"kv_bytes_per_ctx_token", "cache of a token, bytes"},
        {"kv_mib_per_256_cells", "cache of 256 cells, MiB"},
        {"logits_mib_per_ubatch_token", "logits of a token, MiB"},
        {"ms_per_graph_host_minus_device", "host cache less device, ms a step"},
        {"ms_per_token", "a token, ms"},
        {"pp", "prompt, t/s"},
        {"prefill_ms", "prompt, ms"},
        {"recurrent_state_mib", "recurrent state, MiB"},
        {"shift_ms", "context shift, ms"},
        {"status", "does it run"},
        {"tg", "generation, t/s"},
        {"vram_delta_mib", "memory that it adds, MiB"},
        {"vram_mib", "memory, MiB"},
    };

    for (size_t i = 0; i < sizeof metrics / sizeof *metrics; i++)
        if (strcmp(row->metric, metrics[i].metric) == 0)
            return metrics[i].words;
    snprintf(text, size, "%s%s%s", row->metric, row->unit[0] != '\0' ? ", " : "", row->unit);
    return text;
}

const char *metric_explain(const char *metric)
{
    static const struct {
        const char *metric, *words;
    } metrics[] = {
        {"allreduce_bytes_per_direction", "the bytes of one all-reduce (a part of a step)"},
        {"allreduce_ms_per_boundary", "the time of one all-reduce (a part of a step)"},
        {"compute_buffer_mib", "the size of compute buffers"},
        {"compute_buffer_mib_per_ubatch_token", "the growth of a buffer for each token"},
        {"dram_gbs", "the bandwidth of the host's memory (part of the machine's profile)"},
        {"fit_fixed_ms", "a fixed time fitted by the author"},
        {"fit_slope_ms_per_1k_ctx", "a slope fitted by the author"},
        {"graph_splits", "the number of graph splits"},
        {"h2d_gbs", "the bandwidth of a link (part of the machine's profile)"},
        {"hash", "output hashes (times and sizes are predicted, not tokens)"},
        {"implied_gbs", "a bandwidth worked out by the author"},
        {"kv_bytes_per_ctx_token", "the size of a token in the cache"},
        {"kv_mib_per_256_cells", "the size of 256 cells of cache"},
        {"logits_mib_per_ubatch_token", "the growth of logits for each token"},
        {"ms_per_graph_host_minus_device", "the difference of two arms, worked out by the author"},
        {"ms_per_token", "the time of a token or of a part of one"},
        {"ppl", "perplexities (times and sizes are predicted, not tokens)"},
        {"recurrent_state_mib", "the size of the recurrent state"},
        {"shift_ms", "the time of a context shift"},
        {"status", "an outcome in words or a count (did it run, how often did it fail)"},
        {"tail_matmul_ms", "the time of one kind of product (a part of a step)"},
        {"us_per_split", "the time of one graph split, worked out by the author"},
        {"vram_delta_mib", "the difference in memory of two plans"},
    };

    for (size_t i = 0; i < sizeof metrics / sizeof *metrics; i++)
        if (strcmp(metric, metrics[i].metric) == 0)
            return metrics[i].words;
    return metric;
}
