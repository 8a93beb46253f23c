# LOPSIDE_OPTIONAL_MODULE(NAME, PREFIX, PKG-CONFIG-SPEC, USE)
# Three states: --with-NAME asked for and missing stops configure; not given, it
# probes; --without-NAME skips. Sets have_NAME and the conditional HAVE_PREFIX.
AC_DEFUN([LOPSIDE_OPTIONAL_MODULE], [
  AC_ARG_WITH([$1], [AS_HELP_STRING([--with-$1], [$4 (default: if found)])],
    [], [with_$1=check])
  have_$1=no
  AS_IF([test "x$with_$1" != xno], [
    PKG_CHECK_MODULES([$2], [$3], [have_$1=yes], [
      AS_IF([test "x$with_$1" != xcheck],
        [AC_MSG_ERROR([--with-$1: pkg-config does not find $3])])])])
  AS_IF([test "x$have_$1" = xyes], [AC_DEFINE([HAVE_$2], [1], [Define where $1 is present.])])
  AM_CONDITIONAL([HAVE_$2], [test "x$have_$1" = xyes])
])

# SimGrid has no pkg-config file in every version: a header and a library.
AC_DEFUN([LOPSIDE_SIMGRID], [
  AC_ARG_WITH([simgrid],
    [AS_HELP_STRING([--with-simgrid], [check of the engine against SimGrid (default: if found)])],
    [], [with_simgrid=check])
  have_simgrid=no
  AS_IF([test "x$with_simgrid" != xno], [
    AC_LANG_PUSH([C++])
    AC_CHECK_HEADER([simgrid/s4u.hpp], [have_simgrid=yes])
    AC_LANG_POP([C++])
    AS_IF([test "x$have_simgrid$with_simgrid" = xnoyes],
      [AC_MSG_ERROR([--with-simgrid: simgrid/s4u.hpp is not found])])])
  AM_CONDITIONAL([HAVE_SIMGRID], [test "x$have_simgrid" = xyes])
])
