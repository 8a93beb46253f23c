/* Models from the catalogue: finding one by name, and building it. A mix is the plain
 * rule (mix_rule.h), one type for everything, or either with a list of exceptions by
 * tensor and layer. */
#include "sim/model.h"

#include <fnmatch.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "sim/model_catalogue_private.h"
#include "sim/model_private.h"
#include "sim/word_list.h"

size_t model_catalogue_count(void)
{
    const struct catalogue *catalogue = catalogue_load(NULL);

    return catalogue ? catalogue->count : 0;
}

const struct model_card *model_catalogue_card(size_t index)
{
    const struct catalogue *catalogue = catalogue_load(NULL);

    return catalogue && index < catalogue->count ? &catalogue->entries[index].card : NULL;
}

/* Finding a model and a mix. */

/* "; did you mean Q4_K_M?", or ";" when nothing is close. */
static const char *suggestion(const char *typed, const char *const words[], size_t count,
                              char *text, size_t size)
{
    const char *closest = word_list_closest(typed, words, count);

    if (closest)
        snprintf(text, size, "; did you mean %s?", closest);
    else
        snprintf(text, size, ";");
    return text;
}

/* A name as llama-bench prints it, "llama 7B". Several models may print the same. */
static const struct catalogue_entry *find_printed_name(const struct catalogue *catalogue,
                                                       const char *name, struct error *err)
{
    const struct catalogue_entry *found = NULL;

    for (size_t i = 0; i < catalogue->count; i++) {
        const struct catalogue_entry *entry = &catalogue->entries[i];

        if (entry->llama_bench == NULL || strcasecmp(entry->llama_bench, name) != 0)
            continue;
        if (found != NULL) {
            error_set(err, ERROR_USAGE,
                      "\"%.40s\" is what llama-bench prints for %s and for %s; "
                      "name one of them",
                      name, found->card.name, entry->card.name);
            return NULL;
        }
        found = entry;
    }
    return found;
}

static const struct catalogue_entry *find_entry(const struct catalogue *catalogue, const char *name,
                                                struct error *err)
{
    const struct catalogue_entry *found;
    char known[300], closest[96];

    for (size_t i = 0; i < catalogue->count; i++)
        if (strcasecmp(catalogue->names[i], name) == 0)
            return &catalogue->entries[i];
    found = find_printed_name(catalogue, name, err);
    if (found != NULL || (err != NULL && err->code != ERROR_NONE))
        return found;
    word_list_text(catalogue->names, catalogue->count, known, sizeof known);
    error_set(err, ERROR_USAGE, "no model \"%.40s\"%s known are %s", name,
              suggestion(name, catalogue->names, catalogue->count, closest, sizeof closest), known);
    return NULL;
}

/* "UD-IQ2_M, ... and the plain mixes of llama.cpp: F32, ..." */
static const char *known_mixes(const struct catalogue_entry *entry, char *text, size_t size)
{
    char own[180], plain[100];

    word_list_text(entry->quants, entry->own_count, own, sizeof own);
    word_list_text(entry->quants + entry->own_count, entry->card.quant_count - entry->own_count,
                   plain, sizeof plain);
    snprintf(text, size, "%s%sthe plain mixes of llama.cpp: %s", own,
             entry->own_count > 0 ? "; and " : "", plain);
    return text;
}

/* The quant in the catalogue's spelling, an alias of llama-quantize included, or NULL with `err`
 * set. */
static const char *find_quant(const struct catalogue_entry *entry, const char *quant,
                              struct error *err)
{
    const struct model_card *card = &entry->card;
    int mix = quant ? mix_find(quant) : -1;
    char known[320], closest[64];

    for (size_t i = 0; quant && i < card->quant_count; i++)
        if (strcasecmp(card->quants[i], quant) == 0)
            return card->quants[i];
    for (size_t i = 0; mix >= 0 && i < card->quant_count; i++)
        if (strcasecmp(card->quants[i], mix_name((enum mix)mix)) == 0)
            return card->quants[i];
    known_mixes(entry, known, sizeof known);
    if (quant)
        error_set(err, ERROR_USAGE, "%s has no mix \"%.24s\"%s known are %s", card->name, quant,
                  suggestion(quant, card->quants, card->quant_count, closest, sizeof closest),
                  known);
    else
        error_set(err, ERROR_USAGE, "%s needs a mix behind a colon, as in %s:%s; known are %s",
                  card->name, card->name, entry->own_count > 0 ? card->quants[0] : "Q4_K_M", known);
    return NULL;
}

/* Building a model. */

/* How the tensors of a mix get their types. */
struct recipe {
    struct catalogue_visitor visitor;
    struct model *model;
    bool is_pure;
    enum tensor_type pure;
    struct mix_rule rule;     /* unless pure */
    const json_t *exceptions; /* [name or pattern, type, layers]; NULL: none */
    const char *stand_in;     /* the plain mix whose types these are; NULL: not so */
    uint64_t stand_in_file_bytes;
    bool with_nextn;
};

static int read_type(const json_t *name, enum tensor_type *type, struct error *err)
{
    int found = json_is_string(name) ? tensor_type_find(json_string_value(name)) : -1;

    if (found < 0)
        return catalogue_refuse(err, json_is_string(name) ? json_string_value(name) : "a mix",
                                "not a tensor type");
    *type = (enum tensor_type)found;
    return 0;
}

/* The first attention layer stands for all, as in llama.cpp. */
static uint32_t query_heads_per_kv_head(const struct model *model)
{
    for (uint32_t i = 0; i < model->n_layer; i++)
        if (model->layers[i].n_head_kv > 0)
            return model->layers[i].n_head / model->layers[i].n_head_kv;
    return 1;
}

static uint32_t most_experts(const struct model *model)
{
    uint32_t most = 0;

    for (uint32_t i = 0; i < model->n_layer; i++)
        if (model->layers[i].n_expert > most)
            most = model->layers[i].n_expert;
    return most;
}

static int start_rule(struct recipe *recipe, const struct catalogue_entry *entry,
                      const char *mix_name, bool imatrix, struct error *err)
{
    const struct model *model = recipe->model;
    struct catalogue_survey survey;
    int mix = mix_find(mix_name);

    if (mix < 0)
        return catalogue_refuse(err, mix_name, "not a mix of llama.cpp");
    if (catalogue_survey_tensors(entry, recipe->with_nextn, &survey, err) != 0)
        return -1;
    recipe->rule = (struct mix_rule){
        .mix = (enum mix)mix,
        .imatrix = imatrix || mix == MIX_IQ3_XXS, /* which is not made without */
        .has_output = survey.has_output,
        .n_block = model->n_layer + model->n_layer_nextn,
        .n_gqa = query_heads_per_kv_head(model),
        .n_expert = most_experts(model),
        .n_attn_v = survey.n_attn_v,
    };
    recipe->rule.is_llama_70b =
        strcmp(model->arch, "llama") == 0 && model->n_layer == 80 && recipe->rule.n_gqa > 1;
    return 0;
}

static const json_t *find_own_mix(const struct catalogue_entry *entry, const char *quant)
{
    for (size_t i = 0; i < entry->own_count; i++)
        if (strcmp(entry->quants[i], quant) == 0)
            return json_array_get(entry->mixes, i);
    return NULL;
}

/* The last exception that names the tensor decides. */
static int apply_exceptions(const json_t *exceptions, const struct mix_tensor *tensor,
                            enum tensor_type *type, struct error *err)
{
    for (size_t i = 0; i < json_array_size(exceptions); i++) {
        const json_t *exception = json_array_get(exceptions, i);
        const char *pattern = json_string_value(json_array_get(exception, 0));
        const json_t *layers = json_array_get(exception, 2);
        bool is_meant = !layers;

        if (!pattern)
            return catalogue_refuse(err, "a mix", "an exception has no tensor");
        for (size_t j = 0; j < json_array_size(layers); j++)
            is_meant |= json_integer_value(json_array_get(layers, j)) == tensor->layer;
        if (!is_meant || fnmatch(pattern, tensor->name, 0) != 0)
            continue;
        if (read_type(json_array_get(exception, 1), type, err) != 0)
            return -1;
        *type = mix_type_that_fits(*type, tensor->ne[0]);
    }
    return 0;
}

static int add_tensor(struct catalogue_visitor *visitor, const struct mix_tensor *tensor,
                      struct error *err)
{
    struct recipe *recipe = (struct recipe *)visitor;
    enum tensor_type type = TENSOR_TYPE_F32;
    char name[96];

    if (!recipe->is_pure)
        type = mix_rule_next(&recipe->rule, tensor);
    else if (mix_quantises(tensor))
        type = mix_type_that_fits(recipe->pure, tensor->ne[0]);
    if (mix_quantises(tensor) && apply_exceptions(recipe->exceptions, tensor, &type, err) != 0)
        return -1;
    if (tensor->layer < 0)
        snprintf(name, sizeof name, "%s", tensor->name);
    else
        snprintf(name, sizeof name, "blk.%d.%s", tensor->layer, tensor->name);
    return model_add_tensor(recipe->model, name, type, tensor->ne, err);
}

static int read_mixer(const char *name, enum model_mixer *mixer, struct error *err)
{
    static const char *const names[] = {
        [MODEL_MIXER_ATTENTION] = "attention",
        [MODEL_MIXER_SLIDING_WINDOW] = "sliding_window",
        [MODEL_MIXER_MLA] = "mla",
        [MODEL_MIXER_GATED_DELTA_NET] = "gated_delta_net",
    };

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(name, names[i]) == 0) {
            *mixer = (enum model_mixer)i;
            return 0;
        }
    return catalogue_refuse(err, name, "not a mixer");
}

/* Where a member of a kind goes in a layer. */
static const struct {
    const char *key;
    size_t offset;
} layer_numbers[] = {
    {"n_head", offsetof(struct model_layer, n_head)},
    {"n_head_kv", offsetof(struct model_layer, n_head_kv)},
    {"head_dim_k", offsetof(struct model_layer, head_dim_k)},
    {"head_dim_v", offsetof(struct model_layer, head_dim_v)},
    {"window", offsetof(struct model_layer, window)},
    {"k_heads", offsetof(struct model_layer, gdn_k_heads)},
    {"v_heads", offsetof(struct model_layer, gdn_v_heads)},
    {"state_dim", offsetof(struct model_layer, gdn_state_dim)},
    {"conv_kernel", offsetof(struct model_layer, gdn_conv_kernel)},
    {"n_ff", offsetof(struct model_layer, n_ff)},
    {"n_expert", offsetof(struct model_layer, n_expert)},
    {"n_expert_used", offsetof(struct model_layer, n_expert_used)},
    {"n_ff_exp", offsetof(struct model_layer, n_ff_exp)},
    {"n_ff_shexp", offsetof(struct model_layer, n_ff_shexp)},
};

static int fill_layer(struct model_layer *layer, const json_t *kind, struct error *err)
{
    const char *mixer = json_string_value(json_object_get(kind, "mixer"));

    if (!mixer || read_mixer(mixer, &layer->mixer, err) != 0)
        return catalogue_refuse(err, "a kind", "has no mixer");
    for (size_t i = 0; i < sizeof layer_numbers / sizeof layer_numbers[0]; i++) {
        uint32_t value = (uint32_t)json_integer_value(json_object_get(kind, layer_numbers[i].key));

        memcpy((char *)layer + layer_numbers[i].offset, &value, sizeof value);
    }
    layer->q_gated = json_is_true(json_object_get(kind, "q_gated"));
    layer->v_from_k = json_is_true(json_object_get(kind, "v_from_k"));
    layer->v_in_k = json_is_true(json_object_get(kind, "v_in_k"));
    return 0;
}

static int fill_header(struct model *model, const struct catalogue_entry *entry, const char *quant,
                       struct error *err)
{
    const char *size_label = strrchr(entry->llama_bench, ' ');
    int n_vocab, n_ctx_train, tied;
    json_error_t json_err;

    if (json_unpack_ex(entry->json, &json_err, 0, "{s:i, s:i, s:b}", "n_vocab", &n_vocab,
                       "n_ctx_train", &n_ctx_train, "tied_embeddings", &tied) != 0)
        return catalogue_refuse(err, entry->card.name, json_err.text);
    snprintf(model->name, sizeof model->name, "%s", entry->card.name);
    snprintf(model->quant, sizeof model->quant, "%s", quant);
    snprintf(model->arch, sizeof model->arch, "%s", entry->card.arch);
    snprintf(model->size_label, sizeof model->size_label, "%s", size_label ? size_label + 1 : "");
    snprintf(model->source, sizeof model->source, "catalogue");
    model->n_embd = entry->card.n_embd;
    model->n_vocab = (uint32_t)n_vocab;
    model->n_ctx_train = (uint32_t)n_ctx_train;
    model->tied_embeddings = tied;
    return 0;
}

static int fill_layers(struct model *model, const struct catalogue_entry *entry, bool with_nextn,
                       struct error *err)
{
    if (model_set_layers(model, entry->card.n_layer, with_nextn ? entry->nextn_blocks : 0, err) !=
        0)
        return -1;
    for (uint32_t i = 0; i < model->n_layer + model->n_layer_nextn; i++)
        if (fill_layer(&model->layers[i], entry->kinds[i], err) != 0)
            return -1;
    return 0;
}

/* What decides the types; the layers of the model are filled already. */
static int read_recipe(struct recipe *recipe, const struct catalogue_entry *entry,
                       const char *quant, const json_t *mix, struct error *err)
{
    const json_t *pure = json_object_get(mix, "pure");
    const json_t *rule = json_object_get(mix, "rule");

    recipe->exceptions = json_object_get(mix, "types");
    recipe->stand_in = json_string_value(json_object_get(mix, "stand_in"));
    recipe->stand_in_file_bytes = (uint64_t)json_integer_value(json_object_get(mix, "file_bytes"));
    if (pure) {
        recipe->is_pure = true;
        return read_type(pure, &recipe->pure, err);
    }
    if (recipe->stand_in)
        quant = recipe->stand_in;
    else if (rule)
        quant = json_string_value(rule);
    return start_rule(recipe, entry, quant, json_is_true(json_object_get(mix, "imatrix")), err);
}

static void write_mix_note(struct model *model, const struct recipe *recipe, const json_t *mix)
{
    const char *note = json_string_value(json_object_get(mix, "note"));

    if (recipe->stand_in)
        snprintf(model->mix_note, sizeof model->mix_note,
                 "the types are not known; these are those of %s (%llu bytes of tensors), the "
                 "released file has %llu bytes (%.3f of that)",
                 recipe->stand_in, (unsigned long long)model->tensor_bytes,
                 (unsigned long long)recipe->stand_in_file_bytes,
                 (double)recipe->stand_in_file_bytes / (double)model->tensor_bytes);
    else if (note)
        snprintf(model->mix_note, sizeof model->mix_note, "%s", note);
}

static int build(struct model *model, const struct catalogue_entry *entry, const char *quant,
                 struct error *err)
{
    const json_t *mix = find_own_mix(entry, quant);
    const json_t *nextn = json_object_get(mix, "nextn");
    struct recipe recipe = {
        .visitor = {add_tensor},
        .model = model,
        .with_nextn = nextn ? json_is_true(nextn) : entry->nextn_in_files,
    };

    if (fill_header(model, entry, quant, err) != 0 ||
        fill_layers(model, entry, recipe.with_nextn, err) != 0 ||
        read_recipe(&recipe, entry, quant, mix, err) != 0 ||
        catalogue_visit_tensors(entry, recipe.with_nextn, &recipe.visitor, err) != 0 ||
        model_finish(model, err) != 0)
        return -1;
    write_mix_note(model, &recipe, mix);
    return 0;
}

struct model *model_from_catalogue(const char *name_and_quant, struct error *err)
{
    const char *colon = strchr(name_and_quant, ':');
    const char *quant = colon && colon[1] != '\0' ? colon + 1 : NULL;
    char name[96];
    const struct catalogue *catalogue;
    const struct catalogue_entry *entry;
    struct model *model;

    snprintf(name, sizeof name, "%.*s",
             (int)(colon ? colon - name_and_quant : (ptrdiff_t)strnlen(name_and_quant, 95)),
             name_and_quant);
    catalogue = catalogue_load(err);
    entry = catalogue ? find_entry(catalogue, name, err) : NULL;
    quant = entry ? find_quant(entry, quant, err) : NULL;
    model = quant ? model_new(err) : NULL;
    if (model && build(model, entry, quant, err) != 0) {
        model_free(model);
        return NULL;
    }
    return model;
}

static bool is_a_file(const char *spec)
{
    size_t length = strlen(spec);
    struct stat status;

    if (length >= 5 && strcasecmp(spec + length - 5, ".gguf") == 0)
        return true;
    return stat(spec, &status) == 0 && !S_ISDIR(status.st_mode);
}

struct model *model_open(const char *spec, struct error *err)
{
    return is_a_file(spec) ? model_load_gguf(spec, err) : model_from_catalogue(spec, err);
}
