/* Any bytes, in any format of llama-bench, are rows or a located refusal. */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "sim/trace_bench.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void walk(const struct trace_row *row)
{
    const char *const texts[] = {row->id,     row->note,   row->machine, row->cpu,   row->backend,
                                 row->engine, row->build,  row->model,   row->quant, row->kv_policy,
                                 row->type_k, row->type_v, row->tool,    row->unit,  row->metric};
    size_t length = 0;

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        length += strlen(texts[i]);
    for (size_t i = 0; i < row->gpu_count; i++)
        length += strlen(row->gpus[i]);
    for (size_t i = 0; i < row->other_plan_key_count; i++)
        length += strlen(row->other_plan_keys[i].key) + strlen(row->other_plan_keys[i].json);
    assert(length >= 2);
    assert(row->line >= 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct trace trace;
    struct error err = {0};
    struct trace_bench_start start;
    char *text = malloc(size > 0 ? size : 1); /* no zero behind it that could be relied on */

    if (text == NULL)
        return 0;
    if (size > 0)
        memcpy(text, data, size);
    start = trace_bench_recognise(text, size);
    assert(start.line >= 1 && start.offset <= size);
    if (trace_parse(text, size, "fuzz", &trace, &err) != 0) {
        assert(err.code != ERROR_NONE && err.text[0] != '\0');
        assert(err.source[0] != '\0' && err.line >= 1);
    } else {
        for (size_t i = 0; i < trace.count; i++)
            walk(&trace.rows[i]);
        trace_close(&trace);
    }
    free(text);
    return 0;
}
