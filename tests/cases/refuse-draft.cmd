# Drafts that cannot serve their target: why, and what would work.
# exit 2
HYBRID="-m qwen3.8-27b:UD-IQ2_M --machine rtx4070-gen4x16+rtx3060-gen3x4 -p 0 -n 8"
$LOPSIDE bench $HYBRID -md qwen3-0.6b:q8_0
$LOPSIDE bench $HYBRID -md Muse-Glimmer-30B-DFlash
$LOPSIDE bench $HYBRID -md no-such-model:q8_0
$LOPSIDE bench $HYBRID --draft-max many
$LOPSIDE bench $HYBRID --draft-max 2 --draft-acceptance 1.5
$LOPSIDE bench $HYBRID --draft-max 2 -np 4
$LOPSIDE bench -m qwen3-8b:q4_k_m --machine rtx4070-gen4x16 --draft-max 4
