# The shares show which layers a policy keeps on which device.
for policy in slowest-first round-robin layer-order; do
    echo "$policy"
    $LOPSIDE program -m qwen3.8-27b:UD-Q5_K_M --machine rtx4070-gen4x16+rtx3060-gen3x4 -nkvo 1 \
        -kvgl 4 -kvp $policy --shares | sed -n '/^KV cache/,/^Recurrent/p'
done
