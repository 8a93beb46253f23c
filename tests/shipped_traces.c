#include "tests/shipped_traces.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>

void shipped_traces_open(struct shipped_traces *shipped, const char *const *names)
{
    const char *folder = getenv("srcdir");
    struct error err = {0};

    *shipped = (struct shipped_traces){.count = 0};
    for (; names[shipped->count] != NULL; shipped->count++) {
        char path[400];

        ck_assert_uint_lt(shipped->count, SHIPPED_TRACES_MAX);
        snprintf(path, sizeof path, "%s/traces/%s", folder != NULL ? folder : ".",
                 names[shipped->count]);
        ck_assert_msg(trace_load_file(path, &shipped->traces[shipped->count], &err) == 0, "%s: %s",
                      path, err.text);
    }
    ck_assert_msg(
        validate_rows(shipped->traces, shipped->count, NULL, &shipped->validation, &err) == 0, "%s",
        err.text);
}

void shipped_traces_close(struct shipped_traces *shipped)
{
    validation_close(&shipped->validation);
    for (size_t t = 0; t < shipped->count; t++)
        trace_close(&shipped->traces[t]);
}
