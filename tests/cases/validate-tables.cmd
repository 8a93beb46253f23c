# The tables of a trace: with a title where a header has one, what all rows share above them.
$LOPSIDE validate -o tables "$srcdir/tests/data/three-rows.jsonl"
cat >box.jsonl <<'.'
{"lopside_trace": 1, "table": "box-a", "title": "a prompt", "mechanism": "It is read.", "contradiction": "Two | three.", "gap": "who ran it."}
{"id": "box-a-01", "machine": {"gpus": ["RTX 4090"]}, "model": "llama-7b", "quant": "Q4_0", "plan": {"split_mode": "none", "odd": "a|b"}, "workload": {"tool": "llama-bench", "n_prompt": 512}, "metric": "pp", "value": 10000}
{"id": "box-a-02", "machine": {"gpus": ["RTX 4090"]}, "model": "llama-7b", "quant": "Q4_0", "plan": {"split_mode": "none"}, "workload": {"tool": "llama-bench", "n_prompt": 512}, "metric": "pp", "value": 10000}
{"id": "box-a-03", "metric": "watts", "value": 450}
{"id": "box-a-04", "metric": "watts", "value": 451}
{"id": "alone", "metric": "fits", "value": true}
.
$LOPSIDE validate -o tables box.jsonl | sed 1,/below.the.table/d
