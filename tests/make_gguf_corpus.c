/* Writes the seeds of the fuzz target: each case of gguf_cases.c in both byte
 * orders, and a model of each block of gguf_blocks.c.
 *
 *     make_gguf_corpus tests/corpus/gguf */
#include <stdio.h>

#include "tests/gguf_blocks.h"
#include "tests/gguf_cases.h"

static bool save_seed(struct gguf_writer *writer, const char *folder, const char *name,
                      const char *suffix)
{
    char path[512];
    bool written;

    snprintf(path, sizeof path, "%s/%s%s", folder, name, suffix);
    written = gguf_writer_save(writer, path);
    if (!written)
        perror(path);
    gguf_writer_close(writer);
    return written;
}

static bool write_case(const char *folder, const struct gguf_case *seed, bool big_endian)
{
    struct gguf_writer writer;

    gguf_writer_init(&writer, 3, big_endian);
    seed->write(&writer);
    return save_seed(&writer, folder, seed->name, big_endian ? "-be" : "-le");
}

static const struct {
    const char *arch;
    uint32_t n_head, n_head_kv, window;
} block_keys[GGUF_BLOCK_COUNT] = {
    [GGUF_BLOCK_QWEN35_ATTENTION] = {"qwen35", 24, 4, 0},
    [GGUF_BLOCK_QWEN35_DELTA_NET] = {"qwen35", 24, 4, 0},
    [GGUF_BLOCK_GEMMA4_WINDOW] = {"gemma4", 16, 8, 1024},
    [GGUF_BLOCK_GEMMA4_FULL] = {"gemma4", 16, 2, 0},
    [GGUF_BLOCK_GPT_OSS] = {"gpt-oss", 64, 8, 128},
    [GGUF_BLOCK_DEEPSEEK2_DENSE] = {"deepseek2", 128, 1, 0},
    [GGUF_BLOCK_DEEPSEEK2_EXPERTS] = {"deepseek2", 128, 1, 0},
    [GGUF_BLOCK_DEEPSEEK2_ONE_PIECE] = {"deepseek2", 128, 128, 0},
    [GGUF_BLOCK_PHI3_FUSED] = {"phi3", 32, 32, 0},
    [GGUF_BLOCK_LLAMA_PLAIN] = {"llama", 8, 4, 0},
    [GGUF_BLOCK_LLAMA_BORROWING] = {"llama", 8, 4, 0},
    [GGUF_BLOCK_MAMBA] = {"mamba", 0, 0, 0},
};

static void write_arch_key(struct gguf_writer *writer, const char *arch, const char *key,
                           uint32_t value)
{
    char name[64];

    snprintf(name, sizeof name, "%s.%s", arch, key);
    gguf_writer_key_u32(writer, name, value);
}

static bool write_model(const char *folder, enum gguf_block block)
{
    const char *arch = block_keys[block].arch;
    struct gguf_writer writer;
    char name[24];

    gguf_blocks_start(&writer, arch, 1);
    write_arch_key(&writer, arch, "attention.head_count", block_keys[block].n_head);
    write_arch_key(&writer, arch, "attention.head_count_kv", block_keys[block].n_head_kv);
    write_arch_key(&writer, arch, "attention.sliding_window", block_keys[block].window);
    write_arch_key(&writer, arch, "expert_used_count", 4);
    gguf_blocks_write_embedding(&writer, 64, 512);
    gguf_blocks_write(&writer, 0, block);
    snprintf(name, sizeof name, "model-%d-", (int)block);
    return save_seed(&writer, folder, name, arch);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: make_gguf_corpus FOLDER\n");
        return 2;
    }
    for (size_t i = 0; i < gguf_case_count; i++)
        if (!write_case(argv[1], &gguf_cases[i], false) ||
            !write_case(argv[1], &gguf_cases[i], true))
            return 1;
    for (int i = 0; i < GGUF_BLOCK_COUNT; i++)
        if (!write_model(argv[1], (enum gguf_block)i))
            return 1;
    return 0;
}
