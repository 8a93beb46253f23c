# Where no GPU can be seen, the machines that exist are named.
# exit 2
$LOPSIDE --list-devices > /dev/null 2>&1 && exit 77
$LOPSIDE bench -m qwen3.8-27b:UD-Q5_K_M
