# Kernels of the reference are compiled once more for AVX2 and for AVX-512 where the compiler
# can; the program chooses when it runs. Sets have_x86_variants and the conditional
# HAVE_X86_VARIANTS.
AC_DEFUN([LOPSIDE_X86_VARIANTS], [
  AVX2_CFLAGS="-mavx2 -mfma -mf16c"
  AVX512_CFLAGS="$AVX2_CFLAGS -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni"
  AC_ARG_ENABLE([x86-variants],
    [AS_HELP_STRING([--disable-x86-variants], [leave out the kernels for AVX2 and AVX-512])])
  have_x86_variants=no
  AS_IF([test "x$enable_x86_variants" != xno], [
    AC_MSG_CHECKING([whether $CC compiles for AVX2 and AVX-512])
    lopside_saved_CFLAGS=$CFLAGS
    CFLAGS="$CFLAGS $AVX512_CFLAGS"
    AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[#include <immintrin.h>]],
      [[__m512i zero = _mm512_setzero_si512();
        zero = _mm512_dpbusd_epi32(zero, zero, zero);
        return __builtin_cpu_supports("avx512vnni") + _mm512_reduce_add_epi32(zero);]])],
      [have_x86_variants=yes])
    CFLAGS=$lopside_saved_CFLAGS
    AC_MSG_RESULT([$have_x86_variants])])
  AS_IF([test "x$have_x86_variants" = xyes],
    [AC_DEFINE([HAVE_X86_VARIANTS], [1], [Define where AVX2 and AVX-512 kernels are built.])])
  AM_CONDITIONAL([HAVE_X86_VARIANTS], [test "x$have_x86_variants" = xyes])
  # gcc at -O2 vectorises only loops whose length it knows; loops over heads are not.
  VECTOR_CFLAGS="-ftree-vectorize -fvect-cost-model=dynamic"
  AC_MSG_CHECKING([whether $CC takes $VECTOR_CFLAGS])
  lopside_saved_CFLAGS=$CFLAGS
  CFLAGS="$CFLAGS $VECTOR_CFLAGS -Werror"
  AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[]], [[]])], [AC_MSG_RESULT([yes])],
    [AC_MSG_RESULT([no])
     VECTOR_CFLAGS=])
  CFLAGS=$lopside_saved_CFLAGS
  AC_SUBST([VECTOR_CFLAGS])
  AC_SUBST([AVX2_CFLAGS])
  AC_SUBST([AVX512_CFLAGS])
])
