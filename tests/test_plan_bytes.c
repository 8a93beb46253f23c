/* Bytes of each tensor on each device, for every model of the catalogue. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/plan_cases.h"

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

/* What a tensor split cuts, by llama.cpp's table; everything else is mirrored. */
static const char *const split_names[] = {
    "attn_q.weight",
    "attn_k.weight",
    "attn_v.weight",
    "attn_qkv.weight",
    "attn_q.bias",
    "attn_k.bias",
    "attn_v.bias",
    "attn_qkv.bias",
    "attn_sinks.weight",
    "attn_output.weight",
    "attn_gate.weight",
    "ssm_dt.bias",
    "ssm_a",
    "ssm_alpha.weight",
    "ssm_beta.weight",
    "ssm_ba.weight",
    "ssm_conv1d.weight",
    "ssm_out.weight",
    "ffn_up.weight",
    "ffn_gate.weight",
    "ffn_up_exps.weight",
    "ffn_gate_exps.weight",
    "ffn_gate_up_exps.weight",
    "ffn_up.bias",
    "ffn_gate.bias",
    "ffn_up_exps.bias",
    "ffn_gate_exps.bias",
    "ffn_down.weight",
    "ffn_down_exps.weight",
    "output.weight",
};

static bool is_split(const char *name)
{
    int layer;

    tensor_role_of(name, &layer);
    if (layer >= 0)
        name = strchr(name + strlen("blk."), '.') + 1;
    for (int i = 0; i < COUNT(split_names); i++)
        if (strcmp(split_names[i], name) == 0)
            return true;
    return false;
}

/* The first mix of each model of the catalogue, and Q8_0; models that a tensor split
 * can cut, or all. */
static struct model *open_card(int index)
{
    const struct model_card *card = model_catalogue_card((size_t)index / 2);
    char spec[160];

    snprintf(spec, sizeof spec, "%s:%s", card->name, index % 2 == 0 ? card->quants[0] : "Q8_0");
    return plan_cases_model(spec);
}

static const struct {
    const char *machine, *flags;
} ratios[] = {
    {PLAN_CASES_DESKTOP, ""},
    {PLAN_CASES_DESKTOP, "-ts 60/40"},
    {PLAN_CASES_DESKTOP, "-ts 60/40 -as 1/0"},
    {PLAN_CASES_DESKTOP, "-ts 0/1"},
    {PLAN_CASES_DESKTOP, "-ts 57/43 -engine llama.cpp"},
    {"3x RTX 3090@gen4x8", ""},
    {"3x RTX 3090@gen4x8", "-ts 5/3/2"},
    {"4x RTX 3090@gen4x8", "-ts 4/3/2/1"},
};

static void check_tensor(const struct placement *placement, const struct model_tensor *tensor)
{
    uint32_t count = placement->device_count;
    bool tied = placement->model->tied_embeddings;
    bool mirrored_head = tied && placement->plan.schedule == PLAN_SCHEDULE_LLAMA_CPP;
    uint64_t sum = 0, expected = tensor->bytes;

    for (uint32_t d = 0; d < count; d++)
        sum += placement_tensor_bytes(placement, tensor, d);
    if (tensor->role == TENSOR_ROLE_TOKEN_EMBD)
        expected = !tied ? 0 : mirrored_head ? count * tensor->bytes : tensor->bytes;
    else if (!is_split(tensor->name))
        expected = count * tensor->bytes;
    ck_assert_msg(sum == expected, "%s:%s %s: %llu bytes over %u devices, not %llu",
                  placement->model->name, placement->model->quant, tensor->name,
                  (unsigned long long)sum, count, (unsigned long long)expected);
}

START_TEST(slices_of_a_tensor_split_add_up_and_the_rest_is_mirrored)
{
    struct model *model = open_card(_i);

    for (int r = 0; r < COUNT(ratios) && strcmp(model->arch, "deepseek2") != 0; r++) {
        struct machine *machine = plan_cases_machine(ratios[r].machine);
        struct plan plan = plan_cases_plan(ratios[r].flags);
        struct error err = {0};
        struct placement *placement;

        plan.split = PLAN_SPLIT_TENSOR;
        placement = placement_new(model, machine, &plan, 512, &err);
        ck_assert_msg(placement != NULL, "%s: %s", model->name, err.text);
        for (size_t i = 0; i < model->tensor_count; i++)
            check_tensor(placement, &model->tensors[i]);
        placement_free(placement);
        machine_free(machine);
    }
    model_free(model);
}
END_TEST

START_TEST(a_layer_split_puts_every_tensor_on_one_device_and_the_embedding_on_the_host)
{
    struct model *model = open_card(_i);
    struct machine *machine = plan_cases_machine(PLAN_CASES_DESKTOP);
    struct plan plan = plan_cases_plan("-ts 55/45");
    struct error err = {0};
    struct placement *placement = placement_new(model, machine, &plan, 512, &err);

    ck_assert_ptr_nonnull(placement);
    for (size_t i = 0; i < model->tensor_count; i++) {
        const struct model_tensor *tensor = &model->tensors[i];
        uint64_t first = placement_tensor_bytes(placement, tensor, 0);
        uint64_t second = placement_tensor_bytes(placement, tensor, 1);
        uint64_t expected =
            tensor->role == TENSOR_ROLE_TOKEN_EMBD && !model->tied_embeddings ? 0 : tensor->bytes;
        int owner =
            placement->owner[tensor->layer < 0 ? (int)placement->layer_count : tensor->layer];

        ck_assert_msg((owner == 0 ? first : second) == expected && first + second == expected,
                      "%s %s: %llu and %llu bytes", model->name, tensor->name,
                      (unsigned long long)first, (unsigned long long)second);
    }
    placement_free(placement);
    machine_free(machine);
    model_free(model);
}
END_TEST

/* Slices in values of the cut axis, of the whole axis. */
static const struct {
    const char *tensor;
    uint64_t parts[2], whole;
} slice_cases[] = {
    {"blk.0.ffn_up.weight", {10240, 7168}, 17408},
    {"blk.1.ffn_down.weight", {10496, 6912}, 17408},
    {"blk.3.attn_q.weight", {6144, 6144}, 12288},
    {"blk.7.attn_q.weight", {9216, 3072}, 12288},
    {"blk.7.attn_k.weight", {768, 256}, 1024},
    {"blk.7.attn_output.weight", {4608, 1536}, 6144},
    {"blk.1.attn_qkv.weight", {6400, 3840}, 10240},
    {"blk.1.ssm_conv1d.weight", {6400, 3840}, 10240},
    {"blk.1.ssm_out.weight", {3840, 2304}, 6144},
    {"blk.1.ssm_alpha.weight", {30, 18}, 48},
    {"blk.1.ssm_a", {30, 18}, 48},
    {"output.weight", {148992, 99328}, 248320},
};

START_TEST(bytes_of_a_slice_follow_the_worked_examples)
{
    struct plan_case c =
        plan_cases_open("qwen3.8-27b:UD-IQ2_M", PLAN_CASES_DESKTOP, "-sm tensor -ts 60/40", 512);
    const struct model_tensor *tensor = NULL;

    for (size_t i = 0; i < c.model->tensor_count; i++)
        if (strcmp(c.model->tensors[i].name, slice_cases[_i].tensor) == 0)
            tensor = &c.model->tensors[i];
    ck_assert_ptr_nonnull(tensor);
    for (uint32_t d = 0; d < 2; d++)
        ck_assert_uint_eq(placement_tensor_bytes(c.placement, tensor, d),
                          tensor->bytes / slice_cases[_i].whole * slice_cases[_i].parts[d] +
                              tensor->bytes % slice_cases[_i].whole * slice_cases[_i].parts[d] /
                                  slice_cases[_i].whole);
    plan_cases_close(&c);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("plan_bytes");
    TCase *bytes = tcase_create("bytes");
    SRunner *runner = srunner_create(suite);
    int failed, cards = 2 * (int)model_catalogue_count();

    tcase_set_timeout(bytes, 120);
    tcase_add_loop_test(bytes, slices_of_a_tensor_split_add_up_and_the_rest_is_mirrored, 0, cards);
    tcase_add_loop_test(bytes,
                        a_layer_split_puts_every_tensor_on_one_device_and_the_embedding_on_the_host,
                        0, cards);
    tcase_add_loop_test(bytes, bytes_of_a_slice_follow_the_worked_examples, 0, COUNT(slice_cases));
    suite_add_tcase(suite, bytes);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
