# Without --machine the GPUs of this machine are meant, in CUDA's order and as far as they are visible.
${CC:-cc} -shared -fPIC -o libnvidia-ml.so.1 "$srcdir/tests/data/fake_nvml.c" || exit 77
LD_LIBRARY_PATH=$PWD${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export LD_LIBRARY_PATH
unset CUDA_VISIBLE_DEVICES CUDA_DEVICE_ORDER
model="-m qwen3.8-27b:UD-Q5_K_M"
$LOPSIDE machine tree
$LOPSIDE bench $model --list-devices
CUDA_DEVICE_ORDER=PCI_BUS_ID $LOPSIDE bench $model --list-devices
CUDA_VISIBLE_DEVICES=1 $LOPSIDE bench $model --list-devices
CUDA_VISIBLE_DEVICES=GPU-bbbb,1,7,0 $LOPSIDE bench $model --list-devices
CUDA_VISIBLE_DEVICES= $LOPSIDE bench $model --list-devices || echo "exit status $?"
CUDA_VISIBLE_DEVICES=-1 $LOPSIDE machine tree || echo "exit status $?"
$LOPSIDE bench $model -sm tensor -ts 60/40 -p 0 -n 4 --no-default
