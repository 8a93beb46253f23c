# The tasks of one layer in a decode step.
$LOPSIDE program -m qwen3-8b:q4_k_m --machine rtx4070-gen4x16+rtx3060-gen3x4 -sm tensor --layer 0
