# The constants of a machine, with bounds and meaning; values are left out here.
$LOPSIDE calibrate --list --machine rtx4070-gen4x16 | cut -d '|' -f 2,4,6
