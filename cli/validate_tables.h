/* The tables that measured rows come from, as a Markdown document: what was measured
 * beside what is predicted. */
#ifndef CLI_VALIDATE_TABLES_H
#define CLI_VALIDATE_TABLES_H

#include "sim/validate.h"

/**
 * Prints to stdout. Sentences about a table come from the headers of the traces; a table
 * without any is printed with its figures alone.
 *
 * @param traces those that were validated, in that order
 * @return 0, or -1 with `err` set (ERROR_MEMORY)
 */
int validate_tables_print(const struct validation *validation, const struct trace *traces,
                          size_t trace_count, struct error *err);

#endif
