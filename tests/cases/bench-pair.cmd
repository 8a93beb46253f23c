# The built-in pair, two split modes and two ratios, beside llama.cpp's own default.
$LOPSIDE bench -m qwen3.8-27b:UD-Q5_K_M --machine rtx4070-gen4x16+rtx3060-gen3x4 -sm layer,tensor -ts 50/50,60/40
