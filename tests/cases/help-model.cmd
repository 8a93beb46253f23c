# The help of model is on stdout.
$LOPSIDE model --help
