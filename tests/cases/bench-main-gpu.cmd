# With -sm none the model is on the device that -mg names.
$LOPSIDE bench -m qwen3-8b:q4_k_m --machine rtx4070-gen4x16+rtx3060-gen3x4 -sm none -mg 0,1 \
    -p 0 -n 4 --no-default -o jsonl | sed 's/.*"main_gpu":\([0-9]*\).*"bound":"\([^"]*\)".*/\1 \2/'
