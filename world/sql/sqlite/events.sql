-- The logs. Positions are dense because they are taken under the run's row.

-- name: insert_event
INSERT INTO events (run_id, seq, tick, at, type, op, key, data)
VALUES (:run_id, :seq, :tick, :at, :type, :op, :key, :data);

-- name: events_after
SELECT seq, tick, at, type, data
FROM events
WHERE run_id = :run_id AND seq > :after
ORDER BY seq
LIMIT :limit;

-- name: events_of_op
SELECT seq, tick, at, type, data
FROM events INDEXED BY events_by_op
WHERE run_id = :run_id AND op = :op AND op <> '' AND seq < :before
ORDER BY seq;

-- Told which index, because the planner takes a run to be short and would walk its whole log.
-- name: event_by_key
SELECT seq, at
FROM events INDEXED BY events_by_key
WHERE run_id = :run_id AND type = :type AND key = :key AND key <> ''
ORDER BY seq;

-- Walks back from the tail: who asks means "a moment ago". `at` is monotone in `seq`.
-- name: position_before
SELECT seq
FROM events
WHERE run_id = :run_id AND at < :at
ORDER BY seq DESC
LIMIT 1;
