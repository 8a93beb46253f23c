# --with-cuda[=DIR]: asked for and missing stops configure; not given, it probes;
# --without-cuda skips. Sets NVCC, NVCCFLAGS, CUDA_LIBS, have_cuda and the conditional HAVE_CUDA.
AC_DEFUN([LOPSIDE_CUDA], [
  AC_ARG_WITH([cuda],
    [AS_HELP_STRING([--with-cuda@<:@=DIR@:>@], [the CUDA runtime, with the toolkit at DIR (default: if found)])],
    [], [with_cuda=check])
  AC_ARG_VAR([NVCCFLAGS], [flags for nvcc; the default builds for Hopper, for Ampere and Ada, and PTX that later cards compile])
  have_cuda=no
  AS_IF([test "x$with_cuda" != xno], [
    AS_CASE([$with_cuda],
      [yes|check], [cuda_path=$PATH:/usr/local/cuda/bin],
      [cuda_path=$with_cuda/bin])
    AC_PATH_PROG([NVCC], [nvcc], [], [$cuda_path])
    cuda_missing="nvcc is not found in $cuda_path"
    AS_IF([test -n "$NVCC"], [
      cuda_home=$(cd "$(dirname "$NVCC")/.." && pwd)
      AS_CASE([$NVCC], [/usr/bin/*], [cuda_home=/usr])
      for cuda_lib in "$cuda_home/lib64" "$cuda_home/lib/x86_64-linux-gnu" "$cuda_home/lib"; do
        AS_IF([test -f "$cuda_lib/libcudart_static.a"], [have_cuda=yes
          CUDA_LIBS="$cuda_lib/libcudart_static.a -lstdc++ -lpthread -ldl -lrt"
          break])
      done
      cuda_missing="libcudart_static.a is not found below $cuda_home"])
    AS_IF([test "x$have_cuda$with_cuda" != xyescheck && test "x$have_cuda" = xno &&
           test "x$with_cuda" != xcheck], [AC_MSG_ERROR([--with-cuda: $cuda_missing])])])
  : ${NVCCFLAGS="-O3 -lineinfo -gencode arch=compute_80,code=@<:@sm_80,compute_80@:>@ -gencode arch=compute_90a,code=sm_90a"}
  AS_IF([test "x$have_cuda" = xyes], [AC_DEFINE([HAVE_CUDA], [1], [Define where the CUDA runtime is built.])])
  AC_SUBST([CUDA_LIBS])
  AM_CONDITIONAL([HAVE_CUDA], [test "x$have_cuda" = xyes])
])
