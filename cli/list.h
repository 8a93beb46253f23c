/* Arguments that are lists. */
#ifndef CLI_LIST_H
#define CLI_LIST_H

#include <stddef.h>

struct list {
    char **items; /* owned */
    size_t count;
};

/** Appends the comma-separated parts of `text`. @return 0, or -1 without memory */
int list_add(struct list *list, const char *text);

/** Appends `text` as one item. */
int list_add_one(struct list *list, const char *text);

void list_close(struct list *list);

#endif
