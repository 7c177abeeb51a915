-- Rows of runs. The run row is the lock: it is read first in every transaction that writes about a run.

-- name: lock_run
SELECT r.run_id, r.app, r.workflow, r.partition, r.status, r.stalled, r.seq, r.tick, r.last_batch, r.last_at,
       r.decided_seq, r.waking_seq, r.revoked_seq, r.in_band_count, r.owns, d.at AS due
FROM runs r
LEFT JOIN due d ON d.kind = 'run' AND d.id = r.run_id
WHERE r.run_id = :run_id;

-- name: insert_run
INSERT INTO runs (run_id, chain_id, app, workflow, partition, parent, input_digest, created_at, seq, last_at, waking_seq)
VALUES (:run_id, :chain_id, :app, :workflow, :partition, :parent, :input_digest, :at, 1, :at, 1);

-- name: insert_chain
INSERT INTO chains (chain_id, run_id) VALUES (:chain_id, :run_id);

-- name: insert_attribute
INSERT INTO attributes (run_id, name, value) VALUES (:run_id, :name, :value);

-- name: starter_by_chain
SELECT r.run_id, r.chain_id, r.app, r.workflow, r.input_digest
FROM chains c
JOIN runs r ON r.run_id = c.run_id
WHERE c.chain_id = :chain_id;

-- name: starter_by_run
SELECT run_id, chain_id, app, workflow, input_digest FROM runs WHERE run_id = :run_id;

-- name: advance_run
UPDATE runs
SET seq = :seq, tick = :tick, last_batch = :last_batch, last_at = :at, decided_seq = coalesce(:decided_seq, decided_seq),
    waking_seq = :waking_seq, revoked_seq = :revoked_seq, in_band_count = :in_band_count, owns = :owns
WHERE run_id = :run_id AND seq = :was_seq AND tick = :was_tick;

-- The same for a batch that changes the status. Apart, because naming an indexed column rewrites its indexes.
-- name: advance_run_to
UPDATE runs
SET seq = :seq, tick = :tick, last_batch = :last_batch, last_at = :at, decided_seq = coalesce(:decided_seq, decided_seq),
    waking_seq = :waking_seq, revoked_seq = :revoked_seq, in_band_count = :in_band_count, owns = :owns,
    status = :status,
    stalled = CASE WHEN :ended THEN '' ELSE stalled END,
    ended_at = CASE WHEN :ended THEN :at END
WHERE run_id = :run_id AND seq = :was_seq AND tick = :was_tick;

-- name: set_stalled
UPDATE runs SET stalled = :why WHERE run_id = :run_id;

-- name: read_run
SELECT r.run_id, r.chain_id, r.app, r.workflow, r.status, r.stalled, r.seq, r.tick, r.last_batch, r.decided_seq,
       r.created_at, r.last_at, r.ended_at, r.in_band_count, r.partition, r.parent, d.at AS due
FROM runs r
LEFT JOIN due d ON d.kind = 'run' AND d.id = r.run_id
WHERE r.run_id = :run_id;

-- name: find_run
SELECT r.run_id, r.chain_id, r.app, r.workflow, r.status, r.stalled, r.seq, r.tick, r.last_batch, r.decided_seq,
       r.created_at, r.last_at, r.ended_at, r.in_band_count, r.partition, r.parent, d.at AS due
FROM runs r
LEFT JOIN due d ON d.kind = 'run' AND d.id = r.run_id
WHERE r.run_id = coalesce((SELECT run_id FROM chains WHERE chain_id = :id), :id);

-- name: attributes_of
SELECT run_id, name, value
FROM attributes
WHERE run_id IN (SELECT value FROM json_each(:run_ids))
ORDER BY run_id, name;

-- name: run_exists
SELECT 1 FROM runs WHERE run_id = :run_id;

-- Lists, newest first, after a cursor (created_at, run_id). One query per index that can lead.
-- name: cursor_of
SELECT created_at FROM runs WHERE run_id = :run_id;

-- name: list_newest
SELECT run_id FROM runs
WHERE (created_at, run_id) < (:before_at, :before_id)
  AND (:workflow = '' OR workflow = :workflow)
ORDER BY created_at DESC, run_id DESC
LIMIT :limit;

-- name: list_by_status
SELECT run_id FROM runs
WHERE status = :status AND stalled = ''
  AND (created_at, run_id) < (:before_at, :before_id)
  AND (:workflow = '' OR workflow = :workflow)
ORDER BY created_at DESC, run_id DESC
LIMIT :limit;

-- name: list_live
SELECT run_id FROM runs
WHERE ended_at IS NULL
  AND (created_at, run_id) < (:before_at, :before_id)
  AND (:workflow = '' OR workflow = :workflow)
ORDER BY created_at DESC, run_id DESC
LIMIT :limit;

-- name: list_stalled
SELECT run_id FROM runs
WHERE stalled <> ''
  AND (created_at, run_id) < (:before_at, :before_id)
  AND (:workflow = '' OR workflow = :workflow)
ORDER BY created_at DESC, run_id DESC
LIMIT :limit;

-- name: list_by_attribute
SELECT r.run_id
FROM attributes a
JOIN runs r ON r.run_id = a.run_id
WHERE a.name = :name AND a.value = :value
  AND (r.created_at, r.run_id) < (:before_at, :before_id)
  AND (:workflow = '' OR r.workflow = :workflow)
  AND CASE :status
        WHEN '' THEN 1
        WHEN 'live' THEN r.ended_at IS NULL
        WHEN 'stalled' THEN r.stalled <> ''
        ELSE r.status = :status AND r.stalled = ''
      END
ORDER BY r.created_at DESC, r.run_id DESC
LIMIT :limit;

-- name: count_runs
SELECT status, count(*) AS runs FROM runs GROUP BY status;

-- Few among many: `+` keeps SQLite from walking all of them in the order of their status.
-- name: count_stalled
SELECT status, count(*) AS runs FROM runs WHERE stalled <> '' GROUP BY +status;
