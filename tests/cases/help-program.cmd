# The help of program is on stdout.
$LOPSIDE program --help
