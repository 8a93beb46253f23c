# The devices of a machine, as llama-bench lists them.
$LOPSIDE --list-devices --machine rtx4070-gen4x16+rtx3060-gen3x4
$LOPSIDE bench --list-devices --gpu "2x RTX 3090@gen4x8" --gpu 4090
