# llama.cpp itself has no -as, -kvgl and -kvcp.
for flags in '-sm tensor -as 1/0' '-nkvo 1 -kvgl 8' '-nkvo 1 -kvcp 1'; do
    $LOPSIDE bench -m qwen3.8-27b:UD-Q5_K_M --machine rtx4070-gen4x16+rtx3060-gen3x4 -p 0 -n 4 --no-default --engine llama.cpp $flags
    echo "$?"
done
