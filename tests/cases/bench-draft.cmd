# Drafts by the model's own block, a sidecar and a smaller model; 0 tokens are no draft.
$LOPSIDE bench -m qwen3.8-27b:UD-IQ2_M --machine rtx4070-gen4x16+rtx3060-gen3x4 --draft-max 0,2 --draft-acceptance 0.6,0.8 -n 32 --no-default
$LOPSIDE bench -m qwen3.8-27b:UD-IQ2_M --machine rtx4070-gen4x16+rtx3060-gen3x4 -md none,Qwen3.8-27B-DFlash2 --draft 4 -p 0 -n 32 --no-default
$LOPSIDE bench -m qwen3-8b:q4_k_m --machine rtx4070-gen4x16 -md qwen3-0.6b:q8_0 -p 0 -n 32
