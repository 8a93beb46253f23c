# An explicit set of layers keeps its cache on the devices it names.
$LOPSIDE bench -m qwen3.8-27b:UD-Q5_K_M --machine rtx4070-gen4x16+rtx3060-gen3x4 -sm tensor -kvr 3-31@CUDA1,35@CUDA0+CUDA1 -p 0 -n 4 --no-default | cut -d '|' -f 7-9
