#include "sim/tensor_role.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[TENSOR_ROLE_COUNT] = {
#define TENSOR_ROLE_NAME(role, name) [TENSOR_ROLE_##role] = name,
    TENSOR_ROLES(TENSOR_ROLE_NAME)
#undef TENSOR_ROLE_NAME
        [TENSOR_ROLE_OTHER] = "other",
};

enum tensor_role tensor_role_of(const char *name, int *layer)
{
    *layer = -1;
    if (strncmp(name, "blk.", 4) == 0 && name[4] >= '0' && name[4] <= '9') {
        char *end;
        long number = strtol(name + 4, &end, 10);

        if (*end == '.' && number <= INT_MAX) {
            *layer = (int)number;
            name = end + 1;
        }
    }
    for (int role = 0; role < TENSOR_ROLE_OTHER; role++)
        if (strcmp(names[role], name) == 0)
            return (enum tensor_role)role;
    return TENSOR_ROLE_OTHER;
}

const char *tensor_role_name(enum tensor_role role)
{
    return names[role];
}
