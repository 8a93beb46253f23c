/* Where a value stands in a JSON text. jansson keeps no positions, so this
 * walks the text again, and only once something is wrong with the value. */
#ifndef SIM_JSON_LOCATE_H
#define SIM_JSON_LOCATE_H

#include <stdbool.h>
#include <stddef.h>

struct json_location {
    size_t offset;     /* of the first byte, from the start of the text */
    int line, column;  /* 1-based; the column counts bytes */
    bool exact;        /* false: the path ends early, this is what should hold the rest */
    char excerpt[160]; /* the line, tabs and other control bytes as spaces; "" when the
                        * column lies beyond what fits */
};

/**
 * Finds the value at `path`.
 *
 *   ""                      the document
 *   links[0].gbs            keys are joined by dots, indices stand in brackets
 *   assumed["device order"] a key with other bytes than letters, digits, `_` and `-`
 *                           is written as a JSON string in brackets
 *
 * A path that leads out of the document ends at the innermost object or array
 * that exists (`exact` is false). A key that occurs twice is found the first time.
 *
 * The text should be JSON that a parser accepted. With any other bytes the answer
 * is false or a place inside the text; depth costs no stack.
 *
 * @return false, with `location` untouched, when the text or the path cannot be followed
 */
bool json_locate_value(const char *text, size_t size, const char *path,
                       struct json_location *location);

/** As json_locate_value, but the opening quote of the last key of `path`. */
bool json_locate_key(const char *text, size_t size, const char *path,
                     struct json_location *location);

/** Line, column and excerpt of a byte; an offset behind the end means the end. */
void json_locate_offset(const char *text, size_t size, size_t offset,
                        struct json_location *location);

/**
 * Appends a key, or an index, to the path in `path`, of `path_size` bytes.
 *
 * @return false when it does not fit; the path then ends in "..." and finds nothing
 */
bool json_locate_append_key(char *path, size_t path_size, const char *key);
bool json_locate_append_index(char *path, size_t path_size, size_t index);

#endif
