#include "cli/trace_list.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

int trace_list_load(struct trace_list *list, const char *path, struct error *err)
{
    struct trace_files files = {0};
    int status = trace_find_files(path, &files, err);

    for (size_t i = 0; i < files.count && status == 0; i++) {
        struct trace *grown = realloc(list->entries, (list->count + 1) * sizeof *grown);

        if (grown == NULL) {
            status = error_set(err, ERROR_MEMORY, "no memory for %s", files.paths[i]);
            break;
        }
        list->entries = grown;
        grown[list->count] = (struct trace){.count = 0};
        status = trace_load_file(files.paths[i], &grown[list->count], err);
        list->count += status == 0;
    }
    trace_files_close(&files);
    return status;
}

/* Whether two names mean one GPU: they are equal but for the vendor, or the catalogue
 * has one GPU for both. */
static bool is_same_gpu(const char *name, const char *other)
{
    static const char *const vendors[] = {"NVIDIA ", "GeForce "};
    const char *const names[] = {name, other};
    struct machine *machines[2];
    bool is_same;

    for (size_t i = 0; i < sizeof vendors / sizeof vendors[0]; i++) {
        size_t length = strlen(vendors[i]);

        name += strncasecmp(name, vendors[i], length) == 0 ? length : 0;
        other += strncasecmp(other, vendors[i], length) == 0 ? length : 0;
    }
    if (strcasecmp(name, other) == 0)
        return true;
    for (size_t i = 0; i < 2; i++)
        machines[i] = machine_compose(&names[i], 1, NULL);
    is_same = machines[0] != NULL && machines[1] != NULL &&
              strcmp(machines[0]->devices[0].gpu, machines[1]->devices[0].gpu) == 0;
    machine_free(machines[0]);
    machine_free(machines[1]);
    return is_same;
}

static bool can_be_of(const struct trace_row *row, const struct machine *machine)
{
    if (row->machine[0] != '\0')
        return strcmp(row->machine, machine->name) == 0;
    if (row->gpu_count == 0)
        return true;
    if (row->gpu_count != machine->device_count)
        return false;
    for (size_t i = 0; i < row->gpu_count; i++)
        if (!is_same_gpu(row->gpus[i], machine->devices[i].gpu))
            return false;
    return true;
}

void trace_list_set_machine(struct trace_list *list, const struct machine *machine,
                            const char *name)
{
    for (size_t t = 0; t < list->count; t++)
        for (size_t i = 0; i < list->entries[t].count; i++)
            if (can_be_of(&list->entries[t].rows[i], machine))
                list->entries[t].rows[i].machine = name;
}

void trace_list_close(struct trace_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        trace_close(&list->entries[i]);
    free(list->entries);
    *list = (struct trace_list){0};
}
