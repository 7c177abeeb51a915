-- What the namespace fixed when it was made.

-- name: insert_facts
INSERT INTO facts (one, namespace, partitions, hash_seed, created_at)
VALUES (1, :namespace, :partitions, :hash_seed, :at);

-- name: read_facts
SELECT namespace, partitions, hash_seed, created_at FROM facts;

-- name: last_asked
SELECT asked_at FROM facts;

-- name: note_asked
UPDATE facts SET asked_at = :at;
