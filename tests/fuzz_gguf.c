/* Fuzz target: any bytes as a GGUF header, then as a model.
 *
 *     clang -DLOPSIDE_LIBFUZZER -fsanitize=fuzzer,address,undefined ...
 *
 * With libFuzzer it runs alone; without, fuzz_replay.c supplies main(). */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "sim/gguf.h"
#include "sim/model_private.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool claim)
{
    if (!claim)
        abort();
}

/* Reads every element of every key, and one behind the last. */
static void read_values(const struct gguf *gguf)
{
    for (size_t i = 0; i < gguf_key_count(gguf); i++) {
        const struct gguf_key *key = gguf_key_at(gguf, i);
        uint64_t count = key->count < 16 ? key->count : 16;

        require(gguf_find_key(gguf, key->name) == key);
        for (uint64_t j = 0; j <= count; j++) {
            const char *text;
            size_t length;
            uint64_t number;
            float real;
            bool flag;
            unsigned sum = 0;

            gguf_get_u64_at(gguf, key->name, j, &number);
            gguf_get_f32_at(gguf, key->name, j, &real);
            gguf_get_bool_at(gguf, key->name, j, &flag);
            if (gguf_get_string_at(gguf, key->name, j, &text, &length))
                for (size_t k = 0; k < length; k++)
                    sum += (unsigned char)text[k];
            require(sum < UINT32_MAX);
        }
    }
}

static void check_tensors(const struct gguf *gguf)
{
    for (size_t i = 0; i < gguf_tensor_count(gguf); i++) {
        const struct gguf_tensor *tensor = gguf_tensor_at(gguf, i);

        require(gguf_find_tensor(gguf, tensor->name) == tensor);
        require(tensor->offset + tensor->bytes >= tensor->offset);
        require(tensor->bytes % tensor_type_info(tensor->type)->block_bytes == 0);
    }
}

static void check_model(const struct gguf *gguf)
{
    struct error err = {0};
    struct model *model = model_from_gguf(gguf, "fuzz", &err);
    uint64_t counted = 0;

    if (!model) {
        require(err.code != ERROR_NONE && err.source[0] != '\0' && err.text[0] != '\0');
        return;
    }
    for (uint32_t i = 0; i < model->n_layer + model->n_layer_nextn; i++) {
        const struct model_layer *layer = &model->layers[i];

        for (uint32_t j = 0; j < layer->tensor_count; j++)
            require(model->tensors[layer->tensor_first + j].layer == (int)i);
        counted += layer->tensor_count;
        require(model_layer_k_row(layer) >= layer->n_head_kv || !model_layer_has_kv(layer));
        model_layer_conv_state(layer);
        model_layer_recurrent_state(layer);
    }
    require(counted <= model->tensor_count);
    model_free(model);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct error err = {0};
    struct gguf *gguf = gguf_parse(data, size, "fuzz", &err);

    if (!gguf) {
        require(err.code == ERROR_INPUT && strcmp(err.source, "fuzz") == 0);
        require(strncmp(err.text, "offset ", 7) == 0);
        return 0;
    }
    require(err.code == ERROR_NONE);
    read_values(gguf);
    check_tensors(gguf);
    check_model(gguf);
    gguf_free(gguf);
    return 0;
}
