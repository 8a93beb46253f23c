# The built-in machines, and the catalogue's links.
$LOPSIDE machine list
$LOPSIDE machine list links
