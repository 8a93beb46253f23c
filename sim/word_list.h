/* A closed list of words, as an error presents it: the whole list, or the word meant. */
#ifndef SIM_WORD_LIST_H
#define SIM_WORD_LIST_H

#include <stddef.h>

/** Writes "none, layer, tensor and row"; a list that does not fit ends in " ...".
 *
 * @param size 8 or more
 */
void word_list_text(const char *const words[], size_t word_count, char *text, size_t size);

/** The word closest to what was typed, case ignored, or NULL when none is close. */
const char *word_list_closest(const char *typed, const char *const words[], size_t word_count);

#endif
