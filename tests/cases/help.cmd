# The program's help is on stdout.
$LOPSIDE --help
