# Our own schedule: a layer with its cache on the host, and one window before and behind it.
$LOPSIDE program -m qwen3-0.6b:Q8_0 --machine rtx4070-gen4x16 --engine lopside -sm none -nkvo 1 -kvcp 1 | sed -n '1,/norm blk.2/p'
