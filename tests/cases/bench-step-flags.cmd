# What the fork and measuring builds choose inside a step: pipeline, head, sums, experts, sampling.
$LOPSIDE bench -m qwen3.8-27b:UD-IQ2_M --machine rtx4070-gen4x16+rtx3060-gen3x4 -pipe 0,1 -p 2048 -n 0 --no-default
$LOPSIDE bench -m qwen3.8-27b:UD-IQ2_M --machine rtx4070-gen4x16+rtx3060-gen3x4 -bs none,0,1 -p 0 -n 8 --no-default
$LOPSIDE bench -m gemma-4-26b-a4b:q4_k_m --machine rtx4070-gen4x16+rtx3060-gen3x4 -sm tensor -om 0,1 -p 0 -n 8 --no-default
$LOPSIDE bench -m gemma-4-26b-a4b:q4_k_m --machine rtx4070-gen4x16+rtx3060-gen3x4 -sm tensor -fer 512/192 -p 0 -n 8 --no-default
