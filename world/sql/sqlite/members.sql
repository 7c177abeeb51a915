-- Incarnations of nodes, and what a new one changes.

-- name: insert_member
INSERT INTO members (incarnation, name, app, code, code_ordinal, workflows, queues, joined_at)
SELECT 'inc_' || (coalesce(max(number), 0) + 1), :name, :app, :code, :code_ordinal, :workflows, :queues, :at
FROM members
RETURNING incarnation;

-- name: leave_member
UPDATE members SET left_at = :at WHERE incarnation = :incarnation AND left_at IS NULL;

-- name: leave_all
UPDATE members SET left_at = :at WHERE left_at IS NULL;

-- name: is_alive
SELECT 1 FROM members WHERE incarnation = :incarnation AND left_at IS NULL;

-- name: code_before
SELECT code FROM members WHERE app = :app ORDER BY number DESC LIMIT 1;

-- The ordinal of code that is live stays; code that is not (again) becomes the newest, so that a rollback is.
-- name: draw_code_ordinal
SELECT coalesce(
    (SELECT code_ordinal FROM members WHERE app = :app AND code = :code AND left_at IS NULL ORDER BY number DESC LIMIT 1),
    (SELECT max(code_ordinal) + 1 FROM members WHERE app = :app),
    1);

-- Runs nobody of their own app could begin go to the app that knows their workflow.
-- name: adopt_pending
UPDATE runs SET app = :app
WHERE status = 'pending' AND app <> :app
  AND workflow IN (SELECT value FROM json_each(:workflows))
  AND NOT EXISTS (
    SELECT 1
    FROM members m, json_each(m.workflows) w
    WHERE m.app = runs.app AND m.left_at IS NULL AND w.value = runs.workflow);

-- name: clear_stalled
UPDATE runs SET stalled = '' WHERE stalled <> '' AND app = :app;
