# An update keeps rows and constants of earlier fits that this one does not name.
printf '{"lopside_machine": 1, "name": "box", "from": "rtx4070-gen4x16"}\n' > box.json
printf '%s\n' '{"lopside_trace": 1}' \
    '{"id": "one", "machine": "./box.json", "model": "qwen3-8b", "quant": "Q4_K_M", "metric": "tg", "value": 80, "workload": {"n_gen": 8}}' \
    '{"id": "two", "machine": "./box.json", "model": "qwen3-8b", "quant": "Q4_K_M", "metric": "pp", "value": 2500, "workload": {"n_prompt": 512}}' > rows.jsonl
fit="$LOPSIDE calibrate -q --evaluations 40 --update box.json"
$fit -r one -k ada.memory_ratio rows.jsonl > first || exit 77
$fit -r two -k ada.matmul_rate.k_quant rows.jsonl > second
$fit -r two -k ada.matmul_rate.k_quant rows.jsonl > third
grep -c '"name": "ada.memory_ratio"' box.json
grep -c '"name": "ada.matmul_rate.k_quant"' box.json
tr -d ' \n' < box.json | grep -o '"rows":[^]]*]'
