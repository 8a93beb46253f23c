# Wrong calls of trace.
recorded=$srcdir/tests/data/recorded-two-steps.jsonl
model='-m qwen3-8b:q4_k_m --machine rtx4070-gen4x16'
cp "$recorded" recorded.jsonl
$LOPSIDE trace; echo "$?"
$LOPSIDE trace $model -n 0; echo "$?"
$LOPSIDE trace $model -n many; echo "$?"
$LOPSIDE trace $model --step 1; echo "$?"
$LOPSIDE trace $model -sm layer,none; echo "$?"
$LOPSIDE trace $model -o no/such/folder.json; echo "$?"
$LOPSIDE trace $model tensor; echo "$?"
$LOPSIDE trace --recorded recorded.jsonl -n 4; echo "$?"
$LOPSIDE trace --recorded recorded.jsonl -sm tensor; echo "$?"
$LOPSIDE trace --recorded recorded.jsonl --step 2; echo "$?"
$LOPSIDE trace --recorded no-such.jsonl; echo "$?"
$LOPSIDE trace --recorded; echo "$?"
$LOPSIDE trace --recording recorded.jsonl; echo "$?"
sed -e 's/"queues": \["CUDA0"\]/"queues": ["CUDA3"]/' recorded.jsonl > queue.jsonl
$LOPSIDE trace --recorded queue.jsonl; echo "$?"
head -n 20 recorded.jsonl > short.jsonl
$LOPSIDE trace --recorded short.jsonl; echo "$?"
sed -e 1d recorded.jsonl > headless.jsonl
$LOPSIDE trace --recorded headless.jsonl; echo "$?"
