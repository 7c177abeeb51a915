-- What wants to be looked at, and when. `ring_*` only ever move it earlier.

-- name: set_due
INSERT INTO due (kind, id, app, partition, at)
VALUES ('run', :run_id, :app, :partition, :at)
ON CONFLICT (kind, id) DO UPDATE SET at = excluded.at;

-- name: ring_run
INSERT INTO due (kind, id, app, partition, at)
VALUES ('run', :run_id, :app, :partition, :at)
ON CONFLICT (kind, id) DO UPDATE SET at = excluded.at WHERE excluded.at < due.at;

-- name: delete_due
DELETE FROM due WHERE kind = 'run' AND id = :run_id;

-- name: due_before
SELECT kind, id, app, partition, at
FROM due
WHERE at <= :before
  AND (:partitions IS NULL OR partition IN (SELECT value FROM json_each(:partitions)))
ORDER BY at, kind, id
LIMIT :limit;

-- Two walks of one index, merged: `app IN (:app, '')` would sort all that is due.
-- name: due_before_of
SELECT kind, id, app, partition, at
FROM due
WHERE app = :app AND at <= :before
  AND (:partitions IS NULL OR partition IN (SELECT value FROM json_each(:partitions)))
UNION ALL
SELECT kind, id, app, partition, at
FROM due
WHERE app = '' AND at <= :before AND :app <> ''
  AND (:partitions IS NULL OR partition IN (SELECT value FROM json_each(:partitions)))
ORDER BY at, kind, id
LIMIT :limit;

-- A due goes with its run: after `adopt_pending`.
-- name: adopt_due
UPDATE due SET app = :app
WHERE kind = 'run' AND app <> :app
  AND id IN (
    SELECT run_id
    FROM runs
    WHERE status = 'pending' AND app = :app AND workflow IN (SELECT value FROM json_each(:workflows)));

-- name: ring_claimed_by_dead
INSERT INTO due (kind, id, app, partition, at)
SELECT 'run', run_id, app, partition, :at
FROM runs
WHERE ended_at IS NULL
  AND run_id IN (
    SELECT run_id
    FROM claims
    WHERE incarnation NOT IN (SELECT incarnation FROM members WHERE left_at IS NULL))
ON CONFLICT (kind, id) DO UPDATE SET at = excluded.at WHERE excluded.at < due.at;

-- name: ring_claimed_by
INSERT INTO due (kind, id, app, partition, at)
SELECT 'run', run_id, app, partition, :at
FROM runs
WHERE ended_at IS NULL
  AND run_id IN (SELECT run_id FROM claims WHERE incarnation = :incarnation)
ON CONFLICT (kind, id) DO UPDATE SET at = excluded.at WHERE excluded.at < due.at;

-- name: ring_offered
INSERT INTO due (kind, id, app, partition, at)
SELECT 'run', run_id, app, partition, :at
FROM runs
WHERE ended_at IS NULL
  AND run_id IN (SELECT run_id FROM offers WHERE queue IN (SELECT value FROM json_each(:queues)))
ON CONFLICT (kind, id) DO UPDATE SET at = excluded.at WHERE excluded.at < due.at;

-- Only those without a due: one that has it begins then, which may be later on purpose.
-- name: ring_pending
INSERT INTO due (kind, id, app, partition, at)
SELECT 'run', run_id, app, partition, :at
FROM runs
WHERE status = 'pending' AND stalled = '' AND app = :app
  AND workflow IN (SELECT value FROM json_each(:workflows))
ON CONFLICT (kind, id) DO NOTHING;

-- name: ring_stalled
INSERT INTO due (kind, id, app, partition, at)
SELECT 'run', run_id, app, partition, :at
FROM runs
WHERE stalled <> '' AND app = :app
ON CONFLICT (kind, id) DO UPDATE SET at = excluded.at WHERE excluded.at < due.at;
