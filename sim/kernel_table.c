#include "sim/kernel_table.h"

#include <stdlib.h>
#include <string.h>

bool kernel_table_tells_behind(enum task_kind kind)
{
    return kind == TASK_EXPERTS || kind == TASK_ALL_REDUCE;
}

enum task_kind kernel_table_behind(enum task_kind kind, enum task_kind before)
{
    return kind == TASK_NORM && kernel_table_tells_behind(before) ? before : (enum task_kind)0;
}

bool kernel_table_times_copy(enum task_kind kind)
{
    return kind == TASK_INPUT || kind == TASK_LOGITS || kind == TASK_KV_ROWS;
}

/* ---- sorted lists ---- */

static int order(uint64_t a, uint64_t b)
{
    return a < b ? -1 : a > b;
}

static int compare_products(const void *left, const void *right)
{
    const struct kernel_product *a = left, *b = right;
    int by_kind = order(a->kind, b->kind), by_type = order(a->type, b->type);

    if (by_kind != 0 || by_type != 0)
        return by_kind != 0 ? by_kind : by_type;
    return a->group != b->group ? order(a->group, b->group) : order(a->tokens, b->tokens);
}

static int compare_attentions(const void *left, const void *right)
{
    const struct kernel_attention *a = left, *b = right;
    int by_type = order(a->cache_type, b->cache_type), by_dim = order(a->head_dim, b->head_dim);
    int by_heads = order(a->kv_heads, b->kv_heads), by_tokens = order(a->tokens, b->tokens);

    if (by_type != 0 || by_dim != 0)
        return by_type != 0 ? by_type : by_dim;
    if (a->heads != b->heads)
        return order(a->heads, b->heads);
    if (by_heads != 0)
        return by_heads;
    return by_tokens != 0 ? by_tokens : order(a->cells, b->cells);
}

static int compare_others(const void *left, const void *right)
{
    const struct kernel_other *a = left, *b = right;
    int by_kind = order(a->kind, b->kind), by_dim = order(a->head_dim, b->head_dim);

    if (by_kind != 0)
        return by_kind;
    if (a->behind != b->behind)
        return order(a->behind, b->behind);
    if (a->normed != b->normed || by_dim != 0)
        return a->normed != b->normed ? order(a->normed, b->normed) : by_dim;
    return a->tokens != b->tokens ? order(a->tokens, b->tokens) : order(a->bytes, b->bytes);
}

static int compare_sums(const void *left, const void *right)
{
    const struct kernel_sum *a = left, *b = right;
    int by_devices = order(a->devices, b->devices);

    return by_devices != 0 ? by_devices : order(a->bytes, b->bytes);
}

/* A list of rows of any kind: where it is and how it is ordered. */
struct list {
    void *rows;
    size_t count, row_size;
    int (*compare)(const void *left, const void *right);
};

/* Index of the first row that is not before `key`. */
static size_t place_of(const struct list *list, const void *key)
{
    size_t first = 0, count = list->count;

    while (count > 0) {
        size_t half = count / 2;
        const char *row = (const char *)list->rows + (first + half) * list->row_size;

        if (list->compare(row, key) < 0) {
            first += half + 1;
            count -= half + 1;
        } else {
            count = half;
        }
    }
    return first;
}

static int put(struct list *list, const void *row, struct error *err)
{
    size_t at = place_of(list, row), size = list->row_size;
    char *rows = list->rows, *grown;

    if (at < list->count && list->compare(rows + at * size, row) == 0) {
        memcpy(rows + at * size, row, size);
        return 0;
    }
    grown = realloc(rows, (list->count + 1) * size);
    if (grown == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for %zu rows of a kernel table",
                         list->count + 1);
    memmove(grown + (at + 1) * size, grown + at * size, (list->count - at) * size);
    memcpy(grown + at * size, row, size);
    list->rows = grown;
    list->count++;
    return 0;
}

static struct list products_of(const struct kernel_table *table)
{
    return (struct list){table->products, table->product_count, sizeof *table->products,
                         compare_products};
}

static struct list attentions_of(const struct kernel_table *table)
{
    return (struct list){table->attentions, table->attention_count, sizeof *table->attentions,
                         compare_attentions};
}

static struct list others_of(const struct kernel_table *table)
{
    return (struct list){table->others, table->other_count, sizeof *table->others, compare_others};
}

static struct list sums_of(const struct kernel_table *table)
{
    return (struct list){table->sums, table->sum_count, sizeof *table->sums, compare_sums};
}

int kernel_table_add_product(struct kernel_table *table, struct kernel_product row,
                             struct error *err)
{
    struct list list = products_of(table);
    int result = put(&list, &row, err);

    table->products = list.rows;
    table->product_count = list.count;
    return result;
}

int kernel_table_add_attention(struct kernel_table *table, struct kernel_attention row,
                               struct error *err)
{
    struct list list = attentions_of(table);
    int result = put(&list, &row, err);

    table->attentions = list.rows;
    table->attention_count = list.count;
    return result;
}

int kernel_table_add_other(struct kernel_table *table, struct kernel_other row, struct error *err)
{
    struct list list = others_of(table);
    int result = put(&list, &row, err);

    table->others = list.rows;
    table->other_count = list.count;
    return result;
}

int kernel_table_add_sum(struct kernel_table *table, struct kernel_sum row, struct error *err)
{
    struct list list = sums_of(table);
    int result = put(&list, &row, err);

    table->sums = list.rows;
    table->sum_count = list.count;
    return result;
}

int kernel_table_copy_kernels(struct kernel_table *to, const struct kernel_table *from,
                              struct error *err)
{
    struct kernel_table copy = *from;
    int status = 0;

    memcpy(copy.gpu, to->gpu, sizeof copy.gpu);
    copy.products = NULL;
    copy.attentions = NULL;
    copy.others = NULL;
    copy.sums = NULL;
    copy.product_count = copy.attention_count = copy.other_count = copy.sum_count = 0;
    *to = copy;
    for (size_t i = 0; i < from->product_count && status == 0; i++)
        status = kernel_table_add_product(to, from->products[i], err);
    for (size_t i = 0; i < from->attention_count && status == 0; i++)
        status = kernel_table_add_attention(to, from->attentions[i], err);
    for (size_t i = 0; i < from->other_count && status == 0; i++)
        status = kernel_table_add_other(to, from->others[i], err);
    return status;
}

void kernel_table_clear(struct kernel_table *table)
{
    free(table->products);
    free(table->attentions);
    free(table->others);
    free(table->sums);
    table->products = NULL;
    table->attentions = NULL;
    table->others = NULL;
    table->sums = NULL;
    table->product_count = table->attention_count = table->other_count = table->sum_count = 0;
}

/* ---- places ---- */

size_t kernel_table_place_product(const struct kernel_table *table,
                                  const struct kernel_product *key)
{
    struct list list = products_of(table);

    return place_of(&list, key);
}

size_t kernel_table_place_attention(const struct kernel_table *table,
                                    const struct kernel_attention *key)
{
    struct list list = attentions_of(table);

    return place_of(&list, key);
}

size_t kernel_table_place_other(const struct kernel_table *table, const struct kernel_other *key)
{
    struct list list = others_of(table);

    return place_of(&list, key);
}

size_t kernel_table_place_sum(const struct kernel_table *table, const struct kernel_sum *key)
{
    struct list list = sums_of(table);

    return place_of(&list, key);
}
