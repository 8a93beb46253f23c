# A profile with measured kernels: how many rows each table has; it is written as it was read.
$LOPSIDE machine show "$srcdir/tests/data/kernel-tables.json" | sed '/^CONSTANT/,$d'
$LOPSIDE machine show -o json "$srcdir/tests/data/kernel-tables.json" > written.json
$LOPSIDE machine show -o json written.json | cmp - written.json && echo same
sed -n '/"sums"/,$p' written.json
