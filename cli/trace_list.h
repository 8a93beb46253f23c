/* Traces named on a command line, and the machine that a user says they were measured on. */
#ifndef CLI_TRACE_LIST_H
#define CLI_TRACE_LIST_H

#include "sim/machine.h"
#include "sim/trace.h"

/* Zeroed before use. */
struct trace_list {
    struct trace *entries;
    size_t count;
};

/** Appends what the file `path` holds, or every *.jsonl of a directory.
 *
 * @return 0, or -1 with `err` set */
int trace_list_load(struct trace_list *list, const char *path, struct error *err);

/**
 * Makes `machine` that of the rows it can belong to: those that name it, those that name
 * none, and those that list its GPUs in its order. Rows that list other GPUs stay as they
 * are: their measurements come from another machine.
 *
 * @param name  what the rows then say, as machine_open() takes it; borrowed by the rows
 */
void trace_list_set_machine(struct trace_list *list, const struct machine *machine,
                            const char *name);

void trace_list_close(struct trace_list *list);

#endif
