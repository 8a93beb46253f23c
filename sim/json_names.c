#include "sim/json_names.h"

/* json_input_word() or json_input_find_word(). */
typedef int get_word(const struct json_cursor *object, const char *key, const char *noun,
                     const char *const words[], size_t word_count, size_t *index,
                     struct error *err);

static int get_kind(get_word *get, const struct json_cursor *object, const char *key,
                    bool (*accepted)(enum task_kind), enum task_kind *kind, struct error *err)
{
    const char *noun = accepted != NULL ? "a kind of task here" : "a kind of task";
    const char *words[TASK_KIND_COUNT];
    enum task_kind kinds[TASK_KIND_COUNT];
    size_t count = 0, index = TASK_KIND_COUNT;
    int result;

    for (int k = 0; k < TASK_KIND_COUNT; k++) {
        if (accepted != NULL && !accepted((enum task_kind)k))
            continue;
        kinds[count] = (enum task_kind)k;
        words[count++] = program_task_name((enum task_kind)k);
    }
    result = get(object, key, noun, words, count, &index, err);
    if (result >= 0 && index < count)
        *kind = kinds[index];
    return result;
}

int json_names_kind(const struct json_cursor *object, const char *key,
                    bool (*accepted)(enum task_kind), enum task_kind *kind, struct error *err)
{
    return get_kind(json_input_word, object, key, accepted, kind, err);
}

int json_names_find_kind(const struct json_cursor *object, const char *key,
                         bool (*accepted)(enum task_kind), enum task_kind *kind, struct error *err)
{
    return get_kind(json_input_find_word, object, key, accepted, kind, err);
}

int json_names_type(const struct json_cursor *object, const char *key, enum tensor_type *type,
                    struct error *err)
{
    const char *words[TENSOR_TYPE_LIMIT];
    enum tensor_type types[TENSOR_TYPE_LIMIT];
    size_t count = 0, index;

    for (uint32_t id = 0; id < TENSOR_TYPE_LIMIT; id++) {
        if (tensor_type_info(id) == NULL)
            continue;
        types[count] = (enum tensor_type)id;
        words[count++] = tensor_type_info(id)->name;
    }
    if (json_input_word(object, key, "a tensor type", words, count, &index, err) != 0)
        return -1;
    *type = types[index];
    return 0;
}
