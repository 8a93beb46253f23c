#include "cli/bench_output.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/rule_warnings.h"
#include "config.h"

void bench_columns_note(struct bench_columns *columns, const struct bench_result *result)
{
    struct plan usual = plan_default();
    const struct plan *plan = &result->plan;

    columns->n_batch |= plan->n_batch != usual.n_batch;
    columns->n_ubatch |= plan->n_ubatch != usual.n_ubatch;
    columns->type_k |= plan->type_k != usual.type_k;
    columns->type_v |= plan->type_v != usual.type_v;
    columns->split |= plan->split != usual.split;
    columns->main_gpu |= plan->main_gpu != usual.main_gpu;
    columns->nkvo |= plan->kv_on_host != usual.kv_on_host;
    columns->kv_gpu_layers |= plan->kv_gpu_layers != usual.kv_gpu_layers;
    columns->kv_policy |= plan->kv_policy != usual.kv_policy;
    columns->kv_pinned |= plan->kv_pinned;
    columns->delivery_depth |= plan->delivery_depth > 0;
    columns->attn_on_host |= plan->attn_on_host;
    columns->recurrent |= plan->recurrent_on_device;
    columns->flash_attn |= plan->flash_attn != usual.flash_attn;
    columns->tensor_split |= result->tensor_split[0] != '\0';
    columns->attn_split |= result->attn_split[0] != '\0';
    columns->devices |= result->devices[0] != '\0';
    columns->kv_resident |= result->kv_resident[0] != '\0';
    columns->n_ctx |= plan->n_ctx > 0;
    columns->is_default |= result->is_default;
    columns->slots |= plan->n_slots > 1;
    columns->kv_unified |= plan->kv_unified != usual.kv_unified;
    columns->n_cpu_moe |= plan->n_cpu_moe > 0;
    columns->pipeline |= plan->pipeline != usual.pipeline;
    columns->output_mirrored |= plan->output_mirrored != usual.output_mirrored;
    columns->all_reduce |= plan->all_reduce != usual.all_reduce;
    columns->ff_exp_rows |= plan->ff_exp_rows_count > 0;
    columns->samples |= result->samples;
    columns->measured |= result->samples_s != NULL;
    columns->draft |= result->draft_max > 0;
    columns->rules |= result->rules != 0;
    columns->engine |= !result->is_default && plan->schedule != usual.schedule;
}

/* ---- fields of a result ---- */

static uint32_t tokens_of(const struct bench_result *result)
{
    return result->n_prompt + result->n_gen * result->plan.n_slots;
}

static double predicted_per_s(const struct bench_result *result)
{
    return result->memory.fits && result->time_s > 0 ? tokens_of(result) / result->time_s : 0;
}

/* A repetition's time; a prediction has one for all. */
static double sample_ns(const struct bench_result *result, uint32_t rep)
{
    if (result->samples_s != NULL)
        return result->samples_s[rep] * 1e9;
    return result->memory.fits ? result->time_s * 1e9 : 0;
}

static double sample_per_s(const struct bench_result *result, uint32_t rep)
{
    if (result->samples_s == NULL)
        return predicted_per_s(result);
    return tokens_of(result) / result->samples_s[rep];
}

struct statistics {
    double mean, deviation;
};

static struct statistics statistics_of(const struct bench_result *result,
                                       double (*sample)(const struct bench_result *, uint32_t))
{
    struct statistics all = {.mean = 0};
    double squares = 0;

    if (result->samples_s == NULL)
        return (struct statistics){.mean = sample(result, 0)};
    for (uint32_t i = 0; i < result->reps; i++)
        all.mean += sample(result, i) / result->reps;
    for (uint32_t i = 0; i < result->reps; i++)
        squares += (sample(result, i) - all.mean) * (sample(result, i) - all.mean);
    if (result->reps > 1)
        all.deviation = sqrt(squares / (result->reps - 1));
    return all;
}

static double tokens_per_s(const struct bench_result *result)
{
    return statistics_of(result, sample_per_s).mean;
}

static void model_type(const struct bench_result *result, char *text, size_t size)
{
    const struct model *model = result->model;

    snprintf(text, size, "%s%s%s %s", model->arch, model->size_label[0] != '\0' ? " " : "",
             model->size_label, model->quant);
}

static void test_name(const struct bench_result *result, char *text, size_t size)
{
    int length;

    if (result->n_prompt > 0 && result->n_gen > 0)
        length = snprintf(text, size, "pp%u+tg%u", result->n_prompt, result->n_gen);
    else if (result->n_gen > 0)
        length = snprintf(text, size, "tg%u", result->n_gen);
    else
        length = snprintf(text, size, "pp%u", result->n_prompt);
    if (result->n_depth > 0)
        snprintf(text + length, size - (size_t)length, " @ d%u", result->n_depth);
}

static void gpu_info(const struct bench_result *result, char *text, size_t size)
{
    size_t length = 0;

    text[0] = '\0';
    for (uint32_t d = 0; d < result->machine->device_count && length < size; d++)
        length += (size_t)snprintf(text + length, size - length, "%s%s", d > 0 ? ", " : "",
                                   result->machine->devices[d].gpu);
}

/* The second resource is named where the first leaves much of the time open. */
static void bound_text(const struct bench_result *result, char *text, size_t size)
{
    const struct timing_bound *bound = &result->bound;
    int length = snprintf(text, size, "%s %.0f %%", bound->resource, bound->ratio * 100);

    if (bound->ratio < 0.9 && bound->second_ratio >= 0.1)
        snprintf(text + length, size - (size_t)length, ", %s %.0f %%", bound->second,
                 bound->second_ratio * 100);
}

/* "512/192"; "" where -ts says. */
static void rows_text(const struct plan *plan, char *text, size_t size)
{
    size_t length = 0;

    text[0] = '\0';
    for (uint32_t d = 0; d < plan->ff_exp_rows_count && length < size; d++)
        length += (size_t)snprintf(text + length, size - length, "%s%u", d > 0 ? "/" : "",
                                   plan->ff_exp_rows[d]);
}

static void note_text(const struct bench_result *result, char *text, size_t size)
{
    char rules[160];

    cli_rule_names(result->rules, rules, sizeof rules);
    snprintf(text, size, "%s%s%s", result->is_default ? "llama.cpp default" : "",
             result->is_default && rules[0] != '\0' ? ", " : "", rules);
}

static const char *tristate_text(enum plan_tristate value)
{
    return value == PLAN_AUTO ? "-1" : value == PLAN_ON ? "1" : "0";
}

/* Lower-case names, as llama.cpp prints cache types. */
static void type_text(enum tensor_type type, char text[16])
{
    snprintf(text, 16, "%s", tensor_type_info(type)->name);
    for (char *c = text; *c != '\0'; c++)
        if (*c >= 'A' && *c <= 'Z')
            *c = (char)(*c - 'A' + 'a');
}

/* "60/40" as llama-bench repeats it: two decimals a share. */
static void shares_text(const float *shares, uint32_t count, char *text, size_t size)
{
    size_t length = 0;

    snprintf(text, size, "0.00");
    for (uint32_t d = 0; d < count && length < size; d++)
        length += (size_t)snprintf(text + length, size - length, "%s%.2f", d > 0 ? "/" : "",
                                   (double)shares[d]);
}

/* ---- markdown ---- */

struct cell {
    const char *head;
    int width; /* below 0: left-aligned */
    bool shown;
    char text[192];
};

enum { CELLS_MAX = 40 + MACHINE_DEVICES_MAX };

static void add_cell(struct cell *cells, size_t *count, const char *head, int width, bool shown,
                     const char *text)
{
    cells[*count] = (struct cell){.head = head, .width = width, .shown = shown};
    snprintf(cells[*count].text, sizeof cells[*count].text, "%s", text);
    (*count)++;
}

static void add_number(struct cell *cells, size_t *count, const char *head, int width, bool shown,
                       long value)
{
    char text[32];

    snprintf(text, sizeof text, "%ld", value);
    add_cell(cells, count, head, width, shown, text);
}

static size_t plan_cells(struct cell *cells, size_t count, const struct bench_columns *columns,
                         const struct bench_result *result)
{
    const struct plan *plan = &result->plan;
    char k[16], v[16], ts[96], as[96], rows[96], acceptance[16];

    type_text(plan->type_k, k);
    type_text(plan->type_v, v);
    shares_text(plan->tensor_split, plan->tensor_split_count, ts, sizeof ts);
    shares_text(plan->attn_split, plan->attn_split_count, as, sizeof as);
    rows_text(plan, rows, sizeof rows);
    acceptance[0] = '\0';
    if (result->draft_max > 0)
        snprintf(acceptance, sizeof acceptance, "%.2f", result->draft_acceptance);
    add_cell(cells, &count, "engine", -14, columns->engine, plan_schedule_name(plan->schedule));
    add_number(cells, &count, "ngl", 3, true, plan->n_gpu_layers);
    add_number(cells, &count, "ncmoe", 5, columns->n_cpu_moe,
               plan->n_cpu_moe > result->model->n_layer ? result->model->n_layer : plan->n_cpu_moe);
    add_number(cells, &count, "n_batch", 7, columns->n_batch, plan->n_batch);
    add_number(cells, &count, "n_ubatch", 8, columns->n_ubatch, plan->n_ubatch);
    add_cell(cells, &count, "type_k", 6, columns->type_k, k);
    add_cell(cells, &count, "type_v", 6, columns->type_v, v);
    add_cell(cells, &count, "sm", 6, columns->split, plan_split_name(plan->split));
    add_number(cells, &count, "mg", 3, columns->main_gpu, plan->main_gpu);
    add_number(cells, &count, "nkvo", 4, columns->nkvo, plan->kv_on_host);
    add_number(cells, &count, "kvgl", 4, columns->kv_gpu_layers, plan->kv_gpu_layers);
    add_cell(cells, &count, "kv_policy", 13, columns->kv_policy,
             plan_kv_policy_name(plan->kv_policy));
    add_cell(cells, &count, "kvr", 12, columns->kv_resident, result->kv_resident);
    add_number(cells, &count, "kvcp", 4, columns->kv_pinned, plan->kv_pinned);
    add_number(cells, &count, "kvd", 3, columns->delivery_depth, plan->delivery_depth);
    add_number(cells, &count, "ah", 2, columns->attn_on_host, plan->attn_on_host);
    add_number(cells, &count, "rso", 3, columns->recurrent, plan->recurrent_on_device);
    add_cell(cells, &count, "fa", 2, columns->flash_attn, tristate_text(plan->flash_attn));
    add_cell(cells, &count, "dev", 12, columns->devices, result->devices);
    add_cell(cells, &count, "ts", 12, columns->tensor_split, ts);
    add_cell(cells, &count, "as", 12, columns->attn_split, as);
    add_number(cells, &count, "np", 3, columns->slots, plan->n_slots);
    add_number(cells, &count, "kvu", 3, columns->kv_unified, plan->kv_unified);
    add_number(cells, &count, "n_ctx", 7, columns->n_ctx, result->n_ctx);
    add_cell(cells, &count, "pipe", 4, columns->pipeline, tristate_text(plan->pipeline));
    add_cell(cells, &count, "om", 2, columns->output_mirrored,
             tristate_text(plan->output_mirrored));
    add_cell(cells, &count, "ar", 10, columns->all_reduce, plan_all_reduce_name(plan->all_reduce));
    add_cell(cells, &count, "fer", 9, columns->ff_exp_rows, rows);
    add_cell(cells, &count, "bs", 4, columns->samples,
             !result->samples         ? "none"
             : plan->backend_sampling ? "1"
                                      : "0");
    add_cell(cells, &count, "draft", -19, columns->draft, result->model_draft);
    add_number(cells, &count, "draft_max", 9, columns->draft, result->draft_max);
    add_cell(cells, &count, "draft_acceptance", 16, columns->draft, acceptance);
    return count;
}

static size_t make_cells(const struct bench_output *output, const struct bench_result *result,
                         struct cell *cells)
{
    size_t count = 0;
    char text[192];

    model_type(result, text, sizeof text);
    add_cell(cells, &count, "model", -30, true, text);
    snprintf(text, sizeof text, "%.2f GiB", (double)result->model->tensor_bytes / (1 << 30));
    add_cell(cells, &count, "size", 10, true, text);
    snprintf(text, sizeof text, "%.2f B", (double)result->model->params / 1e9);
    add_cell(cells, &count, "params", 10, true, text);
    add_cell(cells, &count, "backend", -7, true, result->on_cpu ? "CPU" : "CUDA");
    count = plan_cells(cells, count, &output->columns, result);
    test_name(result, text, sizeof text);
    add_cell(cells, &count, "test", 15, true, text);
    if (result->memory.fits || result->samples_s != NULL)
        snprintf(text, sizeof text, "%.2f ± %.2f", tokens_per_s(result),
                 statistics_of(result, sample_per_s).deviation);
    else
        snprintf(text, sizeof text, "-");
    add_cell(cells, &count, "t/s", 20, true, text);
    snprintf(text, sizeof text, "%.2f", predicted_per_s(result));
    add_cell(cells, &count, "predicted", 9, output->columns.measured, text);
    bound_text(result, text, sizeof text);
    add_cell(cells, &count, "bound", -30, true, text);
    for (uint32_t d = 0; d < output->machine->device_count; d++) {
        text[0] = '\0';
        if (result->device_mib[d] >= 0)
            snprintf(text, sizeof text, "%.0f", result->device_mib[d]);
        add_cell(cells, &count, output->machine->devices[d].name, 6, true, text);
    }
    add_cell(cells, &count, "fit", -24, true, result->verdict);
    note_text(result, text, sizeof text);
    add_cell(cells, &count, "note", -17, output->columns.is_default || output->columns.rules, text);
    return count;
}

/* Widths count characters: the plus-minus sign is two bytes. */
static void print_cell(FILE *out, const struct cell *cell, const char *text)
{
    int width = abs(cell->width), extra = 0;

    for (const char *c = text; *c != '\0'; c++)
        extra += ((unsigned char)*c & 0xC0) == 0x80;
    fprintf(out, cell->width < 0 ? " %-*s |" : " %*s |", width + extra, text);
}

static void print_heads(FILE *out, const struct cell *cells, size_t count)
{
    fputc('|', out);
    for (size_t i = 0; i < count; i++)
        if (cells[i].shown)
            print_cell(out, &cells[i], cells[i].head);
    fputs("\n|", out);
    for (size_t i = 0; i < count; i++) {
        if (!cells[i].shown)
            continue;
        fputc(' ', out);
        for (int c = abs(cells[i].width) - (cells[i].width > 0); c > 0; c--)
            fputc('-', out);
        fputs(cells[i].width > 0 ? ": |" : " |", out);
    }
    fputc('\n', out);
}

static void print_markdown(struct bench_output *output, const struct bench_result *result)
{
    struct cell cells[CELLS_MAX];
    size_t count = make_cells(output, result, cells);

    if (output->rows == 0)
        print_heads(output->out, cells, count);
    fputc('|', output->out);
    for (size_t i = 0; i < count; i++)
        if (cells[i].shown)
            print_cell(output->out, &cells[i], cells[i].text);
    fputc('\n', output->out);
}

/* ---- the other formats: one object of all fields ---- */

/* llama-bench's fields in its order, then ours. */
#define SET(key, value) json_object_set_new(object, key, value)

/* llama-bench's fields, in its order. */
static void set_build_and_model(json_t *object, const struct bench_result *result)
{
    char text[512];

    SET("build_commit", json_string("lopside " PACKAGE_VERSION));
    SET("build_number", json_integer(0));
    SET("cpu_info", json_string(result->machine->host.cpu));
    gpu_info(result, text, sizeof text);
    SET("gpu_info", json_string(text));
    SET("backends", json_string(result->on_cpu ? "CPU" : "CUDA"));
    SET("model_filename", json_string(result->model_filename));
    model_type(result, text, sizeof text);
    SET("model_type", json_string(text));
    SET("model_size", json_integer((json_int_t)result->model->tensor_bytes));
    SET("model_n_params", json_integer((json_int_t)result->model->params));
}

static void set_plan(json_t *object, const struct bench_result *result)
{
    const struct plan *plan = &result->plan;
    char text[512], k[16], v[16];

    SET("n_batch", json_integer(plan->n_batch));
    SET("n_ubatch", json_integer(plan->n_ubatch));
    SET("n_threads", json_integer(result->machine->host.threads));
    SET("cpu_mask", json_string("0x0"));
    SET("cpu_strict", json_false());
    SET("poll", json_integer(50));
    type_text(plan->type_k, k);
    type_text(plan->type_v, v);
    SET("type_k", json_string(k));
    SET("type_v", json_string(v));
    SET("n_gpu_layers", json_integer(plan->n_gpu_layers));
    SET("n_cpu_moe", json_integer(plan->n_cpu_moe > result->model->n_layer ? result->model->n_layer
                                                                           : plan->n_cpu_moe));
    SET("split_mode", json_string(plan_split_name(plan->split)));
    SET("main_gpu", json_integer(plan->main_gpu));
    SET("no_kv_offload", json_boolean(plan->kv_on_host));
    SET("flash_attn", json_integer(plan->flash_attn));
    SET("devices", json_string(result->devices[0] != '\0' ? result->devices : "auto"));
    shares_text(plan->tensor_split, plan->tensor_split_count, text, sizeof text);
    SET("tensor_split", json_string(text));
    SET("tensor_buft_overrides", json_string("none"));
    SET("load_mode", json_string("auto"));
    SET("embeddings", json_false());
    SET("no_op_offload", json_integer(0));
    SET("no_host", json_false());
    SET("fit_target", json_integer(0));
    SET("fit_min_ctx", json_integer(0));
}

/* When it was measured, as llama-bench has it. */
static json_t *time_json(const struct bench_result *result)
{
    char text[32] = "";
    struct tm parts;

    if (result->samples_s != NULL && gmtime_r(&result->measured_at, &parts) != NULL)
        strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
    return json_string(text);
}

static void set_test(json_t *object, const struct bench_result *result)
{
    struct statistics ns = statistics_of(result, sample_ns);
    struct statistics ts = statistics_of(result, sample_per_s);

    SET("n_prompt", json_integer(result->n_prompt));
    SET("n_gen", json_integer(result->n_gen));
    SET("n_depth", json_integer(result->n_depth));
    SET("test_time", time_json(result));
    SET("avg_ns", json_integer((json_int_t)(ns.mean + 0.5)));
    SET("stddev_ns", json_integer((json_int_t)(ns.deviation + 0.5)));
    SET("avg_ts", json_real(ts.mean));
    SET("stddev_ts", json_real(ts.deviation));
}

/* The fork's fields, and ours. */
static void set_placement(json_t *object, const struct bench_result *result)
{
    const struct plan *plan = &result->plan;
    char text[512];

    SET("kv_cpu_pinned", json_boolean(plan->kv_pinned));
    SET("recurrent_state_offload", json_boolean(plan->recurrent_on_device));
    SET("kv_gpu_layers", json_integer(plan->kv_gpu_layers));
    SET("engine", json_string(plan_schedule_name(plan->schedule)));
    SET("machine", json_string(result->machine->name));
    shares_text(plan->attn_split, plan->attn_split_count, text, sizeof text);
    SET("attn_split", json_string(text));
    SET("kv_policy", json_string(plan_kv_policy_name(plan->kv_policy)));
    SET("kv_resident", json_string(result->kv_resident));
    SET("kv_delivery_depth", json_integer(plan->delivery_depth));
    SET("attn_on_host", json_boolean(plan->attn_on_host));
    SET("n_ctx", json_integer(result->n_ctx));
}

static void set_answer(json_t *object, const struct bench_output *output,
                       const struct bench_result *result)
{
    const struct plan *plan = &result->plan;
    char text[512];

    if (result->pace_devices != NULL)
        SET("pace_devices", json_string(result->pace_devices));
    if (result->pace_links != NULL)
        SET("pace_links", json_string(result->pace_links));
    if (result->samples_s != NULL)
        SET("predicted_ts", json_real(predicted_per_s(result)));
    SET("bound", json_string(result->bound.resource));
    SET("bound_ratio", json_real(result->bound.ratio));
    SET("bound_second", json_string(result->bound.second));
    SET("bound_second_ratio", json_real(result->bound.second_ratio));
    SET("n_parallel", json_integer(plan->n_slots));
    SET("kv_unified", json_boolean(plan->kv_unified));
    text[0] = '\0';
    for (uint32_t d = 0; d < output->machine->device_count; d++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%.0f", d > 0 ? "/" : "",
                 result->device_mib[d] >= 0 ? result->device_mib[d] : 0);
    SET("vram_mib", json_string(text));
    SET("fits", json_boolean(result->memory.fits));
    SET("fit", json_string(result->verdict));
    SET("is_default", json_boolean(result->is_default));
}

static void set_step(json_t *object, const struct bench_result *result)
{
    const struct plan *plan = &result->plan;
    char text[512];

    SET("pipeline_parallel", json_integer(plan->pipeline));
    SET("output_mirrored", json_integer(plan->output_mirrored));
    SET("all_reduce", json_string(plan_all_reduce_name(plan->all_reduce)));
    rows_text(plan, text, sizeof text);
    SET("ff_exp_rows", json_string(text));
    SET("backend_sampling", json_integer(result->samples ? plan->backend_sampling : -1));
    SET("model_draft", json_string(result->model_draft));
    SET("draft_max", json_integer(result->draft_max));
    SET("draft_acceptance", json_real(result->draft_acceptance));
    note_text(result, text, sizeof text);
    SET("note", json_string(text));
}

#undef SET

static void set_samples(json_t *object, const struct bench_result *result)
{
    json_t *samples_ns = json_array(), *samples_ts = json_array();

    for (uint32_t i = 0; i < result->reps; i++) {
        json_array_append_new(samples_ns, json_integer((json_int_t)(sample_ns(result, i) + 0.5)));
        json_array_append_new(samples_ts, json_real(sample_per_s(result, i)));
    }
    json_object_set_new(object, "samples_ns", samples_ns);
    json_object_set_new(object, "samples_ts", samples_ts);
}

static json_t *result_json(const struct bench_output *output, const struct bench_result *result)
{
    json_t *object = json_object();

    set_build_and_model(object, result);
    set_plan(object, result);
    set_test(object, result);
    set_placement(object, result);
    set_answer(object, output, result);
    set_step(object, result);
    if (output->format == BENCH_JSON || output->format == BENCH_JSONL)
        set_samples(object, result);
    return object;
}

static void print_scalar(FILE *out, const json_t *value, char quote)
{
    if (json_is_string(value)) {
        fputc(quote, out);
        for (const char *c = json_string_value(value); *c != '\0'; c++) {
            if (*c == quote)
                fputc(quote, out); /* doubled, in CSV and SQL alike */
            fputc(*c, out);
        }
        fputc(quote, out);
    } else if (json_is_real(value)) {
        fprintf(out, quote == '"' ? "\"%.6f\"" : "'%.6f'", json_real_value(value));
    } else {
        long long number =
            json_is_integer(value) ? (long long)json_integer_value(value) : json_is_true(value);

        fprintf(out, quote == '"' ? "\"%lld\"" : "'%lld'", number);
    }
}

static void print_csv(struct bench_output *output, json_t *object)
{
    const char *key;
    json_t *value;
    const char *comma = "";

    if (output->rows == 0) {
        json_object_foreach(object, key, value)
        {
            fprintf(output->out, "%s%s", comma, key);
            comma = ",";
        }
        fputc('\n', output->out);
        comma = "";
    }
    json_object_foreach(object, key, value)
    {
        fputs(comma, output->out);
        print_scalar(output->out, value, '"');
        comma = ",";
    }
    fputc('\n', output->out);
}

static void print_sql(struct bench_output *output, json_t *object)
{
    const char *key;
    json_t *value;
    const char *comma = "";

    if (output->rows == 0) {
        fputs("CREATE TABLE IF NOT EXISTS llama_bench (\n", output->out);
        json_object_foreach(object, key, value)
        {
            fprintf(output->out, "%s  %s %s", comma, key,
                    json_is_string(value) ? "TEXT"
                    : json_is_real(value) ? "REAL"
                                          : "INTEGER");
            comma = ",\n";
        }
        fputs("\n);\n\n", output->out);
        comma = "";
    }
    fputs("INSERT INTO llama_bench (", output->out);
    json_object_foreach(object, key, value)
    {
        fprintf(output->out, "%s%s", comma, key);
        comma = ", ";
    }
    fputs(") VALUES (", output->out);
    comma = "";
    json_object_foreach(object, key, value)
    {
        fputs(comma, output->out);
        print_scalar(output->out, value, '\'');
        comma = ", ";
    }
    fputs(");\n", output->out);
}

/* ---- output ---- */

void bench_output_begin(struct bench_output *output)
{
    if (output->format == BENCH_JSON)
        fputs("[\n", output->out);
}

void bench_output_row(struct bench_output *output, const struct bench_result *result)
{
    json_t *object = output->format != BENCH_MARKDOWN ? result_json(output, result) : NULL;

    switch (output->format) {
    case BENCH_MARKDOWN:
        print_markdown(output, result);
        break;
    case BENCH_CSV:
        print_csv(output, object);
        break;
    case BENCH_SQL:
        print_sql(output, object);
        break;
    case BENCH_JSON:
        fputs(output->rows > 0 ? ",\n" : "", output->out);
        json_dumpf(object, output->out, JSON_INDENT(2) | JSON_REAL_PRECISION(10));
        break;
    case BENCH_JSONL:
        json_dumpf(object, output->out, JSON_COMPACT | JSON_REAL_PRECISION(10));
        fputc('\n', output->out);
        break;
    }
    json_decref(object);
    output->rows++;
    fflush(output->out);
}

void bench_output_end(struct bench_output *output)
{
    if (output->format == BENCH_JSON)
        fputs("\n]\n", output->out);
    else if (output->format == BENCH_MARKDOWN && output->rows > 0)
        fputs("\nbuild: lopside " PACKAGE_VERSION "\n", output->out);
}
