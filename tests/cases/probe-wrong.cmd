# Refusals of probe; without a GPU there is nothing to measure.
$LOPSIDE probe -o xml
$LOPSIDE probe now
$LOPSIDE probe 2>/dev/null
echo "exit $?"
