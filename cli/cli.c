#include "cli/cli.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* The offending line, and a caret under the place. Columns count bytes; what follows
 * them on a terminal are characters, so continuation bytes get no blank. */
static void print_excerpt(const struct error *err)
{
    fprintf(stderr, "    %s\n    ", err->excerpt);
    for (int i = 0; i + 1 < err->column && err->excerpt[i] != '\0'; i++)
        if (((unsigned char)err->excerpt[i] & 0xC0) != 0x80)
            fputc(err->excerpt[i] == '\t' ? '\t' : ' ', stderr);
    fputs("^\n", stderr);
}

int cli_fail(const struct error *err)
{
    fputs("lopside: ", stderr);
    if (err->source[0] != '\0') {
        fprintf(stderr, "%s:", err->source);
        if (err->line > 0)
            fprintf(stderr, "%d:", err->line);
        if (err->line > 0 && err->column > 0)
            fprintf(stderr, "%d:", err->column);
        fputc(' ', stderr);
    }
    fprintf(stderr, "%s\n", err->text);
    if (err->excerpt[0] != '\0' && err->column > 0)
        print_excerpt(err);
    return CLI_USAGE;
}

int cli_wrong_call(const char *command, const char *format, ...)
{
    va_list arguments;

    fprintf(stderr, "lopside %s: ", command);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fprintf(stderr, "\nTry 'lopside %s --help'.\n", command);
    return CLI_USAGE;
}

int cli_read_whole(const char *command, const char *flag, const char *text, long min, long max,
                   long *value)
{
    char *end;

    *value = strtol(text, &end, 10);
    if (end == text || *end != '\0' || *value < min || *value > max)
        return cli_wrong_call(command, "%s %s: a whole number from %ld to %ld is accepted%s", flag,
                              text, min, max,
                              strchr(text, ',') != NULL ? "; lists are for 'lopside bench'" : "");
    return CLI_OK;
}

int cli_unknown_option(const char *command)
{
    fprintf(stderr, "Try 'lopside %s --help'.\n", command);
    return CLI_USAGE;
}

void cli_warn(const char *format, ...)
{
    va_list arguments;

    fputs("lopside: warning: ", stderr);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
}
