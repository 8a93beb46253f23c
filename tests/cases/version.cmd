# The version is the program's, wherever it is asked for.
$LOPSIDE --version
$LOPSIDE bench --version
