# Flags inside a step where they cannot be.
# exit 2
MOE="-m gemma-4-26b-a4b:q4_k_m --machine rtx4070-gen4x16+rtx3060-gen3x4 -p 0 -n 8"
$LOPSIDE bench $MOE -om 1
$LOPSIDE bench $MOE -sm tensor --engine llama.cpp -ar chunked
$LOPSIDE bench $MOE -sm tensor -fer 512/200
$LOPSIDE bench $MOE -sm tensor -fer 1/2/3
$LOPSIDE bench $MOE -sm tensor -fer 0.5/3
$LOPSIDE bench $MOE -sm tensor -ar fast
$LOPSIDE bench $MOE -pipe maybe
