# A profile without a required figure says which, and where it belongs.
# exit 2
cp "$srcdir/tests/data/no-host-memory.json" .
$LOPSIDE machine show no-host-memory.json
