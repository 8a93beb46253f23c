# Flags that change no measurement are accepted silently.
$LOPSIDE bench -m qwen3.8-27b:UD-Q5_K_M --machine rtx4070-gen4x16+rtx3060-gen3x4 -v --no-warmup --delay 1 -p 0 -n 4 --no-default > table
wc -l < table
