# A plan that cannot be is refused; the others are printed.
# exit 2
$LOPSIDE bench -m qwen3.8-27b:UD-Q5_K_M --machine rtx4070-gen4x16+rtx3060-gen3x4 -p 0 -n 4 --no-default -as 1/0 -sm layer,tensor > table
cat table | cut -d '|' -f 7-9; exit 2
