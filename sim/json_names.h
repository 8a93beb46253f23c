/* Members of JSON objects that name a kind of task or a tensor type. */
#ifndef SIM_JSON_NAMES_H
#define SIM_JSON_NAMES_H

#include "sim/json_input.h"
#include "sim/program.h"

/** The member `key`, a kind of task that is `accepted`; NULL: any. An error lists those and names
 * the closest.
 * @return 0, or -1 with `err` set */
int json_names_kind(const struct json_cursor *object, const char *key,
                    bool (*accepted)(enum task_kind), enum task_kind *kind, struct error *err);

/** As json_names_kind, of a member that may be missing.
 * @return 1, 0 where it is missing and *kind stays, or -1 with `err` set */
int json_names_find_kind(const struct json_cursor *object, const char *key,
                         bool (*accepted)(enum task_kind), enum task_kind *kind, struct error *err);

/** The member `key`, a tensor type.
 * @return 0, or -1 with `err` set */
int json_names_type(const struct json_cursor *object, const char *key, enum tensor_type *type,
                    struct error *err);

#endif
