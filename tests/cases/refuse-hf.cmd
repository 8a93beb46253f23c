# Nothing is downloaded.
# exit 2
$LOPSIDE bench -hf ggml-org/gemma-3-1b-it-GGUF --machine rtx4070-gen4x16+rtx3060-gen3x4
