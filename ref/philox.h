/* Philox4x32-10: random words that are a function of a counter and a key, so that any of
 * them can be made anywhere, in any order. For C11 and CUDA.
 *
 * Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3" (2011). */
#ifndef REF_PHILOX_H
#define REF_PHILOX_H

#include <stdint.h>

#ifdef __CUDACC__
#define PHILOX_INLINE static inline __host__ __device__
#else
#define PHILOX_INLINE static inline
#endif

#define PHILOX_WORDS 4
#define PHILOX_ROUNDS 10

/** Replaces the four words of a counter by the four random words that belong to it. */
PHILOX_INLINE void philox(uint32_t words[PHILOX_WORDS], uint32_t key_0, uint32_t key_1)
{
    for (int round = 0; round < PHILOX_ROUNDS; round++) {
        uint64_t left = (uint64_t)0xD2511F53u * words[0];
        uint64_t right = (uint64_t)0xCD9E8D57u * words[2];

        words[0] = (uint32_t)(right >> 32) ^ words[1] ^ key_0;
        words[1] = (uint32_t)right;
        words[2] = (uint32_t)(left >> 32) ^ words[3] ^ key_1;
        words[3] = (uint32_t)left;
        key_0 += 0x9E3779B9u; /* the golden ratio */
        key_1 += 0xBB67AE85u; /* sqrt(3) - 1 */
    }
}

#endif
