/* Writing JSON where numbers need a fixed form, which jansson does not give. */
#ifndef SIM_JSON_WRITE_H
#define SIM_JSON_WRITE_H

#include <stdio.h>

/** Writes a string in quotes, escaped. Bytes that are no UTF-8 become U+FFFD. */
void json_write_string(FILE *out, const char *text);

#endif
