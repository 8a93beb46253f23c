# Depths give a test each, with the depth in its name.
$LOPSIDE bench -m qwen3.8-27b:UD-Q5_K_M --machine rtx4070-gen4x16+rtx3060-gen3x4 -d 0,4096 -p 16 -n 4 --no-default | cut -d '|' -f 7
