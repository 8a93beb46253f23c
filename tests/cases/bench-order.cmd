# Lists are swept in one order: models outermost, then split modes, ubatches and ratios.
$LOPSIDE bench -m qwen3-8b:q4_k_m,qwen3-0.6b:q8_0 --machine rtx4070-gen4x16+rtx3060-gen3x4 \
    -sm layer,tensor -ub 256,512 -ts 1/1,2/1 -p 8 -n 0 --no-default | cut -d '|' -f 2,7-9
