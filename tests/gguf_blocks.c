#include "tests/gguf_blocks.h"

#include <stdio.h>

struct shape {
    const char *name; /* behind "blk.N." */
    uint64_t ne[3];
};

static const struct shape qwen35_attention[] = {
    {"attn_norm.weight", {5120}},         {"attn_q.weight", {5120, 12288}},
    {"attn_k.weight", {5120, 1024}},      {"attn_v.weight", {5120, 1024}},
    {"attn_output.weight", {6144, 5120}}, {"attn_q_norm.weight", {256}},
    {"attn_k_norm.weight", {256}},        {"ffn_down.weight", {17408, 5120}},
};
static const struct shape qwen35_delta_net[] = {
    {"attn_norm.weight", {5120}},
    {"attn_qkv.weight", {5120, 10240}},
    {"attn_gate.weight", {5120, 6144}},
    {"ssm_conv1d.weight", {4, 10240}},
    {"ssm_a", {48}},
    {"ssm_beta.weight", {5120, 48}},
    {"ssm_alpha.weight", {5120, 48}},
    {"ssm_norm.weight", {128}},
    {"ssm_out.weight", {6144, 5120}},
    {"ffn_down.weight", {17408, 5120}},
};
static const struct shape gemma4_window[] = {
    {"attn_q.weight", {2816, 4096}},
    {"attn_k.weight", {2816, 2048}},
    {"attn_v.weight", {2816, 2048}},
    {"attn_output.weight", {4096, 2816}},
    {"ffn_down.weight", {2112, 2816}},
    {"ffn_gate_inp.weight", {2816, 128}},
    {"ffn_gate_up_exps.weight", {2816, 1408, 128}},
    {"ffn_down_exps.weight", {704, 2816, 128}},
};
static const struct shape gemma4_full[] = {
    {"attn_q.weight", {2816, 8192}},
    {"attn_k.weight", {2816, 1024}},
    {"attn_output.weight", {8192, 2816}},
    {"ffn_down.weight", {2112, 2816}},
    {"ffn_gate_inp.weight", {2816, 128}},
    {"ffn_gate_up_exps.weight", {2816, 1408, 128}},
    {"ffn_down_exps.weight", {704, 2816, 128}},
};
static const struct shape gpt_oss[] = {
    {"attn_q.weight", {2880, 4096}},
    {"attn_k.weight", {2880, 512}},
    {"attn_v.weight", {2880, 512}},
    {"attn_output.weight", {4096, 2880}},
    {"ffn_gate_inp.weight", {2880, 32}},
    {"ffn_gate_exps.weight", {2880, 2880, 32}},
    {"ffn_down_exps.weight", {2880, 2880, 32}},
};
static const struct shape deepseek2_dense[] = {
    {"attn_q_a.weight", {7168, 1536}},     {"attn_q_b.weight", {1536, 24576}},
    {"attn_kv_a_mqa.weight", {7168, 576}}, {"attn_k_b.weight", {128, 512, 128}},
    {"attn_v_b.weight", {512, 128, 128}},  {"attn_output.weight", {16384, 7168}},
    {"ffn_down.weight", {18432, 7168}},
};
static const struct shape deepseek2_experts[] = {
    {"attn_q_a.weight", {7168, 1536}},       {"attn_q_b.weight", {1536, 24576}},
    {"attn_kv_a_mqa.weight", {7168, 576}},   {"attn_k_b.weight", {128, 512, 128}},
    {"attn_v_b.weight", {512, 128, 128}},    {"attn_output.weight", {16384, 7168}},
    {"ffn_gate_inp.weight", {7168, 256}},    {"ffn_down_exps.weight", {2048, 7168, 256}},
    {"ffn_down_shexp.weight", {2048, 7168}},
};
static const struct shape deepseek2_one_piece[] = {
    {"attn_q_a.weight", {7168, 1536}},     {"attn_q_b.weight", {1536, 24576}},
    {"attn_kv_a_mqa.weight", {7168, 576}}, {"attn_kv_b.weight", {512, 32768}},
    {"attn_output.weight", {16384, 7168}}, {"ffn_down.weight", {18432, 7168}},
};
static const struct shape phi3_fused[] = {
    {"attn_qkv.weight", {3072, 9216}},
    {"attn_output.weight", {3072, 3072}},
    {"ffn_down.weight", {8192, 3072}},
};
static const struct shape llama_plain[] = {
    {"attn_q.weight", {64, 64}},      {"attn_k.weight", {64, 32}},    {"attn_v.weight", {64, 32}},
    {"attn_output.weight", {64, 64}}, {"ffn_down.weight", {172, 64}},
};
static const struct shape llama_borrowing[] = {
    {"attn_q.weight", {64, 64}},
    {"attn_output.weight", {64, 64}},
    {"ffn_down.weight", {172, 64}},
};
static const struct shape mamba[] = {
    {"ssm_in.weight", {64, 256}},
    {"ssm_conv1d.weight", {4, 128}},
    {"ssm_out.weight", {128, 64}},
};

static const struct {
    const struct shape *shapes;
    size_t count;
} blocks[GGUF_BLOCK_COUNT] = {
    [GGUF_BLOCK_QWEN35_ATTENTION] = {qwen35_attention,
                                     sizeof qwen35_attention / sizeof *qwen35_attention},
    [GGUF_BLOCK_QWEN35_DELTA_NET] = {qwen35_delta_net,
                                     sizeof qwen35_delta_net / sizeof *qwen35_delta_net},
    [GGUF_BLOCK_GEMMA4_WINDOW] = {gemma4_window, sizeof gemma4_window / sizeof *gemma4_window},
    [GGUF_BLOCK_GEMMA4_FULL] = {gemma4_full, sizeof gemma4_full / sizeof *gemma4_full},
    [GGUF_BLOCK_GPT_OSS] = {gpt_oss, sizeof gpt_oss / sizeof *gpt_oss},
    [GGUF_BLOCK_DEEPSEEK2_DENSE] = {deepseek2_dense,
                                    sizeof deepseek2_dense / sizeof *deepseek2_dense},
    [GGUF_BLOCK_DEEPSEEK2_EXPERTS] = {deepseek2_experts,
                                      sizeof deepseek2_experts / sizeof *deepseek2_experts},
    [GGUF_BLOCK_DEEPSEEK2_ONE_PIECE] = {deepseek2_one_piece,
                                        sizeof deepseek2_one_piece / sizeof *deepseek2_one_piece},
    [GGUF_BLOCK_PHI3_FUSED] = {phi3_fused, sizeof phi3_fused / sizeof *phi3_fused},
    [GGUF_BLOCK_LLAMA_PLAIN] = {llama_plain, sizeof llama_plain / sizeof *llama_plain},
    [GGUF_BLOCK_LLAMA_BORROWING] = {llama_borrowing,
                                    sizeof llama_borrowing / sizeof *llama_borrowing},
    [GGUF_BLOCK_MAMBA] = {mamba, sizeof mamba / sizeof *mamba},
};

void gguf_blocks_start(struct gguf_writer *writer, const char *arch, uint32_t block_count)
{
    char key[64];

    gguf_writer_init(writer, 3, false);
    gguf_writer_key_string(writer, "general.architecture", arch);
    snprintf(key, sizeof key, "%s.block_count", arch);
    gguf_writer_key_u32(writer, key, block_count);
}

void gguf_blocks_write_embedding(struct gguf_writer *writer, uint64_t n_embd, uint64_t n_vocab)
{
    gguf_writer_weight(writer, "token_embd.weight", TENSOR_TYPE_F16, n_embd, n_vocab, 0);
}

void gguf_blocks_write(struct gguf_writer *writer, int index, enum gguf_block block)
{
    for (size_t i = 0; i < blocks[block].count; i++) {
        const struct shape *shape = &blocks[block].shapes[i];
        char name[64];

        snprintf(name, sizeof name, "blk.%d.%s", index, shape->name);
        gguf_writer_weight(writer, name, TENSOR_TYPE_F16, shape->ne[0], shape->ne[1], shape->ne[2]);
    }
}
