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
