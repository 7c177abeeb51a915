-- Large values, per run, by the SHA-256 of what they hold.

-- name: put_value
INSERT INTO blobs (run_id, ref, body) VALUES (:run_id, :ref, :body)
ON CONFLICT (run_id, ref) DO NOTHING;

-- name: get_value
SELECT substr(body, :offset + 1, :limit) FROM blobs WHERE run_id = :run_id AND ref = :ref;
