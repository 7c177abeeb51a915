-- Large values, per run, by the SHA-256 of what they hold.

-- name: put_value
INSERT INTO blobs (run_id, ref, body) VALUES (:run_id, :ref, :body)
ON CONFLICT (run_id, ref) DO NOTHING;

-- (`substr` of an empty blob is NULL.)
-- name: get_value
SELECT coalesce(substr(body, :offset + 1, :limit), x'') FROM blobs WHERE run_id = :run_id AND ref = :ref;
