# The fields of a draft follow the others.
$LOPSIDE bench -m qwen3.8-27b:UD-IQ2_M --machine rtx4070-gen4x16+rtx3060-gen3x4 --draft-max 2 -p 0 -n 8 -o csv |
    rev | cut -d , -f 1-4 | rev
