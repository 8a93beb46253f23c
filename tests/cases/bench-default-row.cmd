# llama.cpp's default is a row of its own only where it was not asked for.
$LOPSIDE bench -m qwen3.8-27b:UD-Q5_K_M --machine rtx4070-gen4x16+rtx3060-gen3x4 -p 0 -n 4 | grep -c 'llama.cpp default'
$LOPSIDE bench -m qwen3.8-27b:UD-Q5_K_M --machine rtx4070-gen4x16+rtx3060-gen3x4 -sm tensor -p 0 -n 4 | grep -c 'llama.cpp default'
$LOPSIDE bench -m qwen3.8-27b:UD-Q5_K_M --machine rtx4070-gen4x16+rtx3060-gen3x4 -sm tensor -p 0 -n 4 --no-default | grep -c 'llama.cpp default'
true
