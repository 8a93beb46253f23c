/* The first line is a path, the rest the text it is followed through; then the text is
 * loaded, and a located refusal is made for every member of the document. */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "sim/json_input.h"
#include "sim/json_locate.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_location(const struct json_location *location, size_t size)
{
    assert(location->offset <= size);
    assert(location->line >= 1 && location->column >= 1);
    assert(strlen(location->excerpt) < sizeof location->excerpt);
}

/* A key too long for a path leaves dots at its end; quoted keys end in a bracket. */
static bool is_cut(const char *path)
{
    size_t length = strlen(path);

    return length >= 3 && strcmp(path + length - 3, "...") == 0;
}

/* Whatever jansson found, the locator has to find as well. */
static void refuse_members(const struct json_input *input)
{
    struct json_cursor root = json_input_root(input);
    const char *key;
    json_t *value;

    json_object_foreach(root.value, key, value)
    {
        static const char *const known[] = {"links", "bandwidth_gbs", "gbs"};
        struct json_cursor member = json_input_member(&root, key);
        struct json_location location;
        struct error err = {0};

        json_input_refuse(&member, &err, "refused");
        assert(err.code == ERROR_INPUT);
        if (!is_cut(member.path)) {
            assert(err.line >= 1 && err.column >= 1);
            assert(json_locate_value(input->text, input->size, member.path, &location));
            assert(location.exact);
        }
        err = (struct error){0};
        json_input_refuse_unknown_keys(&member, known, 3, &err);
        json_input_as_word(&member, NULL, known, 3, &(size_t){0}, &err);
    }
    for (size_t i = 0; i < json_array_size(root.value); i++) {
        struct json_cursor element = json_input_element(&root, i);
        struct json_location location;

        assert(json_locate_value(input->text, input->size, element.path, &location));
        assert(location.exact);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *end = memchr(data, '\n', size);
    size_t path_length = end ? (size_t)(end - data) : 0;
    const char *text = (const char *)data + (end ? path_length + 1 : 0);
    size_t text_size = size - (size_t)(text - (const char *)data);
    struct json_location location;
    struct json_input *input;
    struct error err = {0};
    char *path = malloc(path_length + 1);

    if (!path)
        return -1; /* not an input worth keeping */
    if (path_length > 0)
        memcpy(path, data, path_length);
    path[path_length] = '\0';
    if (json_locate_value(text, text_size, path, &location))
        check_location(&location, text_size);
    if (json_locate_key(text, text_size, path, &location))
        check_location(&location, text_size);
    input = json_input_load_text(text, text_size, "fuzz", &err);
    if (input)
        refuse_members(input);
    else
        assert(err.code != ERROR_NONE && err.text[0] != '\0');
    json_input_free(input);
    free(path);
    return 0;
}
