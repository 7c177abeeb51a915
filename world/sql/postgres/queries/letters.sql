-- Dead letters, newest last by number.

-- name: bury
SELECT {schema}.bury_v1(:kind::text, :subject::text, :code::text, :reason::text, :letter::bytea, :headers::text,
                        :source::text) AS number;

-- name: list_letters
SELECT number, at, kind, subject, code, reason, body, headers, source, replayed_as
FROM {schema}.letters
WHERE number < :before::bigint
ORDER BY number DESC
LIMIT :limit::bigint;

-- name: read_letter
SELECT number, at, kind, subject, code, reason, body, headers, source, replayed_as
FROM {schema}.letters
WHERE number = :number::bigint;

-- name: mark_replayed
SELECT {schema}.mark_replayed_v1(:number::bigint, :replayed_as::text) AS is_marked;
