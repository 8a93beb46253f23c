PRAGMA foreign_keys=OFF;
BEGIN TRANSACTION;
CREATE TABLE test (model_type TEXT, gpu_info TEXT, n_prompt INTEGER, n_gen INTEGER, avg_ts REAL, stddev_ts REAL);
INSERT INTO test VALUES('llama 7B all F32','NVIDIA A40',512,0,2000.5,1.5),
  ('llama 7B all F32','NVIDIA A40',0,128,25.25,0.5);
COMMIT;
