/* Nearness of words is counted in keystrokes; a start of a word is near as well. */
#include "sim/word_list.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

void word_list_text(const char *const words[], size_t word_count, char *text, size_t size)
{
    size_t used = 0;

    text[0] = '\0';
    for (size_t i = 0; i < word_count; i++) {
        const char *joint = i == 0 ? "" : i + 1 == word_count ? " and " : ", ";

        if (used + strlen(joint) + strlen(words[i]) + 5 > size) {
            memcpy(text + used, " ...", 5);
            return;
        }
        used += (size_t)snprintf(text + used, size - used, "%s%s", joint, words[i]);
    }
}

enum { WORD_LIMIT = 64 }; /* longer words get no suggestion */

static size_t min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Insertions, deletions, changes and swaps of neighbours that turn `a` into `b`,
 * case ignored (the "optimal string alignment" distance). */
static size_t word_distance(const char *a, const char *b)
{
    size_t rows[3][WORD_LIMIT + 1] = {0};
    size_t *before = rows[0], *last = rows[1], *row = rows[2];
    size_t a_length = strlen(a), b_length = strlen(b);

    for (size_t j = 0; j <= b_length; j++)
        last[j] = j;
    for (size_t i = 1; i <= a_length; i++) {
        size_t *oldest = before;

        row[0] = i;
        for (size_t j = 1; j <= b_length; j++) {
            int x = tolower((unsigned char)a[i - 1]), y = tolower((unsigned char)b[j - 1]);

            row[j] = min_size(min_size(last[j], row[j - 1]) + 1, last[j - 1] + (x != y));
            if (i > 1 && j > 1 && x == tolower((unsigned char)b[j - 2]) &&
                y == tolower((unsigned char)a[i - 2]))
                row[j] = min_size(row[j], before[j - 2] + 1);
        }
        before = last;
        last = row;
        row = oldest;
    }
    return last[b_length];
}

static bool has_prefix(const char *word, const char *prefix)
{
    while (*prefix != '\0' && tolower((unsigned char)*word) == tolower((unsigned char)*prefix)) {
        word++;
        prefix++;
    }
    return *prefix == '\0';
}

const char *word_list_closest(const char *typed, const char *const words[], size_t word_count)
{
    size_t typed_length = strlen(typed);
    size_t best_distance = 1 + typed_length / 4;
    const char *best = NULL;

    if (typed_length > WORD_LIMIT)
        return NULL;
    for (size_t i = 0; i < word_count; i++) {
        size_t length = strlen(words[i]), distance;

        if (length > WORD_LIMIT)
            continue;
        distance = word_distance(typed, words[i]);
        if (distance < typed_length && distance < length &&
            (best ? distance < best_distance : distance <= best_distance)) {
            best = words[i];
            best_distance = distance;
        }
    }
    for (size_t i = 0; !best && typed_length >= 3 && i < word_count; i++)
        if (has_prefix(words[i], typed))
            best = words[i];
    return best;
}
