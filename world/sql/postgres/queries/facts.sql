-- What a database is, before anything is asked of it, and what the namespace fixed when it was made.

-- name: examine
SELECT pg_backend_pid() AS pid,
       current_setting('server_version_num')::integer AS server,
       current_setting('server_encoding') AS encoding,
       pg_is_in_recovery() OR current_setting('transaction_read_only') = 'on' AS is_read_only,
       current_setting('default_transaction_isolation') AS isolation,
       current_setting('synchronous_commit') AS synchronous_commit,
       current_setting('fsync') AS fsync,
       to_regclass('{schema}.migrations') IS NOT NULL AS is_migrated;

-- name: read_facts
SELECT f.namespace, f.partitions, f.hash_seed, f.created_at, (SELECT max(number) FROM {schema}.migrations) AS schema
FROM {schema}.facts f;

-- name: now
SELECT {schema}.now_us_v1() AS now;
