# Options of the call replace the recorded machine; one step, three tasks.
cp "$srcdir/tests/data/recorded-two-steps.jsonl" run.jsonl
$LOPSIDE compare --recorded run.jsonl --gpu "2x RTX 3090" --step 1 -w 3
