-- Whose a token is, and how much of what was put there its run has not read. Written under that run's row only; who
-- takes over the closed hook of another run needs no more than the token.

-- name: read_hook
SELECT h.token, h.run_id, r.app, r.partition, h.is_open, max(h.received - h.read, 0) AS unread, e.data
FROM hooks h
JOIN runs r ON r.run_id = h.run_id
JOIN events e ON e.run_id = h.run_id AND e.seq = h.seq
WHERE h.token = :token;

-- name: holder_of_token
SELECT run_id, op, is_open FROM hooks WHERE token = :token;

-- name: unread_of_hook
SELECT max(received - read, 0) AS unread FROM hooks WHERE token = :token AND run_id = :run_id AND op = :op AND is_open = 1;

-- Made again by its own operation it stays as it is, open or closed.
-- name: open_hook
INSERT INTO hooks (token, run_id, op, seq) VALUES (:token, :run_id, :op, :seq)
ON CONFLICT (token) DO UPDATE
SET run_id = excluded.run_id, op = excluded.op, seq = excluded.seq, is_open = 1, received = 0, read = 0
WHERE (hooks.run_id, hooks.op) <> (excluded.run_id, excluded.op);

-- name: close_hook
UPDATE hooks SET is_open = 0 WHERE token = :token AND run_id = :run_id AND op = :op;

-- name: close_hooks
UPDATE hooks SET is_open = 0 WHERE run_id = :run_id AND is_open = 1;

-- name: count_received
UPDATE hooks SET received = received + :weight WHERE token = :token AND run_id = :run_id AND op = :op;

-- name: count_read
UPDATE hooks SET read = :count WHERE run_id = :run_id AND op = :op AND is_open = 1 AND read < :count;
