/* Names and prototypes of the kernels, which are compiled once for each instruction set. */
#ifndef REF_KERNELS_PRIVATE_H
#define REF_KERNELS_PRIVATE_H

#include "ref/kernels.h"

/* The instruction set that a file is compiled for: base, avx2 or avx512. */
#ifndef REF_VARIANT
#define REF_VARIANT base
#endif

#define REF_PASTE(name, variant) name##_##variant
#define REF_EXPAND(name, variant) REF_PASTE(name, variant)
#define REF_NAME(name) REF_EXPAND(name, REF_VARIANT)

/* Runs the iterations of the loop that follows on all threads, where the build has OpenMP and the
 * values that it works on, `work`, are more than waking the threads costs. */
#define REF_PARALLEL_LEAST 16384
#ifdef _OPENMP
#define REF_PRAGMA(text) _Pragma(#text)
#define REF_PARALLEL_FOR(work)                                                                     \
    REF_PRAGMA(omp parallel for schedule(static) if ((uint64_t)(work) > REF_PARALLEL_LEAST))
#else
#define REF_PARALLEL_FOR(work)
#endif

/* The functions of struct ref_kernels: KERNEL(variant, member). */
#define REF_KERNELS(KERNEL, variant)                                                               \
    KERNEL(variant, matmul)                                                                        \
    KERNEL(variant, rms_norm)                                                                      \
    KERNEL(variant, embed)                                                                         \
    KERNEL(variant, store)                                                                         \
    KERNEL(variant, glu)                                                                           \
    KERNEL(variant, gate)                                                                          \
    KERNEL(variant, softcap)                                                                       \
    KERNEL(variant, silu_gate)                                                                     \
    KERNEL(variant, rope)                                                                          \
    KERNEL(variant, attend)                                                                        \
    KERNEL(variant, convolve)                                                                      \
    KERNEL(variant, delta)

/* Declares matmul_base() and so on, with the type that the member points to. */
#define REF_PROTOTYPE(variant, name)                                                               \
    extern __typeof__(*((struct ref_kernels *)0)->name) name##_##variant;

REF_KERNELS(REF_PROTOTYPE, base)
REF_KERNELS(REF_PROTOTYPE, avx2)
REF_KERNELS(REF_PROTOTYPE, avx512)

#endif
