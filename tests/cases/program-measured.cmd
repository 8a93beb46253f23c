# A layer's kernels and sums as long as the tables of the profile say.
$LOPSIDE program -m qwen3-0.6b:Q8_0 --machine "$srcdir/tests/data/kernel-tables.json" --engine lopside -sm tensor --times | sed '/norm blk.1/,$d'
