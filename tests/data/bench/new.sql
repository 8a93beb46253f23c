CREATE TABLE IF NOT EXISTS llama_bench (
  build_commit TEXT,
  build_number INTEGER,
  cpu_info TEXT,
  gpu_info TEXT,
  backends TEXT,
  model_filename TEXT,
  model_type TEXT,
  n_batch INTEGER,
  n_ubatch INTEGER,
  n_gpu_layers INTEGER,
  split_mode TEXT,
  no_kv_offload INTEGER,
  flash_attn INTEGER,
  tensor_split TEXT,
  n_prompt INTEGER,
  n_gen INTEGER,
  n_depth INTEGER,
  avg_ts REAL,
  stddev_ts REAL
);

INSERT INTO llama_bench (build_commit, build_number, cpu_info, gpu_info, backends, model_filename, model_type, n_batch, n_ubatch, n_gpu_layers, split_mode, no_kv_offload, flash_attn, tensor_split, n_prompt, n_gen, n_depth, avg_ts, stddev_ts) VALUES ('1d72c8418', '7031', 'AMD Ryzen 9 7900', 'NVIDIA GeForce RTX 4070', 'CUDA', 'it''s a (model); v2.gguf', 'llama 8B Q3_K - Large', '2048', '256', '99', 'layer', '0', '1', '0.00', '512', '0', '0', '3000.500000', '4.250000');
INSERT INTO llama_bench (build_commit, build_number, cpu_info, gpu_info, backends, model_filename, model_type, n_batch, n_ubatch, n_gpu_layers, split_mode, no_kv_offload, flash_attn, tensor_split, n_prompt, n_gen, n_depth, avg_ts, stddev_ts) VALUES ('1d72c8418', '7031', 'AMD Ryzen 9 7900', 'NVIDIA GeForce RTX 4070', 'CUDA', 'it''s a (model); v2.gguf', 'llama 8B Q3_K - Large', '2048', '256', '99', 'layer', '0', '1', '0.00', '0', '128', '0', '77.250000', '0.125000');
