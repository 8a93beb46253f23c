# The CSV form: rows of all tables.
cp "$srcdir/tests/data/recorded-two-steps.jsonl" run.jsonl
$LOPSIDE compare --recorded run.jsonl -o csv
