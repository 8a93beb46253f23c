/* lopside model: lists the catalogue, shows what a model is made of. */
#include "cli/cli.h"

#include <getopt.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "sim/model.h"
#include "sim/word_list.h"

static const char help_text[] =
    "Usage: lopside model [list [NAME]]\n"
    "       lopside model [show] NAME:QUANT|FILE.gguf [-o text|json]\n"
    "       lopside model tensors NAME:QUANT|FILE.gguf\n"
    "\n"
    "Lists the catalogue or the mixes of one of its models, shows what a model is made\n"
    "of, or lists its tensors. NAME:QUANT is a model of the catalogue and one of its\n"
    "mixes; of a GGUF file only the header is read.\n"
    "\n"
    "  -o, --output FORMAT   of show: text, or json\n"
    "  -h, --help            this text\n";

struct model_options {
    const char *action;  /* "list", "show", "tensors" */
    const char *operand; /* NULL for none */
    bool json, output_given, help;
};

static double size_mib(uint64_t bytes)
{
    return (double)bytes / 1048576;
}

/* --- lists --- */

static void format_params(uint64_t params, char *text, size_t size)
{
    if (params >= 1000000000)
        snprintf(text, size, "%.2f B", (double)params / 1e9);
    else
        snprintf(text, size, "%.2f M", (double)params / 1e6);
}

static int list_models(void)
{
    const struct model_card *card;

    printf("| %-24s | %-14s | %6s | %9s | %5s |\n", "name", "arch", "layers", "params", "mixes");
    puts("| ------------------------ | -------------- | -----: | --------: | ----: |");
    for (size_t i = 0; (card = model_catalogue_card(i)) != NULL; i++) {
        char params[32];

        format_params(card->params, params, sizeof params);
        printf("| %-24s | %-14s | %6" PRIu32 " | %9s | %5zu |\n", card->name, card->arch,
               card->n_layer, params, card->quant_count);
    }
    return CLI_OK;
}

static int refuse_name(const char *name, struct error *err)
{
    size_t count = model_catalogue_count();
    const char **names = calloc(count + 1, sizeof *names);
    const char *closest;

    if (names == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for %zu names", count);
    for (size_t i = 0; i < count; i++)
        names[i] = model_catalogue_card(i)->name;
    closest = word_list_closest(name, names, count);
    error_set(err, ERROR_USAGE, "no model \"%.80s\"%s%s%s 'lopside model list' has the names", name,
              closest ? "; did you mean " : ";", closest ? closest : "", closest ? "?" : "");
    free(names);
    return -1;
}

static int find_card(const char *name, size_t *index, struct error *err)
{
    const struct model_card *card;

    for (*index = 0; (card = model_catalogue_card(*index)) != NULL; (*index)++)
        if (strcasecmp(card->name, name) == 0)
            return 0;
    return refuse_name(name, err);
}

static void print_mix(const struct model *model)
{
    printf("| %-16s | %9.2f | %6.2f | %s |\n", model->quant, size_mib(model->tensor_bytes) / 1024,
           8 * (double)model->tensor_bytes / (double)model->params,
           model->mix_note[0] != '\0' ? model->mix_note : "exact");
}

static int list_mixes(const char *name)
{
    struct error err = {0};
    size_t index;

    if (find_card(name, &index, &err) != 0)
        return cli_fail(&err);
    printf("| %-16s | %9s | %6s | types of the tensors |\n", "mix", "GiB", "bits");
    puts("| ---------------- | --------: | -----: | -------------------- |");
    for (size_t i = 0; i < model_catalogue_card(index)->quant_count; i++) {
        const struct model_card *card = model_catalogue_card(index);
        struct model *model;
        char spec[200];

        snprintf(spec, sizeof spec, "%s:%s", card->name, card->quants[i]);
        model = model_from_catalogue(spec, &err);
        if (model == NULL)
            return cli_fail(&err);
        print_mix(model);
        model_free(model);
    }
    return CLI_OK;
}

/* --- layers that are alike --- */

struct layer_group {
    uint32_t first, count; /* the first of them, and how many */
    char text[320];        /* "attention: 24 heads, 4 KV heads of 256; feed-forward 17408" */
};

static const char *mixer_name(const struct model_layer *layer)
{
    static const char *const names[] = {
        [MODEL_MIXER_ATTENTION] = "attention",
        [MODEL_MIXER_SLIDING_WINDOW] = "sliding-window attention",
        [MODEL_MIXER_MLA] = "latent attention",
        [MODEL_MIXER_GATED_DELTA_NET] = "gated delta net",
    };

    return names[layer->mixer];
}

static void describe_mixer(const struct model_layer *layer, FILE *out)
{
    fprintf(out, "%s: ", mixer_name(layer));
    if (layer->mixer == MODEL_MIXER_GATED_DELTA_NET) {
        fprintf(out,
                "%" PRIu32 " key heads, %" PRIu32 " value heads of %" PRIu32
                ", convolution over %" PRIu32,
                layer->gdn_k_heads, layer->gdn_v_heads, layer->gdn_state_dim,
                layer->gdn_conv_kernel);
        return;
    }
    if (layer->window > 0)
        fprintf(out, "last %" PRIu32 " tokens, ", layer->window);
    fprintf(out, "%" PRIu32 " heads, %" PRIu32 " KV head%s of %" PRIu32, layer->n_head,
            layer->n_head_kv, layer->n_head_kv == 1 ? "" : "s", layer->head_dim_k);
    if (layer->v_in_k)
        fprintf(out, ", its first %" PRIu32 " are V", layer->head_dim_v);
    else if (layer->head_dim_v != layer->head_dim_k)
        fprintf(out, " (V %" PRIu32 ")", layer->head_dim_v);
    if (layer->q_gated)
        fputs(", gated", out);
    if (layer->v_from_k)
        fputs(", V from K", out);
}

static void describe_feed_forward(const struct model_layer *layer, FILE *out)
{
    if (layer->n_ff > 0)
        fprintf(out, "; feed-forward %" PRIu32, layer->n_ff);
    if (layer->n_expert > 0)
        fprintf(out, "; %" PRIu32 " of %" PRIu32 " experts of %" PRIu32, layer->n_expert_used,
                layer->n_expert, layer->n_ff_exp);
    if (layer->n_ff_shexp > 0)
        fprintf(out, ", shared %" PRIu32, layer->n_ff_shexp);
}

static void describe_layer(const struct model_layer *layer, char *text, size_t size)
{
    FILE *out = fmemopen(text, size, "w");

    text[0] = '\0';
    if (out == NULL)
        return;
    describe_mixer(layer, out);
    describe_feed_forward(layer, out);
    if (layer->is_nextn)
        fputs("; predicts the token after next", out);
    fclose(out);
}

/* Layers described by the same words are one group, in order of their first. Sets
 * `group_of` of each layer; both arrays have room for all layers. */
static size_t group_layers(const struct model *model, struct layer_group *groups, size_t *group_of)
{
    size_t count = 0;

    for (uint32_t i = 0; i < model->n_layer + model->n_layer_nextn; i++) {
        struct layer_group *next = &groups[count];
        size_t g = 0;

        *next = (struct layer_group){.first = i};
        describe_layer(&model->layers[i], next->text, sizeof next->text);
        while (strcmp(groups[g].text, next->text) != 0)
            g++;
        groups[g].count++;
        group_of[i] = g;
        count += g == count;
    }
    return count;
}

/* --- sums --- */

/* Cache bytes of one token, over the layers of the trunk. */
struct cache_row {
    enum tensor_type type;
    bool possible; /* every row is a whole number of blocks */
    uint64_t growing_bytes, windowed_bytes;
};

static struct cache_row sum_cache_rows(const struct model *model, enum tensor_type type)
{
    struct cache_row row = {.type = type, .possible = true};
    uint32_t block = tensor_type_info(type)->block_elements;

    for (uint32_t i = 0; i < model->n_layer; i++) {
        const struct model_layer *layer = &model->layers[i];
        uint64_t k = model_layer_k_row(layer), v = model_layer_v_row(layer);

        if (!model_layer_has_kv(layer))
            continue;
        if (k % block != 0 || v % block != 0) {
            row.possible = false;
            return row;
        }
        *(layer->window > 0 ? &row.windowed_bytes : &row.growing_bytes) +=
            tensor_type_row_bytes(type, k) + tensor_type_row_bytes(type, v);
    }
    return row;
}

static const enum tensor_type cache_types[] = {TENSOR_TYPE_F16, TENSOR_TYPE_Q8_0, TENSOR_TYPE_Q4_0};
static const char *const cache_names[] = {"f16", "q8_0", "q4_0"};
enum { CACHE_TYPE_COUNT = sizeof cache_types / sizeof *cache_types };

static uint32_t longest_window(const struct model *model)
{
    uint32_t longest = 0;

    for (uint32_t i = 0; i < model->n_layer; i++)
        longest = model->layers[i].window > longest ? model->layers[i].window : longest;
    return longest;
}

/* Bytes of one sequence; the states are f32. */
static void sum_states(const struct model *model, uint64_t *conv_bytes, uint64_t *state_bytes)
{
    *conv_bytes = *state_bytes = 0;
    for (uint32_t i = 0; i < model->n_layer; i++) {
        *conv_bytes += 4 * model_layer_conv_state(&model->layers[i]);
        *state_bytes += 4 * model_layer_recurrent_state(&model->layers[i]);
    }
}

struct type_sum {
    uint32_t type;
    size_t count;
    uint64_t bytes;
};

static int by_bytes(const void *a, const void *b)
{
    const struct type_sum *x = a, *y = b;

    return x->bytes != y->bytes ? (x->bytes < y->bytes) - (x->bytes > y->bytes)
                                : (x->type > y->type) - (x->type < y->type);
}

/* Types that the model has, the largest sum first. */
static size_t sum_types(const struct model *model, struct type_sum sums[TENSOR_TYPE_LIMIT])
{
    size_t count = 0;

    for (uint32_t type = 0; type < TENSOR_TYPE_LIMIT; type++)
        sums[type] = (struct type_sum){.type = type};
    for (size_t i = 0; i < model->tensor_count; i++) {
        sums[model->tensors[i].type].count++;
        sums[model->tensors[i].type].bytes += model->tensors[i].bytes;
    }
    qsort(sums, TENSOR_TYPE_LIMIT, sizeof *sums, by_bytes);
    while (count < TENSOR_TYPE_LIMIT && sums[count].count > 0)
        count++;
    return count;
}

/* --- show, as text --- */

static void print_hyperparameters(const struct model *model)
{
    char params[32];

    format_params(model->params, params, sizeof params);
    printf("%s", model->name[0] != '\0' ? model->name : model->source);
    if (model->quant[0] != '\0')
        printf(" %s", model->quant);
    printf("  (%s%s%s)\n", model->arch, model->size_label[0] != '\0' ? ", " : "",
           model->size_label);
    printf("  source            %s\n", model->source);
    if (model->mix_note[0] != '\0')
        printf("  tensor types      %s\n", model->mix_note);
    printf("  parameters        %s\n", params);
    printf("  layers            %" PRIu32, model->n_layer);
    if (model->n_layer_nextn > 0)
        printf(", and %" PRIu32 " behind them for drafting", model->n_layer_nextn);
    printf("\n  embedding         %" PRIu32 "\n", model->n_embd);
    printf("  vocabulary        %" PRIu32 "%s\n", model->n_vocab,
           model->tied_embeddings ? ", the head reuses the embeddings" : "");
    printf("  trained context   %" PRIu32 "\n", model->n_ctx_train);
}

static void print_layers(const struct layer_group *groups, size_t group_count)
{
    puts("\nLayers");
    for (size_t g = 0; g < group_count; g++)
        printf("  %3" PRIu32 " x %s\n", groups[g].count, groups[g].text);
}

static void print_cache(const struct model *model)
{
    uint64_t conv_bytes, state_bytes;
    bool windowed = longest_window(model) > 0;
    char heading[40];

    snprintf(heading, sizeof heading, "last %" PRIu32 " tokens", longest_window(model));
    printf("\nKV cache, bytes a token\n| type | %16s |", "all tokens");
    if (windowed)
        printf(" %16s |", heading);
    printf("\n| ---- | ---------------: |%s\n", windowed ? " ---------------: |" : "");
    for (size_t i = 0; i < CACHE_TYPE_COUNT; i++) {
        struct cache_row row = sum_cache_rows(model, cache_types[i]);

        if (row.possible)
            printf("| %-4s | %16" PRIu64 " |", cache_names[i], row.growing_bytes);
        else
            printf("| %-4s | no whole blocks  |", cache_names[i]);
        if (windowed && row.possible)
            printf(" %16" PRIu64 " |", row.windowed_bytes);
        puts("");
    }
    sum_states(model, &conv_bytes, &state_bytes);
    if (conv_bytes + state_bytes > 0)
        printf("\nRecurrent state, whatever the context: %.2f MiB (convolution %.2f, state %.2f)\n",
               size_mib(conv_bytes + state_bytes), size_mib(conv_bytes), size_mib(state_bytes));
}

static void print_type_row(const char *name, size_t count, uint64_t bytes)
{
    printf("| %-7s | %7zu | %15" PRIu64 " | %10.2f |\n", name, count, bytes, size_mib(bytes));
}

static void print_types(const struct model *model)
{
    struct type_sum sums[TENSOR_TYPE_LIMIT];
    size_t count = sum_types(model, sums);

    puts("\nTensors");
    printf("| %-7s | %7s | %15s | %10s |\n", "type", "tensors", "bytes", "MiB");
    puts("| ------- | ------: | --------------: | ---------: |");
    for (size_t i = 0; i < count; i++)
        print_type_row(tensor_type_info(sums[i].type)->name, sums[i].count, sums[i].bytes);
    print_type_row("total", model->tensor_count, model->tensor_bytes);
}

/* --- show, as JSON --- */

static json_t *group_json(const struct model *model, const struct layer_group *groups, size_t group,
                          const size_t *group_of)
{
    const struct model_layer *l = &model->layers[groups[group].first];
    json_t *blocks = json_array();

    for (uint32_t i = 0; i < model->n_layer + model->n_layer_nextn; i++)
        if (group_of[i] == group)
            json_array_append_new(blocks, json_integer(i));
    return json_pack(
        "{s:s, s:s, s:i, s:o, s:b, s:i, s:i, s:i, s:i, s:i, s:b, s:b, s:b, s:i, s:i, s:i, s:i, "
        "s:i, s:i, s:i, s:i, s:i}",
        "mixer", mixer_name(l), "text", groups[group].text, "count", (int)groups[group].count,
        "blocks", blocks, "nextn", (int)l->is_nextn, "n_head", (int)l->n_head, "n_head_kv",
        (int)l->n_head_kv, "head_dim_k", (int)l->head_dim_k, "head_dim_v", (int)l->head_dim_v,
        "window", (int)l->window, "q_gated", (int)l->q_gated, "v_from_k", (int)l->v_from_k,
        "v_in_k", (int)l->v_in_k, "gdn_k_heads", (int)l->gdn_k_heads, "gdn_v_heads",
        (int)l->gdn_v_heads, "gdn_state_dim", (int)l->gdn_state_dim, "gdn_conv_kernel",
        (int)l->gdn_conv_kernel, "n_ff", (int)l->n_ff, "n_expert", (int)l->n_expert,
        "n_expert_used", (int)l->n_expert_used, "n_ff_exp", (int)l->n_ff_exp, "n_ff_shexp",
        (int)l->n_ff_shexp);
}

static json_t *cache_json(const struct model *model)
{
    json_t *object = json_object();

    for (size_t i = 0; i < CACHE_TYPE_COUNT; i++) {
        struct cache_row row = sum_cache_rows(model, cache_types[i]);

        json_object_set_new(object, cache_names[i],
                            row.possible
                                ? json_pack("{s:I, s:I}", "growing", (json_int_t)row.growing_bytes,
                                            "windowed", (json_int_t)row.windowed_bytes)
                                : json_null());
    }
    return object;
}

static json_t *types_json(const struct model *model)
{
    struct type_sum sums[TENSOR_TYPE_LIMIT];
    size_t count = sum_types(model, sums);
    json_t *array = json_array();

    for (size_t i = 0; i < count; i++)
        json_array_append_new(array, json_pack("{s:s, s:I, s:I}", "type",
                                               tensor_type_info(sums[i].type)->name, "tensors",
                                               (json_int_t)sums[i].count, "bytes",
                                               (json_int_t)sums[i].bytes));
    return array;
}

static json_t *model_json(const struct model *model, const struct layer_group *groups,
                          size_t group_count, const size_t *group_of)
{
    uint64_t conv_bytes, state_bytes;
    json_t *layers = json_array();

    for (size_t g = 0; g < group_count; g++)
        json_array_append_new(layers, group_json(model, groups, g, group_of));
    sum_states(model, &conv_bytes, &state_bytes);
    return json_pack(
        "{s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:b, s:I, s:o, s:o, s:{s:I, s:I}, "
        "s:o, s:I, s:I}",
        "name", model->name, "quant", model->quant, "arch", model->arch, "size_label",
        model->size_label, "source", model->source, "mix_note", model->mix_note, "n_layer",
        (json_int_t)model->n_layer, "n_layer_nextn", (json_int_t)model->n_layer_nextn, "n_embd",
        (json_int_t)model->n_embd, "n_vocab", (json_int_t)model->n_vocab, "n_ctx_train",
        (json_int_t)model->n_ctx_train, "tied_embeddings", (int)model->tied_embeddings, "params",
        (json_int_t)model->params, "layers", layers, "kv_token_bytes", cache_json(model),
        "recurrent_bytes", "convolution", (json_int_t)conv_bytes, "state", (json_int_t)state_bytes,
        "types", types_json(model), "tensors", (json_int_t)model->tensor_count, "tensor_bytes",
        (json_int_t)model->tensor_bytes);
}

static int print_json(const struct model *model, const struct layer_group *groups,
                      size_t group_count, const size_t *group_of, struct error *err)
{
    json_t *root = model_json(model, groups, group_count, group_of);
    char *text = root != NULL ? json_dumps(root, JSON_INDENT(1)) : NULL;

    json_decref(root);
    if (text == NULL)
        return error_set(err, ERROR_INPUT, "%s cannot be written as JSON; is a name not UTF-8?",
                         model->source);
    puts(text);
    free(text);
    return 0;
}

/* --- show and tensors --- */

static int show(const struct model *model, bool json, struct error *err)
{
    size_t layer_count = (size_t)model->n_layer + model->n_layer_nextn, group_count;
    struct layer_group *groups = calloc(layer_count + 1, sizeof *groups);
    size_t *group_of = calloc(layer_count + 1, sizeof *group_of);
    int status = 0;

    if (groups == NULL || group_of == NULL) {
        status = error_set(err, ERROR_MEMORY, "no memory for %zu layers", layer_count);
        goto free_groups;
    }
    group_count = group_layers(model, groups, group_of);
    if (json) {
        status = print_json(model, groups, group_count, group_of, err);
        goto free_groups;
    }
    print_hyperparameters(model);
    print_layers(groups, group_count);
    print_cache(model);
    print_types(model);

free_groups:
    free(groups);
    free(group_of);
    return status;
}

static void print_tensors(const struct model *model)
{
    for (size_t i = 0; i < model->tensor_count; i++) {
        const struct model_tensor *tensor = &model->tensors[i];
        int dimensions = 4, length = 0;
        char shape[100];

        while (dimensions > 1 && tensor->ne[dimensions - 1] == 1)
            dimensions--;
        for (int k = 0; k < dimensions; k++)
            length += snprintf(shape + length, sizeof shape - (size_t)length, "%s%" PRIu64,
                               k > 0 ? " x " : "", tensor->ne[k]);
        printf("%-36s %-7s %-20s %13" PRIu64 "\n", tensor->name,
               tensor_type_info(tensor->type)->name, shape, tensor->bytes);
    }
}

static int run_model(const struct model_options *options)
{
    struct error err = {0};
    struct model *model = model_open(options->operand, &err);
    int status = 0;

    if (model == NULL)
        return cli_fail(&err);
    if (strcmp(options->action, "show") == 0)
        status = show(model, options->json, &err);
    else
        print_tensors(model);
    model_free(model);
    return status == 0 ? CLI_OK : cli_fail(&err);
}

/* --- the call --- */

/* The first word is an action, or else a model to show. */
static void take_words(int argc, char **argv, struct model_options *options)
{
    static const char *const actions[] = {"list", "show", "tensors"};

    if (optind == argc)
        return;
    options->action = "show";
    for (size_t i = 0; i < sizeof actions / sizeof *actions; i++) {
        if (strcmp(argv[optind], actions[i]) == 0) {
            options->action = argv[optind++];
            break;
        }
    }
    options->operand = optind < argc ? argv[optind++] : NULL;
}

static int parse_options(int argc, char **argv, struct model_options *options)
{
    static const struct option long_options[] = {{"output", required_argument, NULL, 'o'},
                                                 {"help", no_argument, NULL, 'h'},
                                                 {NULL, 0, NULL, 0}};
    int option;

    optind = 1;
    opterr = 0;
    while ((option = getopt_long(argc, argv, ":o:h", long_options, NULL)) != -1) {
        switch (option) {
        case 'o':
            if (strcmp(optarg, "json") != 0 && strcmp(optarg, "text") != 0)
                return cli_wrong_call("model", "cannot print \"%s\"; text or json", optarg);
            options->json = strcmp(optarg, "json") == 0;
            options->output_given = true;
            break;
        case 'h':
            options->help = true;
            break;
        case ':':
            return cli_wrong_call("model", "%s needs a value", argv[optind - 1]);
        default:
            return cli_wrong_call("model", "unknown option %s", argv[optind - 1]);
        }
    }
    take_words(argc, argv, options);
    if (optind < argc && !options->help)
        return cli_wrong_call("model", "\"%s\" is one word too many", argv[optind]);
    return CLI_OK;
}

int cli_model(int argc, char **argv)
{
    struct model_options options = {.action = "list"};
    int status = parse_options(argc, argv, &options);

    if (status != CLI_OK)
        return status;
    if (options.help) {
        fputs(help_text, stdout);
        return CLI_OK;
    }
    if (options.output_given && strcmp(options.action, "show") != 0)
        return cli_wrong_call("model", "-o belongs to show");
    if (strcmp(options.action, "list") == 0)
        return options.operand != NULL ? list_mixes(options.operand) : list_models();
    if (options.operand == NULL)
        return cli_wrong_call("model", "%s needs NAME:QUANT or FILE.gguf", options.action);
    return run_model(&options);
}
