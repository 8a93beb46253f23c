# Refusals of probe; without a GPU only the host is measured.
$LOPSIDE probe -o xml
$LOPSIDE probe now
$LOPSIDE probe --reduce nccl
$LOPSIDE probe --kernels-from h200.json
$LOPSIDE probe --kernels --reduce ring
$LOPSIDE probe --save-samples s.json
$LOPSIDE probe --fit-samples s.json -o json
$LOPSIDE probe --fit-samples s.json --kernels-from h200 -o json
$LOPSIDE probe 2>/dev/null | sed "s/^host .*/host/; s/[0-9.]* GB/- GB/" | head -3 | tr -s " "
