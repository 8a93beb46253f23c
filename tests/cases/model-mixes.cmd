# The mixes of a model, with their sizes.
$LOPSIDE model list llama-2-7b | head -n 12
