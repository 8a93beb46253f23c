/* How long kernels last: which kernel a shape gets, what it reads, decodes and multiplies. */
#include <check.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#include "sim/cost.h"

#define PAIR "rtx4070-gen4x16+rtx3060-gen3x4"

enum { ADA, AMPERE }; /* devices of PAIR */

#define ck_near(actual, expected) ck_assert_double_eq_tol(actual, expected, 1e-12 * (expected))

static struct machine *machine;
static const struct machine_device *ada, *ampere;

static void open_machine(void)
{
    struct error err = {0};

    machine = machine_open(PAIR, NULL, &err);
    ck_assert_msg(machine != NULL, "%s", err.text);
    ada = &machine->devices[ADA];
    ampere = &machine->devices[AMPERE];
    ck_assert_int_eq(ada->compute_capability, 89);
    ck_assert_int_eq(ampere->compute_capability, 86);
}

/* Products that only multiply: decoding the weights of a tile takes no time. */
static void open_machine_without_decoding(void)
{
    open_machine();
    for (uint32_t f = 0; f < machine->family_count; f++)
        machine->families[f].tile_decode_ratio = 1e9;
}

static void close_machine(void)
{
    machine_free(machine);
}

static const struct machine_family *family_of(const struct machine_device *device)
{
    return &machine->families[device->family];
}

static double streaming_rate(const struct machine_device *device)
{
    return device->memory_gbs * 1e9 * family_of(device)->memory_ratio;
}

/* A product that reads nothing and has no fixed costs: only its arithmetic is left. */
static struct program_task product(enum tensor_type type, uint64_t rows, uint64_t columns,
                                   uint32_t tokens)
{
    return (struct program_task){.kind = TASK_MATMUL,
                                 .type = type,
                                 .rows = rows,
                                 .columns = columns,
                                 .tokens = tokens,
                                 .experts = 1,
                                 .flops = 2.0 * (double)rows * (double)columns * tokens};
}

static double time_of(const struct machine_device *device, struct program_task task, double cells)
{
    return cost_kernel_s(machine, device, &task, cells);
}

static double product_s(const struct machine_device *device, enum tensor_type type, uint64_t rows,
                        uint32_t tokens)
{
    return time_of(device, product(type, rows, 4096, tokens), 0);
}

/* ---- products with few tokens ---- */

static const struct {
    int compute_capability;
    enum tensor_type type;
    uint32_t limit;
} limit_cases[] = {
    {89, TENSOR_TYPE_Q2_K, 4},  {89, TENSOR_TYPE_Q3_K, 6},  {89, TENSOR_TYPE_Q4_K, 7},
    {89, TENSOR_TYPE_Q5_K, 7},  {89, TENSOR_TYPE_Q6_K, 8},  {89, TENSOR_TYPE_Q8_0, 8},
    {89, TENSOR_TYPE_IQ2_S, 8}, {120, TENSOR_TYPE_Q2_K, 5}, {120, TENSOR_TYPE_Q3_K, 5},
    {120, TENSOR_TYPE_Q4_K, 5}, {120, TENSOR_TYPE_Q5_K, 5}, {120, TENSOR_TYPE_Q6_K, 7},
    {120, TENSOR_TYPE_Q4_0, 8}, {86, TENSOR_TYPE_Q2_K, 8},  {86, TENSOR_TYPE_Q5_K, 8},
    {90, TENSOR_TYPE_Q2_K, 8},  {90, TENSOR_TYPE_Q4_K, 8},  {75, TENSOR_TYPE_Q3_K, 8},
    {61, TENSOR_TYPE_Q4_K, 8},  {0, TENSOR_TYPE_Q4_K, 8},
};

START_TEST(products_run_as_matrix_times_vectors_up_to_a_limit_of_chip_and_type)
{
    uint32_t limit = cost_matvec_limit(limit_cases[_i].compute_capability, limit_cases[_i].type);

    ck_assert_msg(limit == limit_cases[_i].limit, "%s on %d: up to %u tokens, not %u",
                  tensor_type_info(limit_cases[_i].type)->name, limit_cases[_i].compute_capability,
                  limit, limit_cases[_i].limit);
}
END_TEST

START_TEST(a_product_within_the_limit_decodes_once_and_multiplies_column_by_column)
{
    const struct machine_family *family = family_of(ada);
    double rate =
        ada->sm_count * ada->clock_ghz * 1e9 * family->matvec_rate[MACHINE_WEIGHT_K_QUANT];
    double once_s = 1000 * 4096.0 / rate;
    double rows_s = 1000 * family->row_clocks / (ada->sm_count * ada->clock_ghz * 1e9);

    for (uint32_t tokens = 1; tokens <= 7; tokens++)
        ck_near(product_s(ada, TENSOR_TYPE_Q5_K, 1000, tokens),
                once_s * (1 + family->column_ratio * (tokens - 1)) + rows_s);
    ck_assert_double_ne(product_s(ada, TENSOR_TYPE_Q5_K, 1000, 8),
                        once_s * (1 + family->column_ratio * 7) + rows_s);
}
END_TEST

/* Volta: tensor cores for f16 and none for int8. */
START_TEST(without_int8_tensor_cores_a_large_batch_multiplies_weights_decoded_to_f16)
{
    struct machine_device volta = *ada;
    double decoded_bytes = 2.0 * 4096 * 4096, few_s, many_s;

    volta.has_int8_tensor_cores = false;
    few_s = product_s(&volta, TENSOR_TYPE_Q5_K, 4096, 63);
    ck_assert_double_eq(few_s, product_s(ada, TENSOR_TYPE_Q5_K, 4096, 63));
    many_s = product_s(&volta, TENSOR_TYPE_Q5_K, 4096, 512);
    ck_near(many_s,
            product_s(ada, TENSOR_TYPE_F16, 4096, 512) + decoded_bytes / streaming_rate(ada));
}
END_TEST

START_TEST(a_product_lasts_the_longer_of_reading_and_calculating)
{
    for (uint32_t tokens = 1; tokens <= 512; tokens += 511) {
        struct program_task task = product(TENSOR_TYPE_Q5_K, 1024, 4096, tokens);
        double rows_s =
            tokens > 8 ? 0
                       : 1024 * family_of(ada)->row_clocks / (ada->sm_count * ada->clock_ghz * 1e9);
        double calculating_s = time_of(ada, task, 0) - rows_s;

        task.bytes = 0.5 * calculating_s * streaming_rate(ada);
        ck_assert_double_eq(time_of(ada, task, 0), calculating_s + rows_s);
        task.bytes *= 6;
        ck_near(time_of(ada, task, 0), 3 * calculating_s + rows_s);
    }
}
END_TEST

/* ---- tiles ---- */

/* The fewest tiles of at most 128 columns, all of the least width that is a multiple of 8. */
static const struct {
    uint32_t tokens, columns;
} tile_cases[] = {
    {9, 16},    {16, 16},   {17, 24},   {24, 24},   {25, 32},       {100, 104},      {128, 128},
    {129, 144}, {144, 144}, {145, 160}, {256, 256}, {257, 3 * 88},  {264, 264},      {384, 384},
    {500, 512}, {512, 512}, {513, 520}, {520, 520}, {521, 5 * 112}, {1024, 8 * 128},
};

/* The tensor cores' time and that of all else add up. */
static double matmul_rate(const struct machine_device *device)
{
    const struct machine_family *family = family_of(device);
    double tensor = device->int8_tops * 1e12 * family->matmul_ratio[MACHINE_WEIGHT_K_QUANT];
    double other =
        device->sm_count * device->clock_ghz * 1e9 * family->matmul_rate[MACHINE_WEIGHT_K_QUANT];

    return 1 / (1 / tensor + 1 / other);
}

START_TEST(a_matrix_product_costs_whole_tiles)
{
    ck_near(product_s(ampere, TENSOR_TYPE_Q5_K, 1024, tile_cases[_i].tokens),
            2 * 1024 * 4096.0 * tile_cases[_i].columns / matmul_rate(ampere));
}
END_TEST

START_TEST(faster_tensor_cores_leave_the_time_of_all_else)
{
    struct machine_device twice = *ada;
    double other_rate =
        ada->sm_count * ada->clock_ghz * 1e9 * family_of(ada)->matmul_rate[MACHINE_WEIGHT_K_QUANT];
    double once_s = product_s(ada, TENSOR_TYPE_Q5_K, 1024, 512), other_s;

    other_s = 2 * 1024 * 4096.0 * 512 / other_rate;
    twice.int8_tops *= 2;
    ck_near(product_s(&twice, TENSOR_TYPE_Q5_K, 1024, 512), other_s + (once_s - other_s) / 2);
}
END_TEST

START_TEST(a_matrix_product_is_flat_within_a_tile_and_steps_at_multiples_of_eight)
{
    for (uint32_t tokens = 9; tokens < 128; tokens++) {
        double now_s = product_s(ampere, TENSOR_TYPE_Q5_K, 1024, tokens);
        double next_s = product_s(ampere, TENSOR_TYPE_Q5_K, 1024, tokens + 1);

        if (tokens % 8 == 0)
            ck_near(next_s, now_s * (tokens + 8) / tokens);
        else
            ck_assert_double_eq(next_s, now_s);
    }
}
END_TEST

START_TEST(each_column_tile_decodes_the_weights_again)
{
    struct machine_family *family = &machine->families[ada->family];
    double once_s =
        1024 * 4096.0 /
        (ada->sm_count * ada->clock_ghz * 1e9 * family->matvec_rate[MACHINE_WEIGHT_K_QUANT]);

    family->tile_decode_ratio = 0.01; /* slow enough to be what counts */
    ck_near(product_s(ada, TENSOR_TYPE_Q5_K, 1024, 16), once_s / 0.01);
    ck_near(product_s(ada, TENSOR_TYPE_Q5_K, 1024, 128), once_s / 0.01);
    ck_near(product_s(ada, TENSOR_TYPE_Q5_K, 1024, 129), 2 * once_s / 0.01);
    ck_near(product_s(ada, TENSOR_TYPE_Q5_K, 1024, 512), 4 * once_s / 0.01);
}
END_TEST

START_TEST(rows_of_a_quantised_product_come_in_128s)
{
    double of_128_s = product_s(ada, TENSOR_TYPE_Q5_K, 128, 512);

    ck_assert_double_eq(product_s(ada, TENSOR_TYPE_Q5_K, 1, 512), of_128_s);
    ck_near(product_s(ada, TENSOR_TYPE_Q5_K, 129, 512), 2 * of_128_s);
    ck_near(product_s(ada, TENSOR_TYPE_Q5_K, 256, 512), 2 * of_128_s);
    ck_near(product_s(ada, TENSOR_TYPE_F16, 129, 512),
            129 / 128.0 * product_s(ada, TENSOR_TYPE_F16, 128, 512));
}
END_TEST

START_TEST(experts_fill_tiles_whose_width_follows_from_all_tokens)
{
    /* 512 tokens, 8 of 128 experts each: 32 rows an expert, in tiles of 128 columns. */
    struct program_task task = product(TENSOR_TYPE_Q4_K, 768, 2048, 512);
    double rate = matmul_rate(ada);

    task.kind = TASK_EXPERTS;
    task.experts = 128;
    task.flops *= 8;
    ck_near(time_of(ada, task, 0), 2 * 768 * 2048.0 * 128 * 128 / rate);
    task.flops *= 4;
    ck_near(time_of(ada, task, 0), 2 * 768 * 2048.0 * 128 * 128 / rate);
    task.flops *= 129.0 / 128;
    ck_near(time_of(ada, task, 0), 2 * 768 * 2048.0 * 128 * 256 / rate);
}
END_TEST

/* ---- attention ---- */

enum kernel { VECTOR, CORES };
#define F16 TENSOR_TYPE_F16
#define Q8_0 TENSOR_TYPE_Q8_0

static const struct {
    const char *name;
    int device;
    enum tensor_type type;
    uint32_t tokens, heads, kv_heads, head_dim;
    double cells;
    enum kernel kernel;
} attention_cases[] = {
    {"f16, 1 token", ADA, F16, 1, 24, 4, 256, 7936, VECTOR},
    {"f16, 1 token, 6 heads a group, 8192 cells", ADA, F16, 1, 24, 4, 256, 8192, CORES},
    {"f16, 1 token, 4 heads a group, 8192 cells", ADA, F16, 1, 16, 4, 256, 8192, VECTOR},
    {"f16, 2 tokens", ADA, F16, 2, 24, 4, 256, 256, CORES},
    {"f16, 1 token, older", AMPERE, F16, 1, 24, 4, 256, 256, CORES},
    {"f16, 1 token, older, groups of two", AMPERE, F16, 1, 8, 4, 128, 256, CORES},
    {"f16, 1 token, older, no groups", AMPERE, F16, 1, 8, 8, 128, 256, VECTOR},
    {"f16, 2 tokens, older, no groups", AMPERE, F16, 2, 8, 8, 128, 256, CORES},
    {"q8_0, 1 token, any window", ADA, Q8_0, 1, 24, 4, 256, 65536, VECTOR},
    {"q8_0, 2 tokens", ADA, Q8_0, 2, 24, 4, 256, 65536, VECTOR},
    {"q8_0, 3 tokens", ADA, Q8_0, 3, 24, 4, 256, 65536, CORES},
    {"q8_0, 1 token, older", AMPERE, Q8_0, 1, 24, 4, 256, 65536, VECTOR},
    {"q8_0, 2 tokens, older", AMPERE, Q8_0, 2, 24, 4, 256, 65536, CORES},
    {"q8_0, a ubatch", ADA, Q8_0, 512, 24, 4, 256, 65536, CORES},
    {"wide heads", ADA, F16, 1, 16, 2, 512, 256, CORES},
};

static struct program_task attention(enum tensor_type type, uint32_t tokens, uint32_t heads,
                                     uint32_t kv_heads, uint32_t head_dim)
{
    return (struct program_task){.kind = TASK_ATTENTION,
                                 .cache_type = type,
                                 .tokens = tokens,
                                 .heads = heads,
                                 .kv_heads = kv_heads,
                                 .head_dim = head_dim,
                                 .window = PROGRAM_WINDOW_BASE,
                                 .flops_per_cell = 4.0 * head_dim * heads * tokens};
}

/* A tile has room for eight tokens; it is never slower than the one-token kernel. */
static double tensor_core_rate(const struct machine_device *device, uint32_t tokens)
{
    const struct machine_family *family = family_of(device);
    double filled = family->attn_mma_ratio * fmin(1, tokens / 8.0);

    return device->fp16_tflops * 1e12 *
           (tokens == 1 ? family->attn_one_ratio : fmax(family->attn_one_ratio, filled));
}

START_TEST(attention_runs_on_the_kernel_that_llama_cpp_chooses)
{
    struct program_task task =
        attention(attention_cases[_i].type, attention_cases[_i].tokens, attention_cases[_i].heads,
                  attention_cases[_i].kv_heads, attention_cases[_i].head_dim);
    struct machine_device device = machine->devices[attention_cases[_i].device];
    double group = (double)task.heads / task.kv_heads;
    double waste = group == 6 ? 8 / 6.0 : 1;
    double flop = task.flops_per_cell * attention_cases[_i].cells;
    double vector_s, tensor_s, actual_s;

    device.memory_gbs = 1e12; /* the conversion of a quantised window is not what counts here */
    vector_s = flop / (device.fp32_tflops * 1e12 * family_of(&device)->attn_vec_ratio);
    tensor_s = flop * waste / tensor_core_rate(&device, task.tokens);
    ck_assert_double_gt(fabs(vector_s / tensor_s - 1), 1e-3);
    actual_s = time_of(&device, task, attention_cases[_i].cells);
    ck_assert_msg(
        fabs(actual_s / (attention_cases[_i].kernel == VECTOR ? vector_s : tensor_s) - 1) < 1e-9,
        "%s: %g s; the vector kernel takes %g s, tensor cores %g s", attention_cases[_i].name,
        actual_s, vector_s, tensor_s);
}
END_TEST

START_TEST(attention_without_tensor_cores_runs_on_ordinary_units)
{
    struct machine_device device = *ada;
    struct program_task many = attention(TENSOR_TYPE_Q8_0, 512, 24, 4, 256);
    struct program_task one = attention(TENSOR_TYPE_Q8_0, 1, 24, 4, 256);
    double fp32_per_s = device.fp32_tflops * 1e12;

    device.has_fp16_tensor_cores = false;
    ck_near(time_of(&device, many, 1024),
            1024 * many.flops_per_cell / (fp32_per_s * family_of(&device)->attn_tile_ratio));
    ck_near(time_of(&device, one, 1024),
            1024 * one.flops_per_cell / (fp32_per_s * family_of(&device)->attn_vec_ratio));
}
END_TEST

/* Query heads of a group lie in a tile of 1, 2, 4 or 8 columns. */
static const struct {
    uint32_t heads_of_a_group;
    double waste;
} waste_cases[] = {{1, 1},       {2, 1},       {3, 4 / 3.0}, {4, 1}, {5, 8 / 5.0},
                   {6, 8 / 6.0}, {7, 8 / 7.0}, {8, 1},       {16, 1}};

START_TEST(heads_that_do_not_fill_a_tile_waste_the_rest)
{
    uint32_t heads = 4 * waste_cases[_i].heads_of_a_group;
    struct program_task task = attention(TENSOR_TYPE_F16, 512, heads, 4, 128);

    ck_near(time_of(ada, task, 2048),
            waste_cases[_i].waste * 2048 * task.flops_per_cell / tensor_core_rate(ada, 512));
}
END_TEST

START_TEST(a_quantised_window_is_converted_in_full_for_tensor_cores)
{
    struct program_task task = attention(TENSOR_TYPE_Q8_0, 3, 24, 4, 256);
    double f16_window = 2 * 2.0 * 4 * 256; /* K and V of a cell */

    task.flops_per_cell = 0;
    task.bytes_per_cell = 2 * 1088;
    ck_near(time_of(ada, task, 4096),
            4096 * (task.bytes_per_cell + 2 * f16_window) / streaming_rate(ada));
    task.tokens = 2; /* the vector kernel reads the cache as it is */
    ck_near(time_of(ada, task, 4096), 4096 * task.bytes_per_cell / streaming_rate(ada));
}
END_TEST

/* ---- the gated delta net ---- */

static struct program_task delta_net(uint32_t heads, uint32_t tokens, double state_bytes)
{
    return (struct program_task){.kind = TASK_DELTA_NET,
                                 .heads = heads,
                                 .head_dim = 128,
                                 .tokens = tokens,
                                 .state_bytes = state_bytes};
}

START_TEST(tokens_of_a_delta_net_follow_each_other_in_waves_of_blocks)
{
    /* A head has 32 blocks; 12 fit on a multiprocessor: 46 x 12 on Ada, 28 x 12 on Ampere. */
    static const struct {
        uint32_t heads;
        double ada_waves, ampere_waves;
    } cases[] = {{8, 1, 1}, {10, 1, 1}, {11, 1, 2}, {17, 1, 2}, {18, 2, 2}, {24, 2, 3}, {48, 3, 5}};

    ck_assert_uint_eq(ada->sm_count, 46);
    ck_assert_uint_eq(ampere->sm_count, 28);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct program_task task = delta_net(cases[i].heads, 512, 0);

        ck_near(time_of(ada, task, 0), cases[i].ada_waves * 512 * family_of(ada)->gdn_step_s);
        ck_near(time_of(ampere, task, 0),
                cases[i].ampere_waves * 512 * family_of(ampere)->gdn_step_s);
    }
}
END_TEST

START_TEST(a_cache_that_holds_a_state_twice_spares_two_of_its_four_transfers)
{
    struct machine_device device = *ada;
    struct program_task task = delta_net(1, 0, 3 << 20);

    device.l2_bytes = 6 << 20;
    ck_near(time_of(&device, task, 0), 2 * task.state_bytes / streaming_rate(ada));
    device.l2_bytes -= 1;
    ck_near(time_of(&device, task, 0), 4 * task.state_bytes / streaming_rate(ada));
}
END_TEST

/* ---- fixed costs ---- */

START_TEST(fixed_costs_and_quantising_the_activations_come_on_top)
{
    struct program_task task = product(TENSOR_TYPE_Q5_K, 1024, 4096, 512);
    double without_s = time_of(ada, task, 0);

    task.kernels = 3;
    ck_near(time_of(ada, task, 0), without_s + 3 * family_of(ada)->kernel_s);
    task.input_bytes = 1e7;
    ck_near(time_of(ada, task, 0),
            without_s + 3 * family_of(ada)->kernel_s + 1e7 / streaming_rate(ada));
}
END_TEST

/* ---- rows of a strided copy ---- */

static const struct machine_link packets = {.packet_bytes = 256, .packet_overhead_bytes = 24};

/* Rows of 1 to 4 heads of 256 q8_0 values: payload / (payload + headers) over 256 / 280. */
static const struct {
    double row_bytes, ratio;
} row_cases[] = {
    {0, 1},
    {272, 272 / (272 + 2 * 24.0) * 280 / 256},
    {544, 544 / (544 + 3 * 24.0) * 280 / 256},
    {816, 816 / (816 + 4 * 24.0) * 280 / 256},
    {1088, 1088 / (1088 + 5 * 24.0) * 280 / 256},
    {1024, 1},
};

START_TEST(narrow_rows_fill_their_packets_less)
{
    ck_near(cost_row_ratio(&packets, row_cases[_i].row_bytes), row_cases[_i].ratio);
}
END_TEST

START_TEST(a_row_ratio_is_never_above_one)
{
    for (double row_bytes = 1; row_bytes < 5000; row_bytes++) {
        double ratio = cost_row_ratio(&packets, row_bytes);

        ck_assert_double_gt(ratio, 0);
        ck_assert_double_le(ratio, 1);
    }
    ck_assert_double_eq(cost_row_ratio(&(struct machine_link){0}, 272), 1);
}
END_TEST

/* ---- what holds for every task ---- */

static uint32_t random_state;

static uint32_t random_below(uint32_t limit)
{
    random_state = random_state * 1664525 + 1013904223; /* Numerical Recipes, "ranqd1" */
    return (uint32_t)((uint64_t)random_state * limit >> 32);
}

static double random_ratio(void)
{
    return random_below(1u << 24) / (double)(1u << 24);
}

static struct program_task random_task(void)
{
    static const enum task_kind kinds[] = {TASK_NORM,   TASK_MATMUL,    TASK_EXPERTS,
                                           TASK_ROUTER, TASK_ATTENTION, TASK_DELTA_NET,
                                           TASK_GLU};
    static const enum tensor_type types[] = {TENSOR_TYPE_F16, TENSOR_TYPE_Q8_0, TENSOR_TYPE_Q5_K,
                                             TENSOR_TYPE_IQ2_S, TENSOR_TYPE_IQ4_XS};
    uint32_t kv_heads = 1 + random_below(8);
    struct program_task task = {
        .kind = kinds[random_below(sizeof kinds / sizeof *kinds)],
        .type = types[random_below(5)],
        .cache_type = types[random_below(2)],
        .rows = 1 + random_below(20000),
        .columns = 256 * (1 + random_below(64)),
        .tokens = 1 + random_below(random_below(2) == 0 ? 10 : 700),
        .kernels = random_below(5),
        .kv_heads = kv_heads,
        .heads = kv_heads * (1 + random_below(10)),
        .head_dim = 64 * (1 + random_below(5)),
        .bytes = 1e8 * random_ratio(),
        .input_bytes = 1e7 * random_ratio(),
        .state_bytes = 1e7 * random_ratio(),
        .bytes_per_cell = 5000 * random_ratio(),
        .flops_per_cell = 1e7 * random_ratio(),
        .experts = 1,
    };

    if (task.kind == TASK_EXPERTS)
        task.experts = 1 + random_below(128);
    task.flops = 2.0 * (double)task.rows * (double)task.columns * task.tokens;
    return task;
}

/* Windows on one side of 8192 cells, where the kernel changes. */
static double random_cells(double *more)
{
    bool large = random_below(2) == 0;
    uint32_t blocks = random_below(30), more_blocks = blocks + random_below(31 - blocks);

    *more = 256.0 * (more_blocks + (large ? 32 : 1));
    return 256.0 * (blocks + (large ? 32 : 1));
}

START_TEST(more_work_is_never_faster)
{
    for (random_state = 1; random_state < 4000; random_state++) {
        uint32_t seed = random_state;
        struct program_task task = random_task(), more = task;
        const struct machine_device *device = &machine->devices[random_below(2)];
        double more_cells, cells = random_cells(&more_cells);

        more.bytes *= 1 + random_ratio();
        more.flops *= 1 + random_ratio();
        more.input_bytes *= 1 + random_ratio();
        more.state_bytes *= 1 + random_ratio();
        more.bytes_per_cell *= 1 + random_ratio();
        more.flops_per_cell *= 1 + random_ratio();
        more.kernels += random_below(3);
        more.rows += random_below(1000);
        ck_assert_msg(time_of(device, more, cells) >= time_of(device, task, cells),
                      "seed %u: a %s is faster with more to do", seed,
                      program_task_name(task.kind));
        ck_assert_msg(time_of(device, task, more_cells) >= time_of(device, task, cells),
                      "seed %u: a %s is faster over more cells", seed,
                      program_task_name(task.kind));
        random_state = seed;
    }
}
END_TEST

START_TEST(a_faster_device_is_never_slower)
{
    for (random_state = 1; random_state < 4000; random_state++) {
        uint32_t seed = random_state;
        struct program_task task = random_task();
        struct machine_device device = machine->devices[random_below(2)], faster = device;
        double more_cells, cells = random_cells(&more_cells);

        faster.memory_gbs *= 1 + random_ratio();
        faster.fp32_tflops *= 1 + random_ratio();
        faster.fp16_tflops *= 1 + random_ratio();
        faster.int8_tops *= 1 + random_ratio();
        faster.clock_ghz *= 1 + random_ratio();
        faster.sm_count += random_below(20);
        faster.l2_bytes *= 1 + random_below(3);
        ck_assert_msg(time_of(&faster, task, cells) <= time_of(&device, task, cells),
                      "seed %u: a %s is slower on a faster device", seed,
                      program_task_name(task.kind));
        random_state = seed;
    }
}
END_TEST

#define COUNT(table) ((int)(sizeof(table) / sizeof *(table)))

static TCase *products_case(void)
{
    TCase *products = tcase_create("products");

    tcase_add_loop_test(products,
                        products_run_as_matrix_times_vectors_up_to_a_limit_of_chip_and_type, 0,
                        COUNT(limit_cases));
    tcase_add_test(products,
                   a_product_within_the_limit_decodes_once_and_multiplies_column_by_column);
    tcase_add_test(products,
                   without_int8_tensor_cores_a_large_batch_multiplies_weights_decoded_to_f16);
    tcase_add_test(products, a_product_lasts_the_longer_of_reading_and_calculating);
    tcase_add_test(products, each_column_tile_decodes_the_weights_again);
    tcase_add_checked_fixture(products, open_machine, close_machine);
    return products;
}

static TCase *tiles_case(void)
{
    TCase *tiles = tcase_create("tiles");

    tcase_add_loop_test(tiles, a_matrix_product_costs_whole_tiles, 0, COUNT(tile_cases));
    tcase_add_test(tiles, faster_tensor_cores_leave_the_time_of_all_else);
    tcase_add_test(tiles, a_matrix_product_is_flat_within_a_tile_and_steps_at_multiples_of_eight);
    tcase_add_test(tiles, rows_of_a_quantised_product_come_in_128s);
    tcase_add_test(tiles, experts_fill_tiles_whose_width_follows_from_all_tokens);
    tcase_add_checked_fixture(tiles, open_machine_without_decoding, close_machine);
    return tiles;
}

static TCase *other_kernels_case(void)
{
    TCase *kernels = tcase_create("other kernels");

    tcase_add_loop_test(kernels, attention_runs_on_the_kernel_that_llama_cpp_chooses, 0,
                        COUNT(attention_cases));
    tcase_add_test(kernels, attention_without_tensor_cores_runs_on_ordinary_units);
    tcase_add_loop_test(kernels, heads_that_do_not_fill_a_tile_waste_the_rest, 0,
                        COUNT(waste_cases));
    tcase_add_test(kernels, a_quantised_window_is_converted_in_full_for_tensor_cores);
    tcase_add_test(kernels, tokens_of_a_delta_net_follow_each_other_in_waves_of_blocks);
    tcase_add_test(kernels, a_cache_that_holds_a_state_twice_spares_two_of_its_four_transfers);
    tcase_add_test(kernels, fixed_costs_and_quantising_the_activations_come_on_top);
    return kernels;
}

int main(void)
{
    Suite *suite = suite_create("cost");
    TCase *kernels = other_kernels_case();
    TCase *rows = tcase_create("rows"), *properties = tcase_create("properties");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_add_loop_test(rows, narrow_rows_fill_their_packets_less, 0, COUNT(row_cases));
    tcase_add_test(rows, a_row_ratio_is_never_above_one);
    tcase_add_test(properties, more_work_is_never_faster);
    tcase_add_test(properties, a_faster_device_is_never_slower);
    tcase_add_checked_fixture(kernels, open_machine, close_machine);
    tcase_add_checked_fixture(properties, open_machine, close_machine);
    suite_add_tcase(suite, products_case());
    suite_add_tcase(suite, tiles_case());
    suite_add_tcase(suite, kernels);
    suite_add_tcase(suite, rows);
    suite_add_tcase(suite, properties);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
