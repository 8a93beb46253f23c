# Flags of drafts that are not modelled, or have no effect, are accepted with a warning.
$LOPSIDE bench -m qwen3.8-27b:UD-IQ2_M --machine rtx4070-gen4x16+rtx3060-gen3x4 -md Qwen3.8-27B-DFlash2 -ngld 99 -devd CUDA0 -p 0 -n 8 --no-default > table
$LOPSIDE bench -m qwen3.8-27b:UD-IQ2_M --machine rtx4070-gen4x16+rtx3060-gen3x4 --draft-acceptance 0.5 -p 0 -n 8 --no-default > table
$LOPSIDE program -m qwen3.8-27b:UD-IQ2_M --machine rtx4070-gen4x16+rtx3060-gen3x4 --draft-max 2 > table
