#include <check.h>
#include <string.h>

#include "sim/model.h"
#include "sim/model_private.h"
#include "tests/gguf_blocks.h"

static void write_no_architecture(struct gguf_writer *writer)
{
    gguf_writer_init(writer, 3, false);
}

static void write_no_block_count(struct gguf_writer *writer)
{
    gguf_writer_init(writer, 3, false);
    gguf_writer_key_string(writer, "general.architecture", "llama");
}

static void write_no_embedding_length(struct gguf_writer *writer)
{
    gguf_blocks_start(writer, "llama", 1);
}

static void write_no_head_count(struct gguf_writer *writer)
{
    gguf_blocks_start(writer, "llama", 1);
    gguf_writer_key_u32(writer, "llama.embedding_length", 64);
}

static void write_absurd_block_count(struct gguf_writer *writer)
{
    gguf_blocks_start(writer, "llama", UINT32_MAX);
}

static void write_zero_block_count(struct gguf_writer *writer)
{
    gguf_blocks_start(writer, "llama", 0);
}

static void write_block_count_string(struct gguf_writer *writer)
{
    gguf_writer_init(writer, 3, false);
    gguf_writer_key_string(writer, "general.architecture", "llama");
    gguf_writer_key_string(writer, "llama.block_count", "32");
}

static void write_no_blocks(struct gguf_writer *writer)
{
    gguf_blocks_start(writer, "llama", 1);
    gguf_blocks_write_embedding(writer, 64, 512);
}

static void write_far_block(struct gguf_writer *writer)
{
    gguf_blocks_start(writer, "llama", 2);
    gguf_blocks_write(writer, 0, GGUF_BLOCK_LLAMA_PLAIN);
    gguf_blocks_write(writer, 7, GGUF_BLOCK_LLAMA_PLAIN);
}

static void write_absurd_block(struct gguf_writer *writer)
{
    gguf_blocks_start(writer, "llama", 2);
    gguf_blocks_write(writer, 2000000000, GGUF_BLOCK_LLAMA_PLAIN);
}

static void write_odd_heads(struct gguf_writer *writer)
{
    gguf_blocks_start(writer, "llama", 1);
    gguf_writer_key_u32(writer, "llama.attention.head_count", 7);
    gguf_writer_key_u32(writer, "llama.attention.head_count_kv", 3);
    gguf_blocks_write_embedding(writer, 64, 512);
    gguf_blocks_write(writer, 0, GGUF_BLOCK_LLAMA_PLAIN);
}

static void write_mamba(struct gguf_writer *writer)
{
    gguf_blocks_start(writer, "mamba", 1);
    gguf_blocks_write_embedding(writer, 64, 512);
    gguf_blocks_write(writer, 0, GGUF_BLOCK_MAMBA);
}

static void write_no_expert_used_count(struct gguf_writer *writer)
{
    gguf_blocks_start(writer, "gpt-oss", 1);
    gguf_writer_key_u32(writer, "gpt-oss.attention.head_count", 64);
    gguf_writer_key_u32(writer, "gpt-oss.attention.head_count_kv", 8);
    gguf_blocks_write_embedding(writer, 2880, 201088);
    gguf_blocks_write(writer, 0, GGUF_BLOCK_GPT_OSS);
}

static const struct {
    void (*write)(struct gguf_writer *writer);
    const char *error;
} refusals[] = {
    {write_no_architecture, "offset 16: key \"general.architecture\": is missing"},
    {write_no_block_count, "offset 16: key \"llama.block_count\": is missing"},
    {write_no_embedding_length, "offset 16: key \"llama.embedding_length\": is missing"},
    {write_no_head_count, "offset 16: key \"llama.attention.head_count\": is missing"},
    {write_absurd_block_count,
     "offset 98: key \"llama.block_count\": 4294967295 is too much; at most 4096 can be"},
    {write_zero_block_count, "offset 98: key \"llama.block_count\": 0 blocks are no model"},
    {write_block_count_string, "offset 98: key \"llama.block_count\": a value of type string where "
                               "an integer of 0 or more belongs"},
    {write_no_blocks,
     "offset 98: key \"llama.block_count\": 1, but none of the 1 tensors is of a block"},
    {write_far_block, "offset 98: key \"llama.block_count\": 2, but there is a block 7, and 6 "
                      "before it have no tensors"},
    {write_absurd_block,
     "offset 102: a tensor of block 2000000000; numbers below 4096 are allowed"},
    {write_odd_heads, "offset 305: tensor \"blk.0.attn_k.weight\": 32 rows are not whole heads; "
                      "attention.head_count_kv is 3"},
    {write_mamba, "a state-space block without ssm_beta or ssm_ba; of these only the gated delta "
                  "net is modelled"},
    {write_no_expert_used_count, "offset 16: key \"gpt-oss.expert_used_count\": is missing"},
};

START_TEST(a_refusal_names_file_offset_and_field)
{
    struct error err = {0};
    struct gguf_writer writer;
    struct gguf *gguf;

    refusals[_i].write(&writer);
    gguf = gguf_parse(writer.data, writer.size, "test.gguf", &err);
    ck_assert_msg(gguf != NULL, "%s", err.text);
    ck_assert_ptr_null(model_from_gguf(gguf, "test.gguf", &err));
    ck_assert_str_eq(err.source, "test.gguf");
    ck_assert_msg(strncmp(err.text, "offset ", 7) == 0, "%s", err.text);
    ck_assert_msg(strstr(err.text, refusals[_i].error) != NULL, "%s", err.text);
    gguf_free(gguf);
    gguf_writer_close(&writer);
}
END_TEST

START_TEST(building_refuses_what_cannot_be)
{
    struct error err = {0};
    struct model *model = model_new(&err);

    ck_assert_ptr_nonnull(model);
    ck_assert_int_eq(model_set_layers(model, UINT32_MAX, UINT32_MAX, &err), -1);
    err = (struct error){0};
    ck_assert_int_eq(
        model_add_tensor(model, "a", TENSOR_TYPE_Q4_K, (uint64_t[]){255, 1, 1, 1}, &err), -1);
    err = (struct error){0};
    ck_assert_int_eq(model_add_tensor(model, "a", TENSOR_TYPE_F32,
                                      (uint64_t[]){UINT64_C(1) << 62, 4, 1, 1}, &err),
                     -1);
    err = (struct error){0};
    ck_assert_int_eq(model_set_layers(model, 1, 0, &err), 0);
    ck_assert_int_eq(
        model_add_tensor(model, "blk.1.ssm_a", TENSOR_TYPE_F32, (uint64_t[]){1, 1, 1, 1}, &err), 0);
    ck_assert_int_eq(model_finish(model, &err), -1);
    ck_assert_str_eq(err.text, "tensor blk.1.ssm_a: the model has only 1 blocks");
    model_free(model);
    model_free(NULL);
}
END_TEST

static Suite *suite(void)
{
    Suite *all = suite_create("model_gguf_refusals");
    TCase *wrong = tcase_create("refusals");

    tcase_add_loop_test(wrong, a_refusal_names_file_offset_and_field, 0,
                        (int)(sizeof refusals / sizeof *refusals));
    tcase_add_test(wrong, building_refuses_what_cannot_be);
    suite_add_tcase(all, wrong);
    return all;
}

int main(void)
{
    SRunner *runner = srunner_create(suite());
    int failures;

    srunner_run_all(runner, CK_ENV);
    failures = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failures != 0;
}
