#include "sim/error.h"

#include <stdio.h>
#include <string.h>

static int set(struct error *err, enum error_code code, const char *source, int line, int column,
               const char *format, va_list arguments)
{
    if (err == NULL || err->code != ERROR_NONE)
        return -1;
    err->code = code;
    err->line = line;
    err->column = column;
    snprintf(err->source, sizeof err->source, "%s", source);
    vsnprintf(err->text, sizeof err->text, format, arguments);
    return -1;
}

int error_set(struct error *err, enum error_code code, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    set(err, code, "", 0, 0, format, arguments);
    va_end(arguments);
    return -1;
}

int error_set_at(struct error *err, enum error_code code, const char *source, int line, int column,
                 const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    set(err, code, source, line, column, format, arguments);
    va_end(arguments);
    return -1;
}

void error_name_source(struct error *err, const char *source)
{
    if (err != NULL && err->code != ERROR_NONE && err->source[0] == '\0')
        snprintf(err->source, sizeof err->source, "%s", source);
}
