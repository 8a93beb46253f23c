/* A walk over JSON text that only counts brackets and skips strings: enough to find
 * the place of a value, not enough to judge the text. Judging is the parser's work. */
#include "sim/json_locate.h"

#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum step_result {
    STEP_FOUND,
    STEP_MISSING, /* the container does not have it */
    STEP_BROKEN,  /* this is not JSON */
};

/* One step of a path: an index, or a key as the inside of a JSON string. */
struct step {
    bool is_index;
    size_t index;
    const char *key, *key_end;
};

struct scanner {
    const char *text;
    size_t size, at;
};

/* The bytes that the inside of a JSON string stands for, one by one. */
struct decoder {
    const char *at, *end;
    unsigned char pending[4]; /* rest of an escaped character, last byte first */
    int pending_count;
};

static int hex_value(const char *digits)
{
    int value = 0;

    for (int i = 0; i < 4; i++) {
        char c = digits[i];
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0)
            return -1;
        value = value * 16 + digit;
    }
    return value;
}

/* Reads the digits of \uXXXX, and the second half of a surrogate pair. */
static int decode_escaped_character(struct decoder *decoder)
{
    int character, low;

    if (decoder->end - decoder->at < 4)
        return -1;
    character = hex_value(decoder->at);
    if (character < 0)
        return -1;
    decoder->at += 4;
    if (character < 0xD800 || character > 0xDBFF || decoder->end - decoder->at < 6 ||
        decoder->at[0] != '\\' || decoder->at[1] != 'u')
        return character;
    low = hex_value(decoder->at + 2);
    if (low < 0xDC00 || low > 0xDFFF)
        return character;
    decoder->at += 6;
    return 0x10000 + (character - 0xD800) * 0x400 + (low - 0xDC00);
}

/* Queues the UTF-8 form behind its first byte, which is returned. */
static int utf8_first_byte(struct decoder *decoder, int character)
{
    static const int lead[] = {0, 0xC0, 0xE0, 0xF0};
    int more = character < 0x80 ? 0 : character < 0x800 ? 1 : character < 0x10000 ? 2 : 3;

    for (int i = 0; i < more; i++) {
        decoder->pending[i] = (unsigned char)(0x80 | (character & 0x3F));
        character >>= 6;
    }
    decoder->pending_count = more;
    return lead[more] | character;
}

/* The next byte, or -1 at the end or at an escape that is none. */
static int decoder_next(struct decoder *decoder)
{
    static const char escapes[] = "bfnrt", meanings[] = "\b\f\n\r\t";
    const char *escape;
    char c;

    if (decoder->pending_count > 0)
        return decoder->pending[--decoder->pending_count];
    if (decoder->at == decoder->end)
        return -1;
    c = *decoder->at++;
    if (c != '\\')
        return (unsigned char)c;
    if (decoder->at == decoder->end)
        return -1;
    c = *decoder->at++;
    if (c == 'u') {
        int character = decode_escaped_character(decoder);

        return character < 0 ? -1 : utf8_first_byte(decoder, character);
    }
    escape = c == '\0' ? NULL : strchr(escapes, c);
    return escape ? meanings[escape - escapes] : (unsigned char)c;
}

static bool same_string(const char *a, const char *a_end, const char *b, const char *b_end)
{
    struct decoder first = {.at = a, .end = a_end}, second = {.at = b, .end = b_end};
    int byte;

    do {
        byte = decoder_next(&first);
        if (byte != decoder_next(&second))
            return false;
    } while (byte >= 0);
    return true;
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* The byte at the scanner, or 0 at the end; a zero byte ends JSON as well. */
static char peek(const struct scanner *scanner)
{
    return scanner->at < scanner->size ? scanner->text[scanner->at] : '\0';
}

static void skip_space(struct scanner *scanner)
{
    while (is_space(peek(scanner)))
        scanner->at++;
}

static bool skip_string(struct scanner *scanner)
{
    for (scanner->at++; scanner->at < scanner->size; scanner->at++) {
        char c = scanner->text[scanner->at];

        if (c == '"') {
            scanner->at++;
            return true;
        }
        if (c == '\\')
            scanner->at++;
    }
    scanner->at = scanner->size;
    return false;
}

static bool skip_scalar(struct scanner *scanner)
{
    size_t begin = scanner->at;

    while (scanner->at < scanner->size && !is_space(peek(scanner)) &&
           !memchr(",:[]{}\"", peek(scanner), 7))
        scanner->at++;
    return scanner->at > begin;
}

static bool skip_container(struct scanner *scanner)
{
    size_t depth = 0;

    do {
        char c = peek(scanner);

        if (scanner->at >= scanner->size)
            return false;
        if (c == '"') {
            if (!skip_string(scanner))
                return false;
            continue;
        }
        if (c == '{' || c == '[')
            depth++;
        else if (c == '}' || c == ']')
            depth--;
        scanner->at++;
    } while (depth > 0);
    return true;
}

static bool skip_value(struct scanner *scanner)
{
    char c = peek(scanner);

    if (c == '"')
        return skip_string(scanner);
    if (c == '{' || c == '[')
        return skip_container(scanner);
    return skip_scalar(scanner);
}

/* Behind a value: over the comma to the next one, or to the end of the container. */
static enum step_result skip_to_next(struct scanner *scanner, char closing)
{
    skip_space(scanner);
    if (peek(scanner) == closing)
        return STEP_MISSING;
    if (peek(scanner) != ',')
        return STEP_BROKEN;
    scanner->at++;
    skip_space(scanner);
    return STEP_FOUND;
}

static enum step_result enter_element(struct scanner *scanner, size_t index)
{
    if (peek(scanner) != '[')
        return STEP_MISSING;
    scanner->at++;
    skip_space(scanner);
    if (peek(scanner) == ']')
        return STEP_MISSING;
    for (; index > 0; index--) {
        enum step_result result;

        if (!skip_value(scanner))
            return STEP_BROKEN;
        result = skip_to_next(scanner, ']');
        if (result != STEP_FOUND)
            return result;
    }
    return scanner->at < scanner->size ? STEP_FOUND : STEP_BROKEN;
}

static enum step_result enter_member(struct scanner *scanner, const struct step *step,
                                     size_t *key_at)
{
    enum step_result result = STEP_FOUND;

    if (peek(scanner) != '{')
        return STEP_MISSING;
    scanner->at++;
    skip_space(scanner);
    if (peek(scanner) == '}')
        return STEP_MISSING;
    while (result == STEP_FOUND) {
        size_t quote = scanner->at, end;

        if (peek(scanner) != '"' || !skip_string(scanner))
            return STEP_BROKEN;
        end = scanner->at - 1;
        skip_space(scanner);
        if (peek(scanner) != ':')
            return STEP_BROKEN;
        scanner->at++;
        skip_space(scanner);
        if (scanner->at >= scanner->size)
            return STEP_BROKEN;
        if (same_string(scanner->text + quote + 1, scanner->text + end, step->key, step->key_end)) {
            *key_at = quote;
            return STEP_FOUND;
        }
        if (!skip_value(scanner))
            return STEP_BROKEN;
        result = skip_to_next(scanner, '}');
    }
    return result;
}

static bool parse_index(const char **path, struct step *step)
{
    const char *at = *path;
    size_t index = 0;

    if (*at < '0' || *at > '9')
        return false;
    for (; *at >= '0' && *at <= '9'; at++) {
        if (index > (SIZE_MAX - 9) / 10)
            return false;
        index = index * 10 + (size_t)(*at - '0');
    }
    if (*at != ']')
        return false;
    *step = (struct step){.is_index = true, .index = index};
    *path = at + 1;
    return true;
}

static bool parse_quoted_key(const char **path, struct step *step)
{
    const char *at = *path + 1;

    *step = (struct step){.key = at};
    for (; *at != '"'; at++) {
        if (*at == '\\')
            at++;
        if (*at == '\0')
            return false;
    }
    step->key_end = at;
    *path = at + 2;
    return at[1] == ']';
}

/* Takes the next step off `*path`, which is not at its end. */
static bool parse_step(const char **path, bool is_first, struct step *step)
{
    if (**path == '[') {
        (*path)++;
        return **path == '"' ? parse_quoted_key(path, step) : parse_index(path, step);
    }
    if (!is_first && *(*path)++ != '.')
        return false;
    *step = (struct step){.key = *path};
    *path += strcspn(*path, ".[");
    step->key_end = *path;
    return step->key_end > step->key;
}

/* Follows `path`; `*key_at` is the last key, or the value where an index came last. */
static bool follow(struct scanner *scanner, const char *path, size_t *key_at, bool *exact)
{
    const char *rest = path;

    skip_space(scanner);
    if (scanner->at >= scanner->size)
        return false;
    *exact = true;
    *key_at = scanner->at;
    while (*rest != '\0') {
        size_t container = scanner->at;
        enum step_result result;
        struct step step;

        if (!parse_step(&rest, rest == path, &step))
            return false;
        if (step.is_index) {
            result = enter_element(scanner, step.index);
            *key_at = scanner->at;
        } else {
            result = enter_member(scanner, &step, key_at);
        }
        if (result == STEP_BROKEN)
            return false;
        if (result == STEP_MISSING) {
            *exact = false;
            *key_at = scanner->at = container;
            return true;
        }
    }
    return true;
}

static bool locate(const char *text, size_t size, const char *path, bool want_key,
                   struct json_location *location)
{
    struct scanner scanner = {.text = text, .size = size};
    size_t key_at;
    bool exact;

    if (!follow(&scanner, path, &key_at, &exact))
        return false;
    json_locate_offset(text, size, want_key ? key_at : scanner.at, location);
    location->exact = exact;
    return true;
}

bool json_locate_value(const char *text, size_t size, const char *path,
                       struct json_location *location)
{
    return locate(text, size, path, false, location);
}

bool json_locate_key(const char *text, size_t size, const char *path,
                     struct json_location *location)
{
    return locate(text, size, path, true, location);
}

/* Copies the line, cut where a UTF-8 character ends. */
static void copy_excerpt(const char *line, size_t length, size_t column_offset,
                         char excerpt[static sizeof((struct json_location *)0)->excerpt])
{
    size_t room = sizeof((struct json_location *)0)->excerpt - 1;
    size_t kept = length < room ? length : room;

    while (kept > 0 && kept < length && ((unsigned char)line[kept] & 0xC0) == 0x80)
        kept--;
    while (kept > 0 && is_space(line[kept - 1]))
        kept--;
    if (length > room && column_offset >= kept)
        kept = 0;
    for (size_t i = 0; i < kept; i++) {
        unsigned char c = (unsigned char)line[i];

        excerpt[i] = c < 0x20 || c == 0x7F ? ' ' : line[i];
    }
    excerpt[kept] = '\0';
}

static int clamp_to_int(size_t number)
{
    return number < INT_MAX ? (int)number : INT_MAX;
}

void json_locate_offset(const char *text, size_t size, size_t offset,
                        struct json_location *location)
{
    size_t line_start = 0, line_end, line = 1;

    if (offset > size)
        offset = size;
    for (size_t i = 0; i < offset; i++) {
        if (text[i] == '\n') {
            line++;
            line_start = i + 1;
        }
    }
    for (line_end = offset; line_end < size && text[line_end] != '\n';)
        line_end++;
    location->offset = offset;
    location->line = clamp_to_int(line);
    location->column = clamp_to_int(offset - line_start + 1);
    location->exact = true;
    copy_excerpt(text + line_start, line_end - line_start, offset - line_start, location->excerpt);
}

/* Appends `length` bytes, or marks the path as cut. */
static bool append(char *path, size_t path_size, const char *text, size_t length)
{
    size_t used = strlen(path);

    if (length < path_size - used) {
        memcpy(path + used, text, length);
        path[used + length] = '\0';
        return true;
    }
    if (path_size >= 4)
        memcpy(path + (used < path_size - 4 ? used : path_size - 4), "...", 4);
    return false;
}

static bool is_plain_key(const char *key)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";

    return key[0] != '\0' && key[strspn(key, plain)] == '\0';
}

static bool append_quoted_key(char *path, size_t path_size, const char *key)
{
    if (!append(path, path_size, "[\"", 2))
        return false;
    for (; *key != '\0'; key++) {
        unsigned char c = (unsigned char)*key;
        char escaped[8];
        int length;

        if (c < 0x20 || c == 0x7F)
            length = snprintf(escaped, sizeof escaped, "\\u%04x", c);
        else
            length = snprintf(escaped, sizeof escaped, c == '"' || c == '\\' ? "\\%c" : "%c", c);
        if (!append(path, path_size, escaped, (size_t)length))
            return false;
    }
    return append(path, path_size, "\"]", 2);
}

bool json_locate_append_key(char *path, size_t path_size, const char *key)
{
    if (!is_plain_key(key))
        return append_quoted_key(path, path_size, key);
    if (path[0] != '\0' && !append(path, path_size, ".", 1))
        return false;
    return append(path, path_size, key, strlen(key));
}

bool json_locate_append_index(char *path, size_t path_size, size_t index)
{
    char text[32];
    int length = snprintf(text, sizeof text, "[%zu]", index);

    return append(path, path_size, text, (size_t)length);
}
