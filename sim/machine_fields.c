/* The tables of machine_fields.h. Bounds are what hardware can be: a share lies between
 * 0 and 1 (attention on tensor cores may sum in fp16 at twice the rate that the share is
 * of), a bandwidth is above 0 and at most 100 TB/s, a fixed time is no
 * longer than 10 ms (a second for building a graph), a PCI Express payload is at most
 * 4096 bytes. Kernels that were measured took a nanosecond or more, and 100 seconds or less. */
#include "sim/machine_fields.h"

#include <assert.h>
#include <string.h>

#include "sim/kernel_table.h"
#include "sim/machine.h"

#define BANDWIDTH "a bandwidth in GB/s"
#define TIME "a time in microseconds"
#define RATIO "a share"
#define GBS_MAX 1e5
#define US_MAX 1e4
#define MIB_MAX 1e6
#define MIB_BYTES 1048576
/* dp4a multiplies four int8 values on each of a multiprocessor's 128 lanes */
#define MATVEC_MAX 512
#define MATMUL_MAX 100000
#define KERNEL_GBS_MIN 1e-3
#define KERNEL_US_MIN 1e-3
#define KERNEL_US_MAX 1e8

#define HOST(member) offsetof(struct machine_host, member)
#define DEVICE(member) offsetof(struct machine_device, member)
#define LINK(member) offsetof(struct machine_link, member)
#define COLLECTIVE(member) offsetof(struct machine_collective, member)
#define FAMILY(member) offsetof(struct machine_family, member)

/* clang-format off */

static const struct machine_field host_rows[] = {
    {NULL, "memory_gbs", BANDWIDTH, "GB/s", "host memory, all threads reading",
     0, GBS_MAX, true, 1, HOST(memory_gbs)},
    {NULL, "thread_gbs", BANDWIDTH, "GB/s", "host memory, one thread reading",
     0, GBS_MAX, true, 1, HOST(thread_gbs)},
    {NULL, "thread_gflops", "a rate in GFLOPS", "GFLOPS", "attention on the CPU, one thread",
     0, 1e5, true, 1e9, HOST(thread_flops)},
    {NULL, "launch_us", TIME, "us", "host thread: launching one kernel, or one graph",
     0, US_MAX, false, 1e-6, HOST(launch_s)},
    {NULL, "copy_us", TIME, "us", "host thread: a small blocking copy, its latency included",
     0, US_MAX, false, 1e-6, HOST(copy_s)},
    {NULL, "sync_us", TIME, "us", "host thread: noticing that a device has become idle",
     0, US_MAX, false, 1e-6, HOST(sync_s)},
    {NULL, "split_us", TIME, "us", "one more graph split with its staging",
     0, US_MAX, false, 1e-6, HOST(split_s)},
    {NULL, "sample_ns", "a time in nanoseconds", "ns", "sampling on the host: one logit of one token",
     0, 1e5, false, 1e-9, HOST(sample_s)},
    {NULL, "rope_ns", "a time in nanoseconds", "ns", "rotating one value of K on the CPU, all threads",
     0, 1e5, false, 1e-9, HOST(rope_s)},
    {NULL, "reserve_us", TIME, "us", "planning the largest graph's buffers anew, after a context shift",
     0, 1e6, false, 1e-6, HOST(reserve_s)},
    {NULL, "build_us", TIME, "us", "building, splitting and allocating a graph that is not reused",
     0, 1e6, false, 1e-6, HOST(build_s)},
    {NULL, "collective_issue_us", TIME, "us", "host thread: one collective call",
     0, US_MAX, false, 1e-6, HOST(collective_issue_s)},
};

static const struct machine_field device_rows[] = {
    {NULL, "memory_gbs", BANDWIDTH, "GB/s", "device memory",
     0, GBS_MAX, true, 1, DEVICE(memory_gbs)},
    {NULL, "clock_mhz", "a clock in MHz", "MHz", "clock of the multiprocessors",
     1, 100000, false, 1e-3, DEVICE(clock_ghz)},
    {NULL, "fp32_tflops", "a rate in TFLOPS", "TFLOPS", "ordinary units, fp32",
     0, 1e5, true, 1, DEVICE(fp32_tflops)},
    {NULL, "fp16_tflops", "a rate in TFLOPS", "TFLOPS", "tensor cores, fp16 with fp32 sums",
     0, 1e5, true, 1, DEVICE(fp16_tflops)},
    {NULL, "int8_tops", "a rate in TOPS", "TOPS", "tensor cores, int8; dp4a where there are none",
     0, 1e5, true, 1, DEVICE(int8_tops)},
};

static const struct machine_field link_rows[] = {
    {NULL, "down_gbs", BANDWIDTH, "GB/s", "away from the host, alone, pinned memory",
     0, GBS_MAX, true, 1, LINK(down_gbs)},
    {NULL, "up_gbs", BANDWIDTH, "GB/s", "towards the host, alone, pinned memory",
     0, GBS_MAX, true, 1, LINK(up_gbs)},
    {NULL, "duplex_gbs", BANDWIDTH, "GB/s", "both directions together",
     0, GBS_MAX, true, 1, LINK(duplex_gbs)},
    {NULL, "pageable_gbs", BANDWIDTH, "GB/s", "a copy from or to pageable host memory",
     0, GBS_MAX, true, 1, LINK(pageable_gbs)},
    {NULL, "latency_us", TIME, "us", "fixed time of a copy or message",
     0, US_MAX, false, 1e-6, LINK(latency_s)},
    {NULL, "packet_bytes", "a size in bytes", "bytes", "payload of one transaction",
     1, 4096, false, 1, LINK(packet_bytes)},
    {NULL, "packet_overhead_bytes", "a size in bytes", "bytes", "framing of one transaction",
     0, 4096, false, 1, LINK(packet_overhead_bytes)},
    {NULL, "row_ns", "a time in nanoseconds", "ns", "fixed time of each row of a strided copy",
     0, 1e5, false, 1e-9, LINK(row_s)},
};

static const struct machine_field collective_rows[] = {
    {NULL, "latency_us", TIME, "us", "a small all-reduce, launch and barrier included",
     0, US_MAX, false, 1e-6, COLLECTIVE(latency_s)},
    {NULL, "ratio", RATIO, "share", "share of the links' bandwidth that an all-reduce reaches",
     0, 1, true, 1, COLLECTIVE(ratio)},
};

static const struct machine_field family_rows[] = {
    {NULL, "memory_ratio", RATIO, "share",
     "share of memory bandwidth that a streaming kernel reaches",
     0, 1, true, 1, FAMILY(memory_ratio)},
    {NULL, "kernel_us", TIME, "us", "fixed time of a kernel within a graph",
     0, 1000, false, 1e-6, FAMILY(kernel_s)},
#define MATVEC_ROW(class, name) \
    {"matvec_rate", name, "a decoding rate", "weights/SM/clock", \
     "weights that a multiprocessor decodes per clock in a matrix-vector product", \
     0, MATVEC_MAX, true, 1, FAMILY(matvec_rate[MACHINE_WEIGHT_##class])},
    MACHINE_WEIGHT_CLASSES(MATVEC_ROW)
#undef MATVEC_ROW
#define MATMUL_ROW(class, name) \
    {"matmul_ratio", name, RATIO, "share", \
     "share of the tensor cores' rate in a matrix-matrix product", \
     0, 1, true, 1, FAMILY(matmul_ratio[MACHINE_WEIGHT_##class])},
    MACHINE_WEIGHT_CLASSES(MATMUL_ROW)
#undef MATMUL_ROW
#define MATMUL_RATE_ROW(class, name) \
    {"matmul_rate", name, "a rate", "op/SM/clock", \
     "operations that loading, decoding and scaling allow beside the tensor cores; 0: any", \
     0, MATMUL_MAX, false, 1, FAMILY(matmul_rate[MACHINE_WEIGHT_##class])},
    MACHINE_WEIGHT_CLASSES(MATMUL_RATE_ROW)
#undef MATMUL_RATE_ROW
    {NULL, "row_clocks", "a number of clocks", "clocks",
     "clocks of a multiprocessor that a row of a matrix-vector product costs beside the rest",
     0, 10000, false, 1, FAMILY(row_clocks)},
    {NULL, "column_ratio", RATIO, "share",
     "cost of a further column in a matrix-vector product, in units of decoding the weights",
     0, 1, false, 1, FAMILY(column_ratio)},
    {NULL, "tile_decode_ratio", RATIO, "share",
     "share of matvec_rate at which a matrix-matrix kernel decodes weights",
     0, 1, true, 1, FAMILY(tile_decode_ratio)},
    {NULL, "attn_vec_ratio", RATIO, "share",
     "share of the fp32 rate: one-token attention, vector kernel",
     0, 1, true, 1, FAMILY(attn_vec_ratio)},
    {NULL, "attn_tile_ratio", RATIO, "share",
     "share of the fp32 rate: many-token attention without tensor cores",
     0, 1, true, 1, FAMILY(attn_tile_ratio)},
    {NULL, "attn_one_ratio", RATIO, "share",
     "share of the fp16 rate: one-token attention, tensor cores",
     0, 1, true, 1, FAMILY(attn_one_ratio)},
    {NULL, "attn_mma_ratio", RATIO, "share",
     "share of the fp16 rate: many-token attention, tensor cores",
     0, 2, true, 1, FAMILY(attn_mma_ratio)},
    {NULL, "gdn_step_us", TIME, "us", "one token's step of a gated delta net, one wave of blocks",
     0, 1000, false, 1e-6, FAMILY(gdn_step_s)},
};

static const struct machine_field table_rows[] = {
    {NULL, "step_us", TIME, "us", "host thread, before a step's first kernel, for each device",
     0, US_MAX, false, 1e-6, offsetof(struct kernel_table, step_s)},
    {NULL, "pace_inside_us", TIME, "us", "of a kernel of a device that is slowed, and slowed with it",
     0, US_MAX, false, 1e-6, offsetof(struct kernel_table, pace_inside_s)},
    {NULL, "pace_behind_us", TIME, "us", "behind a kernel of a device that is slowed",
     0, US_MAX, false, 1e-6, offsetof(struct kernel_table, pace_behind_s)},
    {NULL, "ahead_lag_us", TIME, "us", "before weights come beside other kernels",
     0, US_MAX, false, 1e-6, offsetof(struct kernel_table, ahead_lag_s)},
    {NULL, "attention_alone", RATIO, "share", "of attention's time, in which no weights come beside",
     0, 1, false, 1, offsetof(struct kernel_table, attention_alone)},
    {NULL, "delta_net_alone", RATIO, "share", "of a delta net's time, likewise",
     0, 1, false, 1, offsetof(struct kernel_table, delta_net_alone)},
    {NULL, "copy_us", TIME, "us", "of a copy on a queue of its own, beside its bytes",
     0, US_MAX, false, 1e-6, offsetof(struct kernel_table, copy_s)},
    {NULL, "ready_each_us", TIME, "us", "until the host goes on, for each further device of a plan",
     0, US_MAX, false, 1e-6, offsetof(struct kernel_table, ready_each_s)},
    {NULL, "ready_next_us", TIME, "us", "all of it where the host has waited for another device",
     0, US_MAX, false, 1e-6, offsetof(struct kernel_table, ready_next_s)},
};

static const struct machine_field product_rows[] = {
    {NULL, "launch_us", TIME, "us", "fixed time of a product's launch",
     0, US_MAX, false, 1e-6, offsetof(struct kernel_product, launch_s)},
    {NULL, "gbs", BANDWIDTH, "GB/s", "bytes of its weights for the rest of its time",
     KERNEL_GBS_MIN, GBS_MAX, false, 1, offsetof(struct kernel_product, gbs)},
    {NULL, "ahead_mib", "a size in MiB", "MiB", "of its weights that are loaded beside kernels before",
     0, MIB_MAX, false, MIB_BYTES, offsetof(struct kernel_product, ahead_bytes)},
    {NULL, "held_gbs", BANDWIDTH, "GB/s", "at which it computes with weights that are there; 0: no bound",
     0, GBS_MAX, false, 1, offsetof(struct kernel_product, held_gbs)},
};

static const struct machine_field attention_rows[] = {
    {NULL, "us", TIME, "us", "attention over a window",
     KERNEL_US_MIN, KERNEL_US_MAX, false, 1e-6, offsetof(struct kernel_attention, time_s)},
};

static const struct machine_field other_rows[] = {
    {NULL, "us", TIME, "us", "the kernels",
     KERNEL_US_MIN, KERNEL_US_MAX, false, 1e-6, offsetof(struct kernel_other, time_s)},
};

static const struct machine_field sum_rows[] = {
    {NULL, "us", TIME, "us", "a sum over devices",
     KERNEL_US_MIN, KERNEL_US_MAX, false, 1e-6, offsetof(struct kernel_sum, time_s)},
};

/* clang-format on */

#define FIELDS(rows)                                                                               \
    {                                                                                              \
        rows, sizeof(rows) / sizeof((rows)[0])                                                     \
    }

const struct machine_fields machine_host_fields = FIELDS(host_rows);
const struct machine_fields machine_device_fields = FIELDS(device_rows);
const struct machine_fields machine_link_fields = FIELDS(link_rows);
const struct machine_fields machine_collective_fields = FIELDS(collective_rows);
const struct machine_fields machine_family_fields = FIELDS(family_rows);
const struct machine_fields kernel_table_fields = FIELDS(table_rows);
const struct machine_fields kernel_product_fields = FIELDS(product_rows);
const struct machine_fields kernel_attention_fields = FIELDS(attention_rows);
const struct machine_fields kernel_other_fields = FIELDS(other_rows);
const struct machine_fields kernel_sum_fields = FIELDS(sum_rows);

double *machine_field_at(const struct machine_field *field, void *record)
{
    return (double *)(void *)((char *)record + field->offset);
}

double machine_field_get(const struct machine_field *field, const void *record)
{
    double value;

    memcpy(&value, (const char *)record + field->offset, sizeof value);
    return value;
}

size_t machine_field_index(struct machine_fields fields, const char *key)
{
    size_t index = 0;

    while (index < fields.count && strcmp(fields.rows[index].key, key) != 0)
        index++;
    assert(index < fields.count);
    return index;
}

/* The object that holds the field's key; its value is NULL when there is none. */
static int field_owner(const struct json_cursor *object, const struct machine_field *field,
                       struct json_cursor *owner, struct error *err)
{
    int found;

    *owner = *object;
    if (field->group == NULL)
        return json_input_as_object(object, err);
    found = json_input_find_object(object, field->group, owner, err);
    if (found == 0)
        owner->value = NULL;
    return found < 0 ? -1 : 0;
}

int machine_fields_read(const struct json_cursor *object, struct machine_fields fields,
                        void *record, uint32_t *given, struct error *err)
{
    for (size_t i = 0; i < fields.count; i++) {
        const struct machine_field *field = &fields.rows[i];
        struct json_number_rule rule = {field->noun, field->min, field->max, field->above_min,
                                        false};
        struct json_cursor owner;
        double value;
        int found;

        if (field_owner(object, field, &owner, err) != 0)
            return -1;
        if (owner.value == NULL)
            continue;
        found = json_input_find_number(&owner, field->key, &rule, &value, err);
        if (found < 0)
            return -1;
        if (found == 0)
            continue;
        *machine_field_at(field, record) = value * field->scale;
        *given |= UINT32_C(1) << i;
    }
    return 0;
}

int machine_fields_require(const struct json_cursor *object, struct machine_fields fields,
                           uint32_t given, struct error *err)
{
    for (size_t i = 0; i < fields.count; i++) {
        const struct machine_field *field = &fields.rows[i];
        struct json_number_rule rule = {field->noun, field->min, field->max, field->above_min,
                                        false};
        struct json_cursor owner = *object;
        double value;

        if (given & UINT32_C(1) << i)
            continue;
        if (field->group != NULL && json_input_object(object, field->group, &owner, err) != 0)
            return -1;
        return json_input_number(&owner, field->key, &rule, &value, err);
    }
    return 0;
}

/* Groups are compared by text: equal literals need not be one object. */
static bool same_group(const struct machine_field *a, const struct machine_field *b)
{
    return a->group != NULL && b->group != NULL && strcmp(a->group, b->group) == 0;
}

/* Appends a key unless it is the last one already. */
static size_t add_key(const char *keys[], size_t count, const char *key)
{
    if (count > 0 && strcmp(keys[count - 1], key) == 0)
        return count;
    keys[count] = key;
    return count + 1;
}

int machine_fields_refuse_unknown(const struct json_cursor *object, struct machine_fields fields,
                                  const char *const extra[], size_t extra_count, struct error *err)
{
    const char *keys[64];
    size_t count = 0;

    assert(fields.count + extra_count <= sizeof keys / sizeof keys[0]);
    for (size_t i = 0; i < extra_count; i++)
        keys[count++] = extra[i];
    for (size_t i = 0; i < fields.count; i++)
        count = add_key(keys, count,
                        fields.rows[i].group != NULL ? fields.rows[i].group : fields.rows[i].key);
    if (json_input_refuse_unknown_keys(object, keys, count, err) != 0)
        return -1;
    for (size_t i = 0; i < fields.count; i++) {
        const struct machine_field *first = &fields.rows[i];
        struct json_cursor member;

        if (first->group == NULL || (i > 0 && same_group(first - 1, first)))
            continue;
        count = 0;
        for (size_t k = i; k < fields.count && same_group(first, &fields.rows[k]); k++)
            count = add_key(keys, count, fields.rows[k].key);
        member = json_input_member(object, first->group);
        if (json_is_object(member.value) &&
            json_input_refuse_unknown_keys(&member, keys, count, err) != 0)
            return -1;
    }
    return 0;
}
