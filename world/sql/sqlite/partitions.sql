-- Whose the partitions of an app are. What is written here is decided in `sharing.py`.

-- name: make_partitions
INSERT INTO partitions (app, partition)
SELECT :app, value FROM json_each(:partitions) WHERE true
ON CONFLICT (app, partition) DO NOTHING;

-- name: partitions_of_app
SELECT partition, incarnation, newest, free_since FROM partitions WHERE app = :app ORDER BY partition;

-- name: give_partitions
UPDATE partitions
SET incarnation = '', free_since = :at, newest = max(newest, :asked)
WHERE app = :app AND partition IN (SELECT value FROM json_each(:partitions)) AND incarnation = :incarnation;

-- name: take_partitions
UPDATE partitions
SET incarnation = :incarnation, newest = max(newest, :ordinal), free_since = NULL
WHERE app = :app AND partition IN (SELECT value FROM json_each(:partitions)) AND incarnation = '';

-- name: free_partitions_of
UPDATE partitions SET incarnation = '', free_since = :at WHERE incarnation = :incarnation AND incarnation <> '';

-- name: free_all_partitions
UPDATE partitions SET incarnation = '', free_since = :at WHERE incarnation <> '';
