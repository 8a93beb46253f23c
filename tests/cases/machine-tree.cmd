# How devices are joined.
$LOPSIDE machine tree --gpu "2x RTX 3090@gen4x8" --gpu "RTX 4090"
