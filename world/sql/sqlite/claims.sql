-- The right to record an outcome, and the steps that wait to be taken. Only under the run's row.

-- name: insert_claim
INSERT INTO claims (run_id, op, attempt, dispatch, token, incarnation)
VALUES (:run_id, :op, :attempt, :dispatch, :token, :incarnation);

-- name: claims_of_op
SELECT c.attempt, c.token, c.draining, m.incarnation IS NOT NULL AS alive
FROM claims c
LEFT JOIN members m ON m.incarnation = c.incarnation AND m.left_at IS NULL
WHERE c.run_id = :run_id AND c.op = :op;

-- name: claims_of_run
SELECT c.op, c.attempt, c.dispatch, c.token, c.incarnation, c.draining, m.incarnation IS NOT NULL AS alive
FROM claims c
LEFT JOIN members m ON m.incarnation = c.incarnation AND m.left_at IS NULL
WHERE c.run_id = :run_id
ORDER BY c.op, c.attempt, c.dispatch;

-- name: has_dead_claim
SELECT 1
FROM claims
WHERE run_id = :run_id AND draining = 0
  AND incarnation NOT IN (SELECT incarnation FROM members WHERE left_at IS NULL)
LIMIT 1;

-- name: claim_by_token
SELECT attempt, dispatch, draining FROM claims WHERE run_id = :run_id AND op = :op AND token = :token;

-- name: draining_of
SELECT token FROM claims WHERE incarnation = :incarnation AND draining = 1;

-- name: end_claim_of_op
DELETE FROM claims WHERE run_id = :run_id AND op = :op AND token = :token;

-- name: end_claim
DELETE FROM claims WHERE run_id = :run_id AND token = :token;

-- name: drain_attempt
UPDATE claims SET draining = 1 WHERE run_id = :run_id AND op = :op AND attempt = :attempt;

-- name: drain_op
UPDATE claims SET draining = 1 WHERE run_id = :run_id AND op = :op;

-- name: drain_run
UPDATE claims SET draining = 1 WHERE run_id = :run_id;

-- What drains on a dead node has ended: nobody runs it any more.
-- name: end_drained_of_run
DELETE FROM claims
WHERE run_id = :run_id AND draining = 1
  AND incarnation NOT IN (SELECT incarnation FROM members WHERE left_at IS NULL);

-- name: end_drained
DELETE FROM claims
WHERE draining = 1 AND incarnation NOT IN (SELECT incarnation FROM members WHERE left_at IS NULL);

-- name: offers_of_run
SELECT op, queue, attempt, dispatch FROM offers WHERE run_id = :run_id;

-- name: offer_of_op
SELECT attempt, dispatch FROM offers WHERE run_id = :run_id AND op = :op;

-- name: offers_in_queue
SELECT o.run_id, o.op
FROM offers o
JOIN runs r ON r.run_id = o.run_id
WHERE o.queue = :queue AND r.app = :app
ORDER BY o.run_id, o.op
LIMIT :limit;

-- name: insert_offer
INSERT INTO offers (run_id, op, queue, attempt, dispatch) VALUES (:run_id, :op, :queue, :attempt, :dispatch);

-- name: delete_offer
DELETE FROM offers WHERE run_id = :run_id AND op = :op;

-- name: delete_offers
DELETE FROM offers WHERE run_id = :run_id;
