# Help of probe.
$LOPSIDE probe --help
