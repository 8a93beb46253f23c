#include "tests/gguf_cases.h"

#include <string.h>

/* ---- right ---- */

static void write_scalars(struct gguf_writer *writer)
{
    static const struct {
        const char *name;
        enum gguf_type type;
        uint32_t bytes;
        uint64_t bits;
    } scalars[] = {
        {"test.uint8", GGUF_TYPE_UINT8, 1, 200},
        {"test.int8", GGUF_TYPE_INT8, 1, 0xFE},
        {"test.uint16", GGUF_TYPE_UINT16, 2, 60000},
        {"test.int16", GGUF_TYPE_INT16, 2, 300},
        {"test.int32", GGUF_TYPE_INT32, 4, 70000},
        {"test.uint64", GGUF_TYPE_UINT64, 8, UINT64_C(1) << 40},
        {"test.int64", GGUF_TYPE_INT64, 8, UINT64_MAX},
        {"test.float64", GGUF_TYPE_FLOAT64, 8, UINT64_C(0x3FF8000000000000)},
        {"test.bool", GGUF_TYPE_BOOL, 1, 1},
    };

    for (size_t i = 0; i < sizeof scalars / sizeof *scalars; i++) {
        gguf_writer_key(writer, scalars[i].name, scalars[i].type);
        gguf_writer_number(writer, scalars[i].bits, scalars[i].bytes);
    }
    gguf_writer_key(writer, "test.float32", GGUF_TYPE_FLOAT32);
    gguf_writer_f32(writer, 0.25f);
}

static void write_tensors(struct gguf_writer *writer)
{
    gguf_writer_weight(writer, "token_embd.weight", TENSOR_TYPE_Q8_0, 32, 3, 0);
    gguf_writer_weight(writer, "output_norm.weight", TENSOR_TYPE_F32, 32, 0, 0);
    gguf_writer_weight(writer, "blk.0.attn_norm.weight", TENSOR_TYPE_F32, 32, 0, 0);
    gguf_writer_weight(writer, "blk.0.attn_q.weight", TENSOR_TYPE_Q4_0, 32, 32, 0);
    gguf_writer_weight(writer, "blk.0.attn_k.weight", TENSOR_TYPE_Q4_0, 32, 16, 0);
    gguf_writer_weight(writer, "blk.0.attn_v.weight", TENSOR_TYPE_Q5_0, 32, 16, 0);
    gguf_writer_weight(writer, "blk.0.attn_output.weight", TENSOR_TYPE_Q4_0, 32, 32, 0);
    gguf_writer_weight(writer, "blk.0.ffn_up.weight", TENSOR_TYPE_F16, 32, 48, 0);
    gguf_writer_weight(writer, "blk.0.ffn_down.weight", TENSOR_TYPE_F16, 48, 32, 0);
}

void gguf_case_write_llama(struct gguf_writer *writer)
{
    static const char *const tokens[] = {"<s>", "", "a token"};

    gguf_writer_key_string(writer, "general.architecture", "llama");
    gguf_writer_key_u32(writer, "general.file_type", 2);
    gguf_writer_key_u32(writer, "llama.block_count", 1);
    gguf_writer_key_u32(writer, "llama.embedding_length", 32);
    gguf_writer_key_u32(writer, "llama.attention.head_count", 4);
    gguf_writer_key_u32s(writer, "llama.attention.head_count_kv", (uint32_t[]){2}, 1);
    gguf_writer_key_array(writer, "tokenizer.ggml.tokens", GGUF_TYPE_STRING, 3);
    for (int i = 0; i < 3; i++)
        gguf_writer_string(writer, tokens[i]);
    write_scalars(writer);
    write_tensors(writer);
}

static void write_nothing(struct gguf_writer *writer)
{
    (void)writer;
}

static void write_every_type(struct gguf_writer *writer)
{
    for (uint32_t id = 0; id < TENSOR_TYPE_LIMIT; id++)
        if (tensor_type_info(id)) {
            const struct tensor_type_info *info = tensor_type_info(id);

            gguf_writer_weight(writer, info->name, (enum tensor_type)id, info->block_elements, 2,
                               0);
        }
}

static void write_nested_arrays(struct gguf_writer *writer)
{
    gguf_writer_key_array(writer, "test.nested", GGUF_TYPE_ARRAY, 2);
    for (int i = 0; i < 2; i++) {
        gguf_writer_u32(writer, GGUF_TYPE_STRING);
        gguf_writer_u64(writer, 1);
        gguf_writer_string(writer, "inside");
    }
    gguf_writer_key_u32(writer, "test.behind", 7);
}

static void write_alignment_64(struct gguf_writer *writer)
{
    gguf_writer_key_u32(writer, "general.alignment", 64);
    gguf_writer_tensor(writer, "a", TENSOR_TYPE_F32, 1, (uint64_t[]){1}, 0);
    gguf_writer_tensor(writer, "b", TENSOR_TYPE_F32, 0, NULL, 64);
}

/* ---- wrong ---- */

static void write_bad_magic(struct gguf_writer *writer)
{
    memcpy(writer->data, "GGML", 4);
}

static void write_version_1(struct gguf_writer *writer)
{
    gguf_writer_patch(writer, 4, 1, 4);
}

static void write_version_4(struct gguf_writer *writer)
{
    gguf_writer_patch(writer, 4, 4, 4);
}

static void write_empty_file(struct gguf_writer *writer)
{
    writer->size = 0;
}

static void write_absurd_tensor_count(struct gguf_writer *writer)
{
    gguf_writer_patch(writer, GGUF_WRITER_TENSOR_COUNT_OFFSET, UINT64_MAX, 8);
}

static void write_absurd_key_count(struct gguf_writer *writer)
{
    gguf_writer_patch(writer, GGUF_WRITER_KEY_COUNT_OFFSET, UINT64_C(1) << 60, 8);
}

static void write_absurd_name_length(struct gguf_writer *writer)
{
    gguf_writer_key_u32(writer, "abc", 1);
    gguf_writer_patch(writer, 24, UINT64_MAX - 7, 8);
}

static void write_empty_name(struct gguf_writer *writer)
{
    gguf_writer_key_u32(writer, "", 1);
    gguf_writer_u64(writer, 0);
}

static void write_zero_in_name(struct gguf_writer *writer)
{
    gguf_writer_key_u32(writer, "a.b", 1);
    writer->data[33] = '\0';
}

static void write_unknown_value_type(struct gguf_writer *writer)
{
    gguf_writer_key(writer, "a.b", GGUF_TYPE_COUNT);
    gguf_writer_u32(writer, 0);
}

static void write_bad_bool(struct gguf_writer *writer)
{
    gguf_writer_key(writer, "a.b", GGUF_TYPE_BOOL);
    gguf_writer_number(writer, 2, 1);
}

static void write_absurd_string(struct gguf_writer *writer)
{
    gguf_writer_key(writer, "a.b", GGUF_TYPE_STRING);
    gguf_writer_u64(writer, UINT64_C(1) << 63);
}

static void write_absurd_array(struct gguf_writer *writer)
{
    gguf_writer_key_array(writer, "a.b", GGUF_TYPE_UINT64, UINT64_C(1) << 61);
}

static void write_array_of_nothing(struct gguf_writer *writer)
{
    gguf_writer_key_array(writer, "a.b", (enum gguf_type)99, 0);
}

static void write_deep_arrays(struct gguf_writer *writer)
{
    gguf_writer_key_array(writer, "a.b", GGUF_TYPE_ARRAY, 1);
    for (int i = 0; i < 8; i++) {
        gguf_writer_u32(writer, GGUF_TYPE_ARRAY);
        gguf_writer_u64(writer, 1);
    }
}

static void write_key_twice(struct gguf_writer *writer)
{
    gguf_writer_key_u32(writer, "a.b", 1);
    gguf_writer_key_u32(writer, "a.c", 1);
    gguf_writer_key_u32(writer, "a.b", 2);
}

static void write_alignment_48(struct gguf_writer *writer)
{
    gguf_writer_key_u32(writer, "general.alignment", 48);
}

static void write_alignment_0(struct gguf_writer *writer)
{
    gguf_writer_key_u32(writer, "general.alignment", 0);
}

static void write_alignment_string(struct gguf_writer *writer)
{
    gguf_writer_key_string(writer, "general.alignment", "32");
}

static void write_removed_type(struct gguf_writer *writer)
{
    gguf_writer_tensor(writer, "a", 31, 1, (uint64_t[]){32}, 0);
}

static void write_unknown_type(struct gguf_writer *writer)
{
    gguf_writer_tensor(writer, "a", 4096, 1, (uint64_t[]){32}, 0);
}

static void write_five_dims(struct gguf_writer *writer)
{
    gguf_writer_tensor(writer, "a", TENSOR_TYPE_F32, 5, (uint64_t[]){1, 1, 1, 1, 1}, 0);
}

static void write_zero_dim(struct gguf_writer *writer)
{
    gguf_writer_tensor(writer, "a", TENSOR_TYPE_F32, 2, (uint64_t[]){32, 0}, 0);
}

static void write_partial_block(struct gguf_writer *writer)
{
    gguf_writer_tensor(writer, "a", TENSOR_TYPE_Q4_K, 2, (uint64_t[]){320, 2}, 0);
}

static void write_overflowing_dims(struct gguf_writer *writer)
{
    uint64_t ne[4] = {UINT64_C(1) << 20, UINT64_C(1) << 20, UINT64_C(1) << 20, 16};

    gguf_writer_tensor(writer, "a", TENSOR_TYPE_F32, 4, ne, 0);
}

static void write_overflowing_bytes(struct gguf_writer *writer)
{
    gguf_writer_tensor(writer, "a", TENSOR_TYPE_F64, 1, (uint64_t[]){UINT64_C(1) << 61}, 0);
}

static void write_overflowing_offset(struct gguf_writer *writer)
{
    gguf_writer_tensor(writer, "a", TENSOR_TYPE_F32, 1, (uint64_t[]){32}, UINT64_MAX - 31);
}

static void write_unaligned_offset(struct gguf_writer *writer)
{
    gguf_writer_tensor(writer, "a", TENSOR_TYPE_F32, 1, (uint64_t[]){32}, 8);
}

static void write_tensor_twice(struct gguf_writer *writer)
{
    gguf_writer_weight(writer, "a", TENSOR_TYPE_F32, 32, 0, 0);
    gguf_writer_weight(writer, "b", TENSOR_TYPE_F32, 32, 0, 0);
    gguf_writer_weight(writer, "a", TENSOR_TYPE_F32, 32, 0, 0);
}

const struct gguf_case gguf_cases[] = {
    {"llama", gguf_case_write_llama, NULL},
    {"no-keys-no-tensors", write_nothing, NULL},
    {"every-tensor-type", write_every_type, NULL},
    {"nested-arrays", write_nested_arrays, NULL},
    {"alignment-64", write_alignment_64, NULL},
    {"bad-magic", write_bad_magic, "offset 0: magic 47 47 4d 4c is not GGUF"},
    {"version-1", write_version_1,
     "offset 4: version 1 is not read: its counts have 32 bits; convert the file to version 3"},
    {"version-4", write_version_4, "offset 4: version 4 is not known; 2 and 3 are"},
    {"empty-file", write_empty_file, "offset 0: magic needs 4 bytes; the file has 0 left"},
    {"absurd-tensor-count", write_absurd_tensor_count,
     "offset 8: tensor count 18446744073709551615 cannot be; the file has 8 bytes left"},
    {"absurd-key-count", write_absurd_key_count,
     "offset 16: key count 1152921504606846976 cannot be; the file has 0 bytes left"},
    {"absurd-name-length", write_absurd_name_length,
     "offset 24: key 0: name of 18446744073709551608 bytes cannot be; the file has 11 left"},
    {"empty-name", write_empty_name,
     "offset 24: key 0: a name of 0 bytes; one of 1 to 65535 is allowed"},
    {"zero-in-name", write_zero_in_name, "offset 24: key 0: a zero byte inside the name"},
    {"unknown-value-type", write_unknown_value_type,
     "offset 35: key \"a.b\": value type 13 is none of the 13 there are"},
    {"bad-bool", write_bad_bool, "offset 39: key \"a.b\": value 2 is not a bool; 0 and 1 are"},
    {"absurd-string", write_absurd_string,
     "offset 39: key \"a.b\": string of 9223372036854775808 bytes cannot be; the file has 0 left"},
    {"absurd-array", write_absurd_array,
     "offset 43: key \"a.b\": array length 2305843009213693952 cannot be; "
     "the file has 0 bytes left"},
    {"array-of-nothing", write_array_of_nothing,
     "offset 39: key \"a.b\": array type 99 is none of the 13 there are"},
    {"deep-arrays", write_deep_arrays,
     "offset 87: key \"a.b\": arrays are nested more than 4 deep"},
    {"key-twice", write_key_twice, "offset 77: key \"a.b\": there is a value for it already"},
    {"alignment-48", write_alignment_48,
     "offset 53: key \"general.alignment\": 48 is not a power of two"},
    {"alignment-0", write_alignment_0,
     "offset 53: key \"general.alignment\": 0 is not a power of two"},
    {"alignment-string", write_alignment_string,
     "offset 53: key \"general.alignment\": a value of type string is no positive integer"},
    {"removed-type", write_removed_type,
     "offset 45: tensor \"a\": tensor type 31 (Q4_0_4_4) was removed from ggml"},
    {"unknown-type", write_unknown_type, "offset 45: tensor \"a\": tensor type 4096 is unknown"},
    {"five-dims", write_five_dims, "offset 33: tensor \"a\": 5 dimensions; at most 4 are allowed"},
    {"zero-dim", write_zero_dim, "offset 45: tensor \"a\": dimension 1 is 0"},
    {"partial-block", write_partial_block,
     "offset 53: tensor \"a\": rows of 320 values are not whole Q4_K blocks of 256"},
    {"overflowing-dims", write_overflowing_dims,
     "offset 69: tensor \"a\": dimensions 1048576 x 1048576 x 1048576 x 16 "
     "pass 2^64 values or bytes"},
    {"overflowing-bytes", write_overflowing_bytes,
     "offset 45: tensor \"a\": dimensions 2305843009213693952 x 1 x 1 x 1 "
     "pass 2^64 values or bytes"},
    {"overflowing-offset", write_overflowing_offset,
     "offset 49: tensor \"a\": data offset 18446744073709551584 with 128 bytes behind it "
     "passes 2^64"},
    {"unaligned-offset", write_unaligned_offset,
     "offset 49: tensor \"a\": data offset 8 is not a multiple of the alignment, 32"},
    {"tensor-twice", write_tensor_twice,
     "offset 90: tensor \"a\": there is a tensor of this name already"},
};

const size_t gguf_case_count = sizeof gguf_cases / sizeof *gguf_cases;
