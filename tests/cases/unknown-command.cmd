# An unknown command is named, and where the list is.
# exit 2
$LOPSIDE frobnicate
