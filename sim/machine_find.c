/* Names of the catalogue as people type them: "4070", "RTX 4070", "gen4x16". */
#include "sim/machine_private.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "sim/word_list.h"

/* Brands that people leave out. What is left has to name the GPU alone: "Quadro" is not
 * among them, so that "RTX 6000" stays ambiguous. */
static const char *const brands[] = {"GeForce RTX ", "GeForce ", "Tesla ",
                                     "Radeon RX ",   "Radeon ",  "Instinct "};
static const char *const vendors[] = {"NVIDIA ", "AMD "};

enum { CANDIDATES_MAX = 64 };

/* How well a typed name fits: a higher rank hides the lower ones. */
enum match { MATCH_NONE, MATCH_PART, MATCH_WORDS, MATCH_WITHOUT_SIZE, MATCH_WHOLE };

static bool starts_with(const char *text, const char *start)
{
    return strncasecmp(text, start, strlen(start)) == 0;
}

/* Whether `part` of `length` bytes is the text from `at` to its end, or to a memory size
 * that ends it ("12GB"). */
static enum match match_from(const char *at, const char *part)
{
    const char *rest;
    int digits = 0;

    if (!starts_with(at, part))
        return MATCH_NONE;
    rest = at + strlen(part);
    if (*rest == '\0')
        return MATCH_WHOLE;
    if (*rest++ != ' ')
        return MATCH_NONE;
    while (isdigit((unsigned char)rest[digits]))
        digits++;
    return digits > 0 && strcasecmp(rest + digits, "GB") == 0 ? MATCH_WITHOUT_SIZE : MATCH_NONE;
}

static enum match match_name(const char *name, const char *typed)
{
    size_t length = strlen(typed);
    enum match best = match_from(name, typed);

    for (size_t i = 0; i < sizeof brands / sizeof brands[0]; i++) {
        enum match match =
            starts_with(name, brands[i]) ? match_from(name + strlen(brands[i]), typed) : MATCH_NONE;

        if (match > best)
            best = match;
    }
    for (const char *at = name; *at != '\0' && best < MATCH_WORDS; at++) {
        bool starts = at == name || !isalnum((unsigned char)at[-1]);

        if (strncasecmp(at, typed, length) == 0)
            best = starts && !isalnum((unsigned char)at[length]) ? MATCH_WORDS : MATCH_PART;
    }
    return best;
}

int machine_catalogue_find_gpu(const struct machine_catalogue *catalogue, const char *name,
                               char *why, size_t why_size)
{
    const char *candidates[CANDIDATES_MAX], *closest;
    enum match best = MATCH_PART;
    size_t count = 0;
    int found = -1;
    char list[260];

    for (size_t i = 0; i < sizeof vendors / sizeof vendors[0]; i++)
        if (starts_with(name, vendors[i]))
            name += strlen(vendors[i]);
    for (size_t i = 0; i < catalogue->gpu_count && name[0] != '\0'; i++) {
        const char *gpu = catalogue->gpus[i].device.gpu;
        enum match match = match_name(gpu, name);

        if (match < best)
            continue;
        if (match > best)
            count = 0;
        best = match;
        found = (int)i;
        if (count < CANDIDATES_MAX)
            candidates[count++] = gpu;
    }
    if (count == 1)
        return found;
    if (count > 1) {
        word_list_text(candidates, count, list, sizeof list);
        snprintf(why, why_size, "fits several GPUs: %s", list);
        return -1;
    }
    for (size_t i = 0; i < catalogue->gpu_count && i < CANDIDATES_MAX; i++) {
        const char *gpu = catalogue->gpus[i].device.gpu;

        candidates[count++] = starts_with(gpu, "GeForce ") ? gpu + strlen("GeForce ") : gpu;
    }
    closest = word_list_closest(name, candidates, count);
    if (closest == NULL)
        snprintf(why, why_size,
                 "is no GPU of the catalogue; `lopside machine list gpus` prints them");
    else
        snprintf(why, why_size, "is no GPU of the catalogue; did you mean \"%s\"?", closest);
    return -1;
}

/* "PCIe 4.0 x16", "Gen 4 x16" and "gen4x16" become "gen4x16". */
static void normalize_link(const char *name, char *text, size_t size)
{
    size_t used = 0;

    if (starts_with(name, "PCIe")) {
        used = (size_t)snprintf(text, size, "gen");
        name += strlen("PCIe");
        if (starts_with(name, " gen"))
            name += strlen(" gen");
    }
    for (; *name != '\0' && used + 1 < size; name++) {
        if (strncmp(name, ".0", 2) == 0)
            name++;
        else if (*name != ' ')
            text[used++] = (char)tolower((unsigned char)*name);
    }
    text[used] = '\0';
}

int machine_catalogue_find_link(const struct machine_catalogue *catalogue, const char *name,
                                char *why, size_t why_size)
{
    const char *candidates[CANDIDATES_MAX], *closest;
    size_t count = 0;
    char typed[32], list[200];

    normalize_link(name, typed, sizeof typed);
    for (size_t i = 0; i < catalogue->link_count; i++) {
        if (strcasecmp(catalogue->links[i].link.class_name, name) == 0 ||
            strcmp(catalogue->links[i].short_name, typed) == 0)
            return (int)i;
        if (count < CANDIDATES_MAX)
            candidates[count++] = catalogue->links[i].short_name;
    }
    closest = word_list_closest(typed, candidates, count);
    word_list_text(candidates, count, list, sizeof list);
    if (closest != NULL)
        snprintf(why, why_size, "is no link class; did you mean \"%s\"? known: %s", closest, list);
    else
        snprintf(why, why_size, "is no link class; known: %s", list);
    return -1;
}
