-- Twelve thousand of everything, for plans: with a few rows no index is worth the trouble.

SET search_path = fencepost_default;
INSERT INTO runs (run_id, chain_id, app, workflow, partition, input_digest, created_at, status, ended_at, seq,
                      last_at, waking_seq)
SELECT 'old_' || n, 'chain_' || n, 'shop', 'order', n % 32, 'd', n,
       CASE WHEN n % 50 = 0 THEN 'running' ELSE 'completed' END,
       CASE WHEN n % 50 = 0 THEN NULL ELSE n END, 5, n, 1
FROM generate_series(1, 12000) n;
INSERT INTO chains SELECT chain_id, run_id FROM runs;
INSERT INTO events (run_id, seq, at, type, op, key, data)
SELECT run_id, n, created_at, 'cancel_requested', '0.' || n, run_id, '{}' FROM runs, generate_series(1, 5) n;
INSERT INTO due SELECT 'run', run_id, 'shop', partition, 4000000000000000 + created_at FROM runs;
INSERT INTO claims SELECT run_id, '0.1', 1, 1, 't' || run_id, 'inc_' || created_at % 7 FROM runs;
INSERT INTO offers SELECT run_id, '0.2', 'queue_' || created_at % 50, 1, 1 FROM runs;
INSERT INTO hooks SELECT 'tok_' || created_at, run_id, '0.1', 1, created_at % 50 = 0, 0, 0 FROM runs;
INSERT INTO attributes SELECT run_id, 'customer', 'c' || created_at % 500 FROM runs;
INSERT INTO blobs SELECT run_id, repeat('a', 64), 'x' FROM runs;
INSERT INTO letters (at, kind, subject, code, reason, body, headers, source)
SELECT n, 'start', 's', 'c', 'r', 'b', '{}', 'source_' || n FROM generate_series(1, 12000) n;
INSERT INTO members (name, app, code, code_ordinal, workflows, queues, takes, joined_at, left_at, settled)
SELECT 'n', 'shop', 'c', 1, '{order}', '{default}', true, n, n, true FROM generate_series(1, 12000) n;
