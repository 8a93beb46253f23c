# Wrong calls of model.
for words in 'show' 'tensors' 'show qwen3-8b' 'list qwen3-9b' 'list qwen3-8b now' '-o json' \
    'show qwen3-8b:q4_k_m -o xml'; do
    $LOPSIDE model $words
    echo "$?"
done
