# A range by product counts as a list.
$LOPSIDE bench -m qwen3.8-27b:UD-Q5_K_M --machine rtx4070-gen4x16+rtx3060-gen3x4 -ub 128-512*2 -p 16 -n 0 --no-default | cut -d '|' -f 7
