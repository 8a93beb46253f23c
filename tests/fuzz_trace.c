/* Any bytes are a trace or a located refusal; what was read is walked through once. */
#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "sim/trace.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void walk(const struct trace_row *row)
{
    const char *const texts[] = {row->id,     row->source, row->note,       row->machine,
                                 row->cpu,    row->ram,    row->backend,    row->engine,
                                 row->build,  row->model,  row->quant,      row->kv_policy,
                                 row->type_k, row->type_v, row->device,     row->output_head,
                                 row->tool,   row->unit,   row->value.text, row->metric};
    size_t length = 0;

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        length += strlen(texts[i]);
    for (size_t i = 0; i < row->gpu_count; i++)
        length += strlen(row->gpus[i]);
    for (size_t i = 0; i < row->link_count; i++)
        length += strlen(row->links[i]);
    for (size_t i = 0; i < row->other_plan_key_count; i++)
        length += strlen(row->other_plan_keys[i].key) + strlen(row->other_plan_keys[i].json);
    for (size_t i = 0; i < row->other_workload_key_count; i++)
        length +=
            strlen(row->other_workload_keys[i].key) + strlen(row->other_workload_keys[i].json);
    assert(length >= 2);
    assert((row->stated & row->assumed) == 0);
    assert(row->tensor_split.count <= TRACE_DEVICE_LIMIT);
    assert(row->attn_split.count <= TRACE_DEVICE_LIMIT);
    assert(row->line >= 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct trace trace;
    struct error err = {0};

    if (trace_parse((const char *)data, size, "fuzz", &trace, &err) != 0) {
        assert(err.code != ERROR_NONE && err.text[0] != '\0');
        assert(err.source[0] != '\0' && err.line >= 1);
        return 0;
    }
    for (size_t i = 0; i < trace.count; i++)
        walk(&trace.rows[i]);
    trace_close(&trace);
    return 0;
}
