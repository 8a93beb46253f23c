/* Text to tokens, as llama.cpp's SPM tokenizer makes them (llama_vocab::impl::tokenize and
 * llm_tokenizer_spm_session in src/llama-vocab.cpp): user-defined tokens are cut out first, the
 * longest before the shorter; what lies between them is split into UTF-8 characters, and the
 * adjacent pair whose join is the token of highest score is joined until none is left. Control
 * tokens written out in a text ("<s>") stay text. Left out: the spaces that llama.cpp takes away
 * behind user-defined tokens of models that it knows by name (Phi-3). */
#include "ref/vocab_private.h"

#include "sim/checked.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NOWHERE SIZE_MAX

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

static int split_characters(struct encoder *encoder)
{
    encoder->symbol_count = 0;
    for (size_t start = 0; start < encoder->length;) {
        size_t length = vocab_character_bytes(encoder->text[start]), i = encoder->symbol_count;
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
    token =
        vocab_find_token(encoder->vocab, encoder->text + encoder->symbols[left].start, pair.length);
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
        int32_t token = vocab_find_token(encoder->vocab, text, symbol->length);

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
            vocab->user_starts[(unsigned char)*text] ? vocab_find_token(vocab, text, length) : -1;

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
