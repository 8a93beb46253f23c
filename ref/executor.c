#include "ref/executor.h"

static struct memory *memory(void *self)
{
    return interpreter_memory(self);
}

static void forget_step(void *self)
{
    memory_forget_step(interpreter_memory(self));
}

static int run(void *self, const struct program *program, struct interpret_step step,
               struct error *err)
{
    return interpreter_run(self, program, step, err);
}

static int run_shuffled(void *self, const struct program *program, struct interpret_step step,
                        uint64_t seed, struct error *err)
{
    return interpreter_run_shuffled(self, program, step, seed, err);
}

static void close_interpreter(void *self)
{
    interpreter_free(self);
}

int executor_open_interpreter(const struct executor_setting *setting, void *context,
                              struct executor *executor, struct error *err)
{
    struct interpreter *interpreter =
        interpreter_new(setting->placement, setting->weights, setting->numbers, setting->kernels,
                        setting->room, err);

    (void)context;
    if (interpreter == NULL)
        return -1;
    interpreter_break_rule(interpreter, setting->fault);
    *executor = (struct executor){.self = interpreter,
                                  .memory = memory,
                                  .forget_step = forget_step,
                                  .run = run,
                                  .run_shuffled = run_shuffled,
                                  .free = close_interpreter};
    return 0;
}

struct interpreter *executor_interpreter(const struct executor *executor)
{
    return executor->self;
}
