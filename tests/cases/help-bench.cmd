# The help of bench is on stdout.
$LOPSIDE bench --help
