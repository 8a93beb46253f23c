/* Fuzz target: any bytes as a GGUF header, then as a vocabulary that reads a text and prints
 * tokens. The last bytes of the input are read as a text, too.
 *
 *     clang -DLOPSIDE_LIBFUZZER -fsanitize=fuzzer,address,undefined ...
 *
 * With libFuzzer it runs alone; without, fuzz_replay.c supplies main(). */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "ref/vocab.h"

#define TEXT_LIMIT 256 /* bytes of the input that are read as a text */
#define PIECES_LIMIT 512

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool claim)
{
    if (!claim)
        abort();
}

/* A piece cut to any size is the start of the whole one. */
static void check_piece(const struct vocab *vocab, uint32_t token)
{
    char whole[64], part[5];
    size_t length = vocab_piece(vocab, token, whole, sizeof whole);

    require(length >= sizeof whole || whole[length] == '\0');
    require(whole[sizeof whole - 1] == '\0' || length < sizeof whole);
    for (size_t size = 1; size <= sizeof part; size++) {
        size_t kept = length < size ? length : size - 1;

        require(vocab_piece(vocab, token, part, size) == length);
        require(memcmp(part, whole, kept) == 0 && part[kept] == '\0');
    }
    require(vocab_piece(vocab, token, NULL, 0) == length);
}

static void check_pieces(const struct vocab *vocab)
{
    uint32_t count = vocab_size(vocab) < PIECES_LIMIT ? vocab_size(vocab) : PIECES_LIMIT;

    require(vocab_size(vocab) != 0);
    for (uint32_t i = 0; i < count; i++)
        check_piece(vocab, i);
    require(vocab_piece(vocab, vocab_size(vocab), NULL, 0) == 0);
    require(vocab_piece(vocab, UINT32_MAX, NULL, 0) == 0);
    require(vocab_bos(vocab) >= -1 && vocab_bos(vocab) < (int64_t)vocab_size(vocab));
    require(vocab_eos(vocab) >= -1 && vocab_eos(vocab) < (int64_t)vocab_size(vocab));
}

static void check_text(const struct vocab *vocab, const char *text)
{
    for (int add_special = 0; add_special < 2; add_special++) {
        struct error err = {0};
        uint32_t *tokens = NULL;
        int64_t count = vocab_encode(vocab, text, add_special != 0, &tokens, &err);

        if (count < 0) {
            require(!tokens && err.text[0] != '\0');
            require(err.code == ERROR_UNSUPPORTED || err.code == ERROR_INPUT);
            continue;
        }
        require(tokens && err.code == ERROR_NONE);
        require((uint64_t)count <= 3 * (2 * strlen(text) + 1) + 2);
        for (int64_t i = 0; i < count; i++)
            require(tokens[i] < vocab_size(vocab));
        free(tokens);
    }
}

/* The last bytes, up to the first zero among them. */
static void check_tail(const struct vocab *vocab, const uint8_t *data, size_t size)
{
    size_t length = size < TEXT_LIMIT ? size : TEXT_LIMIT;
    char text[TEXT_LIMIT + 1];

    memcpy(text, data + size - length, length);
    text[length] = '\0';
    check_text(vocab, text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct error err = {0};
    struct gguf *gguf = gguf_parse(data, size, "fuzz", &err);
    struct vocab *vocab;

    if (!gguf)
        return 0;
    vocab = vocab_open(gguf, &err);
    gguf_free(gguf);
    if (!vocab) {
        require(err.code == ERROR_INPUT || err.code == ERROR_USAGE);
        require(strcmp(err.source, "fuzz") == 0 && err.text[0] != '\0');
        return 0;
    }
    require(err.code == ERROR_NONE);
    check_pieces(vocab);
    check_text(vocab, "");
    check_text(vocab, " Once  upon a time\n\xF0\x9F\xA6\x99 <x><x>aab \xC3\x80\xFF</s>\xE2\x96");
    check_tail(vocab, data, size);
    vocab_free(vocab);
    return 0;
}
