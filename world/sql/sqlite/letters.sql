-- Dead letters, newest last by number.

-- name: letter_by_source
SELECT number FROM letters WHERE source = :source AND source <> '';

-- name: insert_letter
INSERT INTO letters (at, kind, subject, code, reason, body, headers, source)
VALUES (:at, :kind, :subject, :code, :reason, :body, :headers, :source)
RETURNING number;

-- name: list_letters
SELECT number, at, kind, subject, code, reason, body, headers, source, replayed_as
FROM letters
WHERE number < :before
ORDER BY number DESC
LIMIT :limit;

-- name: read_letter
SELECT number, at, kind, subject, code, reason, body, headers, source, replayed_as
FROM letters
WHERE number = :number;

-- name: mark_replayed
UPDATE letters SET replayed_as = :replayed_as WHERE number = :number;

-- name: count_letters
SELECT 'dead' AS status, count(*) AS letters FROM letters;
