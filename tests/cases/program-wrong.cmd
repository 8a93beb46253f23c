# Wrong calls of program.
for flags in '-ts 1/1,2/1' '-n 2' '-p 16 -n 1' '--layer 99' '-p many' '-p 16,32' 'tensor'; do
    $LOPSIDE program -m qwen3-8b:q4_k_m --machine rtx4070-gen4x16+rtx3060-gen3x4 $flags
    echo "$?"
done
