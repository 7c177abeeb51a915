-- Rows of runs, as lists show them.

-- name: find_run
SELECT r.run_id, r.chain_id, r.app, r.workflow, r.status, r.stalled, r.seq, r.tick, r.decided_seq,
       r.created_at, r.last_at, r.ended_at, r.in_band_count, r.partition, r.parent, d.at AS due,
       (SELECT jsonb_object_agg(a.name, a.value) FROM {schema}.attributes a WHERE a.run_id = r.run_id)::text AS attributes
FROM {schema}.runs r
LEFT JOIN {schema}.due d ON d.kind = 'run' AND d.id = r.run_id
WHERE r.run_id = coalesce((SELECT c.run_id FROM {schema}.chains c WHERE c.chain_id = :id::text), :id::text);

-- Lists, newest first, after a cursor: the run `before`, or none for ''. A cursor that is no run lists nothing (NULL).
-- One query per index that can lead.
-- name: list_newest
SELECT r.run_id, r.chain_id, r.app, r.workflow, r.status, r.stalled, r.seq, r.tick, r.decided_seq,
       r.created_at, r.last_at, r.ended_at, r.in_band_count, r.partition, r.parent, d.at AS due,
       (SELECT jsonb_object_agg(a.name, a.value) FROM {schema}.attributes a WHERE a.run_id = r.run_id)::text AS attributes
FROM {schema}.runs r
LEFT JOIN {schema}.due d ON d.kind = 'run' AND d.id = r.run_id
WHERE true
  AND (r.created_at, r.run_id) < (
    CASE WHEN :before::text = '' THEN 4611686018427387904
         ELSE (SELECT c.created_at FROM {schema}.runs c WHERE c.run_id = :before::text) END, :before::text)
  AND (:workflow::text = '' OR r.workflow = :workflow::text)
ORDER BY r.created_at DESC, r.run_id DESC
LIMIT :limit::bigint;

-- name: list_by_status
SELECT r.run_id, r.chain_id, r.app, r.workflow, r.status, r.stalled, r.seq, r.tick, r.decided_seq,
       r.created_at, r.last_at, r.ended_at, r.in_band_count, r.partition, r.parent, d.at AS due,
       (SELECT jsonb_object_agg(a.name, a.value) FROM {schema}.attributes a WHERE a.run_id = r.run_id)::text AS attributes
FROM {schema}.runs r
LEFT JOIN {schema}.due d ON d.kind = 'run' AND d.id = r.run_id
WHERE r.status = :status::text AND r.stalled = ''
  AND (r.created_at, r.run_id) < (
    CASE WHEN :before::text = '' THEN 4611686018427387904
         ELSE (SELECT c.created_at FROM {schema}.runs c WHERE c.run_id = :before::text) END, :before::text)
  AND (:workflow::text = '' OR r.workflow = :workflow::text)
ORDER BY r.created_at DESC, r.run_id DESC
LIMIT :limit::bigint;

-- name: list_live
SELECT r.run_id, r.chain_id, r.app, r.workflow, r.status, r.stalled, r.seq, r.tick, r.decided_seq,
       r.created_at, r.last_at, r.ended_at, r.in_band_count, r.partition, r.parent, d.at AS due,
       (SELECT jsonb_object_agg(a.name, a.value) FROM {schema}.attributes a WHERE a.run_id = r.run_id)::text AS attributes
FROM {schema}.runs r
LEFT JOIN {schema}.due d ON d.kind = 'run' AND d.id = r.run_id
WHERE r.ended_at IS NULL
  AND (r.created_at, r.run_id) < (
    CASE WHEN :before::text = '' THEN 4611686018427387904
         ELSE (SELECT c.created_at FROM {schema}.runs c WHERE c.run_id = :before::text) END, :before::text)
  AND (:workflow::text = '' OR r.workflow = :workflow::text)
ORDER BY r.created_at DESC, r.run_id DESC
LIMIT :limit::bigint;

-- name: list_stalled
SELECT r.run_id, r.chain_id, r.app, r.workflow, r.status, r.stalled, r.seq, r.tick, r.decided_seq,
       r.created_at, r.last_at, r.ended_at, r.in_band_count, r.partition, r.parent, d.at AS due,
       (SELECT jsonb_object_agg(a.name, a.value) FROM {schema}.attributes a WHERE a.run_id = r.run_id)::text AS attributes
FROM {schema}.runs r
LEFT JOIN {schema}.due d ON d.kind = 'run' AND d.id = r.run_id
WHERE r.stalled <> ''
  AND (r.created_at, r.run_id) < (
    CASE WHEN :before::text = '' THEN 4611686018427387904
         ELSE (SELECT c.created_at FROM {schema}.runs c WHERE c.run_id = :before::text) END, :before::text)
  AND (:workflow::text = '' OR r.workflow = :workflow::text)
ORDER BY r.created_at DESC, r.run_id DESC
LIMIT :limit::bigint;

-- name: list_by_attribute
SELECT r.run_id, r.chain_id, r.app, r.workflow, r.status, r.stalled, r.seq, r.tick, r.decided_seq,
       r.created_at, r.last_at, r.ended_at, r.in_band_count, r.partition, r.parent, d.at AS due,
       (SELECT jsonb_object_agg(a.name, a.value) FROM {schema}.attributes a WHERE a.run_id = r.run_id)::text AS attributes
FROM {schema}.attributes by
JOIN {schema}.runs r ON r.run_id = by.run_id
LEFT JOIN {schema}.due d ON d.kind = 'run' AND d.id = r.run_id
WHERE by.name = :name::text AND by.value = :value::text
  AND CASE :status::text
        WHEN '' THEN true
        WHEN 'live' THEN r.ended_at IS NULL
        WHEN 'stalled' THEN r.stalled <> ''
        ELSE r.status = :status::text AND r.stalled = ''
      END
  AND (r.created_at, r.run_id) < (
    CASE WHEN :before::text = '' THEN 4611686018427387904
         ELSE (SELECT c.created_at FROM {schema}.runs c WHERE c.run_id = :before::text) END, :before::text)
  AND (:workflow::text = '' OR r.workflow = :workflow::text)
ORDER BY r.created_at DESC, r.run_id DESC
LIMIT :limit::bigint;

-- Stalled ones are counted by the status they have beneath, to be taken from it.
-- name: count_all
SELECT 'runs' AS what, status, count(*) AS how_many FROM {schema}.runs GROUP BY status
UNION ALL
SELECT 'stalled', status, count(*) FROM {schema}.runs WHERE stalled <> '' GROUP BY status
UNION ALL
SELECT 'letters', 'dead', count(*) FROM {schema}.letters;

-- name: put_value
SELECT true AS is_kept FROM {schema}.put_value_v1(:run_id::text, :ref::text, :value::bytea);
