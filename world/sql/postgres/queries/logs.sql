-- Reading logs. One statement each, so each is one snapshot: a page comes as arrays beside its run's row.

-- name: open_run
SELECT r.run_id, r.chain_id, r.app, r.workflow, r.status, r.stalled, r.seq, r.tick, r.last_batch, r.decided_seq,
       r.created_at, r.last_at, r.ended_at, r.in_band_count, r.partition, r.parent, d.at AS due,
       (SELECT jsonb_object_agg(a.name, a.value) FROM {schema}.attributes a WHERE a.run_id = r.run_id)::text AS attributes,
       c.ops, c.attempts, c.dispatches, c.tokens, c.incarnations, c.drainings, c.alives,
       e.seqs, e.ticks, e.ats, e.types, e.datas
FROM {schema}.runs r
LEFT JOIN {schema}.due d ON d.kind = 'run' AND d.id = r.run_id
LEFT JOIN LATERAL (
    SELECT array_agg(op) AS ops, array_agg(attempt) AS attempts, array_agg(dispatch) AS dispatches,
           array_agg(token) AS tokens, array_agg(incarnation) AS incarnations, array_agg(draining) AS drainings,
           array_agg(alive) AS alives
    FROM (
        SELECT c.op, c.attempt, c.dispatch, c.token, c.incarnation, c.draining, m.incarnation IS NOT NULL AS alive
        FROM {schema}.claims c
        LEFT JOIN {schema}.members m ON m.incarnation = c.incarnation AND m.left_at IS NULL
        WHERE c.run_id = r.run_id
        ORDER BY c.op, c.attempt, c.dispatch) ordered) c ON true
LEFT JOIN LATERAL (
    SELECT array_agg(seq) AS seqs, array_agg(tick) AS ticks, array_agg(at) AS ats, array_agg(type) AS types,
           array_agg(data) AS datas
    FROM (
        SELECT seq, tick, at, type, data
        FROM {schema}.events
        WHERE run_id = r.run_id
        ORDER BY seq
        LIMIT :limit::bigint) page) e ON true
WHERE r.run_id = :run_id::text;

-- name: events_after
SELECT e.seqs, e.ticks, e.ats, e.types, e.datas
FROM {schema}.runs r
LEFT JOIN LATERAL (
    SELECT array_agg(seq) AS seqs, array_agg(tick) AS ticks, array_agg(at) AS ats, array_agg(type) AS types,
           array_agg(data) AS datas
    FROM (
        SELECT seq, tick, at, type, data
        FROM {schema}.events
        WHERE run_id = r.run_id AND seq > :after::bigint
        ORDER BY seq
        LIMIT :limit::bigint) page) e ON true
WHERE r.run_id = :run_id::text;

-- Walks back from the tail: who asks means "a moment ago". `at` is monotone in `seq`.
-- name: position_before
SELECT (SELECT e.seq
        FROM {schema}.events e
        WHERE e.run_id = r.run_id AND e.at < :at::bigint
        ORDER BY e.seq DESC
        LIMIT 1) AS seq
FROM {schema}.runs r
WHERE r.run_id = :run_id::text;

-- Whose a token is, or was last. The row goes with its run and its hook_created: both are there as long as it is.
-- name: find_hook
SELECT h.token, h.run_id, r.app, r.partition, h.is_open, greatest(h.received - h.read, 0) AS unread, e.data
FROM {schema}.hooks h
JOIN {schema}.runs r ON r.run_id = h.run_id
JOIN {schema}.events e ON e.run_id = h.run_id AND e.seq = h.seq
WHERE h.token = :token::text;

-- name: find_received
SELECT e.seq, e.tick, e.at, e.type, e.data
FROM {schema}.events e
WHERE e.run_id = :run_id::text AND e.type = 'hook_received' AND e.key = :key::text AND e.key <> ''
ORDER BY e.seq
LIMIT 1;

-- name: get_value
SELECT substr(body, :offset::integer + 1, :limit::integer) AS body
FROM {schema}.blobs
WHERE run_id = :run_id::text AND ref = :ref::text;
