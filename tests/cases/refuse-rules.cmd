# A refused plan: the rules say whether it would abort or be wrong.
# exit 2
PAIR="--machine rtx4070-gen4x16+rtx3060-gen3x4 --engine llama.cpp -sm tensor -nkvo 1"
$LOPSIDE bench -m qwen3.8-27b:UD-IQ2_M $PAIR -p 0 -n 8
$LOPSIDE bench -m gemma-4-26b-a4b:q4_k_m $PAIR -ts 50/50,55/45 -p 0 -n 8
$LOPSIDE program -m muse-glimmer-30b:UD-Q5_K_M $PAIR
