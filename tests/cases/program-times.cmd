# Times are start and end of each task, in order on a queue.
$LOPSIDE program -m qwen3-8b:q4_k_m --machine rtx4070-gen4x16 --times > timed
$LOPSIDE program -m qwen3-8b:q4_k_m --machine rtx4070-gen4x16 > untimed
grep -v '^#' timed | cut -c 24- > tasks
grep -v '^#' untimed | cmp - tasks && echo same
grep -v '^#' timed | awk '$2 < $1 { print "ends before it starts: " $0 }'
