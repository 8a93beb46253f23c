# The JSON form: what was compared, the whole difference, and one row of each table.
cp "$srcdir/tests/data/recorded-two-steps.jsonl" run.jsonl
$LOPSIDE compare --recorded run.jsonl --step 0 -w 1 -o json
