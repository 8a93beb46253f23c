# A recorded timeline of two devices as a trace, and one step of it; both can be read.
$LOPSIDE trace --recorded "$srcdir/tests/data/recorded-two-steps.jsonl" --step 1 -o one.json
$LOPSIDE trace --recorded "$srcdir/tests/data/recorded-two-steps.jsonl" > all.json
sed -e "s|$srcdir/||" one.json
grep -c '"ph": "X"' one.json all.json
