# Wrong calls of run.
for flags in '-p hello' '' '-p hello --tokens 1' '--tokens 1 -ts 1/1,2/1' '--tokens 1 -ts 1,2' '--tokens 1,320' \
    '--tokens 1,,2' '--tokens 1/2' '--tokens 1 --isa sse' '--tokens 1 -n 0' '--tokens 1 --temp hot' \
    '--tokens 1 --context-shift 4' '--tokens 1 --context-shift 1,2@3 -md ngram' '--tokens 1 --draft-max 2' \
    '--tokens 1 -md tiny-qwen3' '--tokens 1 --record no-folder/file' '--tokens 1 --check-against none.json' \
    '--tokens 1 -o csv' '--tokens 1 -c 256 -n 300' '--tokens'; do
    $LOPSIDE run -m tiny-llama $flags
    echo "$?"
done
