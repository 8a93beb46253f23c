# A profile that was written can be read, and gives the same table.
$LOPSIDE machine show rtx4070-gen4x16+rtx3060-gen3x4 -o json > pair.json
$LOPSIDE machine show pair.json -o json > again.json
cmp pair.json again.json && echo same
for machine in rtx4070-gen4x16+rtx3060-gen3x4 pair.json; do
    $LOPSIDE bench -m qwen3-8b:q4_k_m --machine $machine -p 16 -n 4 > $(basename $machine).md
done
cmp rtx4070-gen4x16+rtx3060-gen3x4.md pair.json.md && echo same
