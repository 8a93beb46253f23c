# Several models, comma-separated or by repeating -m, are rows of one table.
pair="--machine rtx4070-gen4x16+rtx3060-gen3x4 -p 0 -n 4 --no-default"
$LOPSIDE bench -m llama-2-7b:q4_0,qwen3-8b:q4_k_m $pair > listed
$LOPSIDE bench -m llama-2-7b:q4_0 -m qwen3-8b:q4_k_m $pair > repeated
cmp listed repeated && cut -d '|' -f 2-4 listed
