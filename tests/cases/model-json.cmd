# The same as JSON; its keys.
$LOPSIDE model qwen3.8-27b:UD-Q5_K_M -o json | sed -n 's/^ "\([a-z_]*\)":.*/\1/p'
