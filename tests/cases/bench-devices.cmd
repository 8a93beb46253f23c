# Devices are used in the order that -dev gives.
$LOPSIDE bench -m qwen3.8-27b:UD-Q5_K_M --machine rtx4070-gen4x16+rtx3060-gen3x4 -dev CUDA1/CUDA0 -ts 40/60 -p 0 -n 4 --no-default | cut -d '|' -f 7,8
