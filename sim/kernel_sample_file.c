#include "sim/kernel_sample_file.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "sim/json_names.h"
#include "sim/json_write.h"

enum { VERSION = 1 };

/* ---- fields ---- */

static const struct {
    const char *key;
    size_t offset; /* of a uint32_t */
} counts[] = {
    {"tokens", offsetof(struct kernel_sample, tokens)},
    {"group", offsetof(struct kernel_sample, group)},
    {"kernels", offsetof(struct kernel_sample, kernels)},
    {"devices", offsetof(struct kernel_sample, devices)},
    {"head_dim", offsetof(struct kernel_sample, head_dim)},
    {"heads", offsetof(struct kernel_sample, heads)},
    {"kv_heads", offsetof(struct kernel_sample, kv_heads)},
};

static const struct {
    const char *key;
    size_t offset; /* of a double */
    double unit;
} amounts[] = {
    {"bytes", offsetof(struct kernel_sample, bytes), 1},
    {"us", offsetof(struct kernel_sample, time_s), 1e-6},
    {"ahead_bytes", offsetof(struct kernel_sample, ahead_bytes), 1},
    {"before_small_us", offsetof(struct kernel_sample, before.small_s), 1e-6},
    {"before_attention_us", offsetof(struct kernel_sample, before.attention_s), 1e-6},
    {"before_delta_net_us", offsetof(struct kernel_sample, before.delta_net_s), 1e-6},
};

enum { COUNTS = sizeof counts / sizeof *counts, AMOUNTS = sizeof amounts / sizeof *amounts };

/* ---- writing: what is 0 is left out ---- */

static void write_sample(const struct kernel_sample *sample, FILE *out)
{
    fprintf(out, "{\"kind\": \"%s\", \"type\": \"%s\"", program_task_name(sample->kind),
            tensor_type_info(sample->type)->name);
    if (sample->normed)
        fputs(", \"normed\": true", out);
    if (sample->behind != (enum task_kind)0)
        fprintf(out, ", \"behind\": \"%s\"", program_task_name(sample->behind));
    if (sample->cells > 0)
        fprintf(out, ", \"cells\": %" PRIu64, sample->cells);
    for (size_t i = 0; i < COUNTS; i++) {
        uint32_t count;

        memcpy(&count, (const char *)sample + counts[i].offset, sizeof count);
        if (count > 0)
            fprintf(out, ", \"%s\": %" PRIu32, counts[i].key, count);
    }
    for (size_t i = 0; i < AMOUNTS; i++) {
        double amount;

        memcpy(&amount, (const char *)sample + amounts[i].offset, sizeof amount);
        if (amount > 0)
            fprintf(out, ", \"%s\": %.9g", amounts[i].key, amount / amounts[i].unit);
    }
    fputc('}', out);
}

void kernel_samples_write(const struct kernel_samples *samples, const char *gpu, FILE *out)
{
    fprintf(out, "{\"lopside_samples\": %d, \"gpu\": ", VERSION);
    json_write_string(out, gpu);
    fputs(", \"samples\": [", out);
    for (size_t i = 0; i < samples->count; i++) {
        fputs(i > 0 ? ",\n" : "\n", out);
        write_sample(&samples->list[i], out);
    }
    fputs("\n]}\n", out);
}

/* ---- reading ---- */

static int refuse_unknown(const struct json_cursor *row, struct error *err)
{
    static const char *const others[] = {"kind", "type", "normed", "behind", "cells"};
    enum { OTHERS = sizeof others / sizeof *others };
    const char *keys[OTHERS + COUNTS + AMOUNTS];

    memcpy(keys, others, sizeof others);
    for (size_t i = 0; i < COUNTS; i++)
        keys[OTHERS + i] = counts[i].key;
    for (size_t i = 0; i < AMOUNTS; i++)
        keys[OTHERS + COUNTS + i] = amounts[i].key;
    return json_input_refuse_unknown_keys(row, keys, OTHERS + COUNTS + AMOUNTS, err);
}

static int read_sample(const struct json_cursor *row, struct kernel_sample *sample,
                       struct error *err)
{
    static const struct json_integer_rule count_rule = {NULL, 0, UINT32_MAX};
    static const struct json_integer_rule cells_rule = {"cells", 0, INT64_C(1) << 40};
    static const struct json_number_rule amount_rule = {.min = 0, .max = 1e15};
    static const struct json_number_rule time_rule = {
        .noun = "a time in us", .min = 0, .max = 1e15, .above_min = true};
    int64_t whole = 0;
    double amount;

    if (json_input_as_object(row, err) != 0 || refuse_unknown(row, err) != 0 ||
        json_names_kind(row, "kind", NULL, &sample->kind, err) != 0 ||
        json_names_find_kind(row, "behind", NULL, &sample->behind, err) < 0 ||
        json_names_type(row, "type", &sample->type, err) != 0 ||
        json_input_find_bool(row, "normed", &sample->normed, err) < 0 ||
        json_input_find_integer(row, "cells", &cells_rule, &whole, err) < 0)
        return -1;
    sample->cells = (uint64_t)whole;
    for (size_t i = 0; i < COUNTS; i++) {
        uint32_t count;

        whole = 0;
        if (json_input_find_integer(row, counts[i].key, &count_rule, &whole, err) < 0)
            return -1;
        count = (uint32_t)whole;
        memcpy((char *)sample + counts[i].offset, &count, sizeof count);
    }
    if (json_input_number(row, "us", &time_rule, &amount, err) != 0)
        return -1;
    for (size_t i = 0; i < AMOUNTS; i++) {
        amount = 0;
        if (json_input_find_number(row, amounts[i].key, &amount_rule, &amount, err) < 0)
            return -1;
        amount *= amounts[i].unit;
        memcpy((char *)sample + amounts[i].offset, &amount, sizeof amount);
    }
    return 0;
}

static int read_all(const struct json_cursor *root, struct kernel_samples *samples, char *gpu,
                    size_t gpu_size, struct error *err)
{
    static const struct json_integer_rule version_rule = {"the version of the form", VERSION,
                                                          VERSION};
    struct json_cursor list;
    int64_t version;
    const char *name;

    if (json_input_as_object(root, err) != 0 ||
        json_input_integer(root, "lopside_samples", &version_rule, &version, err) != 0 ||
        json_input_string(root, "gpu", "a GPU's name", &name, err) != 0 ||
        json_input_array(root, "samples", &list, err) != 0)
        return -1;
    snprintf(gpu, gpu_size, "%s", name);
    for (size_t i = 0; i < json_array_size(list.value); i++) {
        struct json_cursor row = json_input_element(&list, i);
        struct kernel_sample sample = {.tokens = 0};

        if (read_sample(&row, &sample, err) != 0)
            return -1;
        kernel_samples_add(samples, sample);
    }
    return samples->failed ? error_set(err, ERROR_MEMORY, "no memory for samples") : 0;
}

int kernel_samples_read(const char *path, struct kernel_samples *samples, char *gpu,
                        size_t gpu_size, struct error *err)
{
    struct json_input *input = json_input_load_file(path, err);
    struct json_cursor root;
    int status;

    if (input == NULL)
        return -1;
    root = json_input_root(input);
    status = read_all(&root, samples, gpu, gpu_size, err);
    json_input_free(input);
    return status;
}
