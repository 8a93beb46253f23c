# A prompt and a generation in one test.
$LOPSIDE bench -m qwen3.8-27b:UD-Q5_K_M --machine rtx4070-gen4x16+rtx3060-gen3x4 -p 0 -n 0 -pg 64,8 --no-default | cut -d '|' -f 7
