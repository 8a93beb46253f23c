# A figure in another unit is answered with the key that was meant.
# exit 2
cp "$srcdir/tests/data/link-in-mbs.json" .
$LOPSIDE machine show link-in-mbs.json
