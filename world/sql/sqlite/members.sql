-- Incarnations of nodes, and what a new one changes.

-- name: insert_member
INSERT INTO members (incarnation, name, app, code, code_ordinal, workflows, queues, joined_at, lease_us, lease_until, takes)
SELECT 'inc_' || (coalesce(max(number), 0) + 1), :name, :app, :code, :code_ordinal, :workflows, :queues, :at,
       :lease_us, :at + :lease_us, :takes
FROM members
RETURNING incarnation;

-- name: leave_member
UPDATE members SET left_at = :at WHERE incarnation = :incarnation AND left_at IS NULL;

-- name: leave_all
UPDATE members SET left_at = :at WHERE left_at IS NULL;

-- name: is_alive
SELECT 1 FROM members WHERE incarnation = :incarnation AND left_at IS NULL;

-- name: read_member
SELECT app, code_ordinal, takes, lease_us, left_at FROM members WHERE incarnation = :incarnation;

-- name: renew_member
UPDATE members SET lease_until = :at + lease_us WHERE incarnation = :incarnation;

-- Told which index, here and below: few live among all that ever did.
-- name: lapsed_members
SELECT incarnation
FROM members INDEXED BY members_alive
WHERE left_at IS NULL AND lease_until <= :at
ORDER BY incarnation;

-- name: live_members
SELECT incarnation FROM members INDEXED BY members_alive WHERE left_at IS NULL;

-- name: other_takers
SELECT incarnation, code_ordinal, hears
FROM members INDEXED BY members_alive
WHERE left_at IS NULL AND app = :app AND takes = 1 AND incarnation <> :incarnation;

-- name: set_hears
UPDATE members SET hears = :hears WHERE incarnation = :incarnation AND hears <> :hears;

-- name: retire_member
UPDATE members SET takes = 0 WHERE incarnation = :incarnation;

-- name: has_lease
SELECT 1 FROM members INDEXED BY members_alive WHERE left_at IS NULL AND lease_us IS NOT NULL LIMIT 1;

-- name: renew_all
UPDATE members INDEXED BY members_alive SET lease_until = :at + lease_us WHERE left_at IS NULL AND lease_us IS NOT NULL;

-- name: app_that_knows
SELECT m.app
FROM members m INDEXED BY members_alive, json_each(m.workflows) w
WHERE m.left_at IS NULL AND w.value = :workflow
ORDER BY m.number DESC
LIMIT 1;

-- name: code_before
SELECT code FROM members WHERE app = :app ORDER BY number DESC LIMIT 1;

-- The ordinal of code that is live stays, and that of a node that is started anew (`follows`). Code that is not live
-- (again) becomes the newest, so that a rollback is.
-- name: draw_code_ordinal
SELECT coalesce(
    (SELECT code_ordinal FROM members WHERE app = :app AND code = :code AND left_at IS NULL ORDER BY number DESC LIMIT 1),
    (SELECT code_ordinal FROM members WHERE incarnation = :follows AND app = :app AND code = :code),
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
