#include "cli/list.h"

#include <stdlib.h>
#include <string.h>

static int take(struct list *list, char *item)
{
    char **grown;

    if (item == NULL)
        return -1;
    grown = realloc(list->items, (list->count + 1) * sizeof *grown);
    if (grown == NULL) {
        free(item);
        return -1;
    }
    list->items = grown;
    list->items[list->count++] = item;
    return 0;
}

int list_add_one(struct list *list, const char *text)
{
    return take(list, strdup(text));
}

int list_add(struct list *list, const char *text)
{
    while (*text != '\0') {
        size_t length = strcspn(text, ",");

        if (length > 0 && take(list, strndup(text, length)) != 0)
            return -1;
        text += length + (text[length] == ',');
    }
    return 0;
}

void list_close(struct list *list)
{
    for (size_t i = 0; i < list->count; i++)
        free(list->items[i]);
    free(list->items);
    *list = (struct list){NULL, 0};
}
