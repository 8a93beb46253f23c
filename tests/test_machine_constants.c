/* The constants of a machine, and the profile that it is written as. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "sim/machine.h"

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

/* Two devices behind a switch, one beside it, and a bridge between them. */
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

static struct machine_constant *all_constants(struct machine *machine, size_t *count)
{
    struct machine_constant *constants;

    *count = machine_constants(machine, NULL, 0);
    constants = calloc(*count, sizeof *constants);
    ck_assert_ptr_nonnull(constants);
    ck_assert_uint_eq(machine_constants(machine, constants, *count), *count);
    return constants;
}

static const struct machine_constant *find(const struct machine_constant *constants, size_t count,
                                           const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(constants[i].name, name) == 0)
            return &constants[i];
    return NULL;
}

START_TEST(constants_are_within_their_bounds_and_named_once)
{
    struct machine *machine = parsed(switched, NULL);
    size_t count;
    struct machine_constant *constants = all_constants(machine, &count);

    for (size_t i = 0; i < count; i++) {
        double value = *constants[i].value / constants[i].scale;

        ck_assert_msg(constants[i].min < constants[i].max, "%s", constants[i].name);
        ck_assert_msg(value >= constants[i].min * (1 - 1e-12) &&
                          value <= constants[i].max * (1 + 1e-12),
                      "%s: %g", constants[i].name, value);
        ck_assert(constants[i].unit[0] != '\0' && constants[i].meaning[0] != '\0');
        ck_assert_ptr_eq(find(constants, count, constants[i].name), &constants[i]);
    }
    ck_assert_ptr_nonnull(find(constants, count, "plx0.down_gbs"));
    ck_assert_ptr_nonnull(find(constants, count, "CUDA1-CUDA2.down_gbs"));
    ck_assert_ptr_nonnull(find(constants, count, "ampere.matvec_rate.k_quant"));
    ck_assert_ptr_null(find(constants, count, "hopper.kernel_us"));
    free(constants);
    machine_free(machine);
}
END_TEST

START_TEST(a_constant_is_a_place_in_the_machine)
{
    struct machine *machine = opened(PAIR, NULL);
    size_t count;
    struct machine_constant *constants = all_constants(machine, &count);
    const struct machine_constant *kernel = find(constants, count, "ada.kernel_us");
    const struct machine_constant *duplex = find(constants, count, "CUDA1.duplex_gbs");
    const struct machine_constant *down = find(constants, count, "CUDA1.down_gbs");

    ck_assert_ptr_eq(kernel->value, &machine->families[machine->devices[0].family].kernel_s);
    ck_near(kernel->scale, 1e-6);
    ck_assert_str_eq(kernel->unit, "us");
    ck_assert_ptr_eq(duplex->value, &machine->links[1].duplex_gbs);
    ck_near(duplex->min, 3.3);
    ck_near(duplex->max, 6.6);
    ck_near(down->max, 3.94); /* PCIe 3.0 x4 in theory */
    free(constants);
    machine_free(machine);
}
END_TEST

START_TEST(a_list_too_short_for_the_constants_is_not_overrun)
{
    struct machine *machine = opened(PAIR, NULL);
    struct machine_constant two[3] = {0};

    ck_assert_uint_gt(machine_constants(machine, two, 2), 2);
    ck_assert_str_eq(two[1].name, "ada.kernel_us");
    ck_assert_str_eq(two[2].name, "");
    machine_free(machine);
}
END_TEST

START_TEST(a_machine_written_as_a_profile_reads_back_the_same)
{
    struct machine *machines[] = {opened(PAIR, "oc"), parsed(switched, NULL),
                                  composed("2x MI300X@gen4x8")};
    struct error err = {0};

    for (size_t i = 0; i < sizeof machines / sizeof machines[0]; i++) {
        char *text = machine_to_json(machines[i], &err), *again;
        struct machine *copy;

        ck_assert_ptr_nonnull(text);
        copy = parsed(text, NULL);
        again = machine_to_json(copy, &err);
        ck_assert_ptr_nonnull(again);
        ck_assert_str_eq(text, again);
        ck_assert_uint_eq(copy->device_count, machines[i]->device_count);
        ck_near(copy->devices[0].fp16_tflops, machines[i]->devices[0].fp16_tflops);
        free(text);
        free(again);
        machine_free(copy);
        machine_free(machines[i]);
    }
}
END_TEST

START_TEST(weight_types_fall_into_the_classes_of_their_kernels)
{
    ck_assert_int_eq(machine_weight_class_of(TENSOR_TYPE_BF16), MACHINE_WEIGHT_FLOAT);
    ck_assert_int_eq(machine_weight_class_of(TENSOR_TYPE_Q8_0), MACHINE_WEIGHT_BLOCK);
    ck_assert_int_eq(machine_weight_class_of(TENSOR_TYPE_Q5_K), MACHINE_WEIGHT_K_QUANT);
    ck_assert_int_eq(machine_weight_class_of(TENSOR_TYPE_IQ2_XS), MACHINE_WEIGHT_I_QUANT);
    ck_assert_int_eq(machine_weight_class_of(TENSOR_TYPE_IQ4_XS), MACHINE_WEIGHT_I4_QUANT);
    for (uint32_t id = 0; id < TENSOR_TYPE_LIMIT; id++) {
        const struct tensor_type_info *info = tensor_type_info(id);

        if (info != NULL)
            ck_assert_int_eq(machine_weight_class_of((enum tensor_type)id) != MACHINE_WEIGHT_FLOAT,
                             info->quantised);
    }
}
END_TEST

static Suite *suite(void)
{
    Suite *all = suite_create("machine_constants");
    TCase *constants = tcase_create("constants");

    tcase_add_test(constants, constants_are_within_their_bounds_and_named_once);
    tcase_add_test(constants, a_constant_is_a_place_in_the_machine);
    tcase_add_test(constants, a_list_too_short_for_the_constants_is_not_overrun);
    tcase_add_test(constants, a_machine_written_as_a_profile_reads_back_the_same);
    tcase_add_test(constants, weight_types_fall_into_the_classes_of_their_kernels);
    suite_add_tcase(all, constants);
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
