# The help of run is on stdout.
$LOPSIDE run --help
