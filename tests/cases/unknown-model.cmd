# A model that is close to a name gets the name.
for model in qwen3.8-27c:Q5_K_M qwen3.8-27b:Q5_K_N qwen3.8-27b missing.gguf; do
    $LOPSIDE bench -m $model --machine rtx4070-gen4x16
    echo "$?"
done
