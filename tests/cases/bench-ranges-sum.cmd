# A range by sum counts as a list.
$LOPSIDE bench -m qwen3.8-27b:UD-Q5_K_M --machine rtx4070-gen4x16+rtx3060-gen3x4 -nkvo 1 -kvgl 0-8+4 -p 0 -n 4 --no-default | cut -d '|' -f 6-9
