# The help of synth is on stdout.
$LOPSIDE synth --help
