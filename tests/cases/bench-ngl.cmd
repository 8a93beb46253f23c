# Layers beyond -ngl run on the host, which then limits the plan.
$LOPSIDE bench -m qwen3.8-27b:UD-Q5_K_M --machine rtx4070-gen4x16+rtx3060-gen3x4 -p 0 -n 4 --no-default -ngl 0,30,99 | cut -d '|' -f 6,7,9 | sed 's/ [0-9]* %//'
