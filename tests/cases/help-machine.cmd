# The help of machine is on stdout.
$LOPSIDE machine --help
