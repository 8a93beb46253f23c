# A machine with its devices and links; its constants are left out here.
$LOPSIDE machine show rtx4070-gen4x16+rtx3060-gen3x4 | sed '/^CONSTANT/,$d'
