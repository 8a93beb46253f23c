# An explicit set names layers with a cache, and devices that exist.
for set in 4 999 9-3 first 3@CUDA9; do
    $LOPSIDE bench -m qwen3.8-27b:UD-Q5_K_M --machine rtx4070-gen4x16+rtx3060-gen3x4 -p 0 -n 4 --no-default -kvr $set
    echo "$?"
done
