/* The shapes of blocks of known models, for tests; written as F16. */
#ifndef TESTS_GGUF_BLOCKS_H
#define TESTS_GGUF_BLOCKS_H

#include "tests/gguf_writer.h"

enum gguf_block {
    GGUF_BLOCK_QWEN35_ATTENTION,
    GGUF_BLOCK_QWEN35_DELTA_NET,
    GGUF_BLOCK_GEMMA4_WINDOW,
    GGUF_BLOCK_GEMMA4_FULL,
    GGUF_BLOCK_GPT_OSS,
    GGUF_BLOCK_DEEPSEEK2_DENSE,
    GGUF_BLOCK_DEEPSEEK2_EXPERTS,
    GGUF_BLOCK_DEEPSEEK2_ONE_PIECE,
    GGUF_BLOCK_PHI3_FUSED,
    GGUF_BLOCK_LLAMA_PLAIN,
    GGUF_BLOCK_LLAMA_BORROWING,
    GGUF_BLOCK_MAMBA,
    GGUF_BLOCK_COUNT
};

/** Starts a file of an architecture with a `block_count`. */
void gguf_blocks_start(struct gguf_writer *writer, const char *arch, uint32_t block_count);

/** Adds token_embd.weight. */
void gguf_blocks_write_embedding(struct gguf_writer *writer, uint64_t n_embd, uint64_t n_vocab);

/** Adds the tensors of a block as number `index`. */
void gguf_blocks_write(struct gguf_writer *writer, int index, enum gguf_block block);

#endif
