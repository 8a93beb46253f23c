/* What the reader of a vocabulary (vocab.c) and its encoder (vocab_encode.c) share. */
#ifndef REF_VOCAB_PRIVATE_H
#define REF_VOCAB_PRIVATE_H

#include "ref/vocab.h"

#define SPACE "\xE2\x96\x81" /* U+2581 stands for a space */
#define SPACE_BYTES (sizeof SPACE - 1)

/* As stored in tokenizer.ggml.token_type. Source: enum llama_token_type in include/llama.h. */
enum token_type {
    TOKEN_UNDEFINED = 0,
    TOKEN_NORMAL = 1,
    TOKEN_UNKNOWN = 2,
    TOKEN_CONTROL = 3,
    TOKEN_USER_DEFINED = 4,
    TOKEN_UNUSED = 5,
    TOKEN_BYTE = 6,
};

struct token {
    const char *text; /* in vocab.texts; no zero behind it */
    size_t length;
    float score;
    enum token_type type;
};

struct vocab {
    char kind[24]; /* tokenizer.ggml.model, for messages */
    bool is_spm, is_bpe;
    struct token *tokens;
    uint32_t count;
    char *texts;
    uint32_t *slots; /* open addressing by text: token + 1, 0 is free */
    size_t slot_mask;
    size_t longest; /* bytes of the longest text */
    int32_t bos, eos, unknown;
    bool add_bos, add_eos, add_space;
    int32_t byte_tokens[256]; /* -1: none */
    size_t *user_lengths;     /* of user-defined tokens, each once, longest first */
    size_t user_length_count;
    bool user_starts[256]; /* first bytes of user-defined tokens */
};

/** The id of a token's text, or -1. */
int32_t vocab_find_token(const struct vocab *vocab, const char *text, size_t length);

/** Bytes of a UTF-8 character as its first byte claims; 1 where none begins. */
size_t vocab_character_bytes(char first);

/** Whether a token is to be cut out of a text before anything else. */
bool vocab_is_user_defined(const struct token *token);

#endif
