/* What a session runs programs on: the interpreter, or a GPU runtime. */
#ifndef REF_EXECUTOR_H
#define REF_EXECUTOR_H

#include "ref/interpret.h"

struct executor {
    void *self; /* owned */
    /* The host's values: TOKENS, CELLS, SHIFTS and HIDDEN before a run, LOGITS and RESIDUAL
     * behind it. */
    struct memory *(*memory)(void *self);
    /* Before a step: forgets all values of all memories but caches and states. */
    void (*forget_step)(void *self);
    /* As interpreter_run. When it returns the host has what the program brings there. */
    int (*run)(void *self, const struct program *program, struct interpret_step step,
               struct error *err);
    /* As interpreter_run_shuffled; NULL where only the order of issue can be run. */
    int (*run_shuffled)(void *self, const struct program *program, struct interpret_step step,
                        uint64_t seed, struct error *err);
    void (*free)(void *self);
};

/* What an executor is opened for; everything is borrowed. */
struct executor_setting {
    const struct placement *placement;
    struct weights *weights;
    const struct numbers *numbers;
    const struct ref_kernels *kernels; /* for what the host computes */
    struct layout_room room;
    enum interpret_fault fault;
};

/** Opens an executor. @return 0, or -1 with `err` set; then there is nothing to free */
typedef int executor_open(const struct executor_setting *setting, void *context,
                          struct executor *executor, struct error *err);

/** On the CPU; `context` is not used. */
executor_open executor_open_interpreter;

/** The interpreter of an executor that executor_open_interpreter() opened. */
struct interpreter *executor_interpreter(const struct executor *executor);

#endif
