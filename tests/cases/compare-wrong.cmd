# Wrong calls of compare.
cp "$srcdir/tests/data/recorded-two-steps.jsonl" run.jsonl
$LOPSIDE compare; echo "$?"
$LOPSIDE compare --recorded run.jsonl --with run.jsonl -sm layer; echo "$?"
$LOPSIDE compare --recorded run.jsonl -o sql; echo "$?"
$LOPSIDE compare --recorded run.jsonl --step 7; echo "$?"
$LOPSIDE compare --recorded run.jsonl -w -1; echo "$?"
$LOPSIDE compare --recorded run.jsonl -sm layer,tensor; echo "$?"
$LOPSIDE compare --recorded run.jsonl -dev CUDA7; echo "$?"
$LOPSIDE compare --recorded run.jsonl more; echo "$?"
$LOPSIDE compare --recorded no-such.jsonl; echo "$?"
sed -e '1s/"-sm"/"-smm"/' run.jsonl > flag.jsonl
$LOPSIDE compare --recorded flag.jsonl; echo "$?"
sed -e '1s/"arguments": \[.*\], "devices"/"arguments": ["-m"], "devices"/' run.jsonl > value.jsonl
$LOPSIDE compare --recorded value.jsonl; echo "$?"
sed -e '5s/"end_us": [0-9.]*/"end_us": -3/' run.jsonl > time.jsonl
$LOPSIDE compare --recorded time.jsonl; echo "$?"
