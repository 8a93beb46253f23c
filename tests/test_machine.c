/* Machines that open: built-in, composed, derived; and the ways between their nodes. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/kernel_table.h"
#include "sim/machine.h"
#include "sim/machine_pace.h"

#define PAIR "rtx4070-gen4x16+rtx3060-gen3x4"

#define ck_near(actual, expected) ck_assert_double_eq_tol(actual, expected, 1e-9 * (expected))

static struct machine *opened(const char *name, const char *variant)
{
    struct error err = {0};
    struct machine *machine = machine_open(name, variant, &err);

    ck_assert_msg(machine != NULL, "%s:%d:%d: %s", err.source, err.line, err.column, err.text);
    return machine;
}

static struct machine *parsed(const char *text, const char *variant)
{
    struct error err = {0};
    struct machine *machine = machine_parse(text, strlen(text), "m.json", variant, &err);

    ck_assert_msg(machine != NULL, "%s:%d:%d: %s", err.source, err.line, err.column, err.text);
    return machine;
}

static struct machine *composed(const char *gpu)
{
    struct error err = {0};
    struct machine *machine = machine_compose(&gpu, 1, &err);

    ck_assert_msg(machine != NULL, "%s: %s", gpu, err.text);
    return machine;
}

/* --- invariants of any machine --- */

static void check_family(const struct machine_family *family)
{
    ck_assert(family->memory_ratio > 0 && family->memory_ratio <= 1);
    ck_assert(family->kernel_s >= 0 && family->kernel_s < 1e-3);
    ck_assert(family->gdn_step_s >= 0 && family->gdn_step_s < 1e-3);
    for (int i = 0; i < MACHINE_WEIGHT_CLASS_COUNT; i++) {
        ck_assert(family->matvec_rate[i] > 0 && family->matvec_rate[i] <= 512);
        ck_assert(family->matmul_ratio[i] > 0 && family->matmul_ratio[i] <= 1);
    }
    ck_assert(family->attn_vec_ratio > 0 && family->attn_vec_ratio <= 1);
    ck_assert(family->attn_one_ratio > 0 && family->attn_one_ratio <= 1);
    ck_assert(family->attn_mma_ratio > 0 && family->attn_mma_ratio <= 2);
}

static void check_device(const struct machine_device *device)
{
    ck_assert_msg(device->memory_bytes >= UINT64_C(1) << 30, "%s", device->gpu);
    ck_assert_msg(device->memory_gbs > 100 && device->memory_gbs < 10000, "%s", device->gpu);
    ck_assert_msg(device->sm_count >= 16 && device->sm_count < 512, "%s", device->gpu);
    ck_assert_msg(device->clock_ghz > 1 && device->clock_ghz < 4, "%s", device->gpu);
    ck_assert_msg(device->fp32_tflops > 1, "%s", device->gpu);
    ck_assert_msg(device->fp16_tflops > 0, "%s", device->gpu);
    ck_assert_msg(device->int8_tops > 1, "%s", device->gpu);
}

static void check_link(const struct machine_link *link)
{
    ck_assert(link->down_gbs > 0 && link->up_gbs > 0 && link->pageable_gbs > 0);
    ck_assert_double_ge(link->duplex_gbs, fmax(link->down_gbs, link->up_gbs));
    ck_assert_double_le(link->duplex_gbs, link->down_gbs + link->up_gbs);
    ck_assert_double_le(link->pageable_gbs, link->down_gbs);
    ck_assert(link->latency_s > 0 && link->latency_s < 1e-3);
    ck_assert_double_eq(link->packet_bytes, 256);
    ck_assert_double_eq(link->packet_overhead_bytes, 24);
}

static void check_machine(const struct machine *machine)
{
    ck_assert_uint_ge(machine->device_count, 1);
    ck_assert_int_eq(machine->nodes[0].kind, MACHINE_NODE_HOST);
    for (uint32_t i = 0; i < machine->device_count; i++) {
        const struct machine_device *device = &machine->devices[i];

        check_device(device);
        ck_assert_uint_lt(device->family, machine->family_count);
        check_family(&machine->families[device->family]);
        ck_assert_uint_lt(device->node, machine->node_count);
        ck_assert_uint_eq(machine->nodes[device->node].device, i);
        ck_assert_str_eq(machine->nodes[device->node].name, device->name);
        ck_assert_int_ge(machine_device_link(machine, i), 0);
        ck_assert_int_eq(machine_find_device(machine, device->name), (int)i);
    }
    for (uint32_t i = 0; i < machine->link_count; i++) {
        ck_assert_uint_lt(machine->links[i].from, machine->node_count);
        ck_assert_uint_lt(machine->links[i].to, machine->node_count);
        check_link(&machine->links[i]);
    }
    ck_assert(machine->host.threads >= 1 && machine->host.memory_gbs > 0);
    ck_assert_double_le(machine->host.thread_gbs, machine->host.memory_gbs);
    ck_assert(machine->collective.ratio > 0 && machine->collective.ratio <= 1);
}

/* --- the catalogue --- */

START_TEST(catalogue_gpus_have_names_of_their_own_and_compose)
{
    const struct machine_device *device, *other;
    size_t count = 0;

    for (; (device = machine_catalogue_gpu(count)) != NULL; count++) {
        struct machine *machine = composed(device->gpu);

        check_machine(machine);
        ck_assert_str_eq(machine->devices[0].gpu, device->gpu);
        ck_assert_str_eq(machine->links[0].class_name, machine_catalogue_gpu_link(count));
        machine_free(machine);
        for (size_t i = 0; i < count; i++) {
            other = machine_catalogue_gpu(i);
            ck_assert_str_ne(other->gpu, device->gpu);
        }
    }
    ck_assert_uint_eq(count, 49);
    ck_assert_ptr_null(machine_catalogue_gpu_link(count));
}
END_TEST

START_TEST(catalogue_links_have_names_of_their_own_and_sound_rates)
{
    const struct machine_link *link;
    size_t count = 0;

    for (; (link = machine_catalogue_link(count)) != NULL; count++) {
        check_link(link);
        for (size_t i = 0; i < count; i++)
            ck_assert_str_ne(machine_catalogue_link(i)->class_name, link->class_name);
    }
    ck_assert_uint_ge(count, 14);
}
END_TEST

START_TEST(catalogue_families_have_names_of_their_own_and_sound_ratios)
{
    const struct machine_family *family;
    size_t count = 0;

    for (; (family = machine_catalogue_family(count)) != NULL; count++) {
        check_family(family);
        for (size_t i = 0; i < count; i++)
            ck_assert_str_ne(machine_catalogue_family(i)->name, family->name);
    }
    ck_assert_uint_eq(count, 9);
}
END_TEST

static const struct {
    const char *typed, *gpu;
} names[] = {
    {"GeForce RTX 4070", "GeForce RTX 4070"},
    {"RTX 4070", "GeForce RTX 4070"},
    {"4070", "GeForce RTX 4070"},
    {"rtx 4070 ti", "GeForce RTX 4070 Ti"},
    {"4070 Ti Super", "GeForce RTX 4070 Ti Super"},
    {"RTX 3060", "GeForce RTX 3060 12GB"},
    {"3060 Ti", "GeForce RTX 3060 Ti"},
    {"NVIDIA GeForce RTX 5090", "GeForce RTX 5090"},
    {"h200", "H200 SXM"},
    {"L4", "L4"},
    {"A6000", "RTX A6000"},
    {"PRO 6000", "RTX PRO 6000 Blackwell Workstation"},
    {"V100 SXM2", "Tesla V100 SXM2 32GB"},
    {"MI300X", "Instinct MI300X"},
    {"7900 XTX", "Radeon RX 7900 XTX"},
    {"Spark", "GB10 (DGX Spark)"},
};

START_TEST(a_part_of_a_name_finds_the_gpu)
{
    struct machine *machine = composed(names[_i].typed);

    ck_assert_str_eq(machine->devices[0].gpu, names[_i].gpu);
    machine_free(machine);
}
END_TEST

START_TEST(gpus_of_the_catalogue_have_the_rates_of_their_kernels)
{
    struct machine *ada = composed("RTX 4070"), *pascal = composed("P40"), *volta;

    ck_near(ada->devices[0].fp16_tflops, 58.3); /* with fp32 sums: half of 116.6 */
    ck_near(ada->devices[0].int8_tops, 233.2);
    ck_assert(ada->devices[0].has_int8_tensor_cores && ada->devices[0].has_fp16_tensor_cores);
    ck_assert(!pascal->devices[0].has_int8_tensor_cores);
    ck_assert(!pascal->devices[0].has_fp16_tensor_cores);
    ck_near(pascal->devices[0].int8_tops, 47); /* dp4a */
    volta = composed("V100 PCIe");
    ck_assert(volta->devices[0].has_fp16_tensor_cores && !volta->devices[0].has_int8_tensor_cores);
    ck_near(volta->devices[0].int8_tops, 4 * 14.1);
    machine_free(ada);
    machine_free(pascal);
    machine_free(volta);
}
END_TEST

START_TEST(composing_gives_each_card_a_link_to_the_host)
{
    const char *const gpus[] = {"RTX 4070@gen4x16", "RTX 3060@gen3x4", "2x RTX 3090@PCIe 4.0 x8"};
    struct error err = {0};
    struct machine *machine = machine_compose(gpus, 3, &err);

    ck_assert_msg(machine != NULL, "%s", err.text);
    check_machine(machine);
    ck_assert_uint_eq(machine->device_count, 4);
    ck_assert_str_eq(machine->devices[3].name, "CUDA3");
    ck_assert_str_eq(machine->devices[3].gpu, "GeForce RTX 3090");
    ck_near(machine->links[0].down_gbs, 24.6);
    ck_near(machine->links[0].pageable_gbs, 12.6);
    ck_near(machine->links[1].down_gbs, 3.3);
    ck_near(machine->links[3].up_gbs, 13.1);
    ck_assert_str_eq(machine->name, "RTX 4070@gen4x16 + RTX 3060@gen3x4 + 2x RTX 3090@PCIe 4.0 x8");
    machine_free(machine);
}
END_TEST

/* --- built-in profiles --- */

START_TEST(every_built_in_profile_opens_in_every_variant)
{
    const char *const *builtins = machine_builtin_names();
    size_t count = 0;

    for (; builtins[count] != NULL; count++) {
        struct machine *stock = opened(builtins[count], NULL);

        check_machine(stock);
        ck_assert_str_eq(stock->name, builtins[count]);
        ck_assert_str_eq(stock->variant, "stock");
        for (uint32_t i = 0; i < stock->variant_count; i++) {
            struct machine *variant = opened(builtins[count], stock->variants[i]);

            check_machine(variant);
            ck_assert_str_eq(variant->variant, stock->variants[i]);
            machine_free(variant);
        }
        machine_free(stock);
    }
    ck_assert_uint_eq(count, 5);
}
END_TEST

START_TEST(the_pair_has_the_measured_figures)
{
    struct machine *machine = opened(PAIR, "stock");

    ck_assert_uint_eq(machine->device_count, 2);
    ck_assert_str_eq(machine->devices[0].gpu, "GeForce RTX 4070");
    ck_assert_uint_eq(machine->devices[0].memory_bytes, UINT64_C(12282) << 20);
    ck_near(machine->devices[0].memory_gbs, 504);
    ck_assert_str_eq(machine->families[machine->devices[0].family].name, "ada");
    ck_assert_str_eq(machine->devices[1].gpu, "GeForce RTX 3060 12GB");
    ck_assert_uint_eq(machine->devices[1].memory_bytes, UINT64_C(12288) << 20);
    ck_assert_str_eq(machine->families[machine->devices[1].family].name, "ampere");
    ck_assert_uint_eq(machine->link_count, 2);
    ck_near(machine->links[0].down_gbs, 24.2);
    ck_near(machine->links[0].pageable_gbs, 12.63);
    ck_near(machine->links[1].down_gbs, 3.3);
    ck_near(machine->host.memory_gbs, 42.73);
    ck_near(machine->host.thread_gbs, 16.31);
    ck_near(machine->host.split_s, 11.6e-6);
    ck_assert_uint_eq(machine->host.threads, 16);
    machine_free(machine);
}
END_TEST

START_TEST(rates_follow_the_clock_of_a_variant)
{
    struct machine *stock = opened(PAIR, NULL), *oc = opened(PAIR, "oc");
    double faster = 2675.0 / 2475.0;

    ck_near(oc->devices[0].memory_gbs, 540);
    ck_near(oc->devices[0].clock_ghz, 2.675);
    ck_near(oc->devices[0].fp32_tflops, faster * stock->devices[0].fp32_tflops);
    ck_near(oc->devices[0].fp16_tflops, faster * stock->devices[0].fp16_tflops);
    ck_near(oc->devices[0].int8_tops, faster * stock->devices[0].int8_tops);
    ck_assert_double_eq(oc->devices[1].fp32_tflops, stock->devices[1].fp32_tflops);
    machine_free(stock);
    machine_free(oc);
}
END_TEST

START_TEST(a_derived_profile_keeps_changes_and_variants)
{
    struct machine *pair = opened(PAIR, NULL), *single = opened("rtx4070-gen4x16", NULL);
    struct machine *oc = opened("rtx4070-gen4x16", "oc");

    ck_assert_uint_eq(single->device_count, 1);
    ck_assert_uint_eq(single->link_count, 1);
    ck_assert_uint_eq(single->node_count, 2);
    ck_near(single->links[0].down_gbs, 24.61);
    ck_near(single->links[0].up_gbs, 24.61); /* by default as down */
    ck_near(single->links[0].duplex_gbs, 1.6 * 24.61);
    ck_near(single->links[0].pageable_gbs, pair->links[0].pageable_gbs); /* given, so it stays */
    ck_assert_double_eq(single->host.memory_gbs, pair->host.memory_gbs);
    ck_assert_uint_eq(single->fitted_row_count, pair->fitted_row_count);
    ck_near(oc->devices[0].memory_gbs, 540);
    ck_near(oc->links[0].down_gbs, 24.61);
    machine_free(pair);
    machine_free(single);
    machine_free(oc);
}
END_TEST

START_TEST(a_file_may_come_from_a_file_beside_it)
{
    const char *base = "machine-test-base.json", *derived = "machine-test-derived.json";
    FILE *file = fopen(base, "w");
    struct machine *pair = opened(PAIR, NULL), *machine;

    ck_assert_ptr_nonnull(file);
    fprintf(file, "{\"lopside_machine\": 1, \"name\": \"base\", \"from\": \"" PAIR "\",\n"
                  " \"devices_kept\": [\"CUDA1\", \"CUDA0\"],\n"
                  " \"fitted\": {\"rows\": [\"a\", \"b\"], \"constants\": [\n"
                  "  {\"name\": \"CUDA0.down_gbs\", \"value\": 3.5, \"unit\": \"GB/s\"},\n"
                  "  {\"name\": \"ada.kernel_us\", \"value\": 2, \"unit\": \"us\","
                  " \"uncertainty\": 0.1}]}}\n");
    fclose(file);
    file = fopen(derived, "w");
    ck_assert_ptr_nonnull(file);
    fprintf(file,
            "{\"lopside_machine\": 1, \"name\": \"derived\", \"from\": \"%s\",\n"
            " \"host\": {\"launch_us\": 4}, \"fitted\": {\"rows\": [\"b\", \"c\"]}}\n",
            base);
    fclose(file);
    machine = opened(derived, NULL);
    remove(base);
    remove(derived);
    check_machine(machine);
    ck_assert_str_eq(machine->name, "derived");
    ck_assert_str_eq(machine->devices[0].gpu, "GeForce RTX 3060 12GB");
    ck_assert_str_eq(machine->devices[0].name, "CUDA0");
    ck_near(machine->links[machine_device_link(machine, 0)].down_gbs, 3.5);
    ck_near(machine->links[machine_device_link(machine, 0)].up_gbs, 3.5);
    ck_near(machine->families[machine->devices[1].family].kernel_s, 2e-6);
    ck_near(machine->host.launch_s, 4e-6);
    ck_near(machine->host.memory_gbs, 42.73);
    ck_assert_uint_eq(machine->fitted_row_count, pair->fitted_row_count + 3); /* b once */
    ck_assert_str_eq(machine->fitted_rows[machine->fitted_row_count - 1], "c");
    machine_free(pair);
    machine_free(machine);
}
END_TEST

START_TEST(defaults_fill_what_a_profile_leaves_out)
{
    struct machine *machine =
        parsed("{\"lopside_machine\": 1, \"name\": \"m\", \"host\": {\"memory_gbs\": 40},"
               " \"devices\": [{\"name\": \"G\", \"gpu\": \"RTX 4070\", \"clock_mhz\": 4950,"
               " \"int8_tops\": 300}],"
               " \"links\": [{\"from\": \"host\", \"to\": \"G\", \"down_gbs\": 20,"
               " \"up_gbs\": 40}]}",
               NULL);

    ck_assert_uint_eq(machine->host.threads, 8);
    ck_near(machine->host.thread_gbs, 16);
    ck_near(machine->host.launch_s, 3e-6);
    ck_near(machine->host.copy_s, 8e-6);
    ck_near(machine->host.sync_s, 5e-6);
    ck_near(machine->host.split_s, 11.6e-6);
    ck_near(machine->host.build_s, 1500e-6);
    ck_near(machine->host.collective_issue_s, 8e-6);
    ck_near(machine->collective.latency_s, 40e-6);
    ck_near(machine->collective.ratio, 0.6);
    ck_near(machine->devices[0].fp32_tflops, 2 * 29.1);
    ck_near(machine->devices[0].int8_tops, 300);
    ck_near(machine->links[0].duplex_gbs, 40); /* no less than one direction alone */
    ck_near(machine->links[0].pageable_gbs, 10);
    ck_near(machine->links[0].latency_s, 1e-6);
    ck_assert_str_eq(machine->links[0].class_name, "");
    machine_free(machine);
}
END_TEST

/* --- kernel tables --- */

#define MEASURED                                                                                   \
    "{\"step_us\": 48, \"pace_inside_us\": 2, \"products\": [{\"kind\": \"experts\", \"type\": "   \
    "\"Q4_K\", \"tokens\": 8, "                                                                    \
    "\"launch_us\": "                                                                              \
    "2.1,"                                                                                         \
    " \"gbs\": 401.5}, {\"kind\": \"matmul\", \"type\": \"Q8_0\", \"tokens\": 1, \"launch_us\": "  \
    "2,"                                                                                           \
    " \"gbs\": 400, \"ahead_mib\": 22}],"                                                          \
    " \"attention\": [{\"cache\": \"Q8_0\", \"kv_heads\": 32, \"tokens\": 1, \"cells\": "          \
    "4294967296, \"us\": 9.7}],"                                                                   \
    " \"other\": [{\"kind\": \"norm\", \"behind\": \"all-reduce\", \"tokens\": 1, \"bytes\": 9, "  \
    "\"us\": 1}, "                                                                                 \
    "{\"kind\": \"rope\", \"head_dim\": 64, \"normed\": true, \"tokens\": 1, \"bytes\": 9, "       \
    "\"us\": 1}, "                                                                                 \
    "{\"kind\": \"delta-net\", \"tokens\": 1, \"bytes\": 9000, \"us\": 10}],"                      \
    " \"sums\": [{\"devices\": 2, \"bytes\": 40960, \"us\": 5.2}]}"

/* The pair with a table of each card. */
static const char measured[] = "{\"lopside_machine\": 1, \"name\": \"m\", \"from\": \"" PAIR "\",\n"
                               " \"kernels\": {\"GeForce RTX 3060 12GB\": {},\n"
                               "  \"GeForce RTX 4070\": " MEASURED "}}\n";

START_TEST(a_kernel_table_belongs_to_the_devices_of_its_gpu)
{
    struct machine *machine = parsed(measured, NULL);
    const struct kernel_table *table = machine_kernel_table(machine, machine->devices[0].gpu);

    ck_assert_uint_eq(machine->kernel_table_count, 2);
    ck_assert_ptr_nonnull(table);
    ck_assert_str_eq(table->gpu, "GeForce RTX 4070");
    ck_assert_uint_eq(table->product_count, 2);
    ck_assert_int_eq(table->products[0].kind, TASK_MATMUL); /* in order, not as written */
    ck_assert_int_eq(table->products[1].type, TENSOR_TYPE_Q4_K);
    ck_assert_uint_eq(table->products[1].tokens, 8);
    ck_near(table->products[1].launch_s, 2.1e-6);
    ck_near(table->products[1].gbs, 401.5);
    ck_assert_int_eq(table->attentions[0].cache_type, TENSOR_TYPE_Q8_0);
    ck_assert_uint_eq(table->attentions[0].kv_heads, 32);
    ck_assert_uint_eq(table->attentions[0].cells, UINT64_C(4294967296));
    ck_near(table->step_s, 48e-6);
    ck_near(table->pace_inside_s, 2e-6);
    ck_assert_double_eq(table->pace_behind_s, 0); /* not given */
    ck_assert_double_eq(table->products[0].ahead_bytes, 22 * 1048576.0);
    ck_assert_double_eq(table->products[1].ahead_bytes, 0); /* not given */
    ck_near(table->attentions[0].time_s, 9.7e-6);
    ck_assert_uint_eq(table->other_count, 3);
    ck_assert_int_eq(table->others[0].kind, TASK_NORM);
    ck_assert_int_eq(table->others[0].behind, TASK_ALL_REDUCE);
    ck_assert_uint_eq(table->others[1].head_dim, 64);
    ck_assert(table->others[1].normed);
    ck_assert_uint_eq(table->others[2].bytes, 9000);
    ck_assert_uint_eq(table->sums[0].bytes, 40960);
    ck_near(table->sums[0].time_s, 5.2e-6);
    table = machine_kernel_table(machine, machine->devices[1].gpu);
    ck_assert_ptr_nonnull(table);
    ck_assert_uint_eq(table->product_count, 0);
    ck_assert_ptr_null(machine_kernel_table(machine, "GeForce RTX 3090"));
    machine_free(machine);
}
END_TEST

START_TEST(kernel_tables_go_with_the_last_device_of_their_gpu)
{
    const uint32_t second[] = {1};
    struct machine *machine = parsed(measured, NULL);
    struct error err = {0};

    ck_assert_int_eq(machine_keep_devices(machine, second, 1, &err), 0);
    ck_assert_uint_eq(machine->kernel_table_count, 1);
    ck_assert_str_eq(machine->kernel_tables[0].gpu, "GeForce RTX 3060 12GB");
    ck_assert_ptr_null(machine_kernel_table(machine, "GeForce RTX 4070"));
    machine_free(machine);
}
END_TEST

START_TEST(a_kernel_table_replaces_the_former_of_its_gpu)
{
    struct machine *machine = parsed(measured, NULL);
    struct kernel_table table = {.gpu = "GeForce RTX 4070"}, stranger = {.gpu = "GeForce RTX 3090"};
    const struct kernel_sum sum = {2, 8, 1e-6};
    struct error err = {0};

    ck_assert_int_eq(kernel_table_add_sum(&table, sum, &err), 0);
    ck_assert_int_eq(machine_set_kernel_table(machine, &table, &err), 0);
    ck_assert_ptr_null(table.sums);
    ck_assert_uint_eq(machine->kernel_table_count, 2);
    ck_assert_uint_eq(machine_kernel_table(machine, table.gpu)->sums[0].bytes, 8);
    ck_assert_uint_eq(machine_kernel_table(machine, table.gpu)->product_count, 0);
    ck_assert_int_eq(kernel_table_add_sum(&stranger, sum, &err), 0);
    ck_assert_int_eq(machine_set_kernel_table(machine, &stranger, &err), -1);
    ck_assert_str_eq(err.text, "no device of m is a GPU named \"GeForce RTX 3090\"");
    ck_assert_uint_eq(stranger.sum_count, 1);
    kernel_table_clear(&stranger);
    machine_free(machine);
}
END_TEST

START_TEST(a_derived_profile_has_the_tables_of_the_other_or_its_own)
{
    const char *base = "machine-test-measured.json";
    FILE *file = fopen(base, "w");
    struct machine *kept, *changed;

    ck_assert_ptr_nonnull(file);
    fputs(measured, file);
    fclose(file);
    kept =
        parsed("{\"lopside_machine\": 1, \"name\": \"d\", \"from\": \"machine-test-measured.json\","
               " \"devices_kept\": [\"CUDA0\"]}",
               NULL);
    changed = parsed("{\"lopside_machine\": 1, \"name\": \"d\", \"from\": "
                     "\"machine-test-measured.json\", \"kernels\": {\"GeForce RTX 4070\":"
                     " {\"sums\": [{\"devices\": 4, \"bytes\": 8, \"us\": 5}]}}}",
                     NULL);
    remove(base);
    ck_assert_uint_eq(kept->kernel_table_count, 1);
    ck_assert_uint_eq(machine_kernel_table(kept, kept->devices[0].gpu)->product_count, 2);
    ck_assert_uint_eq(changed->kernel_table_count, 2);
    ck_assert_uint_eq(machine_kernel_table(changed, changed->devices[0].gpu)->product_count, 0);
    ck_assert_uint_eq(machine_kernel_table(changed, changed->devices[0].gpu)->sum_count, 1);
    machine_free(kept);
    machine_free(changed);
}
END_TEST

START_TEST(kernel_tables_written_as_a_profile_read_back_the_same)
{
    struct machine *machine = parsed(measured, NULL), *copy;
    struct error err = {0};
    char *text = machine_to_json(machine, &err), *again;
    const struct kernel_table *table, *read;

    ck_assert_ptr_nonnull(text);
    copy = parsed(text, NULL);
    again = machine_to_json(copy, &err);
    ck_assert_ptr_nonnull(again);
    ck_assert_str_eq(text, again);
    ck_assert_uint_eq(copy->kernel_table_count, 2);
    table = machine_kernel_table(machine, "GeForce RTX 4070");
    read = machine_kernel_table(copy, "GeForce RTX 4070");
    ck_assert_double_eq(read->products[1].launch_s, table->products[1].launch_s);
    ck_assert_double_eq(read->products[1].gbs, table->products[1].gbs);
    ck_assert_double_eq(read->attentions[0].time_s, table->attentions[0].time_s);
    ck_assert_uint_eq(read->attentions[0].kv_heads, table->attentions[0].kv_heads);
    ck_assert_uint_eq(read->attentions[0].cells, table->attentions[0].cells);
    ck_assert_double_eq(read->step_s, table->step_s);
    ck_assert_double_eq(read->products[0].ahead_bytes, table->products[0].ahead_bytes);
    ck_assert_int_eq(read->others[0].kind, table->others[0].kind);
    ck_assert_double_eq(read->sums[0].time_s, table->sums[0].time_s);
    free(text);
    free(again);
    machine_free(copy);
    machine_free(machine);
}
END_TEST

START_TEST(machines_of_the_catalogue_have_no_kernel_tables)
{
    struct machine *machine = composed("2x RTX 4070@gen4x8"), *pair = opened(PAIR, NULL);

    ck_assert_uint_eq(machine->kernel_table_count, 0);
    ck_assert_uint_eq(pair->kernel_table_count, 0);
    ck_assert_ptr_null(machine_kernel_table(machine, machine->devices[0].gpu));
    machine_free(machine);
    machine_free(pair);
}
END_TEST

/* --- ways --- */

/* Two devices behind a switch, one beside it, and a bridge between the first two. */
static const char switched[] =
    "{\"lopside_machine\": 1, \"name\": \"m\", \"host\": {\"memory_gbs\": 40},\n"
    " \"devices\": [{\"name\": \"CUDA0\", \"gpu\": \"RTX 3090\"},\n"
    "  {\"name\": \"CUDA1\", \"gpu\": \"RTX 3090\"}, {\"name\": \"CUDA2\", \"gpu\": \"RTX "
    "4070\"}],\n"
    " \"switches\": [\"plx0\"],\n"
    " \"links\": [{\"from\": \"host\", \"to\": \"plx0\", \"link\": \"gen4x16\"},\n"
    "  {\"from\": \"plx0\", \"to\": \"CUDA0\", \"link\": \"gen4x8\"},\n"
    "  {\"from\": \"plx0\", \"to\": \"CUDA1\", \"link\": \"gen4x8\"},\n"
    "  {\"from\": \"host\", \"to\": \"CUDA2\", \"link\": \"gen3x4\"},\n"
    "  {\"from\": \"CUDA1\", \"to\": \"CUDA2\", \"link\": \"NVLink 3 x4\"}]}\n";

static void check_route(const struct machine *machine, uint32_t from, uint32_t to, int count,
                        const uint32_t *links, const bool *down)
{
    uint32_t found[MACHINE_NODES_MAX];
    bool found_down[MACHINE_NODES_MAX];

    ck_assert_int_eq(machine_route(machine, from, to, found, found_down), count);
    for (int i = 0; i < count; i++) {
        ck_assert_uint_eq(found[i], links[i]);
        ck_assert_int_eq(found_down[i], down[i]);
    }
}

START_TEST(the_way_between_devices_turns_at_their_switch)
{
    struct machine *machine = parsed(switched, NULL);
    uint32_t cuda0 = machine->devices[0].node, cuda1 = machine->devices[1].node;
    uint32_t cuda2 = machine->devices[2].node;

    check_machine(machine);
    check_route(machine, 0, 0, 0, NULL, NULL);
    check_route(machine, 0, cuda0, 2, (const uint32_t[]){0, 1}, (const bool[]){true, true});
    check_route(machine, cuda1, 0, 2, (const uint32_t[]){2, 0}, (const bool[]){false, false});
    check_route(machine, cuda0, cuda1, 2, (const uint32_t[]){1, 2}, (const bool[]){false, true});
    check_route(machine, cuda2, cuda1, 1, (const uint32_t[]){4}, (const bool[]){false});
    /* not through CUDA1 and its bridge */
    check_route(machine, cuda0, cuda2, 3, (const uint32_t[]){1, 0, 3},
                (const bool[]){false, false, true});
    machine_free(machine);
}
END_TEST

START_TEST(kept_devices_take_their_links_and_ways_along)
{
    const uint32_t order[] = {2, 0};
    struct machine *machine = parsed(switched, NULL);
    struct error err = {0};

    ck_assert_int_eq(machine_keep_devices(machine, order, 2, &err), 0);
    check_machine(machine);
    ck_assert_uint_eq(machine->device_count, 2);
    ck_assert_str_eq(machine->devices[0].gpu, "GeForce RTX 4070");
    ck_assert_str_eq(machine->devices[0].name, "CUDA0");
    ck_assert_uint_eq(machine->link_count, 3);
    check_route(machine, machine->devices[1].node, machine->devices[0].node, 3,
                (const uint32_t[]){1, 0, 2}, (const bool[]){false, false, true});
    machine_free(machine);
}
END_TEST

START_TEST(devices_that_cannot_be_kept_change_nothing)
{
    const uint32_t twice[] = {0, 0}, beyond[] = {7};
    struct machine *machine = parsed(switched, NULL);
    struct error err = {0}, other = {0}, none = {0};

    ck_assert_int_eq(machine_keep_devices(machine, twice, 2, &err), -1);
    ck_assert_str_eq(err.text, "CUDA0 is kept twice; once is possible");
    ck_assert_int_eq(machine_keep_devices(machine, beyond, 1, &other), -1);
    ck_assert_str_eq(other.text, "no device 7 in m, which has 3");
    ck_assert_int_eq(machine_keep_devices(machine, beyond, 0, &none), -1);
    ck_assert_str_eq(none.text, "0 devices cannot stay of 3; 1 to 3 can");
    ck_assert_uint_eq(machine->device_count, 3);
    machine_free(machine);
}
END_TEST

START_TEST(a_pace_slows_devices_and_holds_links_down)
{
    static const char *const gpus[] = {"RTX 4070@gen4x16", "RTX 3060@gen3x4"};
    struct error err = {0};
    struct machine *machine = machine_compose(gpus, 2, &err);
    const struct machine_link *first, *second;
    double before_gbs;
    struct machine_pace pace;

    ck_assert_ptr_nonnull(machine);
    first = &machine->links[machine_device_link(machine, 0)];
    second = &machine->links[machine_device_link(machine, 1)];
    before_gbs = second->down_gbs;
    ck_assert_int_eq(machine_pace_read(&pace, "1/0.5", "5/100", &err), 0);
    machine_apply_pace(machine, &pace);
    ck_assert_double_le(machine->devices[0].slowdown, 1);
    ck_assert_double_eq(machine->devices[1].slowdown, 2);
    ck_assert_double_eq(first->down_gbs, 5);
    ck_assert_double_eq(first->up_gbs, 5);
    ck_assert_double_eq(second->down_gbs, before_gbs);
    machine_free(machine);
}
END_TEST

START_TEST(a_pace_that_is_no_share_is_refused)
{
    static const char *const devices[] = {"1/2", "", "1/", "0/1", "a"};
    struct machine_pace pace;
    struct error err = {0}, link = {0};

    ck_assert_int_eq(machine_pace_read(&pace, devices[_i], NULL, &err), -1);
    ck_assert_int_eq(err.code, ERROR_USAGE);
    ck_assert_ptr_nonnull(strstr(err.text, "--pace-devices"));
    ck_assert_int_eq(machine_pace_read(&pace, NULL, "-1", &link), -1);
    ck_assert_ptr_nonnull(strstr(link.text, "--pace-links -1: numbers above 0"));
}
END_TEST

static Suite *suite(void)
{
    Suite *all = suite_create("machine");
    TCase *catalogue = tcase_create("catalogue"), *profiles = tcase_create("profiles");
    TCase *ways = tcase_create("ways"), *kernels = tcase_create("kernels");

    tcase_add_test(catalogue, catalogue_gpus_have_names_of_their_own_and_compose);
    tcase_add_test(catalogue, catalogue_links_have_names_of_their_own_and_sound_rates);
    tcase_add_test(catalogue, catalogue_families_have_names_of_their_own_and_sound_ratios);
    tcase_add_loop_test(catalogue, a_part_of_a_name_finds_the_gpu, 0,
                        (int)(sizeof names / sizeof names[0]));
    tcase_add_test(catalogue, gpus_of_the_catalogue_have_the_rates_of_their_kernels);
    tcase_add_test(catalogue, composing_gives_each_card_a_link_to_the_host);
    tcase_add_test(profiles, every_built_in_profile_opens_in_every_variant);
    tcase_add_test(profiles, the_pair_has_the_measured_figures);
    tcase_add_test(profiles, rates_follow_the_clock_of_a_variant);
    tcase_add_test(profiles, a_derived_profile_keeps_changes_and_variants);
    tcase_add_test(profiles, a_file_may_come_from_a_file_beside_it);
    tcase_add_test(profiles, defaults_fill_what_a_profile_leaves_out);
    tcase_add_test(profiles, a_pace_slows_devices_and_holds_links_down);
    tcase_add_loop_test(profiles, a_pace_that_is_no_share_is_refused, 0, 5);
    tcase_add_test(kernels, a_kernel_table_belongs_to_the_devices_of_its_gpu);
    tcase_add_test(kernels, kernel_tables_go_with_the_last_device_of_their_gpu);
    tcase_add_test(kernels, a_kernel_table_replaces_the_former_of_its_gpu);
    tcase_add_test(kernels, a_derived_profile_has_the_tables_of_the_other_or_its_own);
    tcase_add_test(kernels, kernel_tables_written_as_a_profile_read_back_the_same);
    tcase_add_test(kernels, machines_of_the_catalogue_have_no_kernel_tables);
    tcase_add_test(ways, the_way_between_devices_turns_at_their_switch);
    tcase_add_test(ways, kept_devices_take_their_links_and_ways_along);
    tcase_add_test(ways, devices_that_cannot_be_kept_change_nothing);
    suite_add_tcase(all, catalogue);
    suite_add_tcase(all, profiles);
    suite_add_tcase(all, kernels);
    suite_add_tcase(all, ways);
    return all;
}

int main(void)
{
    SRunner *runner = srunner_create(suite());
    int failed;

    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
