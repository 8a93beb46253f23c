# A context that the test does not fit into.
# exit 2
$LOPSIDE bench -m qwen3.8-27b:UD-Q5_K_M --machine rtx4070-gen4x16+rtx3060-gen3x4 -p 0 -n 4 --no-default -d 8192 -c 4096
