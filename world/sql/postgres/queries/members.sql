-- Nodes that come and go, and what wants to be looked at.

-- name: join
SELECT {schema}.join_v1(:name::text, :app::text, :code::text, :workflows::text[], :queues::text[],
                        :lease::bigint, :takes::boolean, :follows::text) AS incarnation;

-- name: end_incarnation
SELECT {schema}.end_incarnation_v1(:incarnation::text) AS has_left;

-- name: settle
SELECT {schema}.settle_v1() AS runs;

-- name: renew
SELECT {schema}.renew_v1(:incarnation::text) AS is_alive;

-- name: retire
SELECT {schema}.retire_v1(:incarnation::text)::text AS done;

-- name: share
SELECT * FROM {schema}.share_v1(:incarnation::text, :give::integer[], :take::boolean, :to_newer::boolean,
                                 :hears::boolean, :older_after::bigint, :pulse::bigint);

-- name: list_offers
SELECT o.run_id, o.op
FROM {schema}.offers o
JOIN {schema}.runs r ON r.run_id = o.run_id
WHERE o.queue = :queue::text AND r.app = :app::text
ORDER BY o.run_id, o.op
LIMIT :limit::bigint;

-- Each partition is read from the index by itself, earliest first, as far as the limit: what waits in the partitions
-- of others is not walked over. What has no app is everybody's. Without an app all that have something due, found by skipping through the index.
-- name: due_before
WITH RECURSIVE skipping(app) AS (
    SELECT (SELECT min(d.app) FROM {schema}.due d)
    UNION ALL
    SELECT (SELECT min(d.app) FROM {schema}.due d WHERE d.app > s.app) FROM skipping s WHERE s.app IS NOT NULL
), apps(app) AS (
    SELECT s.app FROM skipping s WHERE :app::text IS NULL AND s.app IS NOT NULL
    UNION ALL
    SELECT DISTINCT unnest(ARRAY[:app::text, '']) WHERE :app::text IS NOT NULL
), numbers(partition) AS (
    SELECT unnest(coalesce(:partitions::integer[],
                           (SELECT array_agg(n) FROM {schema}.facts f, generate_series(0, f.partitions - 1) n)))
)
SELECT d.kind, d.id, d.app, d.partition, d.at
FROM apps a
CROSS JOIN numbers n
CROSS JOIN LATERAL (
    SELECT e.kind, e.id, e.app, e.partition, e.at
    FROM {schema}.due e
    WHERE e.app = a.app AND e.partition = n.partition AND e.at <= :before::bigint
    ORDER BY e.at, e.kind, e.id
    LIMIT :limit::bigint) d
ORDER BY d.at, d.kind, d.id
LIMIT :limit::bigint;
