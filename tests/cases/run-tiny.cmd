# Plans of a small model have one checksum, with and without drafts; speeds vary.
run() {
    $LOPSIDE run "$@" | sed 's/[0-9.]* tokens\/s/N tokens\/s/'
}
for plan in '-sm none' '-sm tensor -ts 2/1 -nkvo 1 --shuffle 7' '--draft-max 2'; do
    run -m tiny-qwen35 --tokens 5,6,7,5,6,7,5,6/1,2,3 -np 2 -n 8 $plan
done
for plan in '-ts 1/1 -ub 4' '-md ngram'; do
    run -m tiny-llama --tokens 1,2,3,4,5,6,7,8,9,10 -n 16 $plan
done
