# A link to a device that is not there.
# exit 2
cp "$srcdir/tests/data/link-to-nowhere.json" .
$LOPSIDE machine show link-to-nowhere.json
