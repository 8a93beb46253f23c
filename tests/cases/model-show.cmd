# What a model is made of.
$LOPSIDE model show qwen3.8-27b:UD-Q5_K_M
