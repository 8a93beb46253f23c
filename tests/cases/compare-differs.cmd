# Timelines of different programs: the first task that differs is named, and the status is 1.
cp "$srcdir/tests/data/recorded-two-steps.jsonl" run.jsonl
sed -e '/"step": 1, "task": 30,/s/"layer": [0-9]*/"layer": 3/' run.jsonl > layer.jsonl
$LOPSIDE compare --recorded run.jsonl --with layer.jsonl; echo "$?"
$LOPSIDE compare --recorded run.jsonl -ts 30/70; echo "$?"
$LOPSIDE compare --recorded run.jsonl -ts 70/30; echo "$?"
$LOPSIDE compare --recorded run.jsonl -sm layer; echo "$?"
$LOPSIDE compare --recorded run.jsonl --gpu "RTX 4090" -ts 1; echo "$?"
$LOPSIDE compare --recorded run.jsonl -m tiny-llama; echo "$?"
head -n 110 run.jsonl > first.jsonl
$LOPSIDE compare --recorded run.jsonl --with first.jsonl; echo "$?"
