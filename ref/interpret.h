/* Executes programs on the CPU: the values that a plan's tasks yield. It defines what the
 * right output is; docs/arithmetic.md says what each operation computes. */
#ifndef REF_INTERPRET_H
#define REF_INTERPRET_H

#include "ref/kernels.h"
#include "ref/layout.h"
#include "ref/memory.h"
#include "ref/numbers.h"
#include "ref/weights.h"
#include "sim/program.h"

/* Rules broken on purpose, which a check of plans must notice. */
enum interpret_fault {
    INTERPRET_SOUND,
    INTERPRET_FLOAT_SUMS,   /* sums over devices in fp32, one device after the other */
    INTERPRET_DEVICE_GROUPS /* groups are longer where a device's columns allow it */
};

/* What a step's operations read beside values, and what a trace says of it. */
struct interpret_step {
    uint32_t used[2];            /* cells of a stream that a window covers */
    struct program_step lowered; /* into the program; no tokens: it is a context shift */
    uint32_t depth;              /* tokens in the cache before it, of the longest sequence */
};

struct interpreter; /* see interpret.c */

/**
 * @param kernels borrowed, as are the others
 * @return an interpreter for interpreter_free(), or NULL with `err` set
 */
struct interpreter *interpreter_new(const struct placement *placement, struct weights *weights,
                                    const struct numbers *numbers,
                                    const struct ref_kernels *kernels, struct layout_room room,
                                    struct error *err);
void interpreter_free(struct interpreter *interpreter);

void interpreter_break_rule(struct interpreter *interpreter, enum interpret_fault fault);

/* An operation that was computed. Its output is (rows, width) words of 32 bits: f32, and for
 * ROUTE struct program_route; NULL for operations that leave something else: sums, caches,
 * copies. `tokens` are all of the step, NULL for a context shift. */
struct interpret_seen {
    const struct program *program;
    const struct program_op *op;
    const struct program_token *tokens;
    uint64_t step; /* programs that ran before */
    const void *output;
    uint64_t rows, width;
};

/** Called after each operation, for comparing runs. */
typedef void interpret_watch(void *context, const struct interpret_seen *seen);
void interpreter_watch(struct interpreter *interpreter, interpret_watch *watch, void *context);

/** The host's values that a step starts from: TOKENS, CELLS and HIDDEN; and what it leaves. */
struct memory *interpreter_memory(struct interpreter *interpreter);

/**
 * Runs a program's tasks in the order they are issued in.
 *
 * @return 0, or -1 with `err` set: ERROR_UNSUPPORTED for a program whose operations are not
 *         complete, ERROR_MEMORY; a value that is missing names task, layer and operation
 */
int interpreter_run(struct interpreter *interpreter, const struct program *program,
                    struct interpret_step step, struct error *err);

/**
 * As interpreter_run, in a random order that queues, dependencies and the host's waits allow.
 *
 * @param seed chooses the order
 */
int interpreter_run_shuffled(struct interpreter *interpreter, const struct program *program,
                             struct interpret_step step, uint64_t seed, struct error *err);

/**
 * Makes a program the one under way, for running its operations one by one: for a runtime whose
 * host computes some of them.
 *
 * @return as interpreter_run
 */
int interpreter_begin(struct interpreter *interpreter, const struct program *program,
                      struct interpret_step step, struct error *err);
int interpreter_run_op(struct interpreter *interpreter, const struct program_op *op,
                       struct error *err);

#endif
