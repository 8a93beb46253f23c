# A machine composed of two cards.
$LOPSIDE bench -m qwen3.8-27b:UD-Q5_K_M --gpu "RTX 4070@gen4x16" --gpu "RTX 3060@gen3x4" \
    -p 0 -n 4 --no-default -o json | grep -E '"(cpu_info|gpu_info|machine)"'
