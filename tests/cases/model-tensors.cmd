# A line a tensor.
$LOPSIDE model tensors qwen3-0.6b:q8_0 > tensors
wc -l < tensors
head -n 4 tensors
