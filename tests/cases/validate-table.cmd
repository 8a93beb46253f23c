# Predictions beside measured rows, and why a row was skipped.
$LOPSIDE validate -a "$srcdir/tests/data/three-rows.jsonl"
