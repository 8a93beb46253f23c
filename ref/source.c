#include "ref/source.h"

#include <string.h>

#include "ref/shape.h"
#include "sim/gguf.h"

static int open_file(struct source *source, const char *path, struct error *err)
{
    struct gguf *gguf = gguf_load(path, err);
    int status;

    if (gguf == NULL)
        return -1;
    source->weights = weights_open_gguf(source->model, path, err);
    status = numbers_of(source->model, gguf, &source->numbers, err);
    if (status == 0 && gguf_find_key(gguf, "tokenizer.ggml.tokens") != NULL) {
        source->vocab = vocab_open(gguf, err);
        status = source->vocab != NULL ? 0 : -1;
    }
    gguf_free(gguf);
    return source->weights != NULL ? status : -1;
}

static int open_shape(struct source *source, const char *spec, uint64_t seed, struct error *err)
{
    struct gguf *gguf = shape_gguf(spec, err);
    int status = gguf != NULL ? numbers_of(source->model, gguf, &source->numbers, err) : -1;

    gguf_free(gguf);
    source->weights = weights_synthetic(source->model, seed, err);
    return source->weights != NULL ? status : -1;
}

int source_open(struct source *source, const char *spec, uint64_t seed, struct error *err)
{
    memset(source, 0, sizeof *source);
    source->model = shape_is_name(spec) ? shape_open(spec, err) : model_open(spec, err);
    if (source->model == NULL)
        return -1;
    if (shape_is_name(spec))
        return open_shape(source, spec, seed, err);
    if (strcmp(source->model->source, "catalogue") != 0)
        return open_file(source, spec, err);
    source->weights = weights_synthetic(source->model, seed, err);
    return source->weights != NULL ? numbers_of(source->model, NULL, &source->numbers, err) : -1;
}

int source_open_layers(struct source *source, const char *spec, uint32_t layers, uint64_t seed,
                       struct error *err)
{
    memset(source, 0, sizeof *source);
    source->model = model_from_catalogue(spec, err);
    if (source->model == NULL)
        return -1;
    model_keep_layers(source->model, layers);
    source->weights = weights_synthetic(source->model, seed, err);
    return source->weights != NULL ? numbers_of(source->model, NULL, &source->numbers, err) : -1;
}

void source_close(struct source *source)
{
    vocab_free(source->vocab);
    weights_free(source->weights);
    model_free(source->model);
    memset(source, 0, sizeof *source);
}
