# A number has to be one, and within its bounds.
for flags in '-ub many' '-ub 0' '-p many' '-n -1' '-d 1e3' '-r 0' '-pg 512' '-nkvo 2' '-c -1'; do
    $LOPSIDE bench -m qwen3.8-27b:UD-Q5_K_M --machine rtx4070-gen4x16+rtx3060-gen3x4 $flags
    echo "$?"
done
