# Wrong calls of calibrate.
rows="$srcdir/tests/data/three-rows.jsonl"
for words in '' '--list' '--list --machine rtx4070' "$rows" "--row nothing --constant x $rows"; do
    $LOPSIDE calibrate $words
    echo "$?"
done
