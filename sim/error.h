/* What went wrong, as a value that travels up to whoever can tell a person. */
#ifndef SIM_ERROR_H
#define SIM_ERROR_H

#include <stdarg.h>

enum error_code {
    ERROR_NONE = 0,
    ERROR_INPUT,       /* a file's content is not what its format allows */
    ERROR_USAGE,       /* a request that cannot be met as asked */
    ERROR_IO,          /* a file cannot be opened or read */
    ERROR_MEMORY,      /* the host has no memory left */
    ERROR_UNSUPPORTED, /* understood, but not modelled */
};

/** The caller keeps it, zeroed, on the stack; the first failure stays. */
struct error {
    enum error_code code;
    char source[160];  /* file name, or "<command line>"; "" when no input is involved */
    int line, column;  /* 1-based; 0 when unknown */
    char text[400];    /* for people: one sentence, no newline */
    char excerpt[160]; /* the offending line of a text file; "" when unknown */
};

/**
 * Sets `err` unless it already holds a failure. `err` may be NULL.
 *
 * @return -1, so that callers can write `return error_set(...)`
 */
int error_set(struct error *err, enum error_code code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/** As error_set, naming the input: `line` and `column` are 1-based, or 0. */
int error_set_at(struct error *err, enum error_code code, const char *source, int line, int column,
                 const char *format, ...) __attribute__((format(printf, 6, 7)));

/** Names the input of a failure that does not name one yet. */
void error_name_source(struct error *err, const char *source);

#endif
