/* Products with weights: struct ref_kernels, member matmul. The values are those of the plain
 * loop over arith_block_fma() or arith_float_fma(); tests/test_arith.c compares the two.
 *
 * A product of one token runs the fp32 chains of LANES rows side by side, one of several tokens
 * those of TOKENS tokens for ROWS rows, so no chain changes its order. Activations lie on the
 * stack, which bounds the columns of one pass; sums of passes are integers. Every lane computes:
 * lanes without a row repeat the last row, those without a token have zeros. */
#include "ref/kernels_private.h"

#include <assert.h>
#include <stddef.h>

#include "ref/arith.h"

#if defined(__AVX512F__) && defined(__AVX512VL__) && defined(__AVX512BW__) &&                      \
    defined(__AVX512DQ__) && defined(__AVX512VNNI__)
#define USE_AVX512 1
#define USE_AVX2 0
#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#define USE_AVX512 0
#define USE_AVX2 1
#else
#define USE_AVX512 0
#define USE_AVX2 0
#endif
#if USE_AVX512 || USE_AVX2
#include <immintrin.h>
#endif

#ifdef __GNUC__
#define INLINE static inline __attribute__((always_inline))
#else
#define INLINE static inline
#endif

#define LANES (USE_AVX512 ? 16 : 8)
#define TOKENS 16                /* of one pass over the weights */
#define VECTORS (TOKENS / LANES) /* that hold a value for each token */
#define ROWS 4                   /* that share the loads of several tokens' activations */
#define PASS_VALUES 65536        /* int8 activations of one pass */
#define PASS_FLOATS 16384        /* fp32 activations of one pass */
#define PASS_BLOCKS (PASS_VALUES / ARITH_BLOCK)
#define GROUP_MAX 1024

/* ---- lanes ---- */

#if USE_AVX512

typedef __m512 floats;
typedef __m512i ints;

INLINE floats floats_broadcast(float value)
{
    return _mm512_set1_ps(value);
}

INLINE floats floats_load(const float *values)
{
    return _mm512_loadu_ps(values);
}

INLINE floats floats_mul(floats a, floats b)
{
    return _mm512_mul_ps(a, b);
}

INLINE floats floats_fma(floats a, floats b, floats c)
{
    return _mm512_fmadd_ps(a, b, c);
}

/* c - a b, rounded once */
INLINE floats floats_fnma(floats a, floats b, floats c)
{
    return _mm512_fnmadd_ps(a, b, c);
}

INLINE floats floats_from_ints(ints a)
{
    return _mm512_cvtepi32_ps(a);
}

INLINE ints ints_broadcast(int32_t value)
{
    return _mm512_set1_epi32(value);
}

INLINE ints ints_load(const int32_t *values)
{
    return _mm512_loadu_si512(values);
}

INLINE ints ints_add(ints a, ints b)
{
    return _mm512_add_epi32(a, b);
}

INLINE ints ints_mul(ints a, ints b)
{
    return _mm512_mullo_epi32(a, b);
}

#elif USE_AVX2

typedef __m256 floats;
typedef __m256i ints;

INLINE floats floats_broadcast(float value)
{
    return _mm256_set1_ps(value);
}

INLINE floats floats_load(const float *values)
{
    return _mm256_loadu_ps(values);
}

INLINE void floats_store(float *values, floats a)
{
    _mm256_storeu_ps(values, a);
}

INLINE floats floats_mul(floats a, floats b)
{
    return _mm256_mul_ps(a, b);
}

INLINE floats floats_fma(floats a, floats b, floats c)
{
    return _mm256_fmadd_ps(a, b, c);
}

/* c - a b, rounded once */
INLINE floats floats_fnma(floats a, floats b, floats c)
{
    return _mm256_fnmadd_ps(a, b, c);
}

INLINE floats floats_from_ints(ints a)
{
    return _mm256_cvtepi32_ps(a);
}

INLINE ints ints_broadcast(int32_t value)
{
    return _mm256_set1_epi32(value);
}

INLINE ints ints_load(const int32_t *values)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)values);
}

INLINE ints ints_add(ints a, ints b)
{
    return _mm256_add_epi32(a, b);
}

INLINE ints ints_mul(ints a, ints b)
{
    return _mm256_mullo_epi32(a, b);
}

#else

typedef struct {
    float v[LANES];
} floats;

typedef struct {
    int32_t v[LANES];
} ints;

INLINE floats floats_broadcast(float value)
{
    floats out;

    for (int l = 0; l < LANES; l++)
        out.v[l] = value;
    return out;
}

INLINE floats floats_load(const float *values)
{
    floats out;

    for (int l = 0; l < LANES; l++)
        out.v[l] = values[l];
    return out;
}

INLINE void floats_store(float *values, floats a)
{
    for (int l = 0; l < LANES; l++)
        values[l] = a.v[l];
}

INLINE floats floats_mul(floats a, floats b)
{
    for (int l = 0; l < LANES; l++)
        a.v[l] *= b.v[l];
    return a;
}

INLINE floats floats_fma(floats a, floats b, floats c)
{
    for (int l = 0; l < LANES; l++)
        c.v[l] = fmaf(a.v[l], b.v[l], c.v[l]);
    return c;
}

/* c - a b, rounded once */
INLINE floats floats_fnma(floats a, floats b, floats c)
{
    for (int l = 0; l < LANES; l++)
        c.v[l] = fmaf(a.v[l], -b.v[l], c.v[l]);
    return c;
}

INLINE floats floats_from_ints(ints a)
{
    floats out;

    for (int l = 0; l < LANES; l++)
        out.v[l] = (float)a.v[l];
    return out;
}

INLINE ints ints_broadcast(int32_t value)
{
    ints out;

    for (int l = 0; l < LANES; l++)
        out.v[l] = value;
    return out;
}

INLINE ints ints_load(const int32_t *values)
{
    ints out;

    for (int l = 0; l < LANES; l++)
        out.v[l] = values[l];
    return out;
}

INLINE ints ints_add(ints a, ints b)
{
    for (int l = 0; l < LANES; l++)
        a.v[l] += b.v[l];
    return a;
}

INLINE ints ints_mul(ints a, ints b)
{
    for (int l = 0; l < LANES; l++)
        a.v[l] *= b.v[l];
    return a;
}

#endif

/* ---- fixed-point sums of LANES outputs ---- */

#if USE_AVX512

struct fixed {
    __m512i low, high;
    __mmask16 flagged;
};

INLINE struct fixed fixed_zero(void)
{
    struct fixed out = {_mm512_setzero_si512(), _mm512_setzero_si512(), 0};

    return out;
}

/* arith_to_fixed() and arith_fixed_add() of each lane */
INLINE void fixed_add(struct fixed *sum, floats partial, float limit)
{
    __mmask16 valid = _mm512_cmp_ps_mask(_mm512_abs_ps(partial), _mm512_set1_ps(limit), _CMP_LT_OQ);
    __m512 scaled = _mm512_mul_ps(_mm512_maskz_mov_ps(valid, partial), _mm512_set1_ps(0x1p30f));

    sum->flagged = (__mmask16)(sum->flagged | (__mmask16)~valid);
    sum->low = _mm512_add_epi64(sum->low, _mm512_cvtps_epi64(_mm512_castps512_ps256(scaled)));
    sum->high = _mm512_add_epi64(sum->high, _mm512_cvtps_epi64(_mm512_extractf32x8_ps(scaled, 1)));
}

INLINE void fixed_store(const struct fixed *sum, int64_t *out)
{
    __m512i flag = _mm512_set1_epi64(ARITH_FLAG);

    _mm512_storeu_si512(out, _mm512_mask_mov_epi64(sum->low, (__mmask8)sum->flagged, flag));
    _mm512_storeu_si512(out + 8,
                        _mm512_mask_mov_epi64(sum->high, (__mmask8)(sum->flagged >> 8), flag));
}

#else

struct fixed {
    int64_t v[LANES];
};

INLINE struct fixed fixed_zero(void)
{
    struct fixed out = {{0}};

    return out;
}

INLINE void fixed_add(struct fixed *sum, floats partial, float limit)
{
    float values[LANES];

    floats_store(values, partial);
    for (int l = 0; l < LANES; l++)
        sum->v[l] = arith_fixed_add(sum->v[l], arith_to_fixed(values[l], limit));
}

INLINE void fixed_store(const struct fixed *sum, int64_t *out)
{
    memcpy(out, sum->v, sizeof(sum->v));
}

#endif

/* ---- integer products of one activation block ---- */

/* Sums of products of `values` of LANES rows with 32 q: of the first 16, and of the others. */
INLINE void dot_rows(const int8_t *const *values, const int8_t *q, ints *first, ints *second)
{
#if USE_AVX512
    const __m256i bias = _mm256_set1_epi8(-128); /* as unsigned bytes: 128 */
    __m256i b = _mm256_loadu_si256((const __m256i *)(const void *)q);
    __m256i zero = _mm256_sub_epi32(_mm256_setzero_si256(),
                                    _mm256_dpbusd_epi32(_mm256_setzero_si256(), bias, b));
    __m512i pairs[8], quads[4];

    /* a x b as (a + 128) x b - 128 x b; rows k and k + 4 of each 8 share a vector */
    for (int k = 0; k < 8; k++) {
        int row = k % 4 + 8 * (k / 4);
        __m256i low = _mm256_loadu_si256((const __m256i *)(const void *)values[row]);
        __m256i high = _mm256_loadu_si256((const __m256i *)(const void *)values[row + 4]);

        low = _mm256_dpbusd_epi32(zero, _mm256_xor_si256(low, bias), b);
        high = _mm256_dpbusd_epi32(zero, _mm256_xor_si256(high, bias), b);
        pairs[k] = _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
    }
    for (int k = 0; k < 4; k++)
        quads[k] = _mm512_add_epi32(_mm512_unpacklo_epi32(pairs[2 * k], pairs[2 * k + 1]),
                                    _mm512_unpackhi_epi32(pairs[2 * k], pairs[2 * k + 1]));
    for (int k = 0; k < 2; k++)
        pairs[k] = _mm512_add_epi32(_mm512_unpacklo_epi64(quads[2 * k], quads[2 * k + 1]),
                                    _mm512_unpackhi_epi64(quads[2 * k], quads[2 * k + 1]));
    *first = _mm512_shuffle_i32x4(pairs[0], pairs[1], 0x88);
    *second = _mm512_shuffle_i32x4(pairs[0], pairs[1], 0xdd);
#elif USE_AVX2
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i b = _mm256_loadu_si256((const __m256i *)(const void *)q);
    __m256i rows[8];

    for (int r = 0; r < 8; r++) {
        __m256i a = _mm256_loadu_si256((const __m256i *)(const void *)values[r]);

        rows[r] = _mm256_madd_epi16(
            _mm256_maddubs_epi16(_mm256_abs_epi8(a), _mm256_sign_epi8(b, a)), ones);
    }
    for (int r = 0; r < 4; r++)
        rows[r] = _mm256_hadd_epi32(rows[2 * r], rows[2 * r + 1]);
    rows[0] = _mm256_hadd_epi32(rows[0], rows[1]);
    rows[1] = _mm256_hadd_epi32(rows[2], rows[3]);
    *first = _mm256_permute2x128_si256(rows[0], rows[1], 0x20);
    *second = _mm256_permute2x128_si256(rows[0], rows[1], 0x31);
#else
    for (int r = 0; r < LANES; r++) {
        first->v[r] = arith_dot_16(values[r], q);
        second->v[r] = arith_dot_16(values[r] + 16, q + 16);
    }
#endif
}

/* A block's activations of TOKENS tokens lie in the order that dot_tokens() reads: with vector
 * instructions 4 values of each token in turn, and for VNNI each plus 128. */
INLINE size_t packed_index(uint32_t token, uint32_t i)
{
#if USE_AVX512 || USE_AVX2
    return (size_t)(i / 4) * TOKENS * 4 + token * 4 + i % 4;
#else
    return (size_t)token * ARITH_BLOCK + i;
#endif
}

INLINE int8_t packed_value(int8_t q)
{
    return USE_AVX512 ? (int8_t)(q ^ -128) : q;
}

/* Sums of products of 16 `values` with 16 packed q of each token. `half` is 0 or 1. */
INLINE void dot_tokens(const int8_t *values, const int8_t *packed, int half, ints *sums)
{
#if USE_AVX512
    const int8_t *chunks = packed + (size_t)half * 16 * TOKENS;
    __m128i a = _mm_loadu_si128((const __m128i *)(const void *)values);
    __m128i biased = _mm_dpbusd_epi32(_mm_setzero_si128(), _mm_set1_epi8(-128), a);
    __m512i sum;
    int32_t w[4];

    biased = _mm_add_epi32(biased, _mm_shuffle_epi32(biased, 0x4e));
    biased = _mm_add_epi32(biased, _mm_shuffle_epi32(biased, 0xb1));
    sum = _mm512_sub_epi32(_mm512_setzero_si512(), _mm512_broadcastd_epi32(biased));
    memcpy(w, values, sizeof(w));
    for (int c = 0; c < 4; c++)
        sum = _mm512_dpbusd_epi32(sum, _mm512_loadu_si512(chunks + (size_t)c * 64),
                                  _mm512_set1_epi32(w[c]));
    *sums = sum;
#elif USE_AVX2
    const int8_t *chunks = packed + (size_t)half * 16 * TOKENS;
    const __m256i ones = _mm256_set1_epi16(1);
    int32_t w[4];

    memcpy(w, values, sizeof(w));
    for (int v = 0; v < VECTORS; v++) {
        __m256i sum = _mm256_setzero_si256();

        for (int c = 0; c < 4; c++) {
            const int8_t *chunk = chunks + (size_t)c * TOKENS * 4 + (size_t)v * 32;
            __m256i a = _mm256_set1_epi32(w[c]);
            __m256i b = _mm256_loadu_si256((const __m256i *)(const void *)chunk);
            __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(a), _mm256_sign_epi8(b, a));

            sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, ones));
        }
        sums[v] = sum;
    }
#else
    for (int t = 0; t < TOKENS; t++)
        sums[t / LANES].v[t % LANES] =
            arith_dot_16(values, packed + (size_t)t * ARITH_BLOCK + half * 16);
#endif
}

/* ---- weights ---- */

/* Columns of one pass: where they lie in a row, and the activations that meet them. */
struct pass {
    const struct matmul *matmul;
    const float *scales; /* (tokens) or NULL */
    uint32_t tokens;     /* 1 to TOKENS */
    uint64_t column, columns;
    float limit;
    int64_t *sums; /* of the pass's first token */
    uint64_t sums_stride;
    const float *x;                 /* float types: (columns), or (columns, TOKENS) */
    const int8_t *q;                /* (blocks, 32), or packed (blocks, TOKENS x 32) */
    const float *activation_scales; /* (blocks), or (blocks, TOKENS) */
    const int32_t *activation_sums; /* the same */
};

INLINE const uint8_t *row_of(const struct matmul *matmul, uint64_t row)
{
    uint64_t last = matmul->rows - 1;

    return (const uint8_t *)matmul->weight +
           (matmul->row_first + (row < last ? row : last)) * matmul->row_bytes;
}

/* The block that holds `column` of a row, and which of its 32s. */
INLINE const uint8_t *block_of(enum tensor_type type, const uint8_t *row, uint64_t column,
                               uint32_t *which)
{
    uint32_t columns = arith_type_columns(type);

    *which = (uint32_t)(column % columns) / ARITH_BLOCK;
    return row + column / columns * arith_type_bytes(type);
}

#if USE_AVX512 || USE_AVX2

INLINE __m256i load_bytes(const void *bytes)
{
    return _mm256_loadu_si256((const __m256i *)bytes);
}

/* Bits `shift` to `shift` + 3, or those of `mask`, of each byte */
INLINE __m256i bits_of(__m256i bytes, uint32_t shift, int8_t mask)
{
    return _mm256_and_si256(_mm256_srl_epi16(bytes, _mm_cvtsi32_si128((int)shift)),
                            _mm256_set1_epi8(mask));
}

/* The values of arith_decode_block() */
INLINE void unpack(enum tensor_type type, const void *packed, uint32_t which, int8_t *values)
{
    __m256i out, high = _mm256_setzero_si256();
    int8_t zero = 0;

    if (type == TENSOR_TYPE_Q8_0) {
        out = load_bytes(((const struct arith_q8_0 *)packed)->qs);
    } else if (type == TENSOR_TYPE_Q4_0) {
        const struct arith_q4_0 *block = (const struct arith_q4_0 *)packed;
        __m128i qs = _mm_loadu_si128((const __m128i *)(const void *)block->qs);

        out = _mm256_inserti128_si256(_mm256_castsi128_si256(qs), _mm_srli_epi16(qs, 4), 1);
        out = _mm256_and_si256(out, _mm256_set1_epi8(15));
        zero = 8;
    } else if (type == TENSOR_TYPE_Q4_K) {
        const struct arith_q4_k *block = (const struct arith_q4_k *)packed;

        out = bits_of(load_bytes(block->qs + 32 * (which / 2)), 4 * (which & 1), 15);
    } else if (type == TENSOR_TYPE_Q5_K) {
        const struct arith_q5_k *block = (const struct arith_q5_k *)packed;

        out = bits_of(load_bytes(block->qs + 32 * (which / 2)), 4 * (which & 1), 15);
        high = bits_of(load_bytes(block->qh), which, 1);
    } else {
        const struct arith_q6_k *block = (const struct arith_q6_k *)packed;
        const uint8_t *ql = block->ql + 64 * (which / 4) + 32 * (which & 1);

        out = bits_of(load_bytes(ql), which & 2 ? 4 : 0, 15);
        high = bits_of(load_bytes(block->qh + 32 * (which / 4)), 2 * (which & 3), 3);
        zero = 32;
    }
    out = _mm256_or_si256(out, _mm256_slli_epi16(high, 4));
    _mm256_storeu_si256((__m256i *)(void *)values, _mm256_sub_epi8(out, _mm256_set1_epi8(zero)));
}

#else

INLINE void unpack(enum tensor_type type, const void *packed, uint32_t which, int8_t *values)
{
    struct arith_block decoded;

    arith_decode_block(type, packed, which, &decoded);
    memcpy(values, decoded.values, sizeof(decoded.values));
}

#endif

/* Scales as they are stored: f16 of the block, integers of its 32. */
struct packed_scales {
    uint16_t d, dmin;
    int32_t scale[2], min;
};

INLINE struct packed_scales scales_of(enum tensor_type type, const void *packed, uint32_t which)
{
    struct packed_scales out = {.scale = {1, 1}};

    if (type == TENSOR_TYPE_Q6_K) {
        const struct arith_q6_k *block = (const struct arith_q6_k *)packed;

        out.d = block->d;
        out.scale[0] = block->scales[2 * which];
        out.scale[1] = block->scales[2 * which + 1];
        return out;
    }
    out.d = *(const uint16_t *)packed;
    if (arith_type_has_min(type)) { /* Q5_K begins as Q4_K does */
        const struct arith_q4_k *block = (const struct arith_q4_k *)packed;

        out.dmin = block->dmin;
        arith_k_scale_min(block->scales, which, &out.scale[0], &out.min);
        out.scale[1] = out.scale[0];
    }
    return out;
}

/* `count` weights of F32, F16 or BF16 from `column` on, as f32. */
INLINE void load_floats(enum tensor_type type, const uint8_t *row, uint64_t column, uint64_t count,
                        float *out)
{
    const uint8_t *from = row + column * arith_type_bytes(type);
    uint64_t i = 0;

    if (type == TENSOR_TYPE_F32) {
        memcpy(out, from, count * sizeof(*out));
        return;
    }
#if USE_AVX512 || USE_AVX2
    for (; i + 8 <= count; i += 8) {
        __m128i halves = _mm_loadu_si128((const __m128i *)(const void *)(from + 2 * i));

        if (type == TENSOR_TYPE_F16)
            _mm256_storeu_ps(out + i, _mm256_cvtph_ps(halves));
        else
            _mm256_storeu_si256((__m256i *)(void *)(out + i),
                                _mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
    }
#endif
    for (; i < count; i++)
        out[i] = arith_load(type, from, i);
}

/* ---- one token ---- */

/* Blocks at the same place in LANES rows. */
struct rows {
    const int8_t *values[LANES];
    floats d, dmin;
    ints scale[2], min;
};

/* Inserted one by one: a vector load of 16-bit stores would wait for all of them. */
INLINE floats floats_from_f16(const uint16_t *v)
{
#if USE_AVX512 || USE_AVX2
    __m128i low = _mm_setr_epi16((short)v[0], (short)v[1], (short)v[2], (short)v[3], (short)v[4],
                                 (short)v[5], (short)v[6], (short)v[7]);
#if USE_AVX512
    __m128i high = _mm_setr_epi16((short)v[8], (short)v[9], (short)v[10], (short)v[11],
                                  (short)v[12], (short)v[13], (short)v[14], (short)v[15]);

    return _mm512_cvtph_ps(_mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1));
#else
    return _mm256_cvtph_ps(low);
#endif
#else
    float out[LANES];

    for (int l = 0; l < LANES; l++)
        out[l] = arith_f32_from_f16(v[l]);
    return floats_load(out);
#endif
}

INLINE void rows_of_q8_0(const uint8_t *const *rows, uint64_t column, struct rows *out)
{
    uint64_t offset = column / ARITH_BLOCK * sizeof(struct arith_q8_0);
    uint16_t d[LANES];

    for (int l = 0; l < LANES; l++) {
        const struct arith_q8_0 *block =
            (const struct arith_q8_0 *)(const void *)(rows[l] + offset);

        d[l] = block->d;
        out->values[l] = block->qs;
    }
    out->d = floats_from_f16(d);
}

/* `unpacked` is room for the values. */
INLINE void rows_of(enum tensor_type type, const uint8_t *const *rows, uint64_t column,
                    int8_t (*unpacked)[ARITH_BLOCK], struct rows *out)
{
    uint16_t d[LANES], dmin[LANES];
    int32_t scale[2][LANES], min[LANES];

    for (int l = 0; l < LANES; l++) {
        uint32_t which;
        const uint8_t *block = block_of(type, rows[l], column, &which);
        struct packed_scales scales = scales_of(type, block, which);

        unpack(type, block, which, unpacked[l]);
        out->values[l] = unpacked[l];
        d[l] = scales.d;
        dmin[l] = scales.dmin;
        scale[0][l] = scales.scale[0];
        scale[1][l] = scales.scale[1];
        min[l] = scales.min;
    }
    out->d = floats_from_f16(d);
    if (arith_type_has_min(type))
        out->dmin = floats_from_f16(dmin);
    out->scale[0] = ints_load(scale[0]);
    out->scale[1] = ints_load(scale[1]);
    out->min = ints_load(min);
}

INLINE void store_rows(const struct pass *pass, uint64_t row, const struct fixed *sum)
{
    int64_t values[LANES];

    fixed_store(sum, values);
    for (uint64_t l = 0; l < LANES && row + l < pass->matmul->rows; l++)
        pass->sums[row + l] = arith_fixed_add(pass->sums[row + l], values[l]);
}

INLINE floats times_scale(const struct pass *pass, floats partial)
{
    return pass->scales == NULL ? partial : floats_mul(partial, floats_broadcast(pass->scales[0]));
}

/* arith_decoded_fma() of LANES rows */
INLINE floats rows_fma(enum tensor_type type, const struct rows *rows, const int8_t *q, float scale,
                       int32_t sum, floats acc)
{
    ints first, second, isum;

    dot_rows(rows->values, q, &first, &second);
    if (type == TENSOR_TYPE_Q8_0 || type == TENSOR_TYPE_Q4_0)
        isum = ints_add(first, second);
    else if (type == TENSOR_TYPE_Q6_K)
        isum = ints_add(ints_mul(first, rows->scale[0]), ints_mul(second, rows->scale[1]));
    else
        isum = ints_mul(ints_add(first, second), rows->scale[0]);
    acc = floats_fma(floats_from_ints(isum), floats_mul(rows->d, floats_broadcast(scale)), acc);
    if (arith_type_has_min(type))
        acc = floats_fnma(floats_from_ints(ints_mul(rows->min, ints_broadcast(sum))),
                          floats_mul(rows->dmin, floats_broadcast(scale)), acc);
    return acc;
}

INLINE void one_token_quantised(enum tensor_type type, const struct pass *pass, uint64_t row)
{
    const struct matmul *matmul = pass->matmul;
    const uint8_t *pointers[LANES];
    int8_t unpacked[LANES][ARITH_BLOCK];
    struct fixed sum = fixed_zero();

    for (uint64_t l = 0; l < LANES; l++)
        pointers[l] = row_of(matmul, row + l);
    for (uint64_t group = 0; group < pass->columns; group += matmul->group) {
        uint64_t left = pass->columns - group;
        uint64_t end = group + (left < matmul->group ? left : matmul->group);
        floats acc = floats_broadcast(0.0f);

        for (uint64_t i = group; i < end; i += ARITH_BLOCK) {
            struct rows rows;

            if (type == TENSOR_TYPE_Q8_0)
                rows_of_q8_0(pointers, pass->column + i, &rows);
            else
                rows_of(type, pointers, pass->column + i, unpacked, &rows);
            acc = rows_fma(type, &rows, pass->q + i, pass->activation_scales[i / ARITH_BLOCK],
                           pass->activation_sums[i / ARITH_BLOCK], acc);
        }
        fixed_add(&sum, times_scale(pass, acc), pass->limit);
    }
    store_rows(pass, row, &sum);
}

#if USE_AVX512 || USE_AVX2
/* Columns i to i + 7 of 8 rows of f32, `stride` apart: one vector a column. */
INLINE void transpose8(const float *from, size_t stride, __m256 *out)
{
    __m256 a[8], b[8];

    for (int r = 0; r < 8; r++)
        a[r] = _mm256_loadu_ps(from + (size_t)r * stride);
    for (int r = 0; r < 8; r += 2) {
        b[r] = _mm256_unpacklo_ps(a[r], a[r + 1]);
        b[r + 1] = _mm256_unpackhi_ps(a[r], a[r + 1]);
    }
    for (int r = 0; r < 8; r += 4)
        for (int k = 0; k < 2; k++) {
            a[r + 2 * k] = _mm256_shuffle_ps(b[r + k], b[r + 2 + k], 0x44);
            a[r + 2 * k + 1] = _mm256_shuffle_ps(b[r + k], b[r + 2 + k], 0xee);
        }
    for (int k = 0; k < 4; k++) {
        out[k] = _mm256_permute2f128_ps(a[k], a[k + 4], 0x20);
        out[k + 4] = _mm256_permute2f128_ps(a[k], a[k + 4], 0x31);
    }
}
#endif

#define FLOAT_COLUMNS 64 /* converted at a time */

/* acc = fmaf(w[l][i], x[i], acc) for `count` columns in order, in lane l for row l */
INLINE floats float_rows_fma(float (*w)[FLOAT_COLUMNS], const float *x, uint64_t count, floats acc)
{
    uint64_t i = 0;

#if USE_AVX512 || USE_AVX2
    for (; i + 8 <= count; i += 8) {
        __m256 low[8];

        transpose8(&w[0][i], FLOAT_COLUMNS, low);
#if USE_AVX512
        __m256 high[8];

        transpose8(&w[8][i], FLOAT_COLUMNS, high);
        for (int k = 0; k < 8; k++)
            acc = floats_fma(_mm512_insertf32x8(_mm512_castps256_ps512(low[k]), high[k], 1),
                             floats_broadcast(x[i + (uint64_t)k]), acc);
#else
        for (int k = 0; k < 8; k++)
            acc = floats_fma(low[k], floats_broadcast(x[i + (uint64_t)k]), acc);
#endif
    }
#endif
    for (; i < count; i++) {
        float column[LANES];

        for (int l = 0; l < LANES; l++)
            column[l] = w[l][i];
        acc = floats_fma(floats_load(column), floats_broadcast(x[i]), acc);
    }
    return acc;
}

INLINE void one_token_float(enum tensor_type type, const struct pass *pass, uint64_t row)
{
    const struct matmul *matmul = pass->matmul;
    const uint8_t *pointers[LANES];
    float w[LANES][FLOAT_COLUMNS];
    struct fixed sum = fixed_zero();

    for (uint64_t l = 0; l < LANES; l++)
        pointers[l] = row_of(matmul, row + l);
    for (uint64_t group = 0; group < pass->columns; group += matmul->group) {
        uint64_t left = pass->columns - group;
        uint64_t end = group + (left < matmul->group ? left : matmul->group);
        floats acc = floats_broadcast(0.0f);

        for (uint64_t i = group; i < end; i += FLOAT_COLUMNS) {
            uint64_t count = end - i < FLOAT_COLUMNS ? end - i : FLOAT_COLUMNS;

            for (int l = 0; l < LANES; l++)
                load_floats(type, pointers[l], pass->column + i, count, w[l]);
            acc = float_rows_fma(w, pass->x + i, count, acc);
        }
        fixed_add(&sum, times_scale(pass, acc), pass->limit);
    }
    store_rows(pass, row, &sum);
}

/* ---- several tokens ---- */

INLINE void add_partials(const struct pass *pass, struct fixed *sums, floats *partials)
{
    for (int v = 0; v < VECTORS; v++) {
        float scales[LANES];

        if (pass->scales != NULL) {
            for (uint32_t l = 0; l < LANES; l++) {
                uint32_t token = (uint32_t)v * LANES + l;

                scales[l] = token < pass->tokens ? pass->scales[token] : 0.0f;
            }
            partials[v] = floats_mul(partials[v], floats_load(scales));
        }
        fixed_add(&sums[v], partials[v], pass->limit);
    }
}

INLINE void store_tokens(const struct pass *pass, uint64_t row, const struct fixed *sums)
{
    int64_t values[TOKENS];

    if (row >= pass->matmul->rows)
        return;
    for (int v = 0; v < VECTORS; v++)
        fixed_store(&sums[v], values + v * LANES);
    for (uint32_t t = 0; t < pass->tokens; t++) {
        int64_t *to = &pass->sums[t * pass->sums_stride + row];

        *to = arith_fixed_add(*to, values[t]);
    }
}

/* arith_decoded_fma() of TOKENS tokens; `block` counts from the start of the pass */
INLINE void tokens_fma(enum tensor_type type, const struct arith_block *weight,
                       const struct pass *pass, uint64_t block, floats *acc)
{
    const int8_t *packed = pass->q + block * ARITH_BLOCK * TOKENS;
    ints first[VECTORS], second[VECTORS];

    dot_tokens(weight->values, packed, 0, first);
    dot_tokens(weight->values + 16, packed, 1, second);
    for (int v = 0; v < VECTORS; v++) {
        size_t at = (size_t)block * TOKENS + (size_t)v * LANES;
        floats scale = floats_load(pass->activation_scales + at);
        ints isum;

        if (type == TENSOR_TYPE_Q8_0 || type == TENSOR_TYPE_Q4_0)
            isum = ints_add(first[v], second[v]);
        else if (type == TENSOR_TYPE_Q6_K)
            isum = ints_add(ints_mul(first[v], ints_broadcast(weight->scale[0])),
                            ints_mul(second[v], ints_broadcast(weight->scale[1])));
        else
            isum = ints_mul(ints_add(first[v], second[v]), ints_broadcast(weight->scale[0]));
        acc[v] = floats_fma(floats_from_ints(isum), floats_mul(floats_broadcast(weight->d), scale),
                            acc[v]);
        if (arith_type_has_min(type))
            acc[v] = floats_fnma(floats_from_ints(ints_mul(ints_broadcast(weight->min),
                                                           ints_load(pass->activation_sums + at))),
                                 floats_mul(floats_broadcast(weight->dmin), scale), acc[v]);
    }
}

INLINE void some_tokens_quantised(enum tensor_type type, const struct pass *pass, uint64_t row)
{
    const struct matmul *matmul = pass->matmul;
    const uint8_t *pointers[ROWS];
    struct fixed sums[ROWS][VECTORS];

    for (uint64_t r = 0; r < ROWS; r++) {
        pointers[r] = row_of(matmul, row + r);
        for (int v = 0; v < VECTORS; v++)
            sums[r][v] = fixed_zero();
    }
    for (uint64_t group = 0; group < pass->columns; group += matmul->group) {
        uint64_t left = pass->columns - group;
        uint64_t end = group + (left < matmul->group ? left : matmul->group);
        floats acc[ROWS][VECTORS];

        for (int r = 0; r < ROWS; r++)
            for (int v = 0; v < VECTORS; v++)
                acc[r][v] = floats_broadcast(0.0f);
        for (uint64_t i = group; i < end; i += ARITH_BLOCK)
            for (int r = 0; r < ROWS; r++) {
                struct arith_block decoded;
                uint32_t which;
                const uint8_t *block = block_of(type, pointers[r], pass->column + i, &which);
                struct packed_scales scales = scales_of(type, block, which);

                unpack(type, block, which, decoded.values);
                decoded.scale[0] = scales.scale[0];
                decoded.scale[1] = scales.scale[1];
                decoded.min = scales.min;
                decoded.d = arith_f32_from_f16(scales.d);
                decoded.dmin = arith_f32_from_f16(scales.dmin);
                tokens_fma(type, &decoded, pass, i / ARITH_BLOCK, acc[r]);
            }
        for (int r = 0; r < ROWS; r++)
            add_partials(pass, sums[r], acc[r]);
    }
    for (uint64_t r = 0; r < ROWS; r++)
        store_tokens(pass, row + r, sums[r]);
}

INLINE void some_tokens_float(enum tensor_type type, const struct pass *pass, uint64_t row)
{
    const struct matmul *matmul = pass->matmul;
    const uint8_t *pointers[ROWS];
    float w[ROWS][FLOAT_COLUMNS];
    struct fixed sums[ROWS][VECTORS];

    for (uint64_t r = 0; r < ROWS; r++) {
        pointers[r] = row_of(matmul, row + r);
        for (int v = 0; v < VECTORS; v++)
            sums[r][v] = fixed_zero();
    }
    for (uint64_t group = 0; group < pass->columns; group += matmul->group) {
        uint64_t left = pass->columns - group;
        uint64_t end = group + (left < matmul->group ? left : matmul->group);
        floats acc[ROWS][VECTORS];

        for (int r = 0; r < ROWS; r++)
            for (int v = 0; v < VECTORS; v++)
                acc[r][v] = floats_broadcast(0.0f);
        for (uint64_t first = group; first < end; first += FLOAT_COLUMNS) {
            uint64_t count = end - first < FLOAT_COLUMNS ? end - first : FLOAT_COLUMNS;

            for (int r = 0; r < ROWS; r++)
                load_floats(type, pointers[r], pass->column + first, count, w[r]);
            for (uint64_t i = 0; i < count; i++)
                for (int v = 0; v < VECTORS; v++) {
                    floats x = floats_load(pass->x + (first + i) * TOKENS + (size_t)v * LANES);

                    for (int r = 0; r < ROWS; r++)
                        acc[r][v] = floats_fma(floats_broadcast(w[r][i]), x, acc[r][v]);
                }
        }
        for (int r = 0; r < ROWS; r++)
            add_partials(pass, sums[r], acc[r]);
    }
    for (uint64_t r = 0; r < ROWS; r++)
        store_tokens(pass, row + r, sums[r]);
}

/* ---- passes ---- */

/* One function for each type, with the type a constant inside. */
#define FOR_TYPE(type)                                                                             \
    static void run_##type(const struct pass *pass)                                                \
    {                                                                                              \
        const int64_t rows = (int64_t)pass->matmul->rows;                                          \
                                                                                                   \
        if (pass->tokens == 1) {                                                                   \
            REF_PARALLEL_FOR(pass->matmul->rows * pass->columns)                                   \
            for (int64_t row = 0; row < rows; row += LANES)                                        \
                ONE_TOKEN(TENSOR_TYPE_##type, pass, (uint64_t)row);                                \
        } else {                                                                                   \
            REF_PARALLEL_FOR(pass->matmul->rows * pass->columns)                                   \
            for (int64_t row = 0; row < rows; row += ROWS)                                         \
                SOME_TOKENS(TENSOR_TYPE_##type, pass, (uint64_t)row);                              \
        }                                                                                          \
    }

#define ONE_TOKEN one_token_float
#define SOME_TOKENS some_tokens_float
FOR_TYPE(F32)
FOR_TYPE(F16)
FOR_TYPE(BF16)
#undef ONE_TOKEN
#undef SOME_TOKENS
#define ONE_TOKEN one_token_quantised
#define SOME_TOKENS some_tokens_quantised
FOR_TYPE(Q8_0)
FOR_TYPE(Q4_0)
FOR_TYPE(Q4_K)
FOR_TYPE(Q5_K)
FOR_TYPE(Q6_K)

static void run(const struct pass *pass)
{
    switch (pass->matmul->type) {
    case TENSOR_TYPE_F32:
        run_F32(pass);
        break;
    case TENSOR_TYPE_F16:
        run_F16(pass);
        break;
    case TENSOR_TYPE_BF16:
        run_BF16(pass);
        break;
    case TENSOR_TYPE_Q8_0:
        run_Q8_0(pass);
        break;
    case TENSOR_TYPE_Q4_0:
        run_Q4_0(pass);
        break;
    case TENSOR_TYPE_Q4_K:
        run_Q4_K(pass);
        break;
    case TENSOR_TYPE_Q5_K:
        run_Q5_K(pass);
        break;
    case TENSOR_TYPE_Q6_K:
        run_Q6_K(pass);
        break;
    default:
        assert(false); /* matmul() has checked the type */
    }
}

static void run_quantised(struct pass *pass, const float *x, uint64_t x_stride)
{
    int8_t q[PASS_VALUES];
    float scales[PASS_BLOCKS];
    int32_t sums[PASS_BLOCKS];
    uint32_t lanes = pass->tokens == 1 ? 1 : TOKENS;
    int64_t blocks = (int64_t)(pass->columns / ARITH_BLOCK);

    REF_PARALLEL_FOR(blocks * ARITH_BLOCK)
    for (int64_t b = 0; b < blocks; b++) {
        size_t block = (size_t)b;

        for (uint32_t t = 0; t < lanes; t++) {
            int8_t values[ARITH_BLOCK] = {0};
            size_t at = block * lanes + t;

            scales[at] = 0.0f;
            sums[at] = 0;
            if (t < pass->tokens)
                arith_quantise_block(x + t * x_stride + block * ARITH_BLOCK, values, &scales[at],
                                     &sums[at]);
            if (lanes == 1)
                memcpy(q + block * ARITH_BLOCK, values, sizeof(values));
            else
                for (uint32_t i = 0; i < ARITH_BLOCK; i++)
                    q[block * ARITH_BLOCK * TOKENS + packed_index(t, i)] = packed_value(values[i]);
        }
    }
    pass->q = q;
    pass->activation_scales = scales;
    pass->activation_sums = sums;
    run(pass);
}

static void run_float(struct pass *pass, const float *x, uint64_t x_stride)
{
    float packed[PASS_FLOATS];

    if (pass->tokens == 1) {
        pass->x = x;
    } else {
        for (uint64_t i = 0; i < pass->columns; i++)
            for (uint32_t t = 0; t < TOKENS; t++)
                packed[i * TOKENS + t] = t < pass->tokens ? x[t * x_stride + i] : 0.0f;
        pass->x = packed;
    }
    run(pass);
}

void REF_NAME(matmul)(const struct matmul *matmul, const float *x, const float *scales,
                      uint32_t tokens, int64_t *sums, uint64_t sums_stride)
{
    bool quantised = arith_type_is_quantised(matmul->type);
    uint64_t x_stride = matmul->segments * matmul->count;

    assert(quantised || arith_type_is_float(matmul->type));
    assert(matmul->group > 0 && matmul->group <= GROUP_MAX && matmul->first % matmul->group == 0);
    assert(!quantised || (matmul->group % ARITH_BLOCK == 0 && matmul->count % ARITH_BLOCK == 0 &&
                          matmul->segment_columns % ARITH_BLOCK == 0));
    if (matmul->rows == 0)
        return;
    for (uint32_t token = 0; token < tokens; token += TOKENS) {
        uint32_t count = tokens - token < TOKENS ? tokens - token : TOKENS;
        uint64_t room = quantised ? PASS_VALUES : PASS_FLOATS;

        room /= count == 1 ? 1 : TOKENS;
        room -= room % matmul->group;
        for (uint32_t segment = 0; segment < matmul->segments; segment++)
            for (uint64_t at = 0; at < matmul->count; at += room) {
                uint64_t left = matmul->count - at;
                const float *from = x + token * x_stride + segment * matmul->count + at;
                struct pass pass = {
                    .matmul = matmul,
                    .scales = scales == NULL ? NULL : scales + token,
                    .tokens = count,
                    .column = segment * matmul->segment_columns + matmul->first + at,
                    .columns = left < room ? left : room,
                    .limit = arith_limit(matmul->groups_total),
                    .sums = sums + token * sums_stride,
                    .sums_stride = sums_stride,
                };

                if (quantised)
                    run_quantised(&pass, from, x_stride);
                else
                    run_float(&pass, from, x_stride);
            }
    }
}
