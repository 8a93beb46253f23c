# A quote in a file's name is doubled in CSV and in SQL.
printf '{"lopside_machine": 1, "name": "a \\"fast\\" one",\n "from": "rtx4070-gen4x16"}\n' > fast.json
$LOPSIDE bench -m qwen3-8b:q4_k_m --machine fast.json -p 0 -n 4 -o csv | grep -c '"a ""fast"" one"'
