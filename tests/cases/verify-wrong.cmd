# Refusals of verify name the flag, the value and what would do.
# exit 2
$LOPSIDE verify --isa sse
$LOPSIDE verify --break nothing
$LOPSIDE verify -m tiny-llama -ctk f32
$LOPSIDE verify -np 9 -m tiny-llama
$LOPSIDE verify -m no-such-model
$LOPSIDE verify --plans none
