# An unknown split mode is answered with those that exist.
# exit 2
$LOPSIDE bench -m qwen3.8-27b:UD-Q5_K_M --machine rtx4070-gen4x16+rtx3060-gen3x4 -sm column
