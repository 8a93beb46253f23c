# Wrong calls of machine.
for words in 'frobnicate' 'show' 'list rockets' 'list gpus now' 'tree rtx4070-gen4x16 -o json' \
    'show rtx4070-gen4x16 --gpu 4090'; do
    $LOPSIDE machine $words
    echo "$?"
done
