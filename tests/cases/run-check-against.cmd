# A run is held against the record of another plan: equal, or where they part.
# exit 1
run="$LOPSIDE run -m tiny-llama --tokens 1,2,3,4,5"
$run -n 4 -sm none --record one.json | sed 's/[0-9.]* tokens\/s/N tokens\/s/'
for plan in '-n 4 -sm tensor -ts 2/1' '-n 6' '-n 4 --seed 2' '-n 4 -sm tensor -ts 1/1 -ar skipped'; do
    $run $plan --check-against one.json > out
    status=$?
    sed -n '$s/[0-9.]* tokens\/s/N tokens\/s/;$p' out
    echo "$status"
done
sed -i 's/"value": "logits"/"value": "logic"/' one.json
$run --check-against one.json
echo "$?"
$run -n 6 --record one.json > out
$run -n 5 --check-against one.json > out
