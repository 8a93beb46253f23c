/* Vocabularies of GGUF files, and tokens to text; vocab_encode.c has the other way. */
#include "ref/vocab_private.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sim/checked.h"

#define KEY_MODEL "tokenizer.ggml.model"
#define KEY_TOKENS "tokenizer.ggml.tokens"
#define KEY_SCORES "tokenizer.ggml.scores"
#define KEY_TYPES "tokenizer.ggml.token_type"

/* ---- tokens by text ---- */

/* FNV-1a, 64 bits. */
static uint64_t hash(const char *text, size_t length)
{
    uint64_t value = UINT64_C(0xCBF29CE484222325);

    for (size_t i = 0; i < length; i++)
        value = (value ^ (unsigned char)text[i]) * UINT64_C(0x100000001B3);
    return value ^ value >> 32;
}

/* The slot that holds a text, or the free one where it belongs. */
static uint32_t *find_slot(const struct vocab *vocab, const char *text, size_t length)
{
    size_t i = (size_t)hash(text, length) & vocab->slot_mask;

    while (vocab->slots[i] != 0) {
        const struct token *token = &vocab->tokens[vocab->slots[i] - 1];

        if (token->length == length && memcmp(token->text, text, length) == 0)
            break;
        i = (i + 1) & vocab->slot_mask;
    }
    return &vocab->slots[i];
}

/* The token of a text, or -1. */
int32_t vocab_find_token(const struct vocab *vocab, const char *text, size_t length)
{
    if (length == 0 || length > vocab->longest)
        return -1;
    return (int32_t)*find_slot(vocab, text, length) - 1;
}

/* Of two tokens with one text the later one is found, as in llama.cpp. */
static int index_tokens(struct vocab *vocab, struct error *err)
{
    size_t slot_count = 2;

    while (slot_count / 2 < vocab->count)
        slot_count *= 2;
    vocab->slots = calloc(slot_count, sizeof *vocab->slots);
    if (!vocab->slots)
        return error_set(err, ERROR_MEMORY, "no memory for a vocabulary of %" PRIu32 " tokens",
                         vocab->count);
    vocab->slot_mask = slot_count - 1;
    for (uint32_t i = 0; i < vocab->count; i++)
        if (vocab->tokens[i].length != 0)
            *find_slot(vocab, vocab->tokens[i].text, vocab->tokens[i].length) = i + 1;
    return 0;
}

/* ---- from the file ---- */

static int fail_at_key(const struct gguf *gguf, const char *name, const char *text,
                       struct error *err)
{
    return error_set_at(err, ERROR_INPUT, gguf_part_path(gguf, 0), 0, 0, "key \"%s\": %s", name,
                        text);
}

static bool equals(const char *text, size_t length, const char *other)
{
    return length == strlen(other) && memcmp(text, other, length) == 0;
}

static int read_kind(struct vocab *vocab, const struct gguf *gguf, struct error *err)
{
    const char *text;
    size_t length;

    if (!gguf_get_string(gguf, KEY_MODEL, &text, &length))
        return fail_at_key(gguf, KEY_MODEL, "is no string that names the tokenizer", err);
    for (size_t i = 0; i < length && i < sizeof vocab->kind - 1; i++)
        vocab->kind[i] = text[i] > ' ' && text[i] < 0x7F ? text[i] : '?';
    vocab->is_spm = equals(text, length, "llama");
    vocab->is_bpe = equals(text, length, "gpt2");
    return 0;
}

/* The sum of the lengths of all texts; false when it cannot be one block. */
static bool sum_lengths(const struct gguf *gguf, uint32_t count, size_t *bytes)
{
    uint64_t sum = 0;
    const char *text;
    size_t length;

    if (!gguf_get_string_at(gguf, KEY_TOKENS, 0, &text, &length))
        return false;
    for (uint32_t i = 0; i < count; i++) {
        if (!checked_add(sum, length, &sum))
            return false;
        gguf_get_string_after(gguf, KEY_TOKENS, i, &text, &length);
    }
    *bytes = (size_t)sum;
    return sum < SIZE_MAX;
}

static int read_texts(struct vocab *vocab, const struct gguf *gguf, struct error *err)
{
    const struct gguf_key *key = gguf_find_key(gguf, KEY_TOKENS);
    size_t bytes, length;
    const char *text;
    char *out;

    if (key->type != GGUF_TYPE_ARRAY || key->element_type != GGUF_TYPE_STRING || key->count == 0 ||
        key->count > INT32_MAX - 1)
        return fail_at_key(gguf, KEY_TOKENS, "is no list of strings, one a token", err);
    vocab->count = (uint32_t)key->count;
    vocab->tokens = calloc(vocab->count, sizeof *vocab->tokens);
    if (vocab->tokens && sum_lengths(gguf, vocab->count, &bytes))
        vocab->texts = malloc(bytes + 1);
    if (!vocab->texts || !gguf_get_string_at(gguf, KEY_TOKENS, 0, &text, &length))
        return error_set(err, ERROR_MEMORY, "no memory for a vocabulary of %" PRIu32 " tokens",
                         vocab->count);
    out = vocab->texts;
    for (uint32_t i = 0; i < vocab->count; i++) {
        memcpy(out, text, length);
        vocab->tokens[i] = (struct token){.text = out, .length = length, .type = TOKEN_NORMAL};
        vocab->longest = length > vocab->longest ? length : vocab->longest;
        out += length;
        gguf_get_string_after(gguf, KEY_TOKENS, i, &text, &length);
    }
    return 0;
}

/* Whether a list of one number a token is there; fails for one that is no such list. */
static int find_list(const struct vocab *vocab, const struct gguf *gguf, const char *name,
                     bool *found, struct error *err)
{
    const struct gguf_key *key = gguf_find_key(gguf, name);

    *found = key != NULL;
    if (key && (key->type != GGUF_TYPE_ARRAY || key->count != vocab->count))
        return fail_at_key(gguf, name, "is no list of one number a token", err);
    return 0;
}

static int read_scores(struct vocab *vocab, const struct gguf *gguf, struct error *err)
{
    bool found;

    if (find_list(vocab, gguf, KEY_SCORES, &found, err))
        return -1;
    for (uint32_t i = 0; found && i < vocab->count; i++)
        if (!gguf_get_f32_at(gguf, KEY_SCORES, i, &vocab->tokens[i].score) ||
            isnan(vocab->tokens[i].score))
            return fail_at_key(gguf, KEY_SCORES, "an element is not a number", err);
    return 0;
}

static int hex_digit(char digit)
{
    if (digit >= '0' && digit <= '9')
        return digit - '0';
    if (digit >= 'A' && digit <= 'F')
        return digit - 'A' + 10;
    return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

/* The byte of "<0xXX>", or -1. */
static int byte_of(const struct token *token)
{
    const char *text = token->text;

    if (token->length != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>' ||
        hex_digit(text[3]) < 0 || hex_digit(text[4]) < 0)
        return -1;
    return hex_digit(text[3]) * 16 + hex_digit(text[4]);
}

static int read_types(struct vocab *vocab, const struct gguf *gguf, struct error *err)
{
    uint64_t type;
    bool found;

    if (find_list(vocab, gguf, KEY_TYPES, &found, err))
        return -1;
    for (uint32_t i = 0; i < vocab->count; i++) {
        struct token *token = &vocab->tokens[i];

        if (!found) {
            token->type = !vocab->is_bpe && byte_of(token) >= 0 ? TOKEN_BYTE : TOKEN_NORMAL;
            continue;
        }
        if (!gguf_get_u64_at(gguf, KEY_TYPES, i, &type))
            return fail_at_key(gguf, KEY_TYPES, "an element is not 0 or a positive integer", err);
        token->type = type <= TOKEN_BYTE ? (enum token_type)type : TOKEN_UNDEFINED;
    }
    return 0;
}

/* Sets `*token` to what a key says, or to -1 without one. */
static int read_token_id(const struct vocab *vocab, const struct gguf *gguf, const char *name,
                         int32_t *token, struct error *err)
{
    uint64_t id;

    *token = -1;
    if (!gguf_find_key(gguf, name))
        return 0;
    if (!gguf_get_u64(gguf, name, &id) || id >= vocab->count)
        return fail_at_key(gguf, name, "is no token of the vocabulary", err);
    *token = (int32_t)id;
    return 0;
}

static int read_flag(const struct gguf *gguf, const char *name, bool usual, bool *flag,
                     struct error *err)
{
    *flag = usual;
    if (gguf_find_key(gguf, name) && !gguf_get_bool(gguf, name, flag))
        return fail_at_key(gguf, name, "is neither true nor false", err);
    return 0;
}

static int read_specials(struct vocab *vocab, const struct gguf *gguf, struct error *err)
{
    bool spm = vocab->is_spm;

    if (read_token_id(vocab, gguf, "tokenizer.ggml.bos_token_id", &vocab->bos, err) ||
        read_token_id(vocab, gguf, "tokenizer.ggml.eos_token_id", &vocab->eos, err) ||
        read_token_id(vocab, gguf, "tokenizer.ggml.unknown_token_id", &vocab->unknown, err) ||
        read_flag(gguf, "tokenizer.ggml.add_bos_token", spm, &vocab->add_bos, err) ||
        read_flag(gguf, "tokenizer.ggml.add_eos_token", false, &vocab->add_eos, err) ||
        read_flag(gguf, "tokenizer.ggml.add_space_prefix", spm, &vocab->add_space, err))
        return -1;
    for (uint32_t i = 0; i < vocab->count && vocab->unknown < 0; i++)
        if (vocab->tokens[i].type == TOKEN_UNKNOWN)
            vocab->unknown = (int32_t)i;
    return 0;
}

/* ---- what reading text needs ---- */

/* A byte is "<0xXX>", else a text of that byte, else unknown. */
static void find_byte_tokens(struct vocab *vocab)
{
    static const char digits[] = "0123456789ABCDEF";

    for (int i = 0; i < 256; i++) {
        char text[] = {'<', '0', 'x', digits[i / 16], digits[i % 16], '>'}, byte = (char)i;

        vocab->byte_tokens[i] = vocab_find_token(vocab, text, sizeof text);
        if (vocab->byte_tokens[i] < 0)
            vocab->byte_tokens[i] = vocab_find_token(vocab, &byte, 1);
        if (vocab->byte_tokens[i] < 0)
            vocab->byte_tokens[i] = vocab->unknown;
    }
}

static int compare_descending(const void *a, const void *b)
{
    const size_t *left = a, *right = b;

    return *left > *right ? -1 : *left < *right;
}

bool vocab_is_user_defined(const struct token *token)
{
    return token->type == TOKEN_USER_DEFINED && token->length != 0;
}

static int list_user_lengths(struct vocab *vocab, struct error *err)
{
    size_t count = 0, kept = 0;

    for (uint32_t i = 0; i < vocab->count; i++)
        count += vocab_is_user_defined(&vocab->tokens[i]);
    if (count == 0)
        return 0;
    vocab->user_lengths = calloc(count, sizeof *vocab->user_lengths);
    if (!vocab->user_lengths)
        return error_set(err, ERROR_MEMORY, "no memory for %zu user-defined tokens", count);
    count = 0;
    for (uint32_t i = 0; i < vocab->count; i++)
        if (vocab_is_user_defined(&vocab->tokens[i])) {
            vocab->user_lengths[count++] = vocab->tokens[i].length;
            vocab->user_starts[(unsigned char)vocab->tokens[i].text[0]] = true;
        }
    qsort(vocab->user_lengths, count, sizeof *vocab->user_lengths, compare_descending);
    for (size_t i = 0; i < count; i++)
        if (kept == 0 || vocab->user_lengths[i] != vocab->user_lengths[kept - 1])
            vocab->user_lengths[kept++] = vocab->user_lengths[i];
    vocab->user_length_count = kept;
    return 0;
}

struct vocab *vocab_open(const struct gguf *gguf, struct error *err)
{
    struct vocab *vocab;

    if (!gguf_find_key(gguf, KEY_TOKENS)) {
        error_set_at(err, ERROR_USAGE, gguf_part_path(gguf, 0), 0, 0,
                     "has no vocabulary (key \"%s\")", KEY_TOKENS);
        return NULL;
    }
    vocab = calloc(1, sizeof *vocab);
    if (!vocab) {
        error_set(err, ERROR_MEMORY, "no memory for a vocabulary");
        return NULL;
    }
    if (read_kind(vocab, gguf, err) || read_texts(vocab, gguf, err) ||
        read_scores(vocab, gguf, err) || read_types(vocab, gguf, err) ||
        read_specials(vocab, gguf, err))
        goto free_vocab;
    if (vocab->is_spm) {
        if (index_tokens(vocab, err) || list_user_lengths(vocab, err))
            goto free_vocab;
        find_byte_tokens(vocab);
    }
    return vocab;

free_vocab:
    vocab_free(vocab);
    return NULL;
}

void vocab_free(struct vocab *vocab)
{
    if (!vocab)
        return;
    free(vocab->tokens);
    free(vocab->texts);
    free(vocab->slots);
    free(vocab->user_lengths);
    free(vocab);
}

uint32_t vocab_size(const struct vocab *vocab)
{
    return vocab->count;
}

int32_t vocab_bos(const struct vocab *vocab)
{
    return vocab->bos;
}

int32_t vocab_eos(const struct vocab *vocab)
{
    return vocab->eos;
}

/* Bytes of a UTF-8 character as its first byte claims; 1 where none begins. */
size_t vocab_character_bytes(char first)
{
    static const unsigned char bytes_of_nibble[16] = {1, 1, 1, 1, 1, 1, 1, 1,
                                                      1, 1, 1, 1, 2, 2, 3, 4};

    return bytes_of_nibble[(unsigned char)first >> 4];
}

/* ---- tokens to text ---- */

struct piece {
    char *text;
    size_t size, length;
};

static void put(struct piece *piece, const char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++, piece->length++)
        if (piece->length + 1 < piece->size)
            piece->text[piece->length] = bytes[i];
}

static void put_with_spaces(struct piece *piece, const struct token *token)
{
    for (size_t i = 0; i < token->length;)
        if (token->length - i >= SPACE_BYTES && memcmp(token->text + i, SPACE, SPACE_BYTES) == 0) {
            put(piece, " ", 1);
            i += SPACE_BYTES;
        } else {
            put(piece, token->text + i++, 1);
        }
}

/* The byte that byte-level BPE writes as a character, or -1: printable bytes of Latin-1 are
 * themselves, the others follow from 256 on. Source: bytes_to_unicode() of GPT-2's encoder.py. */
static int byte_of_character(uint32_t character)
{
    if ((character >= 33 && character <= 126) || (character >= 161 && character <= 172) ||
        (character >= 174 && character <= 255))
        return (int)character;
    if (character >= 256 && character < 256 + 33)
        return (int)character - 256;
    if (character >= 256 + 33 && character < 256 + 67)
        return (int)character - 256 - 33 + 127;
    return character == 256 + 67 ? 173 : -1;
}

/* Characters that stand for no byte stay as they are. The map ends below U+0800. */
static void put_bpe(struct piece *piece, const struct token *token)
{
    for (size_t i = 0; i < token->length;) {
        unsigned char first = (unsigned char)token->text[i];
        size_t bytes = vocab_character_bytes(token->text[i]);
        int byte = -1;
        char one;

        if (bytes > token->length - i)
            bytes = token->length - i;
        if (bytes == 1)
            byte = first < 0x80 ? byte_of_character(first) : -1;
        else if (bytes == 2)
            byte = byte_of_character((first & 0x1Fu) << 6 | ((unsigned)token->text[i + 1] & 0x3Fu));
        one = (char)byte;
        put(piece, byte < 0 ? token->text + i : &one, byte < 0 ? bytes : 1);
        i += bytes;
    }
}

static void put_token(struct piece *piece, const struct vocab *vocab, const struct token *token)
{
    char byte = (char)byte_of(token);

    switch (token->type) {
    case TOKEN_NORMAL:
        if (vocab->is_bpe)
            put_bpe(piece, token);
        else
            put_with_spaces(piece, token);
        break;
    case TOKEN_USER_DEFINED:
        put(piece, token->text, token->length);
        break;
    case TOKEN_BYTE:
        if (byte_of(token) >= 0)
            put(piece, &byte, 1);
        break;
    case TOKEN_UNDEFINED: /* the rest is never text, as in llama.cpp */
    case TOKEN_UNKNOWN:
    case TOKEN_CONTROL:
    case TOKEN_UNUSED:
        break;
    }
}

size_t vocab_piece(const struct vocab *vocab, uint32_t token, char *text, size_t size)
{
    struct piece piece = {.text = text, .size = size};

    if (token < vocab->count)
        put_token(&piece, vocab, &vocab->tokens[token]);
    if (size != 0)
        text[piece.length < size ? piece.length : size - 1] = '\0';
    return piece.length;
}
