# The help of validate is on stdout.
$LOPSIDE validate --help
