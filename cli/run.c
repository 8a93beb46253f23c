/* lopside run: a plan executed on the CPU. */
#include "cli/cli.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/rule_warnings.h"
#include "cli/run_options.h"
#include "ref/nextn.h"
#include "ref/record.h"
#include "ref/shape.h"
#include "ref/source.h"

/* What one call works on; members are owned. */
struct execution {
    struct source source;
    struct machine *machine;
    uint32_t *resident;
    struct placement *placement;
    const struct ref_kernels *kernels; /* borrowed */
    struct session *session;
    struct nextn nextn; /* the model's own block as a drafter */
    struct run_prompts prompts;
    struct generate_slot *slots;
    uint32_t slot_count;
    struct generate_options generate;
    struct generation generation;
    struct backend backend;
    double wall_s;
    struct record *record, *expected;
    struct record_comparison comparison;
};

static void close_execution(struct execution *x)
{
    record_free(x->record);
    record_free(x->expected);
    if (x->slots != NULL)
        generate_free_slots(x->slots, x->slot_count);
    free(x->slots);
    run_prompts_close(&x->prompts);
    session_free(x->session);
    nextn_close(&x->nextn);
    placement_free(x->placement);
    free(x->backend.context);
    free(x->resident);
    machine_free(x->machine);
    source_close(&x->source);
}

/* ---- opening ---- */

static int find_kernels(struct execution *x, const char *isa, struct error *err)
{
    static const char *const known[] = {"base", "avx2", "avx512"};

    x->kernels = ref_kernels_find(isa);
    if (x->kernels != NULL)
        return 0;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i], isa) == 0)
            return error_set(err, ERROR_UNSUPPORTED,
                             "--isa %s: this CPU or this build does not have it; base works "
                             "everywhere",
                             isa);
    return error_set(err, ERROR_USAGE, "--isa %s: base, avx2 and avx512 are accepted", isa);
}

static int read_drafter(struct execution *x, const struct plan_options *plans, struct error *err)
{
    struct plan_draft asked;

    if (plan_options_draft(plans, 0, &asked, err) != 0)
        return -1;
    x->generate.draft_max = asked.n_max;
    if (asked.n_max == 0)
        x->generate.drafter = GENERATE_NO_DRAFTER;
    else if (asked.name == NULL || strcmp(asked.name, "nextn") == 0)
        x->generate.drafter = GENERATE_NEXTN;
    else if (strcmp(asked.name, "ngram") == 0)
        x->generate.drafter = GENERATE_NGRAM;
    else
        return error_set(err, ERROR_UNSUPPORTED,
                         "-md %.90s: drafts of another model are predicted ('bench'), not "
                         "executed; ngram is, and nextn, the model's own block",
                         asked.name);
    if (x->generate.drafter != GENERATE_NO_DRAFTER && x->generate.shift_at > 0)
        return error_set(err, ERROR_USAGE,
                         "--context-shift comes after a number of tokens, which drafts jump over; "
                         "leave -md and --draft-max away");
    return 0;
}

/* Text needs a vocabulary that can be read; ids need none. */
static int read_prompts(struct execution *x, const struct run_options *options, struct error *err)
{
    const struct model *model = x->source.model;
    uint32_t *tokens;
    int64_t count;
    int status;

    if (options->token_ids != NULL)
        return run_prompts_read(&x->prompts, options->token_ids, x->slot_count, model->n_vocab,
                                err);
    if (x->source.vocab == NULL)
        return error_set(err, ERROR_USAGE,
                         "-p: %.90s has no vocabulary, so a text cannot be read; give token ids "
                         "with --tokens",
                         model->name);
    count = vocab_encode(x->source.vocab, options->prompt, true, &tokens, err);
    if (count < 0)
        return -1;
    status = count > 0
                 ? run_prompts_repeat(&x->prompts, tokens, (uint32_t)count, x->slot_count, err)
                 : error_set(err, ERROR_USAGE, "-p: a text without tokens is no prompt");
    free(tokens);
    return status;
}

/* Cells that the run needs: of all slots where they share them, else each has as many as the
 * longest. */
static uint32_t context_needed(const struct execution *x, bool unified)
{
    uint32_t each = x->generate.tokens + x->generate.draft_max + 1, sum = 0, longest = 0;

    for (uint32_t slot = 0; slot < x->slot_count; slot++) {
        uint32_t tokens = x->prompts.first[slot + 1] - x->prompts.first[slot] + each;

        sum += tokens;
        longest = tokens > longest ? tokens : longest;
    }
    return unified ? sum : x->slot_count * longest;
}

static int open_plan(struct execution *x, struct run_options *options, struct error *err)
{
    const struct model *model = x->source.model;
    uint32_t layers = model->n_layer + model->n_layer_nextn, rules;
    struct plan plan;

    x->machine = plan_options_machine(&options->plans, err);
    x->resident = calloc((size_t)layers + 1, sizeof *x->resident);
    if (x->resident == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for %" PRIu32 " layers", layers);
    if (x->machine == NULL || plan_options_select(&options->plans, 0, x->machine, err) != 0 ||
        plan_options_plan(&options->plans, 0, model, x->machine, x->resident, layers, &plan, err) !=
            0)
        return -1;
    x->slot_count = plan.n_slots;
    if (read_prompts(x, options, err) != 0)
        return -1;
    x->placement = placement_new(model, x->machine, &plan, context_needed(x, plan.kv_unified), err);
    rules = feasibility_check(model, x->machine, &plan);
    if (x->placement == NULL)
        cli_warn_rules_of_refused(rules);
    else
        cli_warn_rules(rules);
    return x->placement != NULL ? 0 : -1;
}

static int open_drafter(struct execution *x, struct error *err)
{
    struct session_options options = {.undo_max = x->generate.draft_max, .open = x->backend.open};

    if (x->generate.drafter != GENERATE_NEXTN)
        return 0;
    if (nextn_open(&x->nextn, &x->source, x->placement, x->kernels, options, err) != 0)
        return -1;
    x->generate.nextn = x->nextn.session;
    return 0;
}

static int open_sessions(struct execution *x, const struct run_options *options, struct error *err)
{
    struct session_options how = {.undo_max = x->generate.draft_max,
                                  .hidden = x->generate.drafter == GENERATE_NEXTN,
                                  .picks = x->placement->plan.backend_sampling,
                                  .shuffled = options->shuffled,
                                  .order_seed = options->order_seed,
                                  .open = x->backend.open,
                                  .open_context = x->backend.context};

    x->generate.picked = how.picks;
    if (how.picks && x->generate.sampling.temperature > 0)
        return error_set(err, ERROR_USAGE,
                         "-bs 1: devices pick the likeliest token, as --temp 0 asks for");
    if (open_drafter(x, err) != 0)
        return -1;
    x->session =
        session_new(x->placement, x->source.weights, &x->source.numbers, x->kernels, how, err);
    x->slots = calloc((size_t)x->slot_count + 1, sizeof *x->slots);
    if (x->session == NULL)
        return -1;
    if (x->slots == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for %" PRIu32 " slots", x->slot_count);
    for (uint32_t slot = 0; slot < x->slot_count; slot++) {
        x->slots[slot].prompt = x->prompts.tokens + x->prompts.first[slot];
        x->slots[slot].prompt_count = x->prompts.first[slot + 1] - x->prompts.first[slot];
    }
    return 0;
}

/* Small models and those of the catalogue have no file. */
static bool is_synthetic(const struct model *model)
{
    for (size_t i = 0; i < shape_count(); i++)
        if (strcmp(model->source, shape_name(i)) == 0)
            return true;
    return strcmp(model->source, "catalogue") == 0;
}

static int open_record(struct execution *x, const struct run_options *options, struct error *err)
{
    const struct model *model = x->source.model;
    struct record_run run = {.model = model,
                             .synthetic = is_synthetic(model),
                             .seed = options->weights_seed,
                             .type_k = x->placement->plan.type_k,
                             .type_v = x->placement->plan.type_v,
                             .options = x->generate};

    if (options->record == NULL && options->check_against == NULL)
        return 0;
    x->record = record_new(&run, x->slot_count, err);
    if (x->record == NULL)
        return -1;
    record_watch(x->record, x->session);
    return 0;
}

static int open_execution(struct execution *x, struct run_options *options, struct error *err)
{
    const char *model = plan_options_value(&options->plans, 0, PLAN_OPTION_MODEL);

    x->generate = options->generate;
    if (run_options_default_machine(options, err) != 0 ||
        plan_options_words(&options->plans, &options->backend.words, err) != 0 ||
        backend_open(&options->backend, &x->backend, err) != 0 ||
        find_kernels(x, options->isa, err) != 0 || read_drafter(x, &options->plans, err) != 0)
        return -1;
    if (options->check_against != NULL) {
        x->expected = record_load(options->check_against, err);
        if (x->expected == NULL)
            return -1;
    }
    if (source_open(&x->source, model, options->weights_seed, err) != 0)
        return -1;
    if (open_plan(x, options, err) != 0 || open_sessions(x, options, err) != 0)
        return -1;
    return open_record(x, options, err);
}

/* ---- output ---- */

/* The text of a slot's tokens for free(); NULL without memory. */
static char *text_of(const struct vocab *vocab, const uint32_t *tokens, uint32_t count)
{
    size_t size = 0, used = 0;
    char *text;

    for (uint32_t i = 0; i < count; i++)
        size += vocab_piece(vocab, tokens[i], NULL, 0);
    text = calloc(size + 1, 1);
    for (uint32_t i = 0; i < count && text != NULL; i++)
        used += vocab_piece(vocab, tokens[i], text + used, size + 1 - used);
    return text;
}

static void print_slot(const struct execution *x, const struct generate_slot *slot)
{
    if (x->source.vocab != NULL) {
        char *text = text_of(x->source.vocab, slot->tokens, x->generate.tokens);

        puts(text != NULL ? text : "");
        free(text);
        return;
    }
    for (uint32_t i = 0; i < x->generate.tokens; i++)
        printf("%s%" PRIu32, i > 0 ? " " : "", slot->tokens[i]);
    putchar('\n');
}

static double tokens_per_s(const struct execution *x)
{
    return (double)x->generate.tokens * x->slot_count / (x->wall_s > 0 ? x->wall_s : 1e-9);
}

static void print_text(const struct execution *x)
{
    for (uint32_t slot = 0; slot < x->slot_count; slot++) {
        if (x->slot_count > 1)
            printf("slot %" PRIu32 ": ", slot);
        print_slot(x, &x->slots[slot]);
    }
    printf("checksum %016" PRIx64 ", %.1f tokens/s, %" PRIu32 " rounds", x->generation.checksum,
           tokens_per_s(x), x->generation.rounds);
    if (x->generate.drafter != GENERATE_NO_DRAFTER)
        printf(", %" PRIu32 " of %" PRIu32 " drafted tokens accepted", x->generation.accepted,
               x->generation.drafted);
    putchar('\n');
}

static json_t *ids(const uint32_t *tokens, uint32_t count)
{
    json_t *array = json_array();

    for (uint32_t i = 0; i < count; i++)
        json_array_append_new(array, json_integer(tokens[i]));
    return array;
}

static json_t *hex(uint64_t checksum)
{
    return json_sprintf("%016" PRIx64, checksum);
}

static json_t *slot_to_json(const struct execution *x, const struct generate_slot *slot)
{
    uint32_t count = x->generate.tokens;
    json_t *object = json_object(), *checksums = json_array();

    for (uint32_t i = 0; i < count; i++)
        json_array_append_new(checksums, hex(slot->checksums[i]));
    json_object_set_new(object, "prompt", ids(slot->prompt, slot->prompt_count));
    json_object_set_new(object, "tokens", ids(slot->tokens, count));
    if (x->source.vocab != NULL) {
        char *text = text_of(x->source.vocab, slot->tokens, count);
        json_t *string = text != NULL ? json_string(text) : NULL;

        if (string != NULL) /* bytes that are no UTF-8 have no string */
            json_object_set_new(object, "text", string);
        free(text);
    }
    json_object_set_new(object, "checksums", checksums);
    return object;
}

static void print_json(const struct execution *x, const struct run_options *options)
{
    json_t *root = json_object(), *slots = json_array();

    for (uint32_t slot = 0; slot < x->slot_count; slot++)
        json_array_append_new(slots, slot_to_json(x, &x->slots[slot]));
    json_object_set_new(root, "model", json_string(x->source.model->name));
    json_object_set_new(root, "quant", json_string(x->source.model->quant));
    json_object_set_new(root, "isa", json_string(x->kernels->isa));
    json_object_set_new(root, "slots", slots);
    json_object_set_new(root, "checksum", hex(x->generation.checksum));
    json_object_set_new(root, "wall_s", json_real(x->wall_s));
    json_object_set_new(root, "tokens_per_s", json_real(tokens_per_s(x)));
    json_object_set_new(root, "rounds", json_integer(x->generation.rounds));
    json_object_set_new(root, "drafted", json_integer(x->generation.drafted));
    json_object_set_new(root, "accepted", json_integer(x->generation.accepted));
    if (options->check_against != NULL) {
        char text[400];

        record_comparison_text(&x->comparison, text, sizeof text);
        json_object_set_new(root, "equal", json_boolean(x->comparison.difference == RECORD_EQUAL));
        json_object_set_new(root, "comparison", json_string(text));
    }
    json_dumpf(root, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
    putchar('\n');
    json_decref(root);
}

static void print_comparison(const struct execution *x, const char *path)
{
    char text[400];

    record_comparison_text(&x->comparison, text, sizeof text);
    printf("%s: %s\n", path, text);
}

/* ---- running ---- */

static double now_s(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static int keep_record(struct execution *x, const struct run_options *options, struct error *err)
{
    if (x->record == NULL)
        return 0;
    if (record_finish(x->record, x->slots, x->generate.tokens, &x->generation, err) != 0)
        return -1;
    if (options->record != NULL && record_save(x->record, options->record, err) != 0)
        return -1;
    if (x->expected == NULL)
        return 0;
    return record_compare(x->expected, x->record, &x->comparison, err);
}

static int execute(struct execution *x, const struct run_options *options, struct error *err)
{
    double began_s = now_s();

    if (generate(x->session, x->slots, x->slot_count, x->generate, &x->generation, err) != 0)
        return -1;
    x->wall_s = now_s() - began_s;
    if (keep_record(x, options, err) != 0)
        return -1;
    if (options->json)
        print_json(x, options);
    else
        print_text(x);
    if (options->check_against != NULL && !options->json)
        print_comparison(x, options->check_against);
    return 0;
}

static int run(struct run_options *options)
{
    struct execution x = {.slot_count = 0};
    struct error err = {0};
    int status = open_execution(&x, options, &err);

    if (status == 0)
        status = execute(&x, options, &err);
    if (status != 0)
        status = cli_fail(&err);
    else
        status = x.comparison.difference == RECORD_EQUAL ? CLI_OK : CLI_FAILED;
    close_execution(&x);
    return status;
}

int cli_run(int argc, char **argv)
{
    struct run_options options;
    int status = run_options_parse(argc, argv, &options);

    if (status == CLI_OK && !options.help)
        status = run(&options);
    run_options_close(&options);
    return status;
}
