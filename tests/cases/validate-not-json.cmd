# A trace line that is not JSON is shown.
# exit 2
cp "$srcdir/tests/data/not-json.jsonl" .
$LOPSIDE validate not-json.jsonl
