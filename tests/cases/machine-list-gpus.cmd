# Each GPU of the catalogue has a line with all its figures.
$LOPSIDE machine list gpus | grep -E '^(GPU|GeForce RTX (3060 12GB|4090)|H100)'
