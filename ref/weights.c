/* Weights: a file's parts, mapped as they are, or tensors that are made when asked for.
 * Both give the same layout, little-endian; a host of the other order is not handled. */
#include "ref/weights.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ref/synth.h"
#include "sim/checked.h"
#include "sim/gguf.h"

struct mapping {
    void *data;
    size_t bytes; /* 0: not mapped */
};

struct weights {
    const struct model *model; /* borrowed */
    const void **tensors;      /* of model.tensors; NULL: not made yet */
    struct synth *synths;      /* of model.tensors; NULL for a file */
    struct mapping *mappings;  /* of the parts of a file; NULL for synthetic weights */
    uint32_t mapping_count;
};

static struct weights *weights_new(const struct model *model, struct error *err)
{
    struct weights *weights = calloc(1, sizeof *weights);

    if (weights)
        weights->tensors = calloc(model->tensor_count + 1, sizeof *weights->tensors);
    if (!weights || !weights->tensors) {
        error_set(err, ERROR_MEMORY, "no memory for a list of %zu tensors", model->tensor_count);
        free(weights);
        return NULL;
    }
    weights->model = model;
    return weights;
}

void weights_free(struct weights *weights)
{
    if (!weights)
        return;
    if (weights->synths)
        for (size_t i = 0; i < weights->model->tensor_count; i++)
            free((void *)(uintptr_t)weights->tensors[i]);
    for (uint32_t i = 0; i < weights->mapping_count; i++)
        if (weights->mappings[i].bytes != 0)
            munmap(weights->mappings[i].data, weights->mappings[i].bytes);
    free(weights->mappings);
    free(weights->synths);
    free(weights->tensors);
    free(weights);
}

/* ---- from a file ---- */

static int map_open_file(int file, const char *path, struct mapping *mapping, struct error *err)
{
    struct stat status;
    void *data;

    if (fstat(file, &status))
        return error_set_at(err, ERROR_IO, path, 0, 0, "cannot be read: %s", strerror(errno));
    if (!S_ISREG(status.st_mode) || status.st_size <= 0 || (uintmax_t)status.st_size > SIZE_MAX)
        return error_set_at(err, ERROR_IO, path, 0, 0, "is not a regular file that can be mapped");
    data = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, file, 0);
    if (data == MAP_FAILED)
        return error_set_at(err, ERROR_IO, path, 0, 0, "cannot be mapped: %s", strerror(errno));
    *mapping = (struct mapping){data, (size_t)status.st_size};
    return 0;
}

static int map_file(const char *path, struct mapping *mapping, struct error *err)
{
    int file = open(path, O_RDONLY | O_CLOEXEC), result;

    if (file < 0)
        return error_set_at(err, ERROR_IO, path, 0, 0, "cannot be opened: %s", strerror(errno));
    result = map_open_file(file, path, mapping, err);
    close(file);
    return result;
}

static int map_parts(struct weights *weights, const struct gguf *gguf, struct error *err)
{
    uint32_t count = gguf_part_count(gguf);

    weights->mappings = calloc(count, sizeof *weights->mappings);
    if (!weights->mappings)
        return error_set(err, ERROR_MEMORY, "no memory for %" PRIu32 " parts of a file", count);
    weights->mapping_count = count;
    for (uint32_t i = 0; i < count; i++)
        if (map_file(gguf_part_path(gguf, i), &weights->mappings[i], err))
            return -1;
    return 0;
}

/* Values of a type are read in pieces of these bytes. */
static uint64_t type_alignment(enum tensor_type type)
{
    const struct tensor_type_info *info = tensor_type_info(type);

    return info->block_elements == 1 ? info->block_bytes : 2;
}

/* Where a tensor lies in its part. */
static int find_bytes(const struct weights *weights, const struct gguf *gguf,
                      const struct model_tensor *tensor, const void **bytes, struct error *err)
{
    const struct gguf_tensor *found = gguf_find_tensor(gguf, tensor->name);
    const struct mapping *mapping;
    const char *path;
    uint64_t begin, end;

    if (!found)
        return error_set_at(err, ERROR_INPUT, gguf_part_path(gguf, 0), 0, 0,
                            "has no tensor \"%.60s\", as its model has", tensor->name);
    path = gguf_part_path(gguf, found->part);
    if (found->type != tensor->type || memcmp(found->ne, tensor->ne, sizeof tensor->ne) != 0)
        return error_set_at(err, ERROR_INPUT, path, 0, 0,
                            "tensor \"%.60s\": type or shape is not that of the model",
                            tensor->name);
    mapping = &weights->mappings[found->part];
    if (!checked_add(gguf_data_offset(gguf, found->part), found->offset, &begin) ||
        !checked_add(begin, found->bytes, &end) || end > mapping->bytes)
        return error_set_at(err, ERROR_INPUT, path, 0, 0,
                            "tensor \"%.60s\": %" PRIu64 " bytes from offset %" PRIu64
                            " of its weights do not lie in a file of %zu bytes; it is cut off",
                            tensor->name, found->bytes, found->offset, mapping->bytes);
    if (begin % type_alignment(tensor->type) != 0)
        return error_set_at(err, ERROR_INPUT, path, 0, 0,
                            "tensor \"%.60s\": offset %" PRIu64 " is not a multiple of %" PRIu64
                            ", as %s needs",
                            tensor->name, begin, type_alignment(tensor->type),
                            tensor_type_info(tensor->type)->name);
    *bytes = (const unsigned char *)mapping->data + begin;
    return 0;
}

static int open_parts(struct weights *weights, const struct gguf *gguf, struct error *err)
{
    if (gguf_is_big_endian(gguf))
        return error_set_at(err, ERROR_INPUT, gguf_part_path(gguf, 0), 0, 0,
                            "is big-endian; only little-endian weights can be read");
    if (map_parts(weights, gguf, err))
        return -1;
    for (size_t i = 0; i < weights->model->tensor_count; i++)
        if (find_bytes(weights, gguf, &weights->model->tensors[i], &weights->tensors[i], err))
            return -1;
    return 0;
}

struct weights *weights_open_gguf(const struct model *model, const char *path, struct error *err)
{
    struct gguf *gguf = gguf_load(path, err);
    struct weights *weights = NULL;

    if (!gguf)
        return NULL;
    weights = weights_new(model, err);
    if (weights && open_parts(weights, gguf, err)) {
        weights_free(weights);
        weights = NULL;
    }
    gguf_free(gguf);
    return weights;
}

/* ---- synthetic ---- */

struct weights *weights_synthetic(const struct model *model, uint64_t seed, struct error *err)
{
    struct weights *weights = weights_new(model, err);

    if (!weights)
        return NULL;
    weights->synths = calloc(model->tensor_count + 1, sizeof *weights->synths);
    if (!weights->synths) {
        error_set(err, ERROR_MEMORY, "no memory for a list of %zu tensors", model->tensor_count);
        goto free_weights;
    }
    for (size_t i = 0; i < model->tensor_count; i++)
        if (synth_init(&weights->synths[i], &model->tensors[i], model->tied_embeddings, seed, err))
            goto free_weights;
    return weights;

free_weights:
    weights_free(weights);
    return NULL;
}

/* Block 0 of the drafter is the target's first block behind its trunk. */
static const struct model_tensor *tensor_of_target(const struct model_tensor *tensor,
                                                   const struct model *target)
{
    const struct model_tensor *found =
        model_find_tensor(target, tensor->layer < 0 ? -1 : (int)target->n_layer, tensor->role);

    if (found == NULL && tensor->role == TENSOR_ROLE_OUTPUT)
        found = model_find_tensor(target, -1, TENSOR_ROLE_TOKEN_EMBD);
    return found;
}

struct weights *weights_nextn(const struct model *drafter, const struct model *target,
                              struct weights *of_target, struct error *err)
{
    struct weights *weights = weights_new(drafter, err);

    for (size_t i = 0; weights != NULL && i < drafter->tensor_count; i++) {
        const struct model_tensor *tensor = tensor_of_target(&drafter->tensors[i], target);

        if (tensor == NULL) {
            error_set(err, ERROR_INPUT, "%.90s has no tensor for the drafter's %s", target->name,
                      drafter->tensors[i].name);
            weights_free(weights);
            return NULL;
        }
        weights->tensors[i] = weights_tensor(of_target, (size_t)(tensor - target->tensors), err);
        if (weights->tensors[i] == NULL) {
            weights_free(weights);
            return NULL;
        }
    }
    return weights;
}

enum { PIECE_BYTES = 1 << 20 };

static int make_tensor(struct weights *weights, size_t index, struct error *err)
{
    const struct model_tensor *tensor = &weights->model->tensors[index];
    void *bytes = tensor->bytes <= SIZE_MAX ? malloc((size_t)tensor->bytes) : NULL;

    if (!bytes)
        return error_set(err, ERROR_MEMORY, "no memory for tensor %.60s, %" PRIu64 " bytes",
                         tensor->name, tensor->bytes);
        /* Parts of a tensor do not depend on each other. */
#ifdef _OPENMP
#pragma omp parallel for schedule(dynamic)
#endif
    for (uint64_t offset = 0; offset < tensor->bytes; offset += PIECE_BYTES) {
        uint64_t left = tensor->bytes - offset;

        synth_bytes(&weights->synths[index], offset, (char *)bytes + offset,
                    (size_t)(left < PIECE_BYTES ? left : PIECE_BYTES));
    }
    weights->tensors[index] = bytes;
    return 0;
}

const void *weights_tensor(struct weights *weights, size_t index, struct error *err)
{
    if (!weights->tensors[index] && make_tensor(weights, index, err))
        return NULL;
    return weights->tensors[index];
}

const struct synth *weights_synth(const struct weights *weights, size_t index)
{
    return weights->synths != NULL ? &weights->synths[index] : NULL;
}
