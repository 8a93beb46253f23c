/* Vocabularies: small ones written in memory, and real files of LOPSIDE_GGUF_DIR where it is set.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ref/vocab.h"
#include "tests/gguf_writer.h"

#define SPACE "\xE2\x96\x81"
#define COUNT(array) (sizeof(array) / sizeof *(array))
#define IDS_MAX 96

enum { NORMAL = 1, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE };

struct row {
    const char *text;
    float score;
    uint32_t type;
};

/* Tokens 0 to 258 of every small SPM vocabulary: unknown, BOS, EOS, then the bytes. */
#define FIRST 259

/* Its own tokens, from FIRST on. */
static const struct row letters[] = {
    {SPACE, -1, NORMAL},         /* 259 */
    {"a", -20, NORMAL},          /* 260 */
    {"b", -20, NORMAL},          /* 261 */
    {"c", -20, NORMAL},          /* 262 */
    {"ab", -3, NORMAL},          /* 263 */
    {"bc", -2, NORMAL},          /* 264 */
    {"aa", -5, NORMAL},          /* 265 */
    {"ccc", -9, NORMAL},         /* 266 */
    {SPACE "a", -4, NORMAL},     /* 267 */
    {"<x>", 0, USER_DEFINED},    /* 268 */
    {"<x><x>", 0, USER_DEFINED}, /* 269 */
    {"<c>", 0, CONTROL},         /* 270 */
    {"x>", -1, NORMAL},          /* 271 */
    {"aaaa", -6, NORMAL},        /* 272 */
    {"twice", -6, NORMAL},       /* 273 */
    {"twice", -6, NORMAL},       /* 274 */
    {"t", -6, NORMAL},           /* 275 */
    {"tw", -6, NORMAL},          /* 276 */
    {"twi", -6, NORMAL},         /* 277 */
    {"twic", -6, NORMAL},        /* 278 */
    {"", -6, NORMAL},            /* 279 */
    {"spare", -6, UNUSED},       /* 280 */
    {"e", -6, NORMAL},           /* 281 */
};

/* ---- writing and opening small vocabularies ---- */

static void write_texts(struct gguf_writer *writer, const struct row *rows, size_t count,
                        bool with_bytes)
{
    gguf_writer_key_array(writer, "tokenizer.ggml.tokens", GGUF_TYPE_STRING,
                          count + (with_bytes ? FIRST : 0));
    if (with_bytes) {
        gguf_writer_string(writer, "<unk>");
        gguf_writer_string(writer, "<s>");
        gguf_writer_string(writer, "</s>");
    }
    for (unsigned i = 0; with_bytes && i < 256; i++) {
        char text[8];

        snprintf(text, sizeof text, "<0x%02X>", i);
        gguf_writer_string(writer, text);
    }
    for (size_t i = 0; i < count; i++)
        gguf_writer_string(writer, rows[i].text);
}

static void write_scores(struct gguf_writer *writer, const struct row *rows, size_t count,
                         bool with_bytes)
{
    size_t first = with_bytes ? FIRST : 0;

    gguf_writer_key_array(writer, "tokenizer.ggml.scores", GGUF_TYPE_FLOAT32, count + first);
    for (size_t i = 0; i < count + first; i++)
        gguf_writer_f32(writer, i < first ? 0 : rows[i - first].score);
}

static void write_types(struct gguf_writer *writer, const struct row *rows, size_t count,
                        bool with_bytes)
{
    size_t first = with_bytes ? FIRST : 0;

    gguf_writer_key_array(writer, "tokenizer.ggml.token_type", GGUF_TYPE_INT32, count + first);
    for (size_t i = 0; i < first; i++)
        gguf_writer_u32(writer, i == 0 ? UNKNOWN : i < 3 ? CONTROL : BYTE);
    for (size_t i = 0; i < count; i++)
        gguf_writer_u32(writer, rows[i].type);
}

/* Starts a vocabulary with the special and byte tokens, then `rows`. Keys can follow. */
static void start_spm(struct gguf_writer *writer, bool big_endian, const struct row *rows,
                      size_t count)
{
    gguf_writer_init(writer, 3, big_endian);
    gguf_writer_key_string(writer, "tokenizer.ggml.model", "llama");
    write_texts(writer, rows, count, true);
    write_scores(writer, rows, count, true);
    write_types(writer, rows, count, true);
}

/* Starts a vocabulary of `rows` alone. Keys can follow. */
static void start_bare(struct gguf_writer *writer, const char *model, const struct row *rows,
                       size_t count)
{
    gguf_writer_init(writer, 3, false);
    gguf_writer_key_string(writer, "tokenizer.ggml.model", model);
    write_texts(writer, rows, count, false);
    write_scores(writer, rows, count, false);
    write_types(writer, rows, count, false);
}

/* The vocabulary of what was written, or NULL with `err` set. Closes the writer. */
static struct vocab *try_open(struct gguf_writer *writer, struct error *err)
{
    struct gguf *gguf = gguf_parse(writer->data, writer->size, "test.gguf", err);
    struct vocab *vocab;

    ck_assert_msg(gguf != NULL, "%s", err->text);
    vocab = vocab_open(gguf, err);
    gguf_free(gguf);
    gguf_writer_close(writer);
    return vocab;
}

static struct vocab *open_written(struct gguf_writer *writer)
{
    struct error err = {0};
    struct vocab *vocab = try_open(writer, &err);

    ck_assert_msg(vocab != NULL, "%s", err.text);
    return vocab;
}

static struct vocab *open_letters(void)
{
    struct gguf_writer writer;

    start_spm(&writer, false, letters, COUNT(letters));
    return open_written(&writer);
}

/* ---- asking ---- */

static void assert_ids(const struct vocab *vocab, const char *text, bool add_special,
                       const uint32_t *expected, size_t count)
{
    struct error err = {0};
    char found[16 * IDS_MAX] = "";
    uint32_t *tokens = NULL;
    int64_t found_count = vocab_encode(vocab, text, add_special, &tokens, &err);
    bool same = found_count == (int64_t)count;

    ck_assert_msg(found_count >= 0, "\"%s\": %s", text, err.text);
    for (int64_t i = 0; i < found_count && i < IDS_MAX; i++) {
        size_t used = strlen(found);

        same = same && tokens[i] == expected[i];
        snprintf(found + used, sizeof found - used, " %u", (unsigned)tokens[i]);
    }
    ck_assert_msg(same, "\"%s\" gives%s", text, found);
    free(tokens);
}

/* Compares with the ids given. */
#define ASSERT_IDS(vocab, text, add_special, ...)                                                  \
    assert_ids(vocab, text, add_special, (const uint32_t[]){__VA_ARGS__},                          \
               COUNT(((const uint32_t[]){__VA_ARGS__})))

static void assert_piece(const struct vocab *vocab, uint32_t token, const char *expected)
{
    char text[64];

    ck_assert_uint_eq(vocab_piece(vocab, token, text, sizeof text), strlen(expected));
    ck_assert_str_eq(text, expected);
}

/* Whether the pieces of a text's tokens, one after the other, are the text behind `prefix`. */
static void assert_round_trip(const struct vocab *vocab, const char *prefix, const char *text)
{
    struct error err = {0};
    char decoded[1024] = "", expected[1024];
    size_t used = 0;
    uint32_t *tokens;
    int64_t count = vocab_encode(vocab, text, false, &tokens, &err);

    ck_assert_msg(count >= 0, "%s", err.text);
    for (int64_t i = 0; i < count; i++) {
        used += vocab_piece(vocab, tokens[i], decoded + used, sizeof decoded - used);
        ck_assert_uint_lt(used, sizeof decoded);
    }
    snprintf(expected, sizeof expected, "%s%s", text[0] ? prefix : "", text);
    ck_assert_str_eq(decoded, expected);
    free(tokens);
}

/* ---- reading text ---- */

static const struct {
    const char *name, *text;
    size_t count;
    uint32_t ids[8];
} letter_cases[] = {
    {"no text gives no token, not even the space in front", "", 0, {0}},
    {"a space is put in front and joined", "a", 1, {267}},
    {"spaces in the text are kept", " a", 2, {259, 267}},
    {"the highest score is joined first", "cabc", 4, {259, 262, 260, 264}},
    {"joins make new joins", "caaaa", 3, {259, 262, 272}},
    {"of equal scores the left pair is joined first", "caaa", 4, {259, 262, 265, 260}},
    {"of two tokens with one text the later is found", "ctwice", 3, {259, 262, 274}},
    {"a character without a token becomes its bytes", "\xC3\xA9", 3, {259, 3 + 0xC3, 3 + 0xA9}},
    {"a byte that starts no character becomes itself", "\x80\xFF", 3, {259, 3 + 0x80, 3 + 0xFF}},
    {"a character cut off becomes its bytes", "\xF0\x9F", 3, {259, 3 + 0xF0, 3 + 0x9F}},
    {"a user-defined token is cut out, with a space behind it",
     "b<x>b",
     5,
     {259, 261, 268, 259, 261}},
    {"the longest user-defined token is cut out first", "<x><x><x>", 2, {269, 268}},
    {"a control token written out stays text", "<c>", 4, {259, 3 + '<', 262, 3 + '>'}},
};

START_TEST(a_text_becomes_the_tokens_of_its_best_joins)
{
    struct vocab *vocab = open_letters();

    ck_assert_msg(letter_cases[_i].name != NULL, "a case has no name");
    assert_ids(vocab, letter_cases[_i].text, false, letter_cases[_i].ids, letter_cases[_i].count);
    vocab_free(vocab);
}
END_TEST

START_TEST(both_byte_orders_read_the_same)
{
    struct gguf_writer writer;
    struct vocab *vocab;

    start_spm(&writer, true, letters, COUNT(letters));
    vocab = open_written(&writer);
    ck_assert_uint_eq(vocab_size(vocab), FIRST + COUNT(letters));
    ASSERT_IDS(vocab, "caaaa", false, 259, 262, 272);
    assert_piece(vocab, 267, " a");
    vocab_free(vocab);
}
END_TEST

START_TEST(no_space_goes_in_front_where_the_file_says_so)
{
    struct gguf_writer writer;
    struct vocab *vocab;

    start_spm(&writer, false, letters, COUNT(letters));
    gguf_writer_key_bool(&writer, "tokenizer.ggml.add_space_prefix", false);
    vocab = open_written(&writer);
    ASSERT_IDS(vocab, "a", false, 260);
    ASSERT_IDS(vocab, " a", false, 267);
    ASSERT_IDS(vocab, "b<x>b", false, 261, 268, 261);
    vocab_free(vocab);
}
END_TEST

START_TEST(special_tokens_are_added_when_asked_and_known)
{
    struct gguf_writer writer;
    struct vocab *vocab;

    start_spm(&writer, false, letters, COUNT(letters));
    gguf_writer_key_u32(&writer, "tokenizer.ggml.bos_token_id", 1);
    gguf_writer_key_u32(&writer, "tokenizer.ggml.eos_token_id", 2);
    vocab = open_written(&writer);
    ck_assert_int_eq(vocab_bos(vocab), 1);
    ck_assert_int_eq(vocab_eos(vocab), 2);
    ASSERT_IDS(vocab, "a", false, 267);
    ASSERT_IDS(vocab, "a", true, 1, 267);
    ASSERT_IDS(vocab, "", true, 1);
    vocab_free(vocab);
}
END_TEST

START_TEST(flags_of_the_file_decide_on_both_special_tokens)
{
    struct gguf_writer writer;
    struct vocab *vocab;

    start_spm(&writer, false, letters, COUNT(letters));
    gguf_writer_key_u32(&writer, "tokenizer.ggml.bos_token_id", 1);
    gguf_writer_key_u32(&writer, "tokenizer.ggml.eos_token_id", 2);
    gguf_writer_key_bool(&writer, "tokenizer.ggml.add_bos_token", false);
    gguf_writer_key_bool(&writer, "tokenizer.ggml.add_eos_token", true);
    vocab = open_written(&writer);
    ASSERT_IDS(vocab, "a", true, 267, 2);
    vocab_free(vocab);
}
END_TEST

START_TEST(a_file_that_names_no_special_token_has_none)
{
    struct vocab *vocab = open_letters();

    ck_assert_int_eq(vocab_bos(vocab), -1);
    ck_assert_int_eq(vocab_eos(vocab), -1);
    ASSERT_IDS(vocab, "a", true, 267);
    vocab_free(vocab);
}
END_TEST

static const struct row few[] = {{"?", 0, UNKNOWN}, {SPACE, 0, NORMAL}, {"a", 0, NORMAL}};

START_TEST(without_byte_tokens_the_rest_is_unknown_byte_by_byte)
{
    struct gguf_writer writer;
    struct vocab *vocab;

    start_bare(&writer, "llama", few, COUNT(few));
    vocab = open_written(&writer);
    ASSERT_IDS(vocab, "a\xC3\xA9", false, 1, 2, 0, 0);
    vocab_free(vocab);
}
END_TEST

START_TEST(a_byte_that_has_no_token_at_all_is_an_error)
{
    struct error err = {0};
    struct gguf_writer writer;
    uint32_t *tokens = NULL;
    struct vocab *vocab;

    start_bare(&writer, "llama", few + 1, COUNT(few) - 1);
    vocab = open_written(&writer);
    ck_assert_int_eq(vocab_encode(vocab, "ab", false, &tokens, &err), -1);
    ck_assert_int_eq(err.code, ERROR_INPUT);
    ck_assert_str_eq(err.text, "the vocabulary has no token for byte 0x62, and none for unknown");
    ck_assert_ptr_null(tokens);
    vocab_free(vocab);
}
END_TEST

START_TEST(without_scores_and_types_joins_go_from_the_left_and_bytes_are_known)
{
    struct gguf_writer writer;
    struct vocab *vocab;

    gguf_writer_init(&writer, 3, false);
    gguf_writer_key_string(&writer, "tokenizer.ggml.model", "llama");
    write_texts(&writer, letters, COUNT(letters), true);
    vocab = open_written(&writer);
    ASSERT_IDS(vocab, "cabc", false, 259, 262, 263, 262);
    assert_piece(vocab, 3 + 'z', "z");
    vocab_free(vocab);
}
END_TEST

/* Check ends a test after 4 seconds; work that grows with the square takes hours here. */
START_TEST(a_megabyte_takes_no_longer_than_its_length_allows)
{
    static const char *const patterns[] = {"a", "b", "ab c", "<x>", "aaa<x>"};
    size_t size = 1 << 20, length = strlen(patterns[_i]);
    struct error err = {0};
    struct vocab *vocab = open_letters();
    char *text = malloc(size + 1);
    uint32_t *tokens;

    ck_assert_ptr_nonnull(text);
    for (size_t i = 0; i < size; i++)
        text[i] = patterns[_i][i % length];
    text[size] = '\0';
    ck_assert_int_gt(vocab_encode(vocab, text, false, &tokens, &err), (int64_t)(size / 8));
    free(tokens);
    free(text);
    vocab_free(vocab);
}
END_TEST

/* ---- tokens as text ---- */

START_TEST(pieces_have_spaces_and_bytes_and_no_control_tokens)
{
    struct vocab *vocab = open_letters();

    assert_piece(vocab, 267, " a");
    assert_piece(vocab, 259, " ");
    assert_piece(vocab, 3 + '\n', "\n");
    assert_piece(vocab, 268, "<x>");
    assert_piece(vocab, 1, "");
    assert_piece(vocab, 0, "");
    assert_piece(vocab, 280, "");
    assert_piece(vocab, 279, "");
    assert_piece(vocab, vocab_size(vocab), "");
    vocab_free(vocab);
}
END_TEST

START_TEST(a_piece_that_does_not_fit_is_cut_and_its_length_told)
{
    struct vocab *vocab = open_letters();
    char text[3] = "??";

    ck_assert_uint_eq(vocab_piece(vocab, 266, text, sizeof text), 3);
    ck_assert_str_eq(text, "cc");
    ck_assert_uint_eq(vocab_piece(vocab, 266, text, 1), 3);
    ck_assert_str_eq(text, "");
    ck_assert_uint_eq(vocab_piece(vocab, 266, NULL, 0), 3);
    vocab_free(vocab);
}
END_TEST

START_TEST(the_zero_byte_is_a_piece_of_length_1)
{
    struct vocab *vocab = open_letters();
    char text[4] = "???";

    ck_assert_uint_eq(vocab_piece(vocab, 3, text, sizeof text), 1);
    ck_assert_int_eq(text[0], '\0');
    ck_assert_int_eq(text[1], '\0');
    vocab_free(vocab);
}
END_TEST

static const char *const texts[] = {
    "",
    " ",
    "   ",
    "abc",
    " leading and trailing ",
    "tabs\tand\r\nlines\n\n",
    "\xF0\x9F\xA6\x99 and \xE2\x9C\x85",                         /* a llama, a check mark */
    "\xD0\xBD\xD0\xB5\xD1\x89\xD0\xBE \xE6\x88\x91\xE6\x83\xB3", /* Cyrillic, Chinese */
    "\x01\x7F\x80\xBF\xC0\xFE\xFF",
    "cut off \xE2\x96",
    "<x><c><s></s><0x41>",
};

START_TEST(decoding_gives_back_what_was_encoded)
{
    struct vocab *vocab = open_letters();

    /* A user-defined token first in the text takes no space in front. */
    assert_round_trip(vocab, strncmp(texts[_i], "<x>", 3) == 0 ? "" : " ",
                      strncmp(texts[_i], "<x>", 3) == 0 ? "<x>" : texts[_i]);
    vocab_free(vocab);
}
END_TEST

/* ---- byte-level BPE ---- */

static const struct row bpe[] = {
    {"Hi", 0, NORMAL},
    {"\xC4\xA0world", 0, NORMAL},                    /* U+0120: a space */
    {"\xC4\x8A", 0, NORMAL},                         /* U+010A: a line end */
    {"\xC3\xB0\xC5\x81\xC2\xA6\xC4\xBB", 0, NORMAL}, /* F0 9F A6 99, a llama */
    {"\xC5\x83\xC4\xA1\xC5\x82", 0, NORMAL},         /* U+0143 AD, U+0121 7F, U+0142 A0 */
    {"\xE2\x96\x81"
     "a b",
     0, NORMAL},                 /* stands for no bytes: stays */
    {"\xC5\x84\xC3", 0, NORMAL}, /* U+0144 is behind the map; then cut off */
    {"<|end|>", 0, CONTROL},
    {"\xC4\xA0<pad>", 0, USER_DEFINED},
    {"\xC4\x80", 0, NORMAL}, /* U+0100: the zero byte */
};

START_TEST(bpe_pieces_are_the_bytes_that_their_characters_stand_for)
{
    struct gguf_writer writer;
    struct vocab *vocab;
    char text[4];

    start_bare(&writer, "gpt2", bpe, COUNT(bpe));
    vocab = open_written(&writer);
    assert_piece(vocab, 0, "Hi");
    assert_piece(vocab, 1, " world");
    assert_piece(vocab, 2, "\n");
    assert_piece(vocab, 3, "\xF0\x9F\xA6\x99");
    assert_piece(vocab, 4, "\xAD\x7F\xA0");
    assert_piece(vocab, 5,
                 "\xE2\x96\x81"
                 "a b");
    assert_piece(vocab, 6, "\xC5\x84\xC3");
    assert_piece(vocab, 7, "");
    assert_piece(vocab, 8, "\xC4\xA0<pad>");
    ck_assert_uint_eq(vocab_piece(vocab, 9, text, sizeof text), 1);
    ck_assert_int_eq(text[0], '\0');
    vocab_free(vocab);
}
END_TEST

/* Writes a byte as the character that byte-level BPE has for it: itself, or the next from 256. */
static size_t write_bpe_byte(unsigned byte, unsigned *next, char *out)
{
    bool itself = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    unsigned character = itself ? byte : (*next)++;

    if (character < 0x80) {
        out[0] = (char)character;
        return 1;
    }
    out[0] = (char)(0xC0 | character >> 6);
    out[1] = (char)(0x80 | (character & 0x3F));
    return 2;
}

START_TEST(bpe_pieces_can_be_any_byte)
{
    char all[513], piece[257];
    unsigned next = 256;
    struct gguf_writer writer;
    struct vocab *vocab;
    size_t used = 0;

    for (unsigned byte = 0; byte < 256; byte++)
        used += write_bpe_byte(byte, &next, all + used);
    all[used] = '\0';
    start_bare(&writer, "gpt2", (const struct row[]){{all, 0, NORMAL}}, 1);
    vocab = open_written(&writer);
    ck_assert_uint_eq(vocab_piece(vocab, 0, piece, sizeof piece), 256);
    for (unsigned byte = 0; byte < 256; byte++)
        ck_assert_uint_eq((unsigned char)piece[byte], byte);
    vocab_free(vocab);
}
END_TEST

START_TEST(another_tokenizer_asks_for_token_ids)
{
    struct error err = {0};
    struct gguf_writer writer;
    uint32_t *tokens = NULL;
    struct vocab *vocab;

    start_bare(&writer, "gpt2", bpe, COUNT(bpe));
    vocab = open_written(&writer);
    ck_assert_int_eq(vocab_encode(vocab, "Hi", true, &tokens, &err), -1);
    ck_assert_int_eq(err.code, ERROR_UNSUPPORTED);
    ck_assert_str_eq(err.text, "a \"gpt2\" vocabulary cannot read text, only a \"llama\" one can; "
                               "token ids are needed");
    ck_assert_ptr_null(tokens);
    vocab_free(vocab);
}
END_TEST

/* ---- wrong files ---- */

static void write_model_and_texts(struct gguf_writer *writer)
{
    gguf_writer_key_string(writer, "tokenizer.ggml.model", "llama");
    write_texts(writer, few, COUNT(few), false);
}

static void write_no_tokens(struct gguf_writer *writer)
{
    gguf_writer_key_string(writer, "tokenizer.ggml.model", "llama");
}

static void write_no_model(struct gguf_writer *writer)
{
    write_texts(writer, few, COUNT(few), false);
}

static void write_empty_tokens(struct gguf_writer *writer)
{
    write_no_tokens(writer);
    write_texts(writer, few, 0, false);
}

static void write_number_tokens(struct gguf_writer *writer)
{
    write_no_tokens(writer);
    gguf_writer_key_u32s(writer, "tokenizer.ggml.tokens", (uint32_t[]){1, 2}, 2);
}

static void write_one_text(struct gguf_writer *writer)
{
    write_no_tokens(writer);
    gguf_writer_key_string(writer, "tokenizer.ggml.tokens", "a");
}

static void write_short_scores(struct gguf_writer *writer)
{
    write_model_and_texts(writer);
    write_scores(writer, few, COUNT(few) - 1, false);
}

static void write_nan_score(struct gguf_writer *writer)
{
    write_model_and_texts(writer);
    gguf_writer_key_array(writer, "tokenizer.ggml.scores", GGUF_TYPE_FLOAT32, COUNT(few));
    for (size_t i = 0; i < COUNT(few); i++)
        gguf_writer_u32(writer, 0x7FC00000);
}

static void write_text_scores(struct gguf_writer *writer)
{
    write_model_and_texts(writer);
    gguf_writer_key_array(writer, "tokenizer.ggml.scores", GGUF_TYPE_STRING, COUNT(few));
    for (size_t i = 0; i < COUNT(few); i++)
        gguf_writer_string(writer, "0");
}

static void write_long_types(struct gguf_writer *writer)
{
    write_model_and_texts(writer);
    gguf_writer_key_u32s(writer, "tokenizer.ggml.token_type", (uint32_t[]){1, 1, 1, 1}, 4);
}

static void write_negative_type(struct gguf_writer *writer)
{
    write_model_and_texts(writer);
    gguf_writer_key_array(writer, "tokenizer.ggml.token_type", GGUF_TYPE_INT32, COUNT(few));
    for (size_t i = 0; i < COUNT(few); i++)
        gguf_writer_u32(writer, UINT32_MAX);
}

static void write_far_bos(struct gguf_writer *writer)
{
    write_model_and_texts(writer);
    gguf_writer_key_u32(writer, "tokenizer.ggml.bos_token_id", COUNT(few));
}

static void write_text_eos(struct gguf_writer *writer)
{
    write_model_and_texts(writer);
    gguf_writer_key_string(writer, "tokenizer.ggml.eos_token_id", "2");
}

static void write_text_flag(struct gguf_writer *writer)
{
    write_model_and_texts(writer);
    gguf_writer_key_string(writer, "tokenizer.ggml.add_bos_token", "yes");
}

static const struct {
    void (*write)(struct gguf_writer *writer);
    enum error_code code;
    const char *text;
} refusals[] = {
    {write_no_tokens, ERROR_USAGE, "has no vocabulary (key \"tokenizer.ggml.tokens\")"},
    {write_no_model, ERROR_INPUT,
     "key \"tokenizer.ggml.model\": is no string that names the tokenizer"},
    {write_empty_tokens, ERROR_INPUT,
     "key \"tokenizer.ggml.tokens\": is no list of strings, one a token"},
    {write_number_tokens, ERROR_INPUT,
     "key \"tokenizer.ggml.tokens\": is no list of strings, one a token"},
    {write_one_text, ERROR_INPUT,
     "key \"tokenizer.ggml.tokens\": is no list of strings, one a token"},
    {write_short_scores, ERROR_INPUT,
     "key \"tokenizer.ggml.scores\": is no list of one number a token"},
    {write_nan_score, ERROR_INPUT, "key \"tokenizer.ggml.scores\": an element is not a number"},
    {write_text_scores, ERROR_INPUT, "key \"tokenizer.ggml.scores\": an element is not a number"},
    {write_long_types, ERROR_INPUT,
     "key \"tokenizer.ggml.token_type\": is no list of one number a token"},
    {write_negative_type, ERROR_INPUT,
     "key \"tokenizer.ggml.token_type\": an element is not 0 or a positive integer"},
    {write_far_bos, ERROR_INPUT,
     "key \"tokenizer.ggml.bos_token_id\": is no token of the vocabulary"},
    {write_text_eos, ERROR_INPUT,
     "key \"tokenizer.ggml.eos_token_id\": is no token of the vocabulary"},
    {write_text_flag, ERROR_INPUT,
     "key \"tokenizer.ggml.add_bos_token\": is neither true nor false"},
};

START_TEST(a_wrong_vocabulary_is_refused_by_the_name_of_its_key)
{
    struct error err = {0};
    struct gguf_writer writer;

    gguf_writer_init(&writer, 3, false);
    refusals[_i].write(&writer);
    ck_assert_ptr_null(try_open(&writer, &err));
    ck_assert_int_eq(err.code, refusals[_i].code);
    ck_assert_str_eq(err.source, "test.gguf");
    ck_assert_str_eq(err.text, refusals[_i].text);
}
END_TEST

START_TEST(freeing_no_vocabulary_does_nothing)
{
    vocab_free(NULL);
}
END_TEST

/* ---- real files ---- */

/* The vocabulary of a file below LOPSIDE_GGUF_DIR. */
static struct vocab *open_real(const char *name)
{
    struct error err = {0};
    char path[4096];
    struct gguf *gguf;
    struct vocab *vocab;

    snprintf(path, sizeof path, "%s/%s", getenv("LOPSIDE_GGUF_DIR"), name);
    gguf = gguf_load(path, &err);
    ck_assert_msg(gguf != NULL, "%s: %s", err.source, err.text);
    vocab = vocab_open(gguf, &err);
    ck_assert_msg(vocab != NULL, "%s: %s", err.source, err.text);
    gguf_free(gguf);
    return vocab;
}

/* Token ids as llama.cpp's own tests have them: tests/test-tokenizer-0-llama.cpp, later
 * models/ggml-vocab-llama-spm.gguf.out. Phi-3 has the same pieces under the same ids. */
static const struct {
    const char *text;
    size_t count;
    uint32_t ids[IDS_MAX];
} known[] = {
    {"", 0, {0}},
    {" ", 1, {259}},
    {"  ", 1, {1678}},
    {"   ", 1, {268}},
    {"\t", 2, {29871, 12}},
    {"\n", 2, {29871, 13}},
    {"\t\n", 3, {29871, 12, 13}},
    {"Hello world", 2, {15043, 3186}},
    {" Hello world", 3, {29871, 15043, 3186}},
    {"Hello World", 2, {15043, 2787}},
    {" Hello World!", 4, {29871, 15043, 2787, 29991}},
    {"Hello, world!", 4, {15043, 29892, 3186, 29991}},
    {"    Hello\n    Hello", 5, {268, 15043, 13, 1678, 15043}},
    {"3333", 5, {29871, 29941, 29941, 29941, 29941}},
    {" this is \xF0\x9F\xA6\x99.cpp",
     10,
     {29871, 445, 338, 29871, 243, 162, 169, 156, 29889, 8223}},
    {"w048 7tuijk dsdfhu",
     11,
     {281, 29900, 29946, 29947, 29871, 29955, 9161, 13535, 18031, 2176, 6905}},
    {"\xD0\xBD\xD0\xB5\xD1\x89\xD0\xBE \xD0\xBD\xD0\xB0 "
     "\xD0\x91\xD1\x8A\xD0\xBB\xD0\xB3\xD0\xB0\xD1\x80\xD1\x81\xD0\xBA\xD0\xB8",
     6,
     {1538, 4851, 665, 1386, 29713, 1305}},
    {"\xE2\x9C\x85 (only emoji that has its own token)",
     13,
     {29871, 31681, 313, 6194, 953, 29877, 2397, 393, 756, 967, 1914, 5993, 29897}},
};

START_TEST(texts_become_the_ids_that_llama_cpp_gives)
{
    struct vocab *vocab = open_real(_i % 2 ? "ggml-vocab-phi-3.gguf" : "ggml-vocab-llama-spm.gguf");

    assert_ids(vocab, known[_i / 2].text, false, known[_i / 2].ids, known[_i / 2].count);
    assert_round_trip(vocab, " ", known[_i / 2].text);
    vocab_free(vocab);
}
END_TEST

START_TEST(a_real_file_says_its_size_and_its_special_tokens)
{
    static const struct {
        const char *name;
        uint32_t size;
        int32_t bos, eos;
    } files[] = {
        {"ggml-vocab-llama-spm.gguf", 32000, 1, 2},
        {"ggml-vocab-phi-3.gguf", 32064, 1, 32000},
        {"stories260K.gguf", 512, 1, 2},
    };
    struct vocab *vocab = open_real(files[_i].name);

    ck_assert_uint_eq(vocab_size(vocab), files[_i].size);
    ck_assert_int_eq(vocab_bos(vocab), files[_i].bos);
    ck_assert_int_eq(vocab_eos(vocab), files[_i].eos);
    ASSERT_IDS(vocab, "", true, 1);
    vocab_free(vocab);
}
END_TEST

START_TEST(any_text_comes_back_through_a_real_file)
{
    static const char *const names[] = {"ggml-vocab-llama-spm.gguf", "stories260K.gguf"};
    struct vocab *vocab = open_real(names[_i % 2]);

    assert_round_trip(vocab, " ", texts[_i / 2]);
    vocab_free(vocab);
}
END_TEST

START_TEST(a_user_defined_token_of_a_real_file_is_cut_out)
{
    struct vocab *vocab = open_real("ggml-vocab-phi-3.gguf");

    ASSERT_IDS(vocab, "Hello</s>Hello", false, 15043, 2, 15043);
    vocab_free(vocab);
}
END_TEST

static void add_real_cases(Suite *suite)
{
    TCase *real = tcase_create("real files");

    tcase_add_loop_test(real, texts_become_the_ids_that_llama_cpp_gives, 0, 2 * COUNT(known));
    tcase_add_loop_test(real, a_real_file_says_its_size_and_its_special_tokens, 0, 3);
    tcase_add_loop_test(real, any_text_comes_back_through_a_real_file, 0, 2 * COUNT(texts));
    tcase_add_test(real, a_user_defined_token_of_a_real_file_is_cut_out);
    suite_add_tcase(suite, real);
}

int main(void)
{
    Suite *suite = suite_create("vocab");
    TCase *encode = tcase_create("encode"), *pieces = tcase_create("pieces");
    TCase *wrong = tcase_create("wrong files");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_add_loop_test(encode, a_text_becomes_the_tokens_of_its_best_joins, 0,
                        COUNT(letter_cases));
    tcase_add_test(encode, both_byte_orders_read_the_same);
    tcase_add_test(encode, no_space_goes_in_front_where_the_file_says_so);
    tcase_add_test(encode, special_tokens_are_added_when_asked_and_known);
    tcase_add_test(encode, flags_of_the_file_decide_on_both_special_tokens);
    tcase_add_test(encode, a_file_that_names_no_special_token_has_none);
    tcase_add_test(encode, without_byte_tokens_the_rest_is_unknown_byte_by_byte);
    tcase_add_test(encode, a_byte_that_has_no_token_at_all_is_an_error);
    tcase_add_test(encode, without_scores_and_types_joins_go_from_the_left_and_bytes_are_known);
    tcase_add_loop_test(encode, a_megabyte_takes_no_longer_than_its_length_allows, 0, 5);
    tcase_add_test(pieces, pieces_have_spaces_and_bytes_and_no_control_tokens);
    tcase_add_test(pieces, a_piece_that_does_not_fit_is_cut_and_its_length_told);
    tcase_add_test(pieces, the_zero_byte_is_a_piece_of_length_1);
    tcase_add_loop_test(pieces, decoding_gives_back_what_was_encoded, 0, COUNT(texts));
    tcase_add_test(pieces, bpe_pieces_are_the_bytes_that_their_characters_stand_for);
    tcase_add_test(pieces, bpe_pieces_can_be_any_byte);
    tcase_add_test(pieces, another_tokenizer_asks_for_token_ids);
    tcase_add_loop_test(wrong, a_wrong_vocabulary_is_refused_by_the_name_of_its_key, 0,
                        COUNT(refusals));
    tcase_add_test(wrong, freeing_no_vocabulary_does_nothing);
    suite_add_tcase(suite, encode);
    suite_add_tcase(suite, pieces);
    suite_add_tcase(suite, wrong);
    if (getenv("LOPSIDE_GGUF_DIR"))
        add_real_cases(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
