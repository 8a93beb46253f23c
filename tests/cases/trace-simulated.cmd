# A simulated step of a small model whose cache lies in host memory.
$LOPSIDE trace -m tiny-llama --machine rtx4070-gen4x16 -nkvo 1 -kvcp 1 -d 100
