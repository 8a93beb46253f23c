# What the tasks of a layer compute: under a tensor split with a cache on the host.
$LOPSIDE program -m qwen3-0.6b:Q8_0 --machine rtx4070-gen4x16+rtx3060-gen3x4 -sm tensor -ts 60/40 -nkvo 1 --layer 1 --operations | sed -n '/^        /p'
