/* A model's own SentencePiece vocabulary, from its GGUF file: text to tokens and back. */
#ifndef REF_VOCAB_H
#define REF_VOCAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/gguf.h"

struct vocab; /* see vocab.c */

/**
 * Reads tokenizer.ggml.*. Any kind of vocabulary can print tokens; only SPM ("llama") can
 * read text.
 *
 * @return a vocabulary for vocab_free(), or NULL with `err` set (ERROR_INPUT names the key;
 *         ERROR_USAGE: the file has none)
 */
struct vocab *vocab_open(const struct gguf *gguf, struct error *err);
void vocab_free(struct vocab *vocab);

uint32_t vocab_size(const struct vocab *vocab);

/** Token ids; -1 where the file names none. */
int32_t vocab_bos(const struct vocab *vocab);
int32_t vocab_eos(const struct vocab *vocab);

/**
 * Tokens of a text, as llama.cpp's SPM tokenizer makes them (scores decide merges; unknown
 * bytes become byte tokens; a space is put before the text where the file says so).
 *
 * @param add_special BOS before and EOS behind, where the file says so
 * @param tokens      set to an array for free()
 * @return the count, or -1 with `err` set: ERROR_UNSUPPORTED for another tokenizer, with the
 *         word that token ids are needed
 */
int64_t vocab_encode(const struct vocab *vocab, const char *text, bool add_special,
                     uint32_t **tokens, struct error *err);

/**
 * The bytes of a token as text: U+2581 is a space, byte tokens are their byte; for BPE
 * vocabularies the byte-to-unicode map is undone. Control tokens are empty.
 *
 * @param size of `text`; the piece is cut to fit and ends in a zero byte
 * @return bytes of the piece, before it was cut
 */
size_t vocab_piece(const struct vocab *vocab, uint32_t token, char *text, size_t size);

#endif
