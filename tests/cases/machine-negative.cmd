# A negative bandwidth is shown in its line.
# exit 2
cp "$srcdir/tests/data/negative-bandwidth.json" .
$LOPSIDE machine show negative-bandwidth.json
