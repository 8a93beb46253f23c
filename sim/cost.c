#include "sim/cost.h"

#include <math.h>

double cost_row_ratio(const struct machine_link *link, double row_bytes)
{
    double packets, whole;

    if (row_bytes <= 0 || link->packet_bytes <= 0)
        return 1;
    packets = ceil(row_bytes / link->packet_bytes);
    whole = link->packet_bytes / (link->packet_bytes + link->packet_overhead_bytes);
    return fmin(1, row_bytes / (row_bytes + packets * link->packet_overhead_bytes) / whole);
}

/* Source: ggml/src/ggml-cuda/mmvq.cu, get_mmvq_mmid_max_batch and its dense twin. */
uint32_t cost_matvec_limit(int compute_capability, enum tensor_type type)
{
    if (compute_capability == 89) {
        switch (type) {
        case TENSOR_TYPE_Q2_K:
            return 4;
        case TENSOR_TYPE_Q3_K:
            return 6;
        case TENSOR_TYPE_Q4_K:
        case TENSOR_TYPE_Q5_K:
            return 7;
        default:
            return 8;
        }
    }
    if (compute_capability == 120) {
        switch (type) {
        case TENSOR_TYPE_Q2_K:
        case TENSOR_TYPE_Q3_K:
        case TENSOR_TYPE_Q4_K:
        case TENSOR_TYPE_Q5_K:
            return 5;
        case TENSOR_TYPE_Q6_K:
            return 7;
        default:
            return 8;
        }
    }
    return 8;
}

struct rates {
    const struct machine_family *family;
    double bytes_per_s; /* a streaming kernel */
    double fp32_per_s, fp16_per_s, int8_per_s;
    double sm_clock; /* multiprocessor clocks per second, all together */
};

static struct rates rates_of(const struct machine *machine, const struct machine_device *device)
{
    const struct machine_family *family = &machine->families[device->family];

    return (struct rates){.family = family,
                          .bytes_per_s = device->memory_gbs * 1e9 * family->memory_ratio,
                          .fp32_per_s = device->fp32_tflops * 1e12,
                          .fp16_per_s = device->fp16_tflops * 1e12,
                          .int8_per_s = device->int8_tops * 1e12,
                          .sm_clock = device->sm_count * device->clock_ghz * 1e9};
}

/* Width of the column tiles of a matrix-matrix kernel for `tokens`: the fewest tiles of at
 * most 128 columns, all of one width, a multiple of 8. Source: ggml-cuda/mmq.cuh. */
static double tile_columns(uint32_t tokens)
{
    uint32_t tiles = (tokens + 127) / 128;
    uint32_t width = (tokens + tiles - 1) / tiles;

    return (width + 7) / 8 * 8;
}

/* Seconds of decoding the weights once. */
static double decode_s(const struct rates *rates, const struct program_task *task)
{
    enum machine_weight_class class = machine_weight_class_of(task->type);
    double weights = (double)task->rows * (double)task->columns * task->experts;

    return weights / (rates->sm_clock * rates->family->matvec_rate[class]);
}

/* Decoded weights meet one column after the other. */
static double matvec_s(const struct rates *rates, const struct program_task *task, double bytes)
{
    double columns = task->kind == TASK_EXPERTS ? 1 : task->tokens;

    double rows = (double)task->rows * task->experts;

    return fmax(bytes / rates->bytes_per_s,
                decode_s(rates, task) * (1 + rates->family->column_ratio * (columns - 1))) +
           rows * rates->family->row_clocks / rates->sm_clock;
}

/* Columns that are computed, whole tiles. The tiles' width follows from all tokens; an
 * expert has only its share of them, and pays for whole tiles too. */
static double matmul_columns(const struct program_task *task)
{
    double width = tile_columns(task->tokens);
    double rows =
        task->kind != TASK_EXPERTS
            ? task->tokens
            : task->flops / (2.0 * (double)task->rows * (double)task->columns * task->experts);

    return task->experts * ceil(rows / width) * width;
}

static double matmul_s(const struct rates *rates, const struct program_task *task, double bytes)
{
    enum machine_weight_class class = machine_weight_class_of(task->type);
    bool floating = class == MACHINE_WEIGHT_FLOAT;
    double tensor_rate =
        (floating ? rates->fp16_per_s : rates->int8_per_s) * rates->family->matmul_ratio[class];
    double other_rate = rates->sm_clock * rates->family->matmul_rate[class];
    double rows = floating ? (double)task->rows : ceil((double)task->rows / 128) * 128;
    double columns = matmul_columns(task);
    double operations = 2 * rows * (double)task->columns * columns;
    double passes = columns / task->experts / tile_columns(task->tokens);
    double computing_s = operations / tensor_rate + (other_rate > 0 ? operations / other_rate : 0);
    double time_s = fmax(computing_s, bytes / rates->bytes_per_s);

    /* Each column tile decodes the weights again. */
    return floating
               ? time_s
               : fmax(time_s, passes * decode_s(rates, task) / rates->family->tile_decode_ratio);
}

/* Volta has tensor cores for f16 only: a batch of 64 or more decodes the weights to f16 in
 * memory and multiplies those. Source: ggml-cuda/mmq.cu, ggml_cuda_should_use_mmq. */
static bool decodes_to_f16(const struct machine_device *device, const struct program_task *task)
{
    return device->has_fp16_tensor_cores && !device->has_int8_tensor_cores &&
           tensor_type_info(task->type)->quantised && task->tokens >= 64;
}

static double decoded_matmul_s(const struct rates *rates, const struct program_task *task,
                               double bytes)
{
    double f16_bytes = 2.0 * (double)task->rows * (double)task->columns * task->experts;
    struct program_task product = *task;

    product.type = TENSOR_TYPE_F16;
    return (bytes + f16_bytes) / rates->bytes_per_s + matmul_s(rates, &product, f16_bytes);
}

static double product_s(const struct rates *rates, const struct machine_device *device,
                        const struct program_task *task, double bytes)
{
    uint32_t limit = tensor_type_info(task->type)->quantised
                         ? cost_matvec_limit(device->compute_capability, task->type)
                         : 3;

    if (decodes_to_f16(device, task))
        return decoded_matmul_s(rates, task, bytes);
    return task->tokens <= limit ? matvec_s(rates, task, bytes) : matmul_s(rates, task, bytes);
}

/* Query heads of a K/V head share a tile of 1, 2, 4 or 8 columns; the rest of it is waste. */
static double tile_waste(const struct program_task *task)
{
    double group = task->kv_heads > 0 ? (double)task->heads / task->kv_heads : 1;
    double tile = group > 4 ? 8 : group > 2 ? 4 : group > 1 ? 2 : 1;

    return tile / fmin(group, tile);
}

/* The vector kernel, and the tile kernel of GPUs without tensor cores. */
static bool uses_ordinary_units(const struct machine_device *device,
                                const struct program_task *task, double cells)
{
    bool quantised = tensor_type_info(task->cache_type)->quantised;
    bool ada_or_newer = device->compute_capability >= 89;
    double group = task->kv_heads > 0 ? (double)task->heads / task->kv_heads : 1;

    if (!device->has_fp16_tensor_cores)
        return true;
    if (task->head_dim > 256)
        return false;
    if (quantised)
        return task->tokens <= (ada_or_newer ? 2u : 1u);
    if (task->tokens != 1)
        return false;
    return ada_or_newer ? !(group > 4 && cells >= 8192) : group < 2;
}

/* A tile has room for eight tokens; with fewer, part of the tensor cores' work is wasted. */
static double tensor_core_attention_ratio(const struct machine_family *family,
                                          const struct program_task *task)
{
    if (task->tokens <= 1)
        return family->attn_one_ratio;
    return fmax(family->attn_one_ratio, family->attn_mma_ratio * fmin(1, task->tokens / 8.0));
}

/* Source of the choice of kernel: ggml-cuda/fattn.cu. The tensor-core kernel works on
 * f16: a quantised window is converted in full first, written and read again. */
static double attention_s(const struct rates *rates, const struct machine_device *device,
                          const struct program_task *task, double cells, double bytes)
{
    double flops = task->flops + cells * task->flops_per_cell;
    double rate;

    if (uses_ordinary_units(device, task, cells)) {
        rate = rates->fp32_per_s * (device->has_fp16_tensor_cores || task->tokens == 1
                                        ? rates->family->attn_vec_ratio
                                        : rates->family->attn_tile_ratio);
        return fmax(flops / rate, bytes / rates->bytes_per_s);
    }
    if (tensor_type_info(task->cache_type)->quantised)
        bytes += cells * 2 * 2 * 2.0 * task->kv_heads * task->head_dim;
    rate = rates->fp16_per_s * tensor_core_attention_ratio(rates->family, task);
    return fmax(flops * tile_waste(task) / rate, bytes / rates->bytes_per_s);
}

/* The state is copied out of the cache, read, and written back: four transfers, of which a
 * second-level cache that holds the copy keeps two. In prefill each head runs through the
 * tokens one by one: waves of blocks (four columns of a head's state each, 128 threads,
 * 1536 threads a multiprocessor) times tokens times the latency of a step. */
static double delta_net_s(const struct rates *rates, const struct machine_device *device,
                          const struct program_task *task, double bytes)
{
    double sequences = task->sequences > 1 ? task->sequences : 1;
    double blocks = sequences * task->heads * task->head_dim / 4.0;
    double waves = ceil(blocks * 128 / (device->sm_count * 1536.0));
    double transfers = (double)device->l2_bytes >= 2 * task->state_bytes ? 2 : 4;

    return fmax((bytes + transfers * task->state_bytes) / rates->bytes_per_s,
                waves * task->tokens / sequences * rates->family->gdn_step_s);
}

double cost_kernel_s(const struct machine *machine, const struct machine_device *device,
                     const struct program_task *task, double cells)
{
    struct rates rates = rates_of(machine, device);
    double bytes = task->bytes + cells * task->bytes_per_cell;
    double body_s;

    switch (task->kind) {
    case TASK_MATMUL:
    case TASK_EXPERTS:
        body_s = product_s(&rates, device, task, bytes);
        break;
    case TASK_ATTENTION:
        body_s = attention_s(&rates, device, task, cells, bytes);
        break;
    case TASK_DELTA_NET:
        body_s = delta_net_s(&rates, device, task, bytes);
        break;
    default:
        body_s = bytes / rates.bytes_per_s;
    }
    return task->kernels * rates.family->kernel_s + task->input_bytes / rates.bytes_per_s + body_s;
}
