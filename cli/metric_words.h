/* Metrics of measured rows in plain words. */
#ifndef CLI_METRIC_WORDS_H
#define CLI_METRIC_WORDS_H

#include "sim/trace.h"

/** "generation, t/s" of a row's metric; in `text`, where there are no words for it. */
const char *metric_heading(const struct trace_row *row, char *text, size_t size);

/** What the rows of a metric that is not predicted hold: "output hashes". */
const char *metric_explain(const char *metric);

#endif
