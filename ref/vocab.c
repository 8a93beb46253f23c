/* Vocabularies of GGUF files.
 *
 * Reading text follows llama.cpp's SPM tokenizer (llama_vocab::impl::tokenize and
 * llm_tokenizer_spm_session in src/llama-vocab.cpp): user-defined tokens are cut out first, the
 * longest before the shorter; what lies between them is split into UTF-8 characters, and the
 * adjacent pair whose join is the token of highest score is joined until none is left. Control
 * tokens written out in a text ("<s>") stay text. Left out: the spaces that llama.cpp takes away
 * behind user-defined tokens of models that it knows by name (Phi-3). */
#include "ref/vocab.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sim/checked.h"

#define KEY_MODEL "tokenizer.ggml.model"
#define KEY_TOKENS "tokenizer.ggml.tokens"
#define KEY_SCORES "tokenizer.ggml.scores"
#define KEY_TYPES "tokenizer.ggml.token_type"

#define SPACE "\xE2\x96\x81" /* U+2581 stands for a space */
#define SPACE_BYTES (sizeof SPACE - 1)
#define NOWHERE SIZE_MAX

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
static int32_t find_token(const struct vocab *vocab, const char *text, size_t length)
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

        vocab->byte_tokens[i] = find_token(vocab, text, sizeof text);
        if (vocab->byte_tokens[i] < 0)
            vocab->byte_tokens[i] = find_token(vocab, &byte, 1);
        if (vocab->byte_tokens[i] < 0)
            vocab->byte_tokens[i] = vocab->unknown;
    }
}

static int compare_descending(const void *a, const void *b)
{
    const size_t *left = a, *right = b;

    return *left > *right ? -1 : *left < *right;
}

static bool is_user_defined(const struct token *token)
{
    return token->type == TOKEN_USER_DEFINED && token->length != 0;
}

static int list_user_lengths(struct vocab *vocab, struct error *err)
{
    size_t count = 0, kept = 0;

    for (uint32_t i = 0; i < vocab->count; i++)
        count += is_user_defined(&vocab->tokens[i]);
    if (count == 0)
        return 0;
    vocab->user_lengths = calloc(count, sizeof *vocab->user_lengths);
    if (!vocab->user_lengths)
        return error_set(err, ERROR_MEMORY, "no memory for %zu user-defined tokens", count);
    count = 0;
    for (uint32_t i = 0; i < vocab->count; i++)
        if (is_user_defined(&vocab->tokens[i])) {
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

/* ---- text to tokens ---- */

/* A part of the text: a user-defined token, or text still to be read. */
struct fragment {
    const char *text;
    size_t length;
    int32_t token; /* -1: text */
};

struct fragments {
    struct fragment *entries;
    size_t count, capacity;
};

/* A piece of the escaped text; in the end a token, or bytes. */
struct symbol {
    size_t start, length; /* length 0: joined into the one before */
    size_t before, after; /* or NOWHERE */
};

/* Two symbols whose join is a token; stale once one of them has been joined. */
struct pair {
    float score;
    size_t left, right, length;
};

struct encoder {
    const struct vocab *vocab;
    struct error *err;
    char *text; /* of one fragment, its spaces replaced */
    size_t length, text_capacity;
    struct symbol *symbols;
    size_t symbol_count, symbol_capacity;
    struct pair *heap; /* the best pair first */
    size_t heap_count, heap_capacity;
    uint32_t *tokens;
    size_t token_count, token_capacity;
};

/* The entries with room for `wanted`, or NULL with `err` set: then they stay where they were. */
static void *with_room(void *entries, size_t wanted, size_t *capacity, size_t bytes,
                       struct error *err)
{
    size_t room = *capacity > SIZE_MAX / 2 || wanted > *capacity * 2 ? wanted : *capacity * 2;
    void *moved = NULL;

    if (wanted <= *capacity)
        return entries;
    if (room < 16)
        room = 16;
    if (room <= SIZE_MAX / bytes)
        moved = realloc(entries, room * bytes);
    if (!moved) {
        error_set(err, ERROR_MEMORY, "no memory to make tokens of a text");
        return NULL;
    }
    *capacity = room;
    return moved;
}

static int add_token(struct encoder *encoder, int32_t token)
{
    uint32_t *tokens = with_room(encoder->tokens, encoder->token_count + 1,
                                 &encoder->token_capacity, sizeof *tokens, encoder->err);

    if (!tokens)
        return -1;
    encoder->tokens = tokens;
    tokens[encoder->token_count++] = (uint32_t)token;
    return 0;
}

/* Copies a fragment, spaces as U+2581, one more in front when `add_space`. */
static int escape(struct encoder *encoder, const struct fragment *fragment, bool add_space)
{
    size_t spaces = add_space;
    char *text;

    for (size_t i = 0; i < fragment->length; i++)
        spaces += fragment->text[i] == ' ';
    if (fragment->length > SIZE_MAX / 4)
        return error_set(encoder->err, ERROR_MEMORY, "no memory to make tokens of a text");
    text = with_room(encoder->text, fragment->length + spaces * SPACE_BYTES,
                     &encoder->text_capacity, 1, encoder->err);
    if (!text)
        return -1;
    encoder->text = text;
    encoder->length = 0;
    if (add_space) {
        memcpy(text, SPACE, SPACE_BYTES);
        encoder->length = SPACE_BYTES;
    }
    for (size_t i = 0; i < fragment->length; i++)
        if (fragment->text[i] == ' ') {
            memcpy(text + encoder->length, SPACE, SPACE_BYTES);
            encoder->length += SPACE_BYTES;
        } else {
            text[encoder->length++] = fragment->text[i];
        }
    return 0;
}

/* Bytes of a UTF-8 character as its first byte claims; 1 where none begins. */
static size_t character_bytes(char first)
{
    static const unsigned char bytes_of_nibble[16] = {1, 1, 1, 1, 1, 1, 1, 1,
                                                      1, 1, 1, 1, 2, 2, 3, 4};

    return bytes_of_nibble[(unsigned char)first >> 4];
}

static int split_characters(struct encoder *encoder)
{
    encoder->symbol_count = 0;
    for (size_t start = 0; start < encoder->length;) {
        size_t length = character_bytes(encoder->text[start]), i = encoder->symbol_count;
        struct symbol *symbols = with_room(encoder->symbols, i + 1, &encoder->symbol_capacity,
                                           sizeof *symbols, encoder->err);

        if (!symbols)
            return -1;
        if (length > encoder->length - start)
            length = encoder->length - start;
        encoder->symbols = symbols;
        symbols[i] = (struct symbol){
            .start = start, .length = length, .before = i ? i - 1 : NOWHERE, .after = i + 1};
        encoder->symbol_count++;
        start += length;
    }
    if (encoder->symbol_count != 0)
        encoder->symbols[encoder->symbol_count - 1].after = NOWHERE;
    return 0;
}

/* The higher score first, then the one further left. */
static bool pair_before(const struct pair *a, const struct pair *b)
{
    return a->score > b->score || (!(a->score < b->score) && a->left < b->left);
}

static int push_pair(struct encoder *encoder, struct pair pair)
{
    struct pair *heap = with_room(encoder->heap, encoder->heap_count + 1, &encoder->heap_capacity,
                                  sizeof *heap, encoder->err);
    size_t i = encoder->heap_count;

    if (!heap)
        return -1;
    encoder->heap = heap;
    for (; i != 0 && pair_before(&pair, &heap[(i - 1) / 2]); i = (i - 1) / 2)
        heap[i] = heap[(i - 1) / 2];
    heap[i] = pair;
    encoder->heap_count++;
    return 0;
}

/* Takes the first of the heap, which is not empty. */
static struct pair pop_pair(struct encoder *encoder)
{
    struct pair *heap = encoder->heap, first = heap[0], last = heap[--encoder->heap_count];
    size_t i = 0, child;

    for (; (child = 2 * i + 1) < encoder->heap_count; i = child) {
        if (child + 1 < encoder->heap_count && pair_before(&heap[child + 1], &heap[child]))
            child++;
        if (!pair_before(&heap[child], &last))
            break;
        heap[i] = heap[child];
    }
    heap[i] = last;
    return first;
}

/* Remembers two neighbours whose join is a token; either may be NOWHERE. */
static int try_pair(struct encoder *encoder, size_t left, size_t right)
{
    struct pair pair = {.left = left, .right = right};
    int32_t token;

    if (left == NOWHERE || right == NOWHERE)
        return 0;
    pair.length = encoder->symbols[left].length + encoder->symbols[right].length;
    token = find_token(encoder->vocab, encoder->text + encoder->symbols[left].start, pair.length);
    if (token < 0)
        return 0;
    pair.score = encoder->vocab->tokens[token].score;
    return push_pair(encoder, pair);
}

static int join_pairs(struct encoder *encoder)
{
    encoder->heap_count = 0;
    for (size_t i = 1; i < encoder->symbol_count; i++)
        if (try_pair(encoder, i - 1, i))
            return -1;
    while (encoder->heap_count != 0) {
        struct pair pair = pop_pair(encoder);
        struct symbol *left = &encoder->symbols[pair.left], *right = &encoder->symbols[pair.right];

        if (left->length == 0 || right->length == 0 || left->length + right->length != pair.length)
            continue; /* stale */
        left->length = pair.length;
        left->after = right->after;
        if (left->after != NOWHERE)
            encoder->symbols[left->after].before = pair.left;
        right->length = 0;
        if (try_pair(encoder, left->before, pair.left) || try_pair(encoder, pair.left, left->after))
            return -1;
    }
    return 0;
}

static int add_bytes(struct encoder *encoder, const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        int32_t token = encoder->vocab->byte_tokens[(unsigned char)text[i]];

        if (token < 0)
            return error_set(encoder->err, ERROR_INPUT,
                             "the vocabulary has no token for byte 0x%02X, and none for unknown",
                             (unsigned)(unsigned char)text[i]);
        if (add_token(encoder, token))
            return -1;
    }
    return 0;
}

static int encode_fragment(struct encoder *encoder, const struct fragment *fragment, bool add_space)
{
    if (escape(encoder, fragment, add_space) || split_characters(encoder) || join_pairs(encoder))
        return -1;
    for (size_t i = 0; i != NOWHERE; i = encoder->symbols[i].after) {
        const struct symbol *symbol = &encoder->symbols[i];
        const char *text = encoder->text + symbol->start;
        int32_t token = find_token(encoder->vocab, text, symbol->length);

        if (token >= 0 ? add_token(encoder, token) : add_bytes(encoder, text, symbol->length))
            return -1;
    }
    return 0;
}

/* Adds a fragment unless it is empty. */
static int add_fragment(struct fragments *fragments, const char *text, size_t length, int32_t token,
                        struct error *err)
{
    struct fragment *entries;

    if (length == 0)
        return 0;
    entries = with_room(fragments->entries, fragments->count + 1, &fragments->capacity,
                        sizeof *entries, err);
    if (!entries)
        return -1;
    fragments->entries = entries;
    entries[fragments->count++] = (struct fragment){.text = text, .length = length, .token = token};
    return 0;
}

/* Adds the parts of a text: user-defined tokens of `length` bytes, and what lies between. */
static int split_text(const struct vocab *vocab, struct fragment whole, size_t length,
                      struct fragments *parts, struct error *err)
{
    size_t done = 0, i = 0;

    while (whole.length >= length && i <= whole.length - length) {
        const char *text = whole.text + i;
        int32_t token =
            vocab->user_starts[(unsigned char)*text] ? find_token(vocab, text, length) : -1;

        if (token < 0 || vocab->tokens[token].type != TOKEN_USER_DEFINED) {
            i++;
            continue;
        }
        if (add_fragment(parts, whole.text + done, i - done, -1, err) ||
            add_fragment(parts, text, length, token, err))
            return -1;
        i += length;
        done = i;
    }
    return add_fragment(parts, whole.text + done, whole.length - done, -1, err);
}

/* Fills `fragments` with a text, cut at user-defined tokens, the longest first. */
static int cut_at_user_tokens(const struct vocab *vocab, const char *text,
                              struct fragments *fragments, struct error *err)
{
    int result = add_fragment(fragments, text, strlen(text), -1, err);
    struct fragments parts = {0};

    for (size_t i = 0; i < vocab->user_length_count && !result; i++) {
        struct fragments swapped = *fragments;

        parts.count = 0;
        for (size_t j = 0; j < fragments->count && !result; j++) {
            struct fragment one = fragments->entries[j];

            result = one.token >= 0 ? add_fragment(&parts, one.text, one.length, one.token, err)
                                    : split_text(vocab, one, vocab->user_lengths[i], &parts, err);
        }
        *fragments = parts;
        parts = swapped;
    }
    free(parts.entries);
    return result;
}

static int encode_fragments(struct encoder *encoder, const struct fragments *fragments)
{
    bool add_space = encoder->vocab->add_space; /* at the start, and behind a special token */

    for (size_t i = 0; i < fragments->count; i++) {
        const struct fragment *one = &fragments->entries[i];

        if (one->token >= 0 ? add_token(encoder, one->token)
                            : encode_fragment(encoder, one, add_space))
            return -1;
        add_space = encoder->vocab->add_space && one->token >= 0;
    }
    return 0;
}

static int encode(struct encoder *encoder, const char *text, bool add_special)
{
    const struct vocab *vocab = encoder->vocab;
    struct fragments fragments = {0};
    int result = cut_at_user_tokens(vocab, text, &fragments, encoder->err);

    if (!result && add_special && vocab->add_bos && vocab->bos >= 0)
        result = add_token(encoder, vocab->bos);
    if (!result)
        result = encode_fragments(encoder, &fragments);
    if (!result && add_special && vocab->add_eos && vocab->eos >= 0)
        result = add_token(encoder, vocab->eos);
    free(fragments.entries);
    return result;
}

int64_t vocab_encode(const struct vocab *vocab, const char *text, bool add_special,
                     uint32_t **tokens, struct error *err)
{
    struct encoder encoder = {.vocab = vocab, .err = err};
    int64_t count = -1;

    if (!vocab->is_spm)
        return error_set(err, ERROR_UNSUPPORTED,
                         "a \"%s\" vocabulary cannot read text, only a \"llama\" one can; token "
                         "ids are needed",
                         vocab->kind);
    /* One token's room, so that no text at all is an array too. */
    encoder.tokens = with_room(NULL, 1, &encoder.token_capacity, sizeof *encoder.tokens, err);
    if (encoder.tokens && !encode(&encoder, text, add_special)) {
        count = (int64_t)encoder.token_count;
        *tokens = encoder.tokens;
    } else {
        free(encoder.tokens);
    }
    free(encoder.text);
    free(encoder.symbols);
    free(encoder.heap);
    return count;
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
        size_t bytes = character_bytes(token->text[i]);
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
