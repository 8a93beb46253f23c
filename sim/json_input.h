/* Reading JSON that people write: every refusal names the file, line, column and
 * field, says what was found and what would do. Built on jansson and json_locate.
 *
 * What a getter returns through a pointer is borrowed and lives as long as the
 * json_input. Outputs are written only on success. */
#ifndef SIM_JSON_INPUT_H
#define SIM_JSON_INPUT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/error.h"

struct json_input {
    char *text; /* owned, size bytes and a NUL */
    size_t size;
    char source[160]; /* file name, or what the caller called it */
    int first_line;   /* line number of the first byte, for text cut out of a file */
    json_t *root;     /* owned */
};

/**
 * Reads a file. Duplicate keys and anything behind the value are errors.
 *
 * @return an input for json_input_free(), or NULL with `err` set
 */
struct json_input *json_input_load_file(const char *path, struct error *err);

/** As json_input_load_file, from memory, which is copied. `source` names it in errors. */
struct json_input *json_input_load_text(const char *text, size_t size, const char *source,
                                        struct error *err);

/** As json_input_load_text, for text that begins at line `first_line` of `source`. */
struct json_input *json_input_load_lines(const char *text, size_t size, const char *source,
                                         int first_line, struct error *err);

void json_input_free(struct json_input *input);

/**
 * Reads a whole file of any kind into memory for free(), with a NUL behind it.
 *
 * @return 0, or -1 with `err` set
 */
int json_input_read_file(const char *path, char **text, size_t *size, struct error *err);

/** A value and the way to it. Copied freely; borrows from the input. */
struct json_cursor {
    const struct json_input *input;
    json_t *value;  /* NULL: missing */
    char path[200]; /* as json_locate_value takes it; "" for the document */
};

struct json_cursor json_input_root(const struct json_input *input);

/** The member `key` of an object, or the element `index` of an array. `value` is NULL
 * when there is none, and also when `parent` is no object or array. */
struct json_cursor json_input_member(const struct json_cursor *parent, const char *key);
struct json_cursor json_input_element(const struct json_cursor *parent, size_t index);

/**
 * Refuses a value for a reason only the caller knows. The text becomes
 * "PATH: " and the message; line, column and excerpt are those of the value,
 * or of the object that should hold it.
 *
 * @return -1
 */
int json_input_refuse(const struct json_cursor *cursor, struct error *err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* What a number has to be. `noun` names it in errors, with its article: "a bandwidth
 * in GB/s"; NULL says nothing. Without limits, min and max are -INFINITY and INFINITY. */
struct json_number_rule {
    const char *noun;
    double min, max;
    bool above_min; /* min itself is refused */
    bool below_max; /* max itself is refused */
};

/* As json_number_rule, both ends included. INT64_MIN and INT64_MAX mean no limit. */
struct json_integer_rule {
    const char *noun;
    int64_t min, max;
};

/* A required member of the object at `object`.
 * Each returns 0, or -1 with `err` set: missing, of another type, or refused by the rule.
 * A whole number written as 4096.0 or 4e3 is an integer. */
int json_input_number(const struct json_cursor *object, const char *key,
                      const struct json_number_rule *rule, double *value, struct error *err);
int json_input_integer(const struct json_cursor *object, const char *key,
                       const struct json_integer_rule *rule, int64_t *value, struct error *err);
int json_input_bool(const struct json_cursor *object, const char *key, bool *value,
                    struct error *err);
int json_input_string(const struct json_cursor *object, const char *key, const char *noun,
                      const char **value, struct error *err);
/** One of `words`; `*index` says which. An error lists them and names the closest. */
int json_input_word(const struct json_cursor *object, const char *key, const char *noun,
                    const char *const words[], size_t word_count, size_t *index, struct error *err);
int json_input_array(const struct json_cursor *object, const char *key, struct json_cursor *array,
                     struct error *err);
int json_input_object(const struct json_cursor *object, const char *key, struct json_cursor *member,
                      struct error *err);

/* An optional member. Each returns 1 when it is there, 0 when it is missing or null
 * (the output then keeps what it held, so a default is set before), -1 with `err` set. */
int json_input_find_number(const struct json_cursor *object, const char *key,
                           const struct json_number_rule *rule, double *value, struct error *err);
int json_input_find_integer(const struct json_cursor *object, const char *key,
                            const struct json_integer_rule *rule, int64_t *value,
                            struct error *err);
int json_input_find_bool(const struct json_cursor *object, const char *key, bool *value,
                         struct error *err);
int json_input_find_string(const struct json_cursor *object, const char *key, const char *noun,
                           const char **value, struct error *err);
int json_input_find_word(const struct json_cursor *object, const char *key, const char *noun,
                         const char *const words[], size_t word_count, size_t *index,
                         struct error *err);
int json_input_find_array(const struct json_cursor *object, const char *key,
                          struct json_cursor *array, struct error *err);
int json_input_find_object(const struct json_cursor *object, const char *key,
                           struct json_cursor *member, struct error *err);

/* The value at the cursor itself: an element of an array, or the document.
 * Each returns 0, or -1 with `err` set. */
int json_input_as_number(const struct json_cursor *cursor, const struct json_number_rule *rule,
                         double *value, struct error *err);
int json_input_as_integer(const struct json_cursor *cursor, const struct json_integer_rule *rule,
                          int64_t *value, struct error *err);
int json_input_as_bool(const struct json_cursor *cursor, bool *value, struct error *err);
int json_input_as_string(const struct json_cursor *cursor, const char *noun, const char **value,
                         struct error *err);
int json_input_as_word(const struct json_cursor *cursor, const char *noun,
                       const char *const words[], size_t word_count, size_t *index,
                       struct error *err);
int json_input_as_array(const struct json_cursor *cursor, struct error *err);
int json_input_as_object(const struct json_cursor *cursor, struct error *err);

/**
 * Refuses the first key of an object that is not among `keys`. The error names the
 * closest known key; a key that differs in its unit only (`bandwidth_mbs` for
 * `bandwidth_gbs`) is told which unit is accepted.
 *
 * @return 0, or -1 with `err` set
 */
int json_input_refuse_unknown_keys(const struct json_cursor *object, const char *const keys[],
                                   size_t key_count, struct error *err);

#endif
