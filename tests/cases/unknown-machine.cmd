# A machine that is neither built in nor a file.
for machine in rtx4070 missing.json; do
    $LOPSIDE bench -m qwen3-8b:q4_k_m --machine $machine
    echo "$?"
done
$LOPSIDE bench -m qwen3-8b:q4_k_m --machine rtx4070-gen4x16 --variant fast
# exit 2
