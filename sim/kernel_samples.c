#include "sim/kernel_samples.h"

#include <math.h>
#include <stdlib.h>

void kernel_samples_add(struct kernel_samples *samples, struct kernel_sample sample)
{
    if (samples->count == samples->capacity) {
        size_t capacity = samples->capacity > 0 ? 2 * samples->capacity : 1024;
        struct kernel_sample *grown = realloc(samples->list, capacity * sizeof *grown);

        samples->failed = samples->failed || grown == NULL;
        if (grown == NULL)
            return;
        samples->list = grown;
        samples->capacity = capacity;
    }
    samples->list[samples->count++] = sample;
}

/* Of a product, that are summed in fp32. */
static uint32_t columns_of(const struct kernel_sample *sample)
{
    return sample->group > 0 ? sample->group : KERNEL_GROUP;
}

/* Whether each number of bytes has a row. Products are fitted over those of theirs. */
static bool goes_by_bytes(enum task_kind kind)
{
    return kind != TASK_MATMUL && kind != TASK_EXPERTS && kind != TASK_ATTENTION &&
           kind != TASK_WAIT;
}

/* 0: of one group, which rows are made of. */
static int compare_groups(const struct kernel_sample *a, const struct kernel_sample *b)
{
    if (a->kind != b->kind)
        return a->kind < b->kind ? -1 : 1;
    if (a->type != b->type)
        return a->type < b->type ? -1 : 1;
    if (a->group != b->group)
        return a->group < b->group ? -1 : 1;
    if (a->head_dim != b->head_dim)
        return a->head_dim < b->head_dim ? -1 : 1;
    if (a->behind != b->behind)
        return a->behind < b->behind ? -1 : 1;
    if (a->normed != b->normed)
        return a->normed < b->normed ? -1 : 1;
    if (a->heads != b->heads)
        return a->heads < b->heads ? -1 : 1;
    if (a->kv_heads != b->kv_heads)
        return a->kv_heads < b->kv_heads ? -1 : 1;
    if (a->tokens != b->tokens)
        return a->tokens < b->tokens ? -1 : 1;
    if (a->cells != b->cells)
        return a->cells < b->cells ? -1 : 1;
    if (goes_by_bytes(a->kind) && a->bytes != b->bytes)
        return a->bytes < b->bytes ? -1 : 1;
    return 0;
}

/* The quickest of a group first. */
static int by_group(const void *left, const void *right)
{
    const struct kernel_sample *a = left, *b = right;
    int order = compare_groups(a, b);

    return order != 0 ? order : a->time_s < b->time_s ? -1 : a->time_s > b->time_s;
}

/* Fits launch and rates of a product. */
static int fit(const struct kernel_sample *group, size_t count, double gbs,
               struct kernel_table *table, struct kernel_product *row, bool common,
               struct error *err)
{
    struct kernel_fit_sample *samples = calloc(count, sizeof *samples);
    int status;

    if (samples == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for samples");
    for (size_t i = 0; i < count; i++) {
        samples[i] = group[i].before;
        samples[i].bytes = group[i].bytes;
        samples[i].time_s = group[i].time_s;
    }
    status = kernel_fit_product(table, row, samples, count, gbs, common, err);
    free(samples);
    return status;
}

static int add_product_row(const struct kernel_sample *group, size_t count, double gbs,
                           struct kernel_table *table, bool common, struct error *err)
{
    struct kernel_product row = {.kind = group->kind,
                                 .type = group->type,
                                 .group = columns_of(group),
                                 .tokens = group->tokens,
                                 .ahead_bytes = group->ahead_bytes};

    if (fit(group, count, gbs, table, &row, common, err) != 0)
        return -1;
    return kernel_table_add_product(table, row, err);
}

/* The mean of its middle half: clocks tick, and a few had to wait. */
static double middle_s(const struct kernel_sample *group, size_t count)
{
    size_t first = count / 4, end = count - count / 4;
    double sum_s = 0;

    for (size_t i = first; i < end; i++)
        sum_s += group[i].time_s;
    return sum_s / (double)(end - first);
}

/* Of what may have had to wait for others: a quarter took less. */
static double early_s(const struct kernel_sample *group, size_t count)
{
    return group[count / 4].time_s;
}

static int add_rows(const struct kernel_sample *group, size_t count, double gbs,
                    struct kernel_table *table, struct error *err)
{
    switch (group->kind) {
    case TASK_MATMUL:
    case TASK_EXPERTS:
        return add_product_row(group, count, gbs, table, false, err);
    case TASK_ATTENTION:
        return kernel_table_add_attention(
            table,
            (struct kernel_attention){group->type, group->head_dim,
                                      group->heads > 0 ? group->heads : KERNEL_ATTENTION_HEADS,
                                      group->kv_heads, group->tokens, group->cells,
                                      group[count / 2].time_s},
            err);
    case TASK_WAIT:
        return kernel_table_add_other(table,
                                      (struct kernel_other){.kind = TASK_WAIT,
                                                            .tokens = group->tokens,
                                                            .time_s = early_s(group, count)},
                                      err);
    case TASK_ALL_REDUCE:
        return kernel_table_add_sum(
            table,
            (struct kernel_sum){group->devices, (uint64_t)group->bytes, early_s(group, count)},
            err);
    default:
        return kernel_table_add_other(table,
                                      (struct kernel_other){.kind = group->kind,
                                                            .head_dim = group->head_dim,
                                                            .normed = group->normed,
                                                            .behind = group->behind,
                                                            .tokens = group->tokens,
                                                            .bytes = (uint64_t)group->bytes,
                                                            .time_s = middle_s(group, count)},
                                      err);
    }
}

/* Samples from `first` on that are of one group. */
static size_t group_size(const struct kernel_samples *samples, size_t first)
{
    size_t end = first;

    while (end < samples->count && compare_groups(&samples->list[first], &samples->list[end]) == 0)
        end++;
    return end - first;
}

static int fit_common(const struct kernel_samples *samples,
                      bool (*takes)(const struct kernel_sample *), double gbs,
                      struct kernel_table *table, struct error *err)
{
    for (size_t first = 0; first < samples->count; first += group_size(samples, first)) {
        const struct kernel_sample *group = &samples->list[first];

        if (group->kind == TASK_MATMUL && group->tokens == 1 && group->type == TENSOR_TYPE_Q8_0 &&
            columns_of(group) == KERNEL_GROUP && takes(group))
            return add_product_row(group, group_size(samples, first), gbs, table, true, err);
    }
    return 0;
}

int kernel_samples_rows(struct kernel_samples *samples, bool (*takes)(const struct kernel_sample *),
                        double gbs, struct kernel_table *table, struct error *err)
{
    size_t size;

    if (samples->failed)
        return error_set(err, ERROR_MEMORY, "no memory for samples");
    if (samples->count > 0)
        qsort(samples->list, samples->count, sizeof *samples->list, by_group);
    if (table->product_count == 0 && fit_common(samples, takes, gbs, table, err) != 0)
        return -1;
    for (size_t first = 0; first < samples->count; first += size) {
        size = group_size(samples, first);
        if (takes(&samples->list[first]) &&
            add_rows(&samples->list[first], size, gbs, table, err) != 0)
            return -1;
    }
    samples->count = 0;
    return 0;
}

void kernel_samples_free(struct kernel_samples *samples)
{
    free(samples->list);
    *samples = (struct kernel_samples){.count = 0};
}
