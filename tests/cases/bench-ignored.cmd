# Flags of llama-bench that are not modelled are accepted with a warning.
$LOPSIDE bench -m qwen3.8-27b:UD-Q5_K_M --machine rtx4070-gen4x16+rtx3060-gen3x4 -t 8 -mmp 0 --prio 2 -p 0 -n 4 --no-default > table
wc -l < table
