/* A llama in double precision: the yardstick that rounding in float is measured against.
 *
 *     x = embedding of the token
 *     for each block:
 *         n = norm(x);  q, k, v = Wq n, Wk n, Wv n;  rotate(q), rotate(k)
 *         x += Wo (per head: the values of all positions, weighted by softmax(q.k / sqrt(d)))
 *         n = norm(x);  x += Wdown (silu(Wgate n) * Wup n)
 *     logits = Whead norm(x)
 *
 * It shares nothing but the GGUF header reader with the rest, and is slow on purpose: plain
 * loops in the order the formulas are written, every weight widened to double, libm's functions. */
#ifndef TESTS_DOUBLE_LLAMA_H
#define TESTS_DOUBLE_LLAMA_H

#include <stdint.h>

#include "sim/error.h"

struct double_llama; /* see double_llama.c */

/**
 * Reads a llama with F32 and F16 tensors: any number of kv heads, tied or own head.
 *
 * @param context positions that double_llama_step() can take before double_llama_reset()
 * @return a model for double_llama_free(), or NULL with `err` set: ERROR_UNSUPPORTED for another
 *         architecture, a quantised tensor, or one that the formulas above do not use
 */
struct double_llama *double_llama_open(const char *path, uint32_t context, struct error *err);
void double_llama_free(struct double_llama *llama);

/** Logits of a step. */
uint32_t double_llama_vocab(const struct double_llama *llama);

/** Forgets all positions. */
void double_llama_reset(struct double_llama *llama);

/**
 * Evaluates one token at the next position.
 *
 * @param logits double_llama_vocab() values, or NULL when they are not wanted
 * @return 0, or -1: the context is full, or there is no such token
 */
int double_llama_step(struct double_llama *llama, uint32_t token, double *logits);

#endif
