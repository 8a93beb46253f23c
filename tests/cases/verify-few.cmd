# A few plans of a small model give one checksum; a broken rule does not.
$LOPSIDE verify -m tiny-qwen35 -ctk q8_0 -np 2 -n 3 --plans 12
$LOPSIDE verify -m tiny-qwen35 -ctk f16 -np 1 -n 2 --plans 3 --break float-sums
echo "exit $?"
