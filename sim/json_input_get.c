/* The getters of json_input.h. All go the same way: find the member, check its type and
 * its rule, and refuse it with what was found and what would do. */
#include "sim/json_input.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/word_list.h"

#define INTEGER_IN_DOUBLE 9007199254740992.0 /* 2^53: whole numbers up to here are exact */

/* --- what an error says --- */

/* The fewest digits that read back as the same number. */
static void number_text(double number, char *text, size_t size)
{
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(text, size, "%.*g", digits, number);
        if (strtod(text, NULL) == number)
            return;
    }
}

/* What was found, short enough for a sentence. */
static void value_text(const json_t *value, char *text, size_t size)
{
    size_t room = size < 48 ? size : 48;
    char *dumped;

    if (json_is_object(value) || json_is_array(value)) {
        snprintf(text, size, json_is_object(value) ? "an object" : "a list");
        return;
    }
    if (json_is_real(value)) {
        number_text(json_real_value(value), text, size);
        return;
    }
    dumped = json_dumps(value, JSON_ENCODE_ANY);
    if (!dumped) {
        snprintf(text, size, "this");
        return;
    }
    if (strlen(dumped) >= room) {
        size_t kept = room - 5;

        while (kept > 0 && ((unsigned char)dumped[kept] & 0xC0) == 0x80)
            kept--;
        memcpy(dumped + kept, "...\"", 5);
    }
    snprintf(text, size, "%s", dumped);
    free(dumped);
}

/* "-32 is not a bandwidth; a number above 0 is", or that the value is missing. */
static int refuse_value(const struct json_cursor *cursor, const char *noun, const char *accepted,
                        struct error *err)
{
    char found[64];

    if (!cursor->value && noun)
        return json_input_refuse(cursor, err, "missing; %s (%s) belongs here", noun, accepted);
    if (!cursor->value)
        return json_input_refuse(cursor, err, "missing; %s belongs here", accepted);
    value_text(cursor->value, found, sizeof found);
    if (noun)
        return json_input_refuse(cursor, err, "%s is not %s; %s is", found, noun, accepted);
    return json_input_refuse(cursor, err, "%s is not %s", found, accepted);
}

static void number_rule_text(const struct json_number_rule *rule, char *text, size_t size)
{
    bool has_min = rule->min > -INFINITY, has_max = rule->max < INFINITY;
    char min[32], max[32];

    number_text(rule->min, min, sizeof min);
    number_text(rule->max, max, sizeof max);
    if (has_min && has_max)
        snprintf(text, size, "a number %s %s %s %s", rule->above_min ? "above" : "from", min,
                 rule->below_max   ? "and below"
                 : rule->above_min ? "and up to"
                                   : "to",
                 max);
    else if (has_min)
        snprintf(text, size, rule->above_min ? "a number above %s" : "a number of %s or more", min);
    else if (has_max)
        snprintf(text, size, rule->below_max ? "a number below %s" : "a number of %s or less", max);
    else
        snprintf(text, size, "a number");
}

static void integer_rule_text(const struct json_integer_rule *rule, char *text, size_t size)
{
    long long min = rule->min, max = rule->max;

    if (rule->min > INT64_MIN && rule->max < INT64_MAX)
        snprintf(text, size, "a whole number from %lld to %lld", min, max);
    else if (rule->min > INT64_MIN)
        snprintf(text, size, "a whole number of %lld or more", min);
    else if (rule->max < INT64_MAX)
        snprintf(text, size, "a whole number of %lld or less", max);
    else
        snprintf(text, size, "a whole number");
}

/* --- the value at a cursor --- */

int json_input_as_number(const struct json_cursor *cursor, const struct json_number_rule *rule,
                         double *value, struct error *err)
{
    double number = json_number_value(cursor->value);

    if (!json_is_number(cursor->value) || number < rule->min || number > rule->max ||
        (rule->above_min && number <= rule->min) || (rule->below_max && number >= rule->max)) {
        char accepted[128];

        number_rule_text(rule, accepted, sizeof accepted);
        return refuse_value(cursor, rule->noun, accepted, err);
    }
    *value = number;
    return 0;
}

/* Whether the value is a whole number that an int64_t holds exactly. */
static bool whole_number(const json_t *value, int64_t *number)
{
    double real = json_real_value(value);

    if (json_is_integer(value)) {
        *number = json_integer_value(value);
        return true;
    }
    if (!json_is_real(value) || real < -INTEGER_IN_DOUBLE || real > INTEGER_IN_DOUBLE ||
        (double)(int64_t)real != real)
        return false;
    *number = (int64_t)real;
    return true;
}

int json_input_as_integer(const struct json_cursor *cursor, const struct json_integer_rule *rule,
                          int64_t *value, struct error *err)
{
    int64_t number;

    if (!whole_number(cursor->value, &number) || number < rule->min || number > rule->max) {
        char accepted[128];

        integer_rule_text(rule, accepted, sizeof accepted);
        return refuse_value(cursor, rule->noun, accepted, err);
    }
    *value = number;
    return 0;
}

int json_input_as_bool(const struct json_cursor *cursor, bool *value, struct error *err)
{
    if (!json_is_boolean(cursor->value))
        return refuse_value(cursor, NULL, "true or false", err);
    *value = json_is_true(cursor->value);
    return 0;
}

int json_input_as_string(const struct json_cursor *cursor, const char *noun, const char **value,
                         struct error *err)
{
    if (!json_is_string(cursor->value))
        return refuse_value(cursor, noun, "a string", err);
    *value = json_string_value(cursor->value);
    return 0;
}

int json_input_as_word(const struct json_cursor *cursor, const char *noun,
                       const char *const words[], size_t word_count, size_t *index,
                       struct error *err)
{
    const char *found = json_string_value(cursor->value), *closest;
    char known[280], text[64];

    for (size_t i = 0; found && i < word_count; i++) {
        if (strcmp(found, words[i]) == 0) {
            *index = i;
            return 0;
        }
    }
    if (!noun)
        noun = "accepted";
    word_list_text(words, word_count, known, sizeof known);
    if (!cursor->value)
        return json_input_refuse(cursor, err, "missing; one of %s belongs here", known);
    value_text(cursor->value, text, sizeof text);
    closest = found ? word_list_closest(found, words, word_count) : NULL;
    if (closest)
        return json_input_refuse(cursor, err, "%s is not %s; did you mean \"%s\" (known: %s)?",
                                 text, noun, closest, known);
    return json_input_refuse(cursor, err, "%s is not %s; known: %s", text, noun, known);
}

int json_input_as_array(const struct json_cursor *cursor, struct error *err)
{
    return json_is_array(cursor->value) ? 0 : refuse_value(cursor, NULL, "a list", err);
}

int json_input_as_object(const struct json_cursor *cursor, struct error *err)
{
    return json_is_object(cursor->value) ? 0 : refuse_value(cursor, NULL, "an object", err);
}

/* --- required members --- */

static int required(const struct json_cursor *object, const char *key, struct json_cursor *member,
                    struct error *err)
{
    if (json_input_as_object(object, err) != 0)
        return -1;
    *member = json_input_member(object, key);
    return 0;
}

int json_input_number(const struct json_cursor *object, const char *key,
                      const struct json_number_rule *rule, double *value, struct error *err)
{
    struct json_cursor member;

    if (required(object, key, &member, err) != 0)
        return -1;
    return json_input_as_number(&member, rule, value, err);
}

int json_input_integer(const struct json_cursor *object, const char *key,
                       const struct json_integer_rule *rule, int64_t *value, struct error *err)
{
    struct json_cursor member;

    if (required(object, key, &member, err) != 0)
        return -1;
    return json_input_as_integer(&member, rule, value, err);
}

int json_input_bool(const struct json_cursor *object, const char *key, bool *value,
                    struct error *err)
{
    struct json_cursor member;

    if (required(object, key, &member, err) != 0)
        return -1;
    return json_input_as_bool(&member, value, err);
}

int json_input_string(const struct json_cursor *object, const char *key, const char *noun,
                      const char **value, struct error *err)
{
    struct json_cursor member;

    if (required(object, key, &member, err) != 0)
        return -1;
    return json_input_as_string(&member, noun, value, err);
}

int json_input_word(const struct json_cursor *object, const char *key, const char *noun,
                    const char *const words[], size_t word_count, size_t *index, struct error *err)
{
    struct json_cursor member;

    if (required(object, key, &member, err) != 0)
        return -1;
    return json_input_as_word(&member, noun, words, word_count, index, err);
}

int json_input_array(const struct json_cursor *object, const char *key, struct json_cursor *array,
                     struct error *err)
{
    struct json_cursor member;

    if (required(object, key, &member, err) != 0 || json_input_as_array(&member, err) != 0)
        return -1;
    *array = member;
    return 0;
}

int json_input_object(const struct json_cursor *object, const char *key, struct json_cursor *member,
                      struct error *err)
{
    struct json_cursor found;

    if (required(object, key, &found, err) != 0 || json_input_as_object(&found, err) != 0)
        return -1;
    *member = found;
    return 0;
}

/* --- optional members --- */

/* 1 when the member is there and not null, 0 when not, -1 with `err` set. */
static int optional(const struct json_cursor *object, const char *key, struct json_cursor *member,
                    struct error *err)
{
    if (required(object, key, member, err) != 0)
        return -1;
    return member->value && !json_is_null(member->value);
}

int json_input_find_number(const struct json_cursor *object, const char *key,
                           const struct json_number_rule *rule, double *value, struct error *err)
{
    struct json_cursor member;
    int found = optional(object, key, &member, err);

    return found == 1 && json_input_as_number(&member, rule, value, err) != 0 ? -1 : found;
}

int json_input_find_integer(const struct json_cursor *object, const char *key,
                            const struct json_integer_rule *rule, int64_t *value, struct error *err)
{
    struct json_cursor member;
    int found = optional(object, key, &member, err);

    return found == 1 && json_input_as_integer(&member, rule, value, err) != 0 ? -1 : found;
}

int json_input_find_bool(const struct json_cursor *object, const char *key, bool *value,
                         struct error *err)
{
    struct json_cursor member;
    int found = optional(object, key, &member, err);

    return found == 1 && json_input_as_bool(&member, value, err) != 0 ? -1 : found;
}

int json_input_find_string(const struct json_cursor *object, const char *key, const char *noun,
                           const char **value, struct error *err)
{
    struct json_cursor member;
    int found = optional(object, key, &member, err);

    return found == 1 && json_input_as_string(&member, noun, value, err) != 0 ? -1 : found;
}

int json_input_find_word(const struct json_cursor *object, const char *key, const char *noun,
                         const char *const words[], size_t word_count, size_t *index,
                         struct error *err)
{
    struct json_cursor member;
    int found = optional(object, key, &member, err);

    return found == 1 && json_input_as_word(&member, noun, words, word_count, index, err) != 0
               ? -1
               : found;
}

int json_input_find_array(const struct json_cursor *object, const char *key,
                          struct json_cursor *array, struct error *err)
{
    struct json_cursor found_member;
    int found = optional(object, key, &found_member, err);

    if (found == 1 && json_input_as_array(&found_member, err) != 0)
        return -1;
    if (found == 1)
        *array = found_member;
    return found;
}

int json_input_find_object(const struct json_cursor *object, const char *key,
                           struct json_cursor *member, struct error *err)
{
    struct json_cursor found_member;
    int found = optional(object, key, &found_member, err);

    if (found == 1 && json_input_as_object(&found_member, err) != 0)
        return -1;
    if (found == 1)
        *member = found_member;
    return found;
}
