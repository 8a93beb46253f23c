#include "cuda/cuda_weights.h"

#include <stdlib.h>
#include <string.h>

#include "cuda/cuda_check.h"
#include "cuda/cuda_synth.h"

extern "C" {
#include "ref/arith.h"
}

/* A part of a tensor that lies on a GPU. */
struct part {
    struct cuda_weight weight;
    struct part *next;
    int device; /* that it is staged for; -1: kept, for all devices of the GPU */
    int gpu;
    int32_t tensor;
    struct program_slice slice;
    uint64_t rows;
};

/* What a device got for a large batch. */
struct staged {
    int block, experts; /* -1: none */
    cudaStream_t stream;
};

struct cuda_weights {
    const struct placement *placement; /* borrowed, as the others */
    const struct model *model;
    struct weights *weights;
    int gpus[MACHINE_DEVICES_MAX];
    bool plain;
    struct staged staged[MACHINE_DEVICES_MAX];
    struct part **parts; /* of model.tensors: lists */
};

static void clear_staged(struct cuda_weights *weights)
{
    for (uint32_t d = 0; d < MACHINE_DEVICES_MAX; d++)
        weights->staged[d] = {-1, -1, nullptr};
}

struct cuda_weights *cuda_weights_new(const struct placement *placement, struct weights *weights,
                                      const int *gpus, bool plain, struct error *err)
{
    struct cuda_weights *made = (struct cuda_weights *)calloc(1, sizeof *made);

    if (made != nullptr)
        made->parts =
            (struct part **)calloc(placement->model->tensor_count + 1, sizeof *made->parts);
    if (made == nullptr || made->parts == nullptr) {
        error_set(err, ERROR_MEMORY, "no memory for a list of weights");
        free(made);
        return nullptr;
    }
    made->placement = placement;
    made->model = placement->model;
    made->weights = weights;
    made->plain = plain;
    memcpy(made->gpus, gpus, placement->device_count * sizeof *gpus);
    clear_staged(made);
    return made;
}

static void free_part(struct part *part)
{
    if (part == nullptr)
        return;
    cudaSetDevice(part->gpu);
    cudaFree((void *)part->weight.data);
    cudaFree((void *)part->weight.packed);
    free(part);
}

void cuda_weights_free(struct cuda_weights *weights)
{
    if (weights == nullptr)
        return;
    for (size_t i = 0; i < weights->model->tensor_count; i++)
        while (weights->parts[i] != nullptr) {
            struct part *part = weights->parts[i];

            weights->parts[i] = part->next;
            free_part(part);
        }
    free(weights->parts);
    free(weights);
}

/* ---- where tensors are ---- */

enum home { HOME_ABSENT, HOME_KEPT, HOME_STAGED };

/* As has_tensor() of ref/interpret.c. */
static enum home home_of(const struct cuda_weights *weights, int device,
                         const struct model_tensor *tensor)
{
    const struct placement *placement = weights->placement;
    const struct staged *staged = &weights->staged[device];

    if (tensor->layer < 0)
        return HOME_KEPT;
    if (placement->owner[tensor->layer] < 0)
        return staged->block == tensor->layer ? HOME_STAGED : HOME_ABSENT;
    if (tensor->ne[2] > 1 && placement_has_experts_on_host(placement, (uint32_t)tensor->layer))
        return staged->experts == tensor->layer ? HOME_STAGED : HOME_ABSENT;
    return placement_has_layer(placement, (uint32_t)tensor->layer, (uint32_t)device) ? HOME_KEPT
                                                                                     : HOME_ABSENT;
}

/* ---- packing ---- */

/* Segments of a tensor's columns, of which a tensor split cuts each: those of the heads that
 * share a key head. */
static uint32_t column_segments(const struct model *model, const struct model_tensor *tensor)
{
    const struct model_layer *l;

    if (tensor->role != TENSOR_ROLE_SSM_OUT)
        return 1;
    l = &model->layers[tensor->layer];
    return l->gdn_v_heads / l->gdn_k_heads;
}

/* Bytes that a part takes of each matrix: `pieces` pieces of a row or of the matrix. */
struct packing {
    uint64_t matrices, matrix_bytes;
    uint64_t rows, row_bytes; /* (rows) of pieces; whole matrices are one row */
    uint64_t segments, segment_bytes, first_bytes, piece_bytes;
};

static int describe(const struct cuda_weights *weights, int32_t index, struct program_slice slice,
                    uint64_t rows, struct cuda_weight *weight, struct packing *packing,
                    struct error *err)
{
    const struct model_tensor *tensor = &weights->model->tensors[index];
    uint64_t row_bytes = tensor_type_row_bytes(tensor->type, tensor->ne[0]);
    uint32_t segments = column_segments(weights->model, tensor);
    uint64_t columns = tensor->ne[0] / segments;
    uint32_t unit = tensor_type_info(tensor->type)->block_elements;

    *weight = {};
    *packing = {};
    weight->type = tensor->type;
    weight->experts = (uint32_t)tensor->ne[2];
    weight->segments = segments;
    weight->group = share_group(weights->model, tensor);
    weight->groups_total = segments * ((columns + weight->group - 1) / weight->group);
    packing->matrices = tensor->ne[2];
    packing->matrix_bytes = tensor->ne[1] * row_bytes;
    if (slice.axis == 1) {
        uint64_t row_segments = slice.segments > 0 ? slice.segments : 1;

        weight->rows = rows;
        weight->columns = tensor->ne[0];
        weight->row_bytes = row_bytes;
        packing->rows = 1;
        packing->segments = row_segments;
        packing->segment_bytes = tensor->ne[1] / row_segments * row_bytes;
        packing->first_bytes = slice.first * row_bytes;
        packing->piece_bytes = rows / row_segments * row_bytes;
        return 0;
    }
    weight->rows = tensor->ne[1];
    if (slice.count == 0) {
        slice.first = 0;
        slice.count = columns;
    }
    if (slice.first % unit != 0 || slice.count % unit != 0 || columns % unit != 0)
        return error_set(err, ERROR_UNSUPPORTED, "%s is cut within a block of %s", tensor->name,
                         tensor_type_info(tensor->type)->name);
    weight->columns = segments * slice.count;
    weight->row_bytes = tensor_type_row_bytes(tensor->type, weight->columns);
    packing->rows = tensor->ne[1];
    packing->row_bytes = row_bytes;
    packing->segments = segments;
    packing->segment_bytes = tensor_type_row_bytes(tensor->type, columns);
    packing->first_bytes = tensor_type_row_bytes(tensor->type, slice.first);
    packing->piece_bytes = tensor_type_row_bytes(tensor->type, slice.count);
    return 0;
}

static void pack(const struct packing *p, const char *from, char *to)
{
    for (uint64_t m = 0; m < p->matrices; m++)
        for (uint64_t row = 0; row < p->rows; row++)
            for (uint64_t s = 0; s < p->segments; s++) {
                memcpy(to,
                       from + m * p->matrix_bytes + row * p->row_bytes + s * p->segment_bytes +
                           p->first_bytes,
                       p->piece_bytes);
                to += p->piece_bytes;
            }
}

/* ---- bringing ---- */

/* The part is there when this returns, as a copy from pageable memory may end after its call. Those
 * that are staged are waited for as well: an operation may take them on another stream of the
 * device, as the end of the last block does, which comes with the copy of its result. */
static int copy_up(const struct cuda_weights *weights, struct part *part, const void *from,
                   size_t bytes, struct error *err)
{
    cudaStream_t stream = part->device < 0 ? nullptr : weights->staged[part->device].stream;

    if (cuda_check(
            cudaMemcpyAsync((void *)part->weight.data, from, bytes, cudaMemcpyHostToDevice, stream),
            "cudaMemcpyAsync", err) != 0)
        return -1;
    return cuda_check(cudaStreamSynchronize(stream), "copying weights", err);
}

static size_t packed_bytes(const struct packing *p)
{
    return p->matrices * p->rows * p->segments * p->piece_bytes;
}

/* Whether the part is one piece of the tensor, from byte *first on. */
static bool is_together(const struct packing *p, size_t *first)
{
    bool whole = packed_bytes(p) == p->matrices * p->matrix_bytes;

    *first = whole ? 0 : p->first_bytes;
    return whole || p->matrices * p->rows * p->segments == 1;
}

/* Pieces that lie together are copied from where they are. */
static int bring(const struct cuda_weights *weights, struct part *part,
                 const struct packing *packing, struct error *err)
{
    const char *from = (const char *)weights_tensor(weights->weights, (size_t)part->tensor, err);
    size_t bytes = packed_bytes(packing), first;
    char *packed;
    int status;

    if (from == nullptr)
        return -1;
    if (is_together(packing, &first))
        return copy_up(weights, part, from + first, bytes, err);
    packed = (char *)malloc(bytes + 1);
    if (packed == nullptr)
        return error_set(err, ERROR_MEMORY, "no memory to pack %zu bytes of weights", bytes);
    pack(packing, from, packed);
    status = copy_up(weights, part, packed, bytes, err);
    free(packed);
    return status;
}

/* ---- making ---- */

/* Pieces of a tensor on the GPU. */
static int pack_pieces(const struct packing *p, const char *from, char *to, struct error *err)
{
    for (uint64_t m = 0; m < p->matrices; m++)
        for (uint64_t s = 0; s < p->segments; s++)
            if (cuda_check(cudaMemcpy2DAsync(
                               to + (m * p->rows * p->segments + s) * p->piece_bytes,
                               p->segments * p->piece_bytes,
                               from + m * p->matrix_bytes + s * p->segment_bytes + p->first_bytes,
                               p->rows > 1 ? p->row_bytes : p->piece_bytes, p->piece_bytes, p->rows,
                               cudaMemcpyDeviceToDevice, nullptr),
                           "cudaMemcpy2DAsync", err) != 0)
                return -1;
    return 0;
}

/* Synthetic weights are made on the GPU, from the whole tensor where pieces lie apart. */
static int make(const struct cuda_weights *weights, struct part *part,
                const struct packing *packing, const struct synth *synth, int device,
                struct error *err)
{
    const struct model_tensor *tensor = &weights->model->tensors[part->tensor];
    uint64_t block = tensor_type_info(tensor->type)->block_bytes;
    struct error no_room = {};
    size_t first;
    void *whole = nullptr;
    int status;

    if (is_together(packing, &first))
        return cuda_synth(synth, first / block, packed_bytes(packing) / block,
                          (void *)part->weight.data, nullptr, err);
    if (cuda_allocate(&whole, tensor->bytes, device, tensor->name, &no_room) != 0)
        return bring(weights, part, packing, err); /* a part has room where the whole has none */
    status = cuda_synth(synth, 0, tensor->bytes / block, whole, nullptr, err);
    if (status == 0)
        status = pack_pieces(packing, (const char *)whole, (char *)part->weight.data, err);
    if (cuda_check(cudaStreamSynchronize(nullptr), "making weights", err) != 0)
        status = -1;
    cudaFree(whole);
    return status;
}

/* What is kept on the GPU need not come over its link where it can be made. */
static int fill(const struct cuda_weights *weights, struct part *part,
                const struct packing *packing, int device, struct error *err)
{
    const struct synth *synth = weights_synth(weights->weights, (size_t)part->tensor);

    if (cuda_check(cudaSetDevice(part->gpu), "cudaSetDevice", err) != 0 ||
        cuda_allocate((void **)&part->weight.data, packed_bytes(packing) + 256, device,
                      weights->model->tensors[part->tensor].name, err) != 0)
        return -1;
    if (synth == nullptr || part->device >= 0 || tensor_type_info(synth->type)->block_elements == 1)
        return bring(weights, part, packing, err);
    if (make(weights, part, packing, synth, device, err) != 0)
        return -1;
    return cuda_check(cudaStreamSynchronize(nullptr), "making weights", err);
}

/* What is kept is packed for the fast kernels where they take it, and then not needed as it was. */
static int pack_fast(const struct cuda_weights *weights, struct part *part, int device,
                     struct error *err)
{
    void *packed = nullptr;

    if (weights->plain || part->device >= 0 || !cuda_matmul_packs(&part->weight))
        return 0;
    if (cuda_allocate(&packed, cuda_matmul_packed_bytes(&part->weight), device,
                      weights->model->tensors[part->tensor].name, err) != 0)
        return -1;
    part->weight.packed = packed;
    if (cuda_matmul_pack(&part->weight, packed, nullptr, err) != 0 ||
        cuda_check(cudaStreamSynchronize(nullptr), "packing weights", err) != 0)
        return -1;
    cudaFree((void *)part->weight.data);
    part->weight.data = nullptr;
    return 0;
}

static bool is_same(const struct part *part, const struct cuda_weights *weights, int device,
                    bool staged, struct program_slice slice, uint64_t rows)
{
    return part->gpu == weights->gpus[device] && part->device == (staged ? device : -1) &&
           part->slice.axis == slice.axis && part->slice.segments == slice.segments &&
           part->slice.first == slice.first && part->slice.count == slice.count &&
           part->rows == rows;
}

const struct cuda_weight *cuda_weights_part(struct cuda_weights *weights, int device,
                                            int32_t tensor, struct program_slice slice,
                                            uint64_t rows, struct error *err)
{
    const struct model_tensor *info = &weights->model->tensors[tensor];
    enum home home = home_of(weights, device, info);
    struct packing packing;
    struct part *part;

    if (home == HOME_ABSENT) {
        error_set(err, ERROR_USAGE, "device %d has no %s", device, info->name);
        return nullptr;
    }
    for (part = weights->parts[tensor]; part != nullptr; part = part->next)
        if (is_same(part, weights, device, home == HOME_STAGED, slice, rows))
            return &part->weight;
    part = (struct part *)calloc(1, sizeof *part);
    if (part == nullptr) {
        error_set(err, ERROR_MEMORY, "no memory for a list of weights");
        return nullptr;
    }
    part->device = home == HOME_STAGED ? device : -1;
    part->gpu = weights->gpus[device];
    part->tensor = tensor;
    part->slice = slice;
    part->rows = rows;
    if (describe(weights, tensor, slice, rows, &part->weight, &packing, err) != 0 ||
        fill(weights, part, &packing, device, err) != 0 ||
        pack_fast(weights, part, device, err) != 0) {
        free_part(part);
        return nullptr;
    }
    part->next = weights->parts[tensor];
    weights->parts[tensor] = part;
    return &part->weight;
}

const void *cuda_weights_whole(struct cuda_weights *weights, int device, int32_t tensor,
                               struct error *err)
{
    struct program_slice all = {};
    const struct cuda_weight *part;

    all.axis = 1;
    part =
        cuda_weights_part(weights, device, tensor, all, weights->model->tensors[tensor].ne[1], err);
    return part != nullptr ? part->data : nullptr;
}

/* ---- staging ---- */

/* Frees parts that are staged for a device, of a block or of its experts. */
static void drop(struct cuda_weights *weights, int device, int layer, bool experts)
{
    const struct model_layer *l = &weights->model->layers[layer];

    for (uint32_t i = l->tensor_first; i < l->tensor_first + l->tensor_count; i++) {
        struct part **link = &weights->parts[i];

        while (*link != nullptr) {
            struct part *part = *link;

            if (part->device != device || (experts && weights->model->tensors[i].ne[2] <= 1)) {
                link = &part->next;
                continue;
            }
            *link = part->next;
            free_part(part);
        }
    }
}

void cuda_weights_stage(struct cuda_weights *weights, int device, int layer, bool experts,
                        cudaStream_t stream)
{
    struct staged *staged = &weights->staged[device];
    int *place = experts ? &staged->experts : &staged->block;

    if (*place >= 0 && *place != layer) {
        cudaStreamSynchronize(stream); /* what they were for may be under way */
        drop(weights, device, *place, experts);
    }
    *place = layer;
    staged->stream = stream;
}

void cuda_weights_unstage(struct cuda_weights *weights)
{
    for (uint32_t d = 0; d < weights->placement->device_count; d++) {
        if (weights->staged[d].block >= 0)
            drop(weights, (int)d, weights->staged[d].block, false);
        if (weights->staged[d].experts >= 0)
            drop(weights, (int)d, weights->staged[d].experts, true);
    }
    clear_staged(weights);
}
