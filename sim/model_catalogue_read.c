/* Reads the built-in models: sim/data/models.json, which travels inside the
 * program, is parsed once and kept. The draft models of the file are not read. */
#include "sim/model_catalogue_private.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "sim/embedded.h"

#define FORMAT_VERSION 1

static struct catalogue catalogue;

static pthread_once_t catalogue_once = PTHREAD_ONCE_INIT;

int catalogue_refuse(struct error *err, const char *where, const char *what)
{
    return error_set_at(err, ERROR_INPUT, "catalogue", 0, 0, "%s: %s", where, what);
}

static int no_memory(struct error *err)
{
    return error_set(err, ERROR_MEMORY, "no memory for the catalogue of models");
}

/* A row is [name, ne0, ne1, ...]. */
static int read_tensor(const json_t *row, int layer, struct mix_tensor *tensor, struct error *err)
{
    size_t size = json_array_size(row);
    const char *name = json_string_value(json_array_get(row, 0));

    if (!name || size < 2 || size > 5)
        return catalogue_refuse(err, name ? name : "a tensor", "not a name and one to four sizes");
    *tensor = (struct mix_tensor){.name = name, .layer = layer, .dims = (unsigned)size - 1};
    for (size_t i = 0; i < 4; i++) {
        json_int_t ne = i + 1 < size ? json_integer_value(json_array_get(row, i + 1)) : 1;

        if (ne <= 0)
            return catalogue_refuse(err, name, "a size is a number above 0");
        tensor->ne[i] = (uint64_t)ne;
    }
    return 0;
}

static int visit_rows(const json_t *rows, int layer, struct catalogue_visitor *visitor,
                      struct error *err)
{
    struct mix_tensor tensor;

    for (size_t i = 0; i < json_array_size(rows); i++)
        if (read_tensor(json_array_get(rows, i), layer, &tensor, err) != 0 ||
            visitor->visit(visitor, &tensor, err) != 0)
            return -1;
    return 0;
}

int catalogue_visit_tensors(const struct catalogue_entry *entry, bool with_nextn,
                            struct catalogue_visitor *visitor, struct error *err)
{
    uint32_t n_layer = entry->card.n_layer;
    uint32_t n_block = n_layer + (with_nextn ? entry->nextn_blocks : 0);

    if (visit_rows(entry->globals, -1, visitor, err) != 0)
        return -1;
    for (uint32_t i = 0; i < n_block; i++) {
        const json_t *rows =
            i < n_layer ? json_object_get(entry->kinds[i], "tensors") : entry->nextn_tensors;

        if (visit_rows(rows, (int)i, visitor, err) != 0)
            return -1;
    }
    return 0;
}

static int survey_tensor(struct catalogue_visitor *visitor, const struct mix_tensor *tensor,
                         struct error *err)
{
    struct catalogue_survey *survey = (struct catalogue_survey *)visitor;

    (void)err;
    survey->params += tensor->ne[0] * tensor->ne[1] * tensor->ne[2] * tensor->ne[3];
    survey->n_attn_v += mix_is_attn_v(tensor->name);
    survey->has_output |= strcmp(tensor->name, "output.weight") == 0;
    return 0;
}

int catalogue_survey_tensors(const struct catalogue_entry *entry, bool with_nextn,
                             struct catalogue_survey *survey, struct error *err)
{
    *survey = (struct catalogue_survey){.visitor = {survey_tensor}};
    return catalogue_visit_tensors(entry, with_nextn, &survey->visitor, err);
}

/* "layers" holds groups, each a list of kinds and how often it repeats. */
static int expand_layers(struct catalogue_entry *entry, struct error *err)
{
    const json_t *groups = json_object_get(entry->json, "layers");
    const json_t *kinds = json_object_get(entry->json, "kinds");
    uint32_t filled = 0;

    for (size_t i = 0; i < json_array_size(groups); i++) {
        const json_t *group = json_array_get(groups, i);
        const json_t *names = json_object_get(group, "kinds");
        json_int_t count = json_integer_value(json_object_get(group, "repeat")) *
                           (json_int_t)json_array_size(names);

        if (count < 0 || count > (json_int_t)(entry->card.n_layer - filled))
            return catalogue_refuse(err, entry->card.name, "layers has more blocks than n_layer");
        for (size_t j = 0; j < (size_t)count; j++) {
            const char *name = json_string_value(json_array_get(names, j % json_array_size(names)));

            entry->kinds[filled++] = json_object_get(kinds, name ? name : "");
        }
    }
    if (filled != entry->card.n_layer)
        return catalogue_refuse(err, entry->card.name, "layers has fewer blocks than n_layer");
    return 0;
}

static int read_layers(struct catalogue_entry *entry, json_t *nextn, struct error *err)
{
    const char *like = "";
    int blocks = 0, in_files = 0;
    json_error_t json_err;
    uint32_t n_block;

    if (nextn &&
        json_unpack_ex(nextn, &json_err, 0, "{s:i, s:s, s:b, s:o}", "blocks", &blocks, "like",
                       &like, "in_files", &in_files, "tensors", &entry->nextn_tensors) != 0)
        return catalogue_refuse(err, entry->card.name, json_err.text);
    entry->nextn_blocks = (uint32_t)blocks;
    entry->nextn_in_files = in_files;
    entry->card.n_layer_nextn = in_files ? entry->nextn_blocks : 0;
    n_block = entry->card.n_layer + entry->nextn_blocks;
    entry->kinds = calloc(n_block, sizeof(json_t *));
    if (!entry->kinds)
        return no_memory(err);
    if (expand_layers(entry, err) != 0)
        return -1;
    for (uint32_t i = entry->card.n_layer; i < n_block; i++)
        entry->kinds[i] = json_object_get(json_object_get(entry->json, "kinds"), like);
    for (uint32_t i = 0; i < n_block; i++)
        if (!entry->kinds[i])
            return catalogue_refuse(err, entry->card.name,
                                    "a layer is of a kind that is not there");
    return 0;
}

/* An own mix may carry the name of a plain one, and then stands for it. */
static bool has_own_mix(const struct catalogue_entry *entry, const char *quant)
{
    for (size_t i = 0; i < entry->own_count; i++)
        if (strcasecmp(entry->quants[i], quant) == 0)
            return true;
    return false;
}

static int read_quants(struct catalogue_entry *entry, struct error *err)
{
    size_t own_count = json_array_size(entry->mixes), count = 0;

    entry->quants = calloc(own_count + MIX_COUNT, sizeof(const char *));
    if (!entry->quants)
        return no_memory(err);
    while (count < own_count) {
        const json_t *mix = json_array_get(entry->mixes, count);
        const char *quant = json_string_value(json_object_get(mix, "quant"));

        if (!quant)
            return catalogue_refuse(err, entry->card.name, "a mix has no quant");
        entry->quants[count++] = quant;
    }
    entry->own_count = own_count;
    for (int i = 0; i < MIX_COUNT; i++)
        if (!has_own_mix(entry, mix_name((enum mix)i)))
            entry->quants[count++] = mix_name((enum mix)i);
    entry->card.quants = entry->quants;
    entry->card.quant_count = count;
    return 0;
}

static int read_entry(struct catalogue_entry *entry, struct error *err)
{
    int n_layer, n_embd;
    json_t *nextn = NULL;
    json_error_t json_err;
    struct catalogue_survey survey;

    if (json_unpack_ex(entry->json, &json_err, 0, "{s:s, s:s, s:s, s:i, s:i, s:o, s:o, s?o}",
                       "name", &entry->card.name, "arch", &entry->card.arch, "llama_bench",
                       &entry->llama_bench, "n_layer", &n_layer, "n_embd", &n_embd, "globals",
                       &entry->globals, "mixes", &entry->mixes, "nextn", &nextn) != 0)
        return catalogue_refuse(err, "a model", json_err.text);
    entry->card.n_layer = (uint32_t)n_layer;
    entry->card.n_embd = (uint32_t)n_embd;
    if (read_layers(entry, nextn, err) != 0 || read_quants(entry, err) != 0 ||
        catalogue_survey_tensors(entry, entry->nextn_in_files, &survey, err) != 0)
        return -1;
    entry->card.params = survey.params;
    return 0;
}

static int read_catalogue(struct error *err)
{
    json_error_t json_err;
    const json_t *models;

    catalogue.root = json_loadb(embedded_models_json, embedded_models_json_size,
                                JSON_REJECT_DUPLICATES, &json_err);
    if (!catalogue.root)
        return error_set_at(err, ERROR_INPUT, "catalogue", json_err.line, json_err.column, "%s",
                            json_err.text);
    if (json_integer_value(json_object_get(json_object_get(catalogue.root, "about"),
                                           "lopside_models")) != FORMAT_VERSION)
        return catalogue_refuse(err, "about.lopside_models", "not the format this program reads");
    models = json_object_get(catalogue.root, "models");
    catalogue.entries = calloc(json_array_size(models) + 1, sizeof(struct catalogue_entry));
    catalogue.names = calloc(json_array_size(models) + 1, sizeof(const char *));
    if (!catalogue.entries || !catalogue.names)
        return no_memory(err);
    for (size_t i = 0; i < json_array_size(models); i++) {
        struct catalogue_entry *entry = &catalogue.entries[i];

        entry->json = json_array_get(models, i);
        if (read_entry(entry, err) != 0)
            return -1;
        catalogue.names[i] = entry->card.name;
        catalogue.count = i + 1;
    }
    return 0;
}

static void read_catalogue_once(void)
{
    read_catalogue(&catalogue.err);
}

const struct catalogue *catalogue_load(struct error *err)
{
    pthread_once(&catalogue_once, read_catalogue_once);
    if (catalogue.err.code == ERROR_NONE)
        return &catalogue;
    if (err && err->code == ERROR_NONE)
        *err = catalogue.err;
    return NULL;
}
