# The help of calibrate is on stdout.
$LOPSIDE calibrate --help
