# Without a model the call says how to name one.
# exit 2
$LOPSIDE bench --machine rtx4070-gen4x16
