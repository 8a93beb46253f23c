# A file that is no GGUF says what it begins with.
# exit 2
printf 'hello, world, this is not a model\n' > hello.gguf
$LOPSIDE bench -m hello.gguf --machine rtx4070-gen4x16
