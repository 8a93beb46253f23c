/* What the files of the interpreter share. */
#ifndef REF_INTERPRET_PRIVATE_H
#define REF_INTERPRET_PRIVATE_H

#include "ref/interpret.h"

/* From so many tokens on their rows are worth several threads. */
enum { INTERPRET_MANY_TOKENS = 16 };

/* A block whose weights, or those of its experts, a device got for a large batch. */
struct staged {
    int block, experts; /* -1: none */
};

struct interpreter {
    const struct placement *placement;
    const struct model *model;
    struct weights *weights;
    const struct numbers *numbers;
    const struct ref_kernels *kernels;
    struct memory *memory;
    struct layout_room room;
    struct interpret_step step;
    const struct program *program;
    struct staged staged[MACHINE_DEVICES_MAX];
    double *frequencies; /* of rotary pairs, for the operation under way */
    enum interpret_fault fault;
    interpret_watch *watch;
    void *watch_context;
    uint64_t steps; /* programs that began */
};

/* Operands: f32 rows to read or to write; NULL with `err` set. */
const float *interpret_in(const struct interpreter *interpreter, const struct program_op *op,
                          struct program_operand operand, uint64_t values, struct error *err);
float *interpret_out(const struct interpreter *interpreter, const struct program_op *op,
                     struct program_operand operand, uint64_t values, struct error *err);

/** The tokens of the step, as they are in the memory that computes. */
const struct program_token *interpret_tokens(const struct interpreter *interpreter,
                                             const struct program_op *op, struct error *err);

/**
 * A tensor's bytes, where the memory that computes has them.
 *
 * @return NULL with `err` set (ERROR_USAGE) on a device that never got it
 */
const void *interpret_tensor(const struct interpreter *interpreter, const struct program_op *op,
                             int32_t tensor, struct error *err);

/** As interpret_tensor, for a tensor of a role in the operation's block; F32 is required. */
const float *interpret_role(const struct interpreter *interpreter, const struct program_op *op,
                            enum tensor_role role, struct error *err);

/* Operations, by file. All return 0, or -1 with `err` set. */
int interpret_matmul(struct interpreter *interpreter, const struct program_op *op,
                     struct error *err);
int interpret_partial(struct interpreter *interpreter, const struct program_op *op,
                      struct error *err);
int interpret_experts(struct interpreter *interpreter, const struct program_op *op,
                      struct error *err);
int interpret_experts_partial(struct interpreter *interpreter, const struct program_op *op,
                              struct error *err);
int interpret_shared_gate(struct interpreter *interpreter, const struct program_op *op,
                          struct error *err);
int interpret_finish(struct interpreter *interpreter, const struct program_op *op,
                     struct error *err);
int interpret_reduce(struct interpreter *interpreter, const struct program_op *op,
                     struct error *err);
int interpret_route(struct interpreter *interpreter, const struct program_op *op,
                    struct error *err);
int interpret_rope(struct interpreter *interpreter, const struct program_op *op, struct error *err);
int interpret_shift(struct interpreter *interpreter, const struct program_op *op,
                    struct error *err);
int interpret_store(struct interpreter *interpreter, const struct program_op *op,
                    struct error *err);
int interpret_attend(struct interpreter *interpreter, const struct program_op *op,
                     struct error *err);
int interpret_convolve(struct interpreter *interpreter, const struct program_op *op,
                       struct error *err);
int interpret_delta(struct interpreter *interpreter, const struct program_op *op,
                    struct error *err);
int interpret_copy(struct interpreter *interpreter, const struct program_op *op, struct error *err);

#endif
