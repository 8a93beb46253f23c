# The help of trace.
$LOPSIDE trace --help
