# What each device holds after rounding.
$LOPSIDE program -m qwen3-8b:q4_k_m --machine rtx4070-gen4x16+rtx3060-gen3x4 -sm tensor -ts 60/40 \
    --shares --layer 0 | sed '/^#/,$d'
