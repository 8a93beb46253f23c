# Equal decode steps may be multiplied: simulating each gives the same speed.
$LOPSIDE bench -m qwen3.8-27b:UD-Q5_K_M --machine rtx4070-gen4x16+rtx3060-gen3x4 -sm layer,tensor -nkvo 0,1 -p 0 -n 300 --no-default | cut -d '|' -f 9 > multiplied
$LOPSIDE bench -m qwen3.8-27b:UD-Q5_K_M --machine rtx4070-gen4x16+rtx3060-gen3x4 -sm layer,tensor -nkvo 0,1 -p 0 -n 300 --no-default --full-stepping | cut -d '|' -f 9 > stepped
cmp multiplied stepped && echo same
