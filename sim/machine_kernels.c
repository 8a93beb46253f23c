/* Kernel tables of a machine: keeping, reading and writing them. machine_profile.c describes the
 * format. */
#include "sim/machine_private.h"

#include <stdlib.h>
#include <string.h>

#include "sim/json_names.h"
#include "sim/kernel_table.h"
#include "sim/word_list.h"

/* Beyond any step, window and payload. */
enum { TOKENS_MAX = 1 << 20 };
enum { PRODUCT_OPTIONAL = 3 << 2, TABLE_OPTIONAL = 511 }; /* ahead_mib, held_gbs; all */
static const int64_t cells_max = INT64_C(1) << 32, bytes_max = INT64_C(1) << 40, dim_max = 4096;

/* ---- keeping ---- */

static bool has_gpu(const struct machine *machine, const char *gpu)
{
    for (uint32_t i = 0; i < machine->device_count; i++)
        if (gpu[0] != '\0' && strcmp(machine->devices[i].gpu, gpu) == 0)
            return true;
    return false;
}

static struct kernel_table *find_table(const struct machine *machine, const char *gpu)
{
    for (uint32_t i = 0; i < machine->kernel_table_count; i++)
        if (strcmp(machine->kernel_tables[i].gpu, gpu) == 0)
            return &machine->kernel_tables[i];
    return NULL;
}

const struct kernel_table *machine_kernel_table(const struct machine *machine, const char *gpu)
{
    return find_table(machine, gpu);
}

int machine_set_kernel_table(struct machine *machine, struct kernel_table *table, struct error *err)
{
    struct kernel_table *former = find_table(machine, table->gpu), *grown;

    if (!has_gpu(machine, table->gpu))
        return error_set(err, ERROR_USAGE, "no device of %s is a GPU named \"%s\"", machine->name,
                         table->gpu);
    if (former == NULL) {
        grown = realloc(machine->kernel_tables,
                        (machine->kernel_table_count + 1) * sizeof *machine->kernel_tables);
        if (grown == NULL)
            return error_set(err, ERROR_MEMORY, "no memory for a kernel table");
        machine->kernel_tables = grown;
        former = &grown[machine->kernel_table_count++];
    } else {
        kernel_table_clear(former);
    }
    *former = *table;
    *table = (struct kernel_table){.product_count = 0};
    memcpy(table->gpu, former->gpu, sizeof table->gpu);
    return 0;
}

void machine_free_kernel_tables(struct machine *machine)
{
    for (uint32_t i = 0; i < machine->kernel_table_count; i++)
        kernel_table_clear(&machine->kernel_tables[i]);
    free(machine->kernel_tables);
    machine->kernel_tables = NULL;
    machine->kernel_table_count = 0;
}

void machine_drop_kernel_tables(struct machine *machine)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < machine->kernel_table_count; i++) {
        if (has_gpu(machine, machine->kernel_tables[i].gpu))
            machine->kernel_tables[kept++] = machine->kernel_tables[i];
        else
            kernel_table_clear(&machine->kernel_tables[i]);
    }
    machine->kernel_table_count = kept;
}

/* ---- words ---- */

static bool is_product(enum task_kind kind)
{
    return kind == TASK_MATMUL || kind == TASK_EXPERTS;
}

static bool is_other(enum task_kind kind)
{
    return (program_task_class(kind) == TASK_CLASS_KERNEL && !is_product(kind) &&
            kind != TASK_ATTENTION) ||
           kind == TASK_EMBED || kind == TASK_KV_STORE || kind == TASK_WAIT || kind == TASK_SYNC ||
           kernel_table_times_copy(kind);
}

static int read_tokens(const struct json_cursor *row, uint32_t *tokens, struct error *err)
{
    const struct json_integer_rule rule = {"a number of tokens", 1, TOKENS_MAX};
    int64_t value;

    if (json_input_integer(row, "tokens", &rule, &value, err) != 0)
        return -1;
    *tokens = (uint32_t)value;
    return 0;
}

/* ---- rows ---- */

/* The fields of a record, all but those of `optional`, bit by bit. */
static int read_times(const struct json_cursor *row, struct machine_fields fields,
                      uint32_t optional, void *record, struct error *err)
{
    uint32_t given = optional;

    if (machine_fields_read(row, fields, record, &given, err) != 0)
        return -1;
    return machine_fields_require(row, fields, given, err);
}

static int read_product(const struct json_cursor *row, struct kernel_table *table,
                        struct error *err)
{
    const struct json_integer_rule group_rule = {"a number of columns", 1, KERNEL_GROUP};
    struct kernel_product product = {.ahead_bytes = 0};
    int64_t group = KERNEL_GROUP;

    if (machine_fields_refuse_unknown(row, kernel_product_fields,
                                      MACHINE_KEYS("kind", "type", "group", "tokens"), err) != 0 ||
        json_names_kind(row, "kind", is_product, &product.kind, err) != 0 ||
        json_names_type(row, "type", &product.type, err) != 0 ||
        read_tokens(row, &product.tokens, err) != 0 ||
        json_input_find_integer(row, "group", &group_rule, &group, err) < 0 ||
        read_times(row, kernel_product_fields, PRODUCT_OPTIONAL, &product, err) != 0)
        return -1;
    product.group = (uint32_t)group;
    return kernel_table_add_product(table, product, err);
}

/* Where it is given. */
static int read_head_dim(const struct json_cursor *row, uint32_t *head_dim, struct error *err)
{
    const struct json_integer_rule rule = {"a number of values of a head", 1, dim_max};
    int64_t value = *head_dim;

    if (json_input_find_integer(row, "head_dim", &rule, &value, err) < 0)
        return -1;
    *head_dim = (uint32_t)value;
    return 0;
}

static int read_attention(const struct json_cursor *row, struct kernel_table *table,
                          struct error *err)
{
    const struct json_integer_rule rule = {"a number of cells", 1, cells_max};
    const struct json_integer_rule head_rule = {"a number of KV heads, of 32 query heads", 1,
                                                KERNEL_ATTENTION_HEADS};
    const struct json_integer_rule part_rule = {"a number of query heads, of 32", 1,
                                                KERNEL_ATTENTION_HEADS};
    struct kernel_attention attention = {.head_dim = KERNEL_ATTENTION_HEAD_DIM};
    int64_t kv_heads, cells, heads = KERNEL_ATTENTION_HEADS;

    if (machine_fields_refuse_unknown(
            row, kernel_attention_fields,
            MACHINE_KEYS("cache", "head_dim", "heads", "kv_heads", "tokens", "cells"), err) != 0 ||
        json_names_type(row, "cache", &attention.cache_type, err) != 0 ||
        json_input_integer(row, "kv_heads", &head_rule, &kv_heads, err) != 0 ||
        read_tokens(row, &attention.tokens, err) != 0 ||
        json_input_integer(row, "cells", &rule, &cells, err) != 0 ||
        read_times(row, kernel_attention_fields, 0, &attention, err) != 0 ||
        read_head_dim(row, &attention.head_dim, err) != 0 ||
        json_input_find_integer(row, "heads", &part_rule, &heads, err) < 0)
        return -1;
    attention.heads = (uint32_t)heads;
    attention.kv_heads = (uint32_t)kv_heads;
    attention.cells = (uint64_t)cells;
    return kernel_table_add_attention(table, attention, err);
}

static int read_other(const struct json_cursor *row, struct kernel_table *table, struct error *err)
{
    const struct json_integer_rule byte_rule = {"a size in bytes", 0, bytes_max};
    struct kernel_other other = {.head_dim = 0};
    int64_t bytes;

    if (machine_fields_refuse_unknown(
            row, kernel_other_fields,
            MACHINE_KEYS("kind", "behind", "head_dim", "normed", "tokens", "bytes"), err) != 0 ||
        json_names_kind(row, "kind", is_other, &other.kind, err) != 0 ||
        read_tokens(row, &other.tokens, err) != 0 ||
        json_input_integer(row, "bytes", &byte_rule, &bytes, err) != 0 ||
        read_times(row, kernel_other_fields, 0, &other, err) != 0 ||
        read_head_dim(row, &other.head_dim, err) != 0 ||
        json_input_find_bool(row, "normed", &other.normed, err) < 0 ||
        json_names_find_kind(row, "behind", kernel_table_tells_behind, &other.behind, err) < 0)
        return -1;
    other.bytes = (uint64_t)bytes;
    return kernel_table_add_other(table, other, err);
}

static int read_sum(const struct json_cursor *row, struct kernel_table *table, struct error *err)
{
    const struct json_integer_rule device_rule = {"a number of devices", 2, MACHINE_DEVICES_MAX};
    const struct json_integer_rule byte_rule = {"a size in bytes", 1, bytes_max};
    struct kernel_sum sum;
    int64_t devices, bytes;

    if (machine_fields_refuse_unknown(row, kernel_sum_fields, MACHINE_KEYS("devices", "bytes"),
                                      err) != 0 ||
        json_input_integer(row, "devices", &device_rule, &devices, err) != 0 ||
        json_input_integer(row, "bytes", &byte_rule, &bytes, err) != 0 ||
        read_times(row, kernel_sum_fields, 0, &sum, err) != 0)
        return -1;
    sum.devices = (uint32_t)devices;
    sum.bytes = (uint64_t)bytes;
    return kernel_table_add_sum(table, sum, err);
}

/* ---- tables ---- */

static size_t row_count(const struct kernel_table *table)
{
    return table->product_count + table->attention_count + table->other_count + table->sum_count;
}

static int read_rows(const struct json_cursor *parts, const char *key,
                     int (*read)(const struct json_cursor *, struct kernel_table *, struct error *),
                     struct kernel_table *table, struct error *err)
{
    struct json_cursor rows;
    int found = json_input_find_array(parts, key, &rows, err);

    for (size_t i = 0; found == 1 && i < json_array_size(rows.value); i++) {
        struct json_cursor row = json_input_element(&rows, i);
        size_t former = row_count(table);

        if (json_input_as_object(&row, err) != 0 || read(&row, table, err) != 0)
            return -1;
        if (row_count(table) == former)
            return json_input_refuse(&row, err, "measured in a row before; once is enough");
    }
    return found < 0 ? -1 : 0;
}

static int read_table(const struct json_cursor *parts, struct kernel_table *table,
                      struct error *err)
{
    if (json_input_as_object(parts, err) != 0 ||
        machine_fields_refuse_unknown(
            parts, kernel_table_fields,
            MACHINE_KEYS("products", "attention", "other", "sums", "basis"), err) != 0 ||
        read_times(parts, kernel_table_fields, TABLE_OPTIONAL, table, err) != 0 ||
        read_rows(parts, "products", read_product, table, err) != 0 ||
        read_rows(parts, "attention", read_attention, table, err) != 0 ||
        read_rows(parts, "other", read_other, table, err) != 0)
        return -1;
    return read_rows(parts, "sums", read_sum, table, err);
}

static int refuse_gpu(const struct machine *machine, const struct json_cursor *cursor,
                      const char *gpu, struct error *err)
{
    const char *names[MACHINE_DEVICES_MAX], *closest;
    size_t count = 0;
    char list[240];

    for (uint32_t i = 0; i < machine->device_count; i++) {
        const char *name = machine->devices[i].gpu;
        size_t before = 0;

        while (before < count && strcmp(names[before], name) != 0)
            before++;
        if (before == count && name[0] != '\0')
            names[count++] = name;
    }
    if (count == 0)
        return json_input_refuse(cursor, err, "no device of this machine has a GPU's name");
    closest = word_list_closest(gpu, names, count);
    word_list_text(names, count, list, sizeof list);
    if (closest != NULL)
        return json_input_refuse(cursor, err,
                                 "is no GPU of this machine; did you mean \"%s\"? known: %s",
                                 closest, list);
    return json_input_refuse(cursor, err, "is no GPU of this machine; known: %s", list);
}

int machine_read_kernels(struct machine_draft *draft, const struct json_cursor *kernels,
                         struct error *err)
{
    const char *gpu;
    json_t *value;

    json_object_foreach(kernels->value, gpu, value)
    {
        struct json_cursor parts = json_input_member(kernels, gpu);
        struct kernel_table table = {.product_count = 0};
        int result;

        if (!has_gpu(draft->machine, gpu))
            return refuse_gpu(draft->machine, &parts, gpu, err);
        memcpy(table.gpu, gpu, strlen(gpu) + 1);
        result = read_table(&parts, &table, err);
        if (result == 0)
            result = machine_set_kernel_table(draft->machine, &table, err);
        kernel_table_clear(&table);
        if (result != 0)
            return -1;
    }
    return 0;
}

/* ---- writing ---- */

static int add_word(json_t *object, const char *key, const char *word)
{
    return json_object_set_new(object, key, json_string(word));
}

static int add_count(json_t *object, const char *key, uint64_t count)
{
    return json_object_set_new(object, key, json_integer((json_int_t)count));
}

static int add_product(json_t *rows, const struct kernel_product *product)
{
    json_t *row = json_object();
    int failed = add_word(row, "kind", program_task_name(product->kind));

    failed |= add_word(row, "type", tensor_type_info(product->type)->name);
    if (product->group != KERNEL_GROUP)
        failed |= add_count(row, "group", product->group);
    failed |= add_count(row, "tokens", product->tokens);
    failed |= machine_add_fields(row, kernel_product_fields, product);
    return failed | json_array_append_new(rows, row);
}

static int add_attention(json_t *rows, const struct kernel_attention *attention)
{
    json_t *row = json_object();
    int failed = add_word(row, "cache", tensor_type_info(attention->cache_type)->name);

    if (attention->head_dim != KERNEL_ATTENTION_HEAD_DIM)
        failed |= add_count(row, "head_dim", attention->head_dim);
    if (attention->heads != KERNEL_ATTENTION_HEADS)
        failed |= add_count(row, "heads", attention->heads);
    failed |= add_count(row, "kv_heads", attention->kv_heads);
    failed |= add_count(row, "tokens", attention->tokens);
    failed |= add_count(row, "cells", attention->cells);
    failed |= machine_add_fields(row, kernel_attention_fields, attention);
    return failed | json_array_append_new(rows, row);
}

static int add_other(json_t *rows, const struct kernel_other *other)
{
    json_t *row = json_object();
    int failed = add_word(row, "kind", program_task_name(other->kind));

    if (other->behind != (enum task_kind)0)
        failed |= add_word(row, "behind", program_task_name(other->behind));
    if (other->head_dim > 0)
        failed |= add_count(row, "head_dim", other->head_dim);
    if (other->normed)
        failed |= json_object_set_new(row, "normed", json_true());
    failed |= add_count(row, "tokens", other->tokens);
    failed |= add_count(row, "bytes", other->bytes);
    failed |= machine_add_fields(row, kernel_other_fields, other);
    return failed | json_array_append_new(rows, row);
}

static int add_sum(json_t *rows, const struct kernel_sum *sum)
{
    json_t *row = json_object();
    int failed = add_count(row, "devices", sum->devices);

    failed |= add_count(row, "bytes", sum->bytes);
    failed |= machine_add_fields(row, kernel_sum_fields, sum);
    return failed | json_array_append_new(rows, row);
}

static json_t *table_json(const struct kernel_table *table)
{
    json_t *parts = json_object(), *products = json_array(), *attentions = json_array();
    json_t *others = json_array(), *sums = json_array();
    int failed = json_object_set_new(parts, "products", products);

    failed |= machine_add_fields(parts, kernel_table_fields, table);
    failed |= json_object_set_new(parts, "attention", attentions);
    failed |= json_object_set_new(parts, "other", others);
    failed |= json_object_set_new(parts, "sums", sums);
    for (size_t i = 0; i < table->product_count; i++)
        failed |= add_product(products, &table->products[i]);
    for (size_t i = 0; i < table->attention_count; i++)
        failed |= add_attention(attentions, &table->attentions[i]);
    for (size_t i = 0; i < table->other_count; i++)
        failed |= add_other(others, &table->others[i]);
    for (size_t i = 0; i < table->sum_count; i++)
        failed |= add_sum(sums, &table->sums[i]);
    return failed ? (json_decref(parts), NULL) : parts;
}

json_t *machine_kernels_json(const struct machine *machine)
{
    json_t *kernels = json_object();
    int failed = 0;

    for (uint32_t i = 0; i < machine->kernel_table_count; i++)
        failed |= json_object_set_new(kernels, machine->kernel_tables[i].gpu,
                                      table_json(&machine->kernel_tables[i]));
    return failed ? (json_decref(kernels), NULL) : kernels;
}
