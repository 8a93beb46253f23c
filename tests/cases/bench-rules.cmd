# Rules of the engine that a plan breaks: said once each, and named in the row.
$LOPSIDE bench -m gemma-4-26b-a4b:q4_k_m --machine rtx4070-gen4x16+rtx3060-gen3x4 -sm tensor -nkvo 1 -kvgl 0,4 -p 0 -n 8 --no-default |
    awk -F '|' 'NF > 2 { print $9, $(NF - 1) }'
$LOPSIDE bench -m qwen3.8-27b:UD-IQ2_M --machine rtx4070-gen4x16+rtx3060-gen3x4 -sm tensor -bs 0,1 -ar plain,skipped,chunked -p 0 -n 8 --no-default |
    awk -F '|' 'NF > 2 { print $8, $9, $(NF - 1) }'
$LOPSIDE program -m muse-glimmer-30b:q4_k_m --machine rtx4070-gen4x16+rtx3060-gen3x4 -nkvo 1 -ctk q8_0 -ctv q8_0 > listing
