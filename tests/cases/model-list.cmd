# The catalogue.
$LOPSIDE model
