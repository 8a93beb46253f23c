INSERT INTO t (model_type, n_prompt, avg_ts) VALUES ('a 7B F16', 512, 5),
