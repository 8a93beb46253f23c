#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/model.h"
#include "sim/model_private.h"
#include "tests/gguf_blocks.h"

/* Ends the file and makes the model; NULL with `err` set. */
static struct model *finish(struct gguf_writer *writer, struct error *err)
{
    struct gguf *gguf = gguf_parse(writer->data, writer->size, "test.gguf", err);
    struct model *model;

    gguf_writer_close(writer);
    if (!gguf)
        return NULL;
    model = model_from_gguf(gguf, "test.gguf", err);
    gguf_free(gguf);
    return model;
}

static struct model *finish_well(struct gguf_writer *writer)
{
    struct error err = {0};
    struct model *model = finish(writer, &err);

    ck_assert_msg(model != NULL, "%s: %s", err.source, err.text);
    return model;
}

/* ---- what the shapes say ---- */

START_TEST(a_hybrid_has_gated_queries_delta_nets_and_a_nextn_block)
{
    struct gguf_writer writer;
    struct model *model;
    const struct model_layer *layer;

    gguf_blocks_start(&writer, "qwen35", 5);
    gguf_writer_key_u32(&writer, "qwen35.attention.head_count", 24);
    gguf_writer_key_u32(&writer, "qwen35.attention.head_count_kv", 4);
    gguf_blocks_write_embedding(&writer, 5120, 248320);
    for (int i = 0; i < 3; i++)
        gguf_blocks_write(&writer, i, GGUF_BLOCK_QWEN35_DELTA_NET);
    gguf_blocks_write(&writer, 3, GGUF_BLOCK_QWEN35_ATTENTION);
    gguf_blocks_write(&writer, 4, GGUF_BLOCK_QWEN35_ATTENTION);
    gguf_writer_weight(&writer, "blk.4.nextn.eh_proj.weight", TENSOR_TYPE_F16, 10240, 5120, 0);
    model = finish_well(&writer);

    ck_assert_uint_eq(model->n_layer, 4);
    ck_assert_uint_eq(model->n_layer_nextn, 1);
    ck_assert_uint_eq(model->n_embd, 5120);
    ck_assert_uint_eq(model->n_vocab, 248320);
    ck_assert(model->tied_embeddings);
    layer = &model->layers[0];
    ck_assert_int_eq(layer->mixer, MODEL_MIXER_GATED_DELTA_NET);
    ck_assert_uint_eq(layer->gdn_k_heads, 16);
    ck_assert_uint_eq(layer->gdn_v_heads, 48);
    ck_assert_uint_eq(layer->gdn_state_dim, 128);
    ck_assert_uint_eq(layer->gdn_conv_kernel, 4);
    ck_assert_uint_eq(layer->n_head, 0);
    ck_assert_uint_eq(model_layer_conv_state(layer), 30720);
    ck_assert_uint_eq(model_layer_recurrent_state(layer), 786432);
    ck_assert(!model_layer_has_kv(layer));
    layer = &model->layers[3];
    ck_assert_int_eq(layer->mixer, MODEL_MIXER_ATTENTION);
    ck_assert(layer->q_gated && !layer->v_from_k && !layer->is_nextn);
    ck_assert_uint_eq(layer->n_head, 24);
    ck_assert_uint_eq(layer->head_dim_k, 256);
    ck_assert_uint_eq(model_layer_k_row(layer), 1024);
    ck_assert_uint_eq(model_layer_v_row(layer), 1024);
    ck_assert_uint_eq(layer->n_ff, 17408);
    ck_assert(model->layers[4].is_nextn && model->layers[4].q_gated);
    model_free(model);
}
END_TEST

START_TEST(keys_per_layer_give_windows_and_heads)
{
    struct gguf_writer writer;
    struct model *model;
    const struct model_layer *layer;

    gguf_blocks_start(&writer, "gemma4", 3);
    gguf_writer_key_u32(&writer, "gemma4.attention.head_count", 16);
    gguf_writer_key_u32s(&writer, "gemma4.attention.head_count_kv", (uint32_t[]){8, 2, 8}, 3);
    gguf_writer_key_u32(&writer, "gemma4.attention.sliding_window", 1024);
    gguf_writer_key_bools(&writer, "gemma4.attention.sliding_window_pattern",
                          (bool[]){true, false, true}, 3);
    gguf_writer_key_u32(&writer, "gemma4.expert_used_count", 8);
    gguf_blocks_write(&writer, 0, GGUF_BLOCK_GEMMA4_WINDOW);
    gguf_blocks_write(&writer, 1, GGUF_BLOCK_GEMMA4_FULL);
    gguf_blocks_write(&writer, 2, GGUF_BLOCK_GEMMA4_WINDOW);
    gguf_blocks_write_embedding(&writer, 2816, 262144);
    model = finish_well(&writer);

    layer = &model->layers[0];
    ck_assert_int_eq(layer->mixer, MODEL_MIXER_SLIDING_WINDOW);
    ck_assert_uint_eq(layer->window, 1024);
    ck_assert_uint_eq(layer->n_head_kv, 8);
    ck_assert_uint_eq(layer->head_dim_v, 256);
    ck_assert_uint_eq(layer->n_ff, 2112);
    ck_assert_uint_eq(layer->n_expert, 128);
    ck_assert_uint_eq(layer->n_expert_used, 8);
    ck_assert_uint_eq(layer->n_ff_exp, 704);
    layer = &model->layers[1];
    ck_assert_int_eq(layer->mixer, MODEL_MIXER_ATTENTION);
    ck_assert_uint_eq(layer->window, 0);
    ck_assert_uint_eq(layer->n_head, 16);
    ck_assert_uint_eq(layer->n_head_kv, 2);
    ck_assert_uint_eq(layer->head_dim_k, 512);
    ck_assert(layer->v_from_k);
    ck_assert_uint_eq(model_layer_v_row(layer), 1024);
    model_free(model);
}
END_TEST

START_TEST(an_architecture_without_a_list_has_its_usual_windows)
{
    struct gguf_writer writer;
    struct model *model;

    gguf_blocks_start(&writer, "gpt-oss", 4);
    gguf_writer_key_u32(&writer, "gpt-oss.attention.head_count", 64);
    gguf_writer_key_u32(&writer, "gpt-oss.attention.head_count_kv", 8);
    gguf_writer_key_u32(&writer, "gpt-oss.attention.sliding_window", 128);
    gguf_writer_key_u32(&writer, "gpt-oss.expert_used_count", 4);
    for (int i = 0; i < 4; i++)
        gguf_blocks_write(&writer, i, GGUF_BLOCK_GPT_OSS);
    gguf_blocks_write_embedding(&writer, 2880, 201088);
    model = finish_well(&writer);
    for (int i = 0; i < 4; i++)
        ck_assert_uint_eq(model->layers[i].window, i % 2 == 0 ? 128 : 0);
    ck_assert_uint_eq(model->layers[0].head_dim_k, 64);
    ck_assert_uint_eq(model->layers[0].n_ff, 0);
    model_free(model);
}
END_TEST

START_TEST(a_period_puts_full_attention_last)
{
    struct gguf_writer writer;
    struct model *model;

    gguf_blocks_start(&writer, "llama", 6);
    gguf_writer_key_u32(&writer, "llama.attention.head_count", 8);
    gguf_writer_key_u32(&writer, "llama.attention.head_count_kv", 4);
    gguf_writer_key_u32(&writer, "llama.attention.sliding_window", 16);
    gguf_writer_key_u32(&writer, "llama.attention.sliding_window_pattern", 3);
    for (int i = 0; i < 6; i++)
        gguf_blocks_write(&writer, i, GGUF_BLOCK_LLAMA_PLAIN);
    gguf_blocks_write_embedding(&writer, 64, 512);
    model = finish_well(&writer);
    for (int i = 0; i < 6; i++)
        ck_assert_uint_eq(model->layers[i].window, i % 3 == 2 ? 0 : 16);
    model_free(model);
}
END_TEST

START_TEST(latent_attention_keeps_one_row_and_no_values)
{
    struct gguf_writer writer;
    struct model *model;
    const struct model_layer *layer;

    gguf_blocks_start(&writer, "deepseek2", 2);
    gguf_writer_key_u32(&writer, "deepseek2.expert_used_count", 8);
    gguf_blocks_write(&writer, 0, GGUF_BLOCK_DEEPSEEK2_DENSE);
    gguf_blocks_write(&writer, 1, GGUF_BLOCK_DEEPSEEK2_EXPERTS);
    gguf_blocks_write_embedding(&writer, 7168, 129280);
    model = finish_well(&writer);
    layer = &model->layers[0];
    ck_assert_int_eq(layer->mixer, MODEL_MIXER_MLA);
    ck_assert_uint_eq(layer->n_head, 128);
    ck_assert_uint_eq(layer->head_dim_k, 576);
    ck_assert_uint_eq(layer->head_dim_v, 512);
    ck_assert(layer->v_in_k);
    ck_assert_uint_eq(model_layer_k_row(layer), 576);
    ck_assert_uint_eq(model_layer_v_row(layer), 0);
    ck_assert_uint_eq(layer->n_ff, 18432);
    layer = &model->layers[1];
    ck_assert_uint_eq(layer->n_ff, 0);
    ck_assert_uint_eq(layer->n_ff_exp, 2048);
    ck_assert_uint_eq(layer->n_ff_shexp, 2048);
    ck_assert_uint_eq(layer->n_expert, 256);
    model_free(model);
}
END_TEST

START_TEST(latent_attention_in_one_piece_caches_every_head)
{
    struct gguf_writer writer;
    struct model *model;
    const struct model_layer *layer;

    gguf_blocks_start(&writer, "deepseek2", 1);
    gguf_writer_key_u32(&writer, "deepseek2.attention.head_count", 128);
    gguf_blocks_write(&writer, 0, GGUF_BLOCK_DEEPSEEK2_ONE_PIECE);
    gguf_blocks_write_embedding(&writer, 7168, 129280);
    model = finish_well(&writer);
    layer = &model->layers[0];
    ck_assert_int_eq(layer->mixer, MODEL_MIXER_ATTENTION);
    ck_assert_uint_eq(layer->n_head_kv, 128);
    ck_assert_uint_eq(layer->head_dim_k, 192);
    ck_assert_uint_eq(layer->head_dim_v, 128);
    model_free(model);
}
END_TEST

START_TEST(one_tensor_of_queries_keys_and_values_is_divided)
{
    struct gguf_writer writer;
    struct model *model;

    gguf_blocks_start(&writer, "phi3", 1);
    gguf_writer_key_u32(&writer, "phi3.attention.head_count", 32);
    gguf_writer_key_u32(&writer, "phi3.attention.sliding_window", 2047);
    gguf_blocks_write(&writer, 0, GGUF_BLOCK_PHI3_FUSED);
    gguf_blocks_write_embedding(&writer, 3072, 32064);
    model = finish_well(&writer);
    ck_assert_int_eq(model->layers[0].mixer, MODEL_MIXER_ATTENTION);
    ck_assert_uint_eq(model->layers[0].n_head_kv, 32);
    ck_assert_uint_eq(model->layers[0].head_dim_k, 96);
    ck_assert_uint_eq(model->layers[0].head_dim_v, 96);
    model_free(model);
}
END_TEST

START_TEST(shapes_win_over_keys)
{
    struct gguf_writer writer;
    struct model *model;

    gguf_blocks_start(&writer, "llama", 32);
    gguf_writer_key_u32(&writer, "llama.embedding_length", 4096);
    gguf_writer_key_u32(&writer, "llama.vocab_size", 32000);
    gguf_writer_key_u32(&writer, "llama.feed_forward_length", 11008);
    gguf_writer_key_u32(&writer, "llama.attention.head_count", 32);
    gguf_writer_key_u32(&writer, "llama.attention.head_count_kv", 4);
    gguf_writer_key_u32(&writer, "llama.attention.key_length", 128);
    gguf_blocks_write_embedding(&writer, 64, 512);
    gguf_blocks_write(&writer, 0, GGUF_BLOCK_LLAMA_PLAIN);
    model = finish_well(&writer);
    ck_assert_uint_eq(model->n_layer, 1);
    ck_assert_uint_eq(model->n_embd, 64);
    ck_assert_uint_eq(model->n_vocab, 512);
    ck_assert_uint_eq(model->layers[0].n_head, 8);
    ck_assert_uint_eq(model->layers[0].n_head_kv, 4);
    ck_assert_uint_eq(model->layers[0].head_dim_k, 8);
    ck_assert_uint_eq(model->layers[0].n_ff, 172);
    model_free(model);
}
END_TEST

START_TEST(a_block_without_keys_borrows_a_cache)
{
    struct gguf_writer writer;
    struct model *model;

    gguf_blocks_start(&writer, "llama", 2);
    gguf_writer_key_u32(&writer, "llama.attention.head_count", 8);
    gguf_blocks_write_embedding(&writer, 64, 512);
    gguf_blocks_write(&writer, 0, GGUF_BLOCK_LLAMA_PLAIN);
    gguf_blocks_write(&writer, 1, GGUF_BLOCK_LLAMA_BORROWING);
    model = finish_well(&writer);
    ck_assert(model_layer_has_kv(&model->layers[0]));
    ck_assert(!model_layer_has_kv(&model->layers[1]));
    ck_assert_uint_eq(model->layers[1].n_head, 8);
    model_free(model);
}
END_TEST

START_TEST(tensors_of_a_block_end_up_side_by_side)
{
    struct gguf_writer writer;
    struct model *model;

    gguf_blocks_start(&writer, "llama", 2);
    gguf_writer_key_u32(&writer, "llama.attention.head_count", 8);
    gguf_writer_key_u32(&writer, "llama.attention.head_count_kv", 4);
    gguf_blocks_write(&writer, 1, GGUF_BLOCK_LLAMA_PLAIN);
    gguf_writer_weight(&writer, "blk.0.ffn_down.weight", TENSOR_TYPE_F16, 172, 64, 0);
    gguf_writer_weight(&writer, "blk.1.ffn_norm.weight", TENSOR_TYPE_F16, 64, 0, 0);
    gguf_writer_weight(&writer, "blk.0.ffn_norm.weight", TENSOR_TYPE_F16, 64, 0, 0);
    gguf_blocks_write_embedding(&writer, 64, 512);
    gguf_writer_weight(&writer, "output.weight", TENSOR_TYPE_F16, 64, 512, 0);
    model = finish_well(&writer);

    ck_assert_uint_eq(model->tensor_count, 10);
    ck_assert_str_eq(model->tensors[0].name, "token_embd.weight");
    ck_assert_str_eq(model->tensors[1].name, "output.weight");
    ck_assert(!model->tied_embeddings);
    ck_assert_uint_eq(model->layers[0].tensor_first, 2);
    ck_assert_uint_eq(model->layers[0].tensor_count, 2);
    ck_assert_uint_eq(model->layers[1].tensor_first, 4);
    ck_assert_uint_eq(model->layers[1].tensor_count, 6);
    ck_assert_str_eq(model->tensors[2].name, "blk.0.ffn_down.weight");
    ck_assert_str_eq(model->tensors[3].name, "blk.0.ffn_norm.weight");
    ck_assert_str_eq(model->tensors[4].name, "blk.1.attn_q.weight");
    ck_assert_str_eq(model->tensors[9].name, "blk.1.ffn_norm.weight");
    ck_assert_uint_eq(model->params, 2 * (64 * 64 + 64 * 32 + 172 * 64 + 64 + 64 * 512));
    ck_assert_uint_eq(model->tensor_bytes, 2 * model->params);
    ck_assert_ptr_eq(model_find_tensor(model, 1, TENSOR_ROLE_ATTN_Q), &model->tensors[4]);
    ck_assert_ptr_eq(model_find_tensor(model, -1, TENSOR_ROLE_OUTPUT), &model->tensors[1]);
    ck_assert_ptr_null(model_find_tensor(model, 2, TENSOR_ROLE_ATTN_Q));
    ck_assert_ptr_null(model_find_tensor(model, -1, TENSOR_ROLE_ATTN_Q));
    model_free(model);
}
END_TEST

/* ---- what the keys say ---- */

START_TEST(names_come_from_the_general_keys)
{
    struct gguf_writer writer;
    struct model *model;

    gguf_blocks_start(&writer, "llama", 1);
    gguf_writer_key_string(&writer, "general.name", "Llama\n2");
    gguf_writer_key_string(&writer, "general.size_label", "7B");
    gguf_writer_key_u32(&writer, "general.file_type", 15);
    gguf_writer_key_u32(&writer, "llama.context_length", 4096);
    gguf_writer_key_u32(&writer, "llama.attention.head_count", 8);
    gguf_writer_key_u32(&writer, "llama.attention.head_count_kv", 4);
    gguf_blocks_write_embedding(&writer, 64, 512);
    gguf_blocks_write(&writer, 0, GGUF_BLOCK_LLAMA_PLAIN);
    model = finish_well(&writer);
    ck_assert_str_eq(model->name, "Llama?2");
    ck_assert_str_eq(model->size_label, "7B");
    ck_assert_str_eq(model->quant, "Q4_K - Medium");
    ck_assert_str_eq(model->arch, "llama");
    ck_assert_str_eq(model->source, "test.gguf");
    ck_assert_str_eq(model->mix_note, "");
    ck_assert_uint_eq(model->n_ctx_train, 4096);
    model_free(model);
}
END_TEST

START_TEST(a_file_that_does_not_say_its_type_is_named_after_most_tensors)
{
    struct gguf_writer writer;
    struct model *model;

    gguf_blocks_start(&writer, "llama", 1);
    gguf_writer_key_u32(&writer, "llama.attention.head_count", 8);
    gguf_writer_key_u32(&writer, "llama.attention.head_count_kv", 4);
    gguf_blocks_write(&writer, 0, GGUF_BLOCK_LLAMA_PLAIN);
    gguf_writer_weight(&writer, "token_embd.weight", TENSOR_TYPE_Q8_0, 64, 512, 0);
    model = finish_well(&writer);
    ck_assert_str_eq(model->quant, "F16 (guessed)");
    ck_assert_str_eq(model->name, "test");
    model_free(model);
}
END_TEST

START_TEST(a_file_without_tensors_gives_the_geometry_of_its_keys)
{
    struct gguf_writer writer;
    struct model *model;
    const struct model_layer *layer;

    gguf_blocks_start(&writer, "qwen35moe", 9);
    gguf_writer_key_u32(&writer, "qwen35moe.nextn_predict_layers", 1);
    gguf_writer_key_u32(&writer, "qwen35moe.embedding_length", 2048);
    gguf_writer_key_u32(&writer, "qwen35moe.vocab_size", 248320);
    gguf_writer_key_u32(&writer, "qwen35moe.attention.head_count", 16);
    gguf_writer_key_u32(&writer, "qwen35moe.attention.head_count_kv", 2);
    gguf_writer_key_u32(&writer, "qwen35moe.attention.key_length", 256);
    gguf_writer_key_u32(&writer, "qwen35moe.attention.value_length", 256);
    gguf_writer_key_u32(&writer, "qwen35moe.full_attention_interval", 4);
    gguf_writer_key_u32(&writer, "qwen35moe.ssm.conv_kernel", 4);
    gguf_writer_key_u32(&writer, "qwen35moe.ssm.state_size", 128);
    gguf_writer_key_u32(&writer, "qwen35moe.ssm.group_count", 16);
    gguf_writer_key_u32(&writer, "qwen35moe.ssm.time_step_rank", 32);
    gguf_writer_key_u32(&writer, "qwen35moe.ssm.inner_size", 4096);
    gguf_writer_key_u32(&writer, "qwen35moe.expert_count", 256);
    gguf_writer_key_u32(&writer, "qwen35moe.expert_used_count", 8);
    gguf_writer_key_u32(&writer, "qwen35moe.expert_feed_forward_length", 512);
    gguf_writer_key_u32(&writer, "qwen35moe.expert_shared_feed_forward_length", 512);
    model = finish_well(&writer);
    ck_assert_uint_eq(model->tensor_count, 0);
    ck_assert_uint_eq(model->n_layer, 8);
    ck_assert_uint_eq(model->n_layer_nextn, 1);
    ck_assert_uint_eq(model->n_vocab, 248320);
    layer = &model->layers[0];
    ck_assert_uint_eq(model_layer_recurrent_state(layer), 524288);
    ck_assert_uint_eq(model_layer_conv_state(layer), 24576);
    ck_assert_uint_eq(layer->n_ff_shexp, 512);
    layer = &model->layers[7];
    ck_assert_int_eq(layer->mixer, MODEL_MIXER_ATTENTION);
    ck_assert_uint_eq(model_layer_k_row(layer), 512);
    ck_assert_int_eq(model->layers[8].mixer, MODEL_MIXER_ATTENTION);
    model_free(model);
}
END_TEST

START_TEST(widths_per_layer_and_of_windows_come_from_keys_without_tensors)
{
    struct gguf_writer writer;
    struct model *model;

    gguf_blocks_start(&writer, "gemma4", 2);
    gguf_writer_key_u32(&writer, "gemma4.embedding_length", 2816);
    gguf_writer_key_array(&writer, "tokenizer.ggml.tokens", GGUF_TYPE_STRING, 2);
    gguf_writer_string(&writer, "a");
    gguf_writer_string(&writer, "b");
    gguf_writer_key_u32(&writer, "gemma4.attention.head_count", 16);
    gguf_writer_key_u32s(&writer, "gemma4.attention.head_count_kv", (uint32_t[]){8, 2}, 2);
    gguf_writer_key_u32(&writer, "gemma4.attention.key_length", 512);
    gguf_writer_key_u32(&writer, "gemma4.attention.value_length", 512);
    gguf_writer_key_u32(&writer, "gemma4.attention.key_length_swa", 256);
    gguf_writer_key_u32(&writer, "gemma4.attention.value_length_swa", 256);
    gguf_writer_key_u32(&writer, "gemma4.attention.sliding_window", 1024);
    gguf_writer_key_u32s(&writer, "gemma4.attention.sliding_window_pattern", (uint32_t[]){1, 0}, 2);
    gguf_writer_key_u32s(&writer, "gemma4.feed_forward_length", (uint32_t[]){2112, 4224}, 2);
    model = finish_well(&writer);
    ck_assert_uint_eq(model->n_vocab, 2);
    ck_assert_int_eq(model->layers[0].mixer, MODEL_MIXER_SLIDING_WINDOW);
    ck_assert_uint_eq(model_layer_k_row(&model->layers[0]), 2048);
    ck_assert_uint_eq(model->layers[0].n_ff, 2112);
    ck_assert_int_eq(model->layers[1].mixer, MODEL_MIXER_ATTENTION);
    ck_assert_uint_eq(model_layer_k_row(&model->layers[1]), 1024);
    ck_assert_uint_eq(model->layers[1].n_ff, 4224);
    model_free(model);
}
END_TEST

START_TEST(latent_attention_comes_from_keys_without_tensors)
{
    struct gguf_writer writer;
    struct model *model;

    gguf_blocks_start(&writer, "deepseek2", 4);
    gguf_writer_key_u32(&writer, "deepseek2.embedding_length", 7168);
    gguf_writer_key_u32(&writer, "deepseek2.attention.head_count", 128);
    gguf_writer_key_u32(&writer, "deepseek2.attention.head_count_kv", 1);
    gguf_writer_key_u32(&writer, "deepseek2.attention.kv_lora_rank", 512);
    gguf_writer_key_u32(&writer, "deepseek2.rope.dimension_count", 64);
    gguf_writer_key_u32(&writer, "deepseek2.feed_forward_length", 18432);
    gguf_writer_key_u32(&writer, "deepseek2.leading_dense_block_count", 3);
    gguf_writer_key_u32(&writer, "deepseek2.expert_count", 256);
    gguf_writer_key_u32(&writer, "deepseek2.expert_used_count", 8);
    gguf_writer_key_u32(&writer, "deepseek2.expert_shared_count", 1);
    gguf_writer_key_u32(&writer, "deepseek2.expert_feed_forward_length", 2048);
    model = finish_well(&writer);
    ck_assert_int_eq(model->layers[0].mixer, MODEL_MIXER_MLA);
    ck_assert_uint_eq(model_layer_k_row(&model->layers[0]), 576);
    ck_assert_uint_eq(model_layer_v_row(&model->layers[0]), 0);
    ck_assert_uint_eq(model->layers[2].n_ff, 18432);
    ck_assert_uint_eq(model->layers[2].n_expert, 0);
    ck_assert_uint_eq(model->layers[3].n_ff, 0);
    ck_assert_uint_eq(model->layers[3].n_ff_shexp, 2048);
    model_free(model);
}
END_TEST

START_TEST(a_real_file_becomes_a_model)
{
    const char *folder = getenv("LOPSIDE_GGUF_DIR");
    struct error err = {0};
    struct model *model;
    char path[512];

    snprintf(path, sizeof path, "%s/stories260K.gguf", folder);
    model = model_load_gguf(path, &err);
    ck_assert_msg(model != NULL, "%s: %s", err.source, err.text);
    ck_assert_uint_eq(model->n_layer, 5);
    ck_assert_uint_eq(model->n_embd, 64);
    ck_assert_uint_eq(model->n_vocab, 512);
    ck_assert_uint_eq(model->layers[4].n_head, 8);
    ck_assert_uint_eq(model->layers[4].n_head_kv, 4);
    ck_assert_uint_eq(model->layers[4].n_ff, 172);
    ck_assert_uint_eq(model->params, 292800);
    model_free(model);
}
END_TEST

START_TEST(a_vocabulary_file_becomes_a_model_without_tensors)
{
    const char *folder = getenv("LOPSIDE_GGUF_DIR");
    struct error err = {0};
    struct model *model;
    char path[512];

    snprintf(path, sizeof path, "%s/ggml-vocab-llama-spm.gguf", folder);
    model = model_load_gguf(path, &err);
    ck_assert_msg(model != NULL, "%s: %s", err.source, err.text);
    ck_assert_uint_eq(model->tensor_count, 0);
    ck_assert_uint_eq(model->n_layer, 32);
    ck_assert_uint_eq(model->n_vocab, 32000);
    model_free(model);
}
END_TEST

static Suite *suite(void)
{
    Suite *all = suite_create("model_gguf");
    TCase *shapes = tcase_create("shapes");
    TCase *keys = tcase_create("keys");
    TCase *real = tcase_create("real files");

    tcase_add_test(shapes, a_hybrid_has_gated_queries_delta_nets_and_a_nextn_block);
    tcase_add_test(shapes, keys_per_layer_give_windows_and_heads);
    tcase_add_test(shapes, an_architecture_without_a_list_has_its_usual_windows);
    tcase_add_test(shapes, a_period_puts_full_attention_last);
    tcase_add_test(shapes, latent_attention_keeps_one_row_and_no_values);
    tcase_add_test(shapes, latent_attention_in_one_piece_caches_every_head);
    tcase_add_test(shapes, one_tensor_of_queries_keys_and_values_is_divided);
    tcase_add_test(shapes, shapes_win_over_keys);
    tcase_add_test(shapes, a_block_without_keys_borrows_a_cache);
    tcase_add_test(shapes, tensors_of_a_block_end_up_side_by_side);
    suite_add_tcase(all, shapes);

    tcase_add_test(keys, names_come_from_the_general_keys);
    tcase_add_test(keys, a_file_that_does_not_say_its_type_is_named_after_most_tensors);
    tcase_add_test(keys, a_file_without_tensors_gives_the_geometry_of_its_keys);
    tcase_add_test(keys, widths_per_layer_and_of_windows_come_from_keys_without_tensors);
    tcase_add_test(keys, latent_attention_comes_from_keys_without_tensors);
    suite_add_tcase(all, keys);

    if (getenv("LOPSIDE_GGUF_DIR")) {
        tcase_add_test(real, a_real_file_becomes_a_model);
        tcase_add_test(real, a_vocabulary_file_becomes_a_model_without_tensors);
    } else {
        puts("skipped without LOPSIDE_GGUF_DIR: models of real files");
    }
    suite_add_tcase(all, real);
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
