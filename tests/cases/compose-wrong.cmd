# A card or a link that is not in the catalogue.
for gpu in "RTX 4099" "RTX 4090@gen9x16" "H100" ""; do
    $LOPSIDE bench -m qwen3-8b:q4_k_m --gpu "$gpu"
    echo "$?"
done
