# A first word that is a flag belongs to bench.
model="-m qwen3-8b:q4_k_m --machine rtx4070-gen4x16 -p 16 -n 4"
$LOPSIDE bench $model > named
$LOPSIDE $model > implied
cmp named implied && echo same
