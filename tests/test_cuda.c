/* Programs on GPUs against the reference: one checksum for all plans, or a row that says where they
 * part. Exits 77, as skipped, where there is no GPU.
 *
 * LOPSIDE_CUDA_MODELS, LOPSIDE_CUDA_TYPES (of weights), LOPSIDE_CUDA_CACHES: words with commas
 * LOPSIDE_CUDA_PLANS     plans of each row (default 24)
 * LOPSIDE_CUDA_FIRST    the first of them (default 0)
 * LOPSIDE_CUDA_STEP      from one plan of the grid to the next (default 355)
 * LOPSIDE_CUDA_PROMPT    tokens of the prompt (default 66)
 * LOPSIDE_CUDA_SLOTS     slots (default: 1 and 2 in turn)
 * LOPSIDE_CUDA_SHIFT      1: the context is shifted half-way, 0: not (default: in some rows)
 * LOPSIDE_CUDA_GPUS      GPUs that plans are laid on (default: all)
 * LOPSIDE_CUDA_REDUCE    how sums go over GPUs (default auto; cuda_reduction_find())
 * LOPSIDE_CUDA_LOCKSTEP  1 or all: every operation is compared (cuda_executor.h) */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/cuda_executor.h"
#include "ref/host_probe.h"
#include "ref/shape.h"
#include "ref/verify.h"

enum { SKIPPED = 77, SHOWN_MAX = 3, SLOTS_MAX = 2, TOKENS = 6 };

static const char *word_of(const char *name, const char *otherwise)
{
    const char *word = getenv(name);

    return word != NULL && *word != '\0' ? word : otherwise;
}

static long number_of(const char *name, long otherwise)
{
    const char *word = getenv(name);

    return word != NULL && *word != '\0' ? strtol(word, NULL, 10) : otherwise;
}

/* Copies the next word of a list; false at its end. */
static bool next_word(const char **list, char *word, size_t size)
{
    size_t length = strcspn(*list, ",");

    if (length == 0)
        return false;
    snprintf(word, size, "%.*s", (int)length, *list);
    *list += length + ((*list)[length] == ',');
    return true;
}

static void show(const struct verify_job *job, const struct verify_result *result)
{
    struct plan base = plan_default();
    struct plan_grid_entry entry;

    base.n_slots = job->slots;
    base.kv_unified = true;
    plan_grid_entry(result->index, job->source->model, &base, &entry);
    if (result->failed)
        printf("  plan %zu, %u devices, %s: %s\n", result->index, entry.devices, entry.text,
               result->error.text);
    else
        printf("  plan %zu, %u devices, %s: %016" PRIx64 ", not %016" PRIx64 "\n", result->index,
               entry.devices, entry.text, result->checksum, result->expected);
}

/* The same plans on the CPU: whether a failure is the plan's own. */
static bool fails_too(const struct verify_job *job, const struct verify_result *result)
{
    struct verify_job other = *job;
    struct verify_result again;
    struct error err = {.code = ERROR_NONE};

    other.open = NULL;
    return verify_plans(&other, &result->index, 1, &again, &err) == 0 && again.failed;
}

struct row {
    const char *model, *weights;
    enum tensor_type cache;
    uint32_t slots;
    bool shift;
};

/* @return whether all plans gave the checksum of the reference */
static bool judge(const struct row *row, const struct verify_job *job,
                  const struct verify_result *results, size_t count, double seconds)
{
    size_t equal = 0, different = 0, failed = 0, refused = 0, shown = 0;

    for (size_t i = 0; i < count; i++) {
        if (!results[i].failed && results[i].checksum == results[i].expected)
            equal++;
        else if (results[i].failed && fails_too(job, &results[i]))
            refused++;
        else
            *(results[i].failed ? &failed : &different) += 1;
    }
    printf("| %-17s | %-4s | %-4s | %5u | %5s | %5zu | %5zu | %9zu | %6zu | %7zu | %6.1f |\n",
           row->model, row->weights, tensor_type_info(row->cache)->name, row->slots,
           row->shift ? "yes" : "", count, equal, different, failed, refused, seconds);
    for (size_t i = 0; i < count && shown < SHOWN_MAX; i++)
        if ((results[i].failed && failed > 0) ||
            (!results[i].failed && results[i].checksum != results[i].expected)) {
            show(job, &results[i]);
            shown++;
        }
    fflush(stdout);
    return different == 0 && failed == 0;
}

static int run_row(const struct row *row, const struct verify_job *job, bool *same,
                   struct error *err)
{
    size_t all = plan_grid_count(), count = (size_t)number_of("LOPSIDE_CUDA_PLANS", 24);
    size_t step = (size_t)number_of("LOPSIDE_CUDA_STEP", PLAN_GRID_STEP);
    size_t first = (size_t)number_of("LOPSIDE_CUDA_FIRST", 0);
    size_t *indices = calloc(count + 1, sizeof *indices);
    struct verify_result *results = calloc(count + 1, sizeof *results);
    double began = host_probe_now_s();
    int status = -1;

    if (indices == NULL || results == NULL) {
        error_set(err, ERROR_MEMORY, "no memory for %zu plans", count);
        goto free_lists;
    }
    for (size_t i = 0; i < count; i++)
        indices[i] = (first + i * step) % all;
    if (verify_plans(job, indices, count, results, err) != 0)
        goto free_lists;
    *same = judge(row, job, results, count, host_probe_now_s() - began) && *same;
    status = 0;

free_lists:
    free(indices);
    free(results);
    return status;
}

static int run_model(const char *model, const char *weights, struct cuda_options *options,
                     bool *same, struct error *err)
{
    const char *caches = word_of("LOPSIDE_CUDA_CACHES", "f16,q8_0,q4_0");
    long slots = number_of("LOPSIDE_CUDA_SLOTS", 0), prompt = number_of("LOPSIDE_CUDA_PROMPT", 66);
    long shift = number_of("LOPSIDE_CUDA_SHIFT", -1);
    char spec[96], word[16];
    struct source source;
    uint32_t turn = 0, lengths[SLOTS_MAX] = {(uint32_t)prompt, (uint32_t)prompt / 2 + 1};
    int status;

    snprintf(spec, sizeof spec, "%s:%s", model, weights);
    status = source_open(&source, spec, 1, err);
    while (status == 0 && next_word(&caches, word, sizeof word)) {
        struct row row = {.model = model,
                          .weights = weights,
                          .cache = (enum tensor_type)tensor_type_find(word),
                          .slots = slots > 0 ? (uint32_t)slots : 1 + turn % 2,
                          .shift = shift < 0 ? turn % 3 == 1 : shift > 0};
        struct verify_job job = {.source = &source,
                                 .type_k = row.cache,
                                 .type_v = row.cache,
                                 .slots = row.slots,
                                 .prompt_lengths = lengths,
                                 .tokens = TOKENS,
                                 .order_seed = 1,
                                 .shift = row.shift,
                                 .open = cuda_executor_open,
                                 .open_context = options};

        turn++;
        status = run_row(&row, &job, same, err);
    }
    source_close(&source);
    return status;
}

static int run_all(bool *same, struct error *err)
{
    const char *models = word_of("LOPSIDE_CUDA_MODELS", "tiny-llama,tiny-qwen3,tiny-qwen35,"
                                                        "tiny-qwen35moe,tiny-gemma4,"
                                                        "tiny-muse-glimmer");
    struct cuda_options options = {.gpu_count = (uint32_t)number_of("LOPSIDE_CUDA_GPUS", 0)};
    char model[64], weights[16];

    if (!cuda_reduction_find(word_of("LOPSIDE_CUDA_REDUCE", "auto"), &options.reduction))
        return error_set(err, ERROR_USAGE, "LOPSIDE_CUDA_REDUCE: auto, nccl, nccl-float or copies");
    for (uint32_t g = 0; g < options.gpu_count && g < MACHINE_DEVICES_MAX; g++)
        options.gpus[g] = (int)g;
    while (next_word(&models, model, sizeof model)) {
        const char *types = word_of("LOPSIDE_CUDA_TYPES", "Q8_0,Q4_K");

        while (next_word(&types, weights, sizeof weights))
            if (run_model(model, weights, &options, same, err) != 0)
                return -1;
    }
    return 0;
}

int main(void)
{
    struct error err = {.code = ERROR_NONE};
    uint32_t gpus = cuda_gpu_count(&err);
    char name[128];
    bool same = true;

    if (gpus == 0) {
        printf("SKIP: %s\n", err.text);
        return SKIPPED;
    }
    cuda_gpu_name(0, name, sizeof name);
    printf("%u GPU%s, the first %s\n", gpus, gpus == 1 ? "" : "s", name);
    printf(
        "| model             | type | KV   | slots | shift | plans | equal | different | failed | "
        "refused | time s |\n"
        "| ----------------- | ---- | ---- | ----: | ----: | ----: | ----: | --------: | -----: | "
        "------: | -----: |\n");
    if (run_all(&same, &err) != 0) {
        fprintf(stderr, "test_cuda: %s\n", err.text);
        return 1;
    }
    return same ? 0 : 1;
}
