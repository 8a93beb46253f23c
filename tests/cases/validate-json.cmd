# The JSON form has tables, a total and rows; its keys.
$LOPSIDE validate -o json "$srcdir/tests/data/three-rows.jsonl" | sed 's/":.*[^[{]$/"/'
