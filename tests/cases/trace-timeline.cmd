# A simulated timeline as a file, and the first lines of it; compared with itself it is equal.
$LOPSIDE trace -m tiny-llama --gpu "2x RTX 4090" -sm layer -ts 1/3 -n 2 --timeline -o two.jsonl
head -n 8 two.jsonl
$LOPSIDE compare --recorded two.jsonl --with two.jsonl -w 1
