# Help of verify.
$LOPSIDE verify --help
