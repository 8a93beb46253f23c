#include "sim/json_write.h"

#include <stddef.h>
#include <stdint.h>

/* Bytes of the UTF-8 sequence at `text`, 0 where there is none: no longer than needed, no
 * surrogate, not above U+10FFFF. The string's NUL ends every sequence. */
static size_t sequence_length(const unsigned char *text)
{
    size_t length = text[0] < 0x80             ? 1
                    : (text[0] & 0xE0) == 0xC0 ? 2
                    : (text[0] & 0xF0) == 0xE0 ? 3
                    : (text[0] & 0xF8) == 0xF0 ? 4
                                               : 0;
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    uint32_t code;

    if (length < 2)
        return length;
    code = text[0] & (0xFFu >> (length + 1));
    for (size_t i = 1; i < length; i++) {
        if ((text[i] & 0xC0) != 0x80)
            return 0;
        code = code << 6 | (text[i] & 0x3Fu);
    }
    return code < least[length] || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000) ? 0
                                                                                        : length;
}

void json_write_string(FILE *out, const char *text)
{
    const unsigned char *at = (const unsigned char *)text;

    fputc('"', out);
    while (*at != '\0') {
        size_t length = sequence_length(at);

        if (length == 0)
            fputs("\\ufffd", out);
        else if (*at == '"' || *at == '\\')
            fprintf(out, "\\%c", *at);
        else if (*at < 0x20)
            fprintf(out, "\\u%04x", *at);
        else
            fwrite(at, 1, length, out);
        at += length > 0 ? length : 1;
    }
    fputc('"', out);
}
