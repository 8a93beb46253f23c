# Measured kernels of a GPU time our own schedule, and no other.
$LOPSIDE bench -m qwen3-0.6b:Q8_0 --machine "$srcdir/tests/data/kernel-tables.json" --engine lopside,llama.cpp -sm none,tensor -p 512 -n 16
