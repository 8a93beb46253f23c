# Two recorded runs: in the second the last wait of step 1 ends 20 us later.
cp "$srcdir/tests/data/recorded-two-steps.jsonl" one.jsonl
sed -e '$s/"end_us": .*}/"end_us": 646.500}/' one.jsonl > two.jsonl
$LOPSIDE compare --recorded one.jsonl --with two.jsonl -w 2
