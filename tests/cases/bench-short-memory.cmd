# A plan that does not fit is a row without speed that says by how much; the call succeeds.
$LOPSIDE bench -m qwen3.8-27b:UD-Q5_K_M --machine rtx4070-gen4x16+rtx3060-gen3x4 -mg 0 -sm none -d 8192 -p 0 -n 4 --no-default |
    cut -d '|' -f 7-9,11,13
