/* Small GGUF files, right and wrong, as a table: test_gguf.c reads them, and
 * make_gguf_corpus.c writes them out as seeds for the fuzz target. */
#ifndef TESTS_GGUF_CASES_H
#define TESTS_GGUF_CASES_H

#include "tests/gguf_writer.h"

struct gguf_case {
    const char *name; /* the file in tests/corpus/gguf/ */
    void (*write)(struct gguf_writer *writer);
    const char *error; /* what gguf_parse() says; NULL where it reads the file */
};

extern const struct gguf_case gguf_cases[];
extern const size_t gguf_case_count;

/** A tiny llama of one block, with a key of every type. */
void gguf_case_write_llama(struct gguf_writer *writer);

#endif
