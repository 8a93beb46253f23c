/* Any bytes are a machine or a located refusal; what was read keeps its invariants and
 * reads back from its own text. */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "sim/kernel_times.h"
#include "sim/machine.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(struct machine *machine)
{
    size_t count = machine_constants(machine, NULL, 0);
    struct machine_constant *constants = calloc(count, sizeof *constants);

    assert(constants != NULL);
    machine_constants(machine, constants, count);
    for (size_t i = 0; i < count; i++)
        assert(constants[i].min <= constants[i].max && *constants[i].value >= 0);
    free(constants);
    assert(machine->device_count >= 1 && machine->device_count <= MACHINE_DEVICES_MAX);
    for (uint32_t i = 0; i < machine->device_count; i++) {
        const struct machine_device *device = &machine->devices[i];

        assert(device->memory_bytes > 0 && device->sm_count > 0 && device->memory_gbs > 0);
        assert(device->family < machine->family_count);
        assert(machine_device_link(machine, i) >= 0);
        assert(machine_find_device(machine, device->name) == (int)i);
    }
}

/* Whatever was measured, times are numbers. */
static void check_kernels(const struct machine *machine)
{
    const struct program_task task = {.kind = TASK_ATTENTION,
                                      .tokens = 7,
                                      .heads = 24,
                                      .kv_heads = 4,
                                      .head_dim = 256,
                                      .sequences = 3,
                                      .cache_type = TENSOR_TYPE_F16};

    assert(machine->kernel_table_count <= machine->device_count);
    for (uint32_t i = 0; i < machine->kernel_table_count; i++) {
        const struct kernel_table *table = &machine->kernel_tables[i];
        struct kernel_gap gap = {.s = 1e-5};
        double time_s = kernel_table_s(table, &task, 1e5, &gap);
        double sum_s = kernel_table_sum_s(table, 2, 1e8);

        assert((time_s > 0 || time_s == -1) && (sum_s > 0 || sum_s == -1));
        assert(machine_kernel_table(machine, table->gpu) == table);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct error err = {0};
    struct machine *machine = machine_parse((const char *)data, size, "fuzz", NULL, &err), *copy;
    char *text;

    if (machine == NULL) {
        assert(err.code != ERROR_NONE && err.text[0] != '\0');
        assert(err.source[0] != '\0');
        /* a path too long for a cursor is cut, and has no place */
        assert((err.line >= 1 && err.column >= 1) || strstr(err.text, "...") != NULL);
        return 0;
    }
    check(machine);
    check_kernels(machine);
    text = machine_to_json(machine, &err);
    assert(text != NULL);
    copy = machine_parse(text, strlen(text), "written", NULL, &err);
    assert(copy != NULL);
    assert(copy->device_count == machine->device_count);
    assert(copy->kernel_table_count == machine->kernel_table_count);
    check_kernels(copy);
    free(text);
    machine_free(copy);
    machine_free(machine);
    return 0;
}
