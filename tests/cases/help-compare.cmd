# The help of compare.
$LOPSIDE compare --help
