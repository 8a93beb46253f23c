# The same call prints the same bytes.
for i in 1 2; do
    $LOPSIDE bench -m qwen3.8-27b:UD-Q5_K_M --machine rtx4070-gen4x16+rtx3060-gen3x4 -sm layer,tensor -nkvo 0,1 -d 0,4096 -p 64 -n 8 -o json > $i.json
done
cmp 1.json 2.json && echo same
