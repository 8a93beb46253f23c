# A prompt in its ubatches, then tokens: where steps begin; of the prompt alone, three ubatches.
$LOPSIDE trace -m qwen3-8b:q4_k_m --machine rtx4070-gen4x16 -p 1100 -n 3 -o trace.json
grep '"ph": "i"' trace.json
$LOPSIDE trace -m qwen3-8b:q4_k_m --machine rtx4070-gen4x16 -p 1100 -n 0 --timeline -o prompt.jsonl
grep -c '"tasks"' prompt.jsonl
