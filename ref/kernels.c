#include "ref/kernels.h"

#include <string.h>

#include "config.h"
#include "ref/kernels_private.h"

#define MEMBER(variant, name) .name = name##_##variant,
#define KERNELS(variant)                                                                           \
    {                                                                                              \
        .isa = #variant, REF_KERNELS(MEMBER, variant)                                              \
    }

static const struct ref_kernels base = KERNELS(base);

#ifdef HAVE_X86_VARIANTS
static const struct ref_kernels avx2 = KERNELS(avx2);
static const struct ref_kernels avx512 = KERNELS(avx512);

static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

static bool has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vnni");
}
#endif

const struct ref_kernels *ref_kernels_find(const char *isa)
{
#ifdef HAVE_X86_VARIANTS
    if ((isa == NULL || strcmp(isa, "avx512") == 0) && has_avx512())
        return &avx512;
    if ((isa == NULL || strcmp(isa, "avx2") == 0) && has_avx2())
        return &avx2;
#endif
    return isa == NULL || strcmp(isa, "base") == 0 ? &base : NULL;
}
