# --with-cuda[=DIR]: asked for and missing stops configure; not given, it probes;
# --without-cuda skips. Sets NVCC, have_cuda and the conditional HAVE_CUDA.
AC_DEFUN([LOPSIDE_CUDA], [
  AC_ARG_WITH([cuda],
    [AS_HELP_STRING([--with-cuda@<:@=DIR@:>@], [the CUDA runtime, with the toolkit at DIR (default: if found)])],
    [], [with_cuda=check])
  have_cuda=no
  AS_IF([test "x$with_cuda" != xno], [
    AS_CASE([$with_cuda],
      [yes|check], [cuda_path=$PATH:/usr/local/cuda/bin],
      [cuda_path=$with_cuda/bin])
    AC_PATH_PROG([NVCC], [nvcc], [], [$cuda_path])
    AS_IF([test -n "$NVCC"], [have_cuda=yes],
      [test "x$with_cuda" != xcheck],
      [AC_MSG_ERROR([--with-cuda: nvcc is not found in $cuda_path])])])
  AM_CONDITIONAL([HAVE_CUDA], [test "x$have_cuda" = xyes])
])

# NVML's header comes with the toolkit; the library comes with the driver and is
# opened at run time.
AC_DEFUN([LOPSIDE_NVML], [
  AC_ARG_WITH([nvml],
    [AS_HELP_STRING([--with-nvml], [see the GPUs of this machine (default: if nvml.h is found)])],
    [], [with_nvml=check])
  have_nvml=no
  NVML_CFLAGS=
  AS_IF([test "x$with_nvml" != xno], [
    AS_IF([test -n "$NVCC"], [NVML_CFLAGS="-I$(dirname "$(dirname "$NVCC")")/include"])
    lopside_saved_CPPFLAGS=$CPPFLAGS
    CPPFLAGS="$CPPFLAGS $NVML_CFLAGS"
    AC_CHECK_HEADER([nvml.h], [have_nvml=yes])
    CPPFLAGS=$lopside_saved_CPPFLAGS
    AS_IF([test "x$have_nvml$with_nvml" = xnoyes],
      [AC_MSG_ERROR([--with-nvml: nvml.h is not found])])])
  AS_IF([test "x$have_nvml" = xyes], [
    AC_DEFINE([HAVE_NVML_H], [1], [Define where nvml.h is present.])
    AC_SEARCH_LIBS([dlopen], [dl])], [NVML_CFLAGS=])
  AC_SUBST([NVML_CFLAGS])
])
