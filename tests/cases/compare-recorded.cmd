# A recorded run of two steps beside its prediction.
cp "$srcdir/tests/data/recorded-two-steps.jsonl" run.jsonl
$LOPSIDE compare --recorded run.jsonl
