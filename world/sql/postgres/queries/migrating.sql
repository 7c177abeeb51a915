-- Making the schema, in one transaction. The numbered files beside this folder are what it is made of.

-- Two who migrate at once take turns; the lock ends with the transaction.
-- name: lock_migrating
SELECT pg_advisory_xact_lock(hashtextextended('fencepost migrate {schema}', 0))::text AS locked;

-- name: make_schema
CREATE SCHEMA IF NOT EXISTS {schema};

-- name: make_migrations
CREATE TABLE IF NOT EXISTS {schema}.migrations (
    number     integer PRIMARY KEY CHECK (number > 0),
    name       text    NOT NULL,
    applied_at bigint  NOT NULL
);

-- name: migrated
SELECT number FROM {schema}.migrations ORDER BY number;

-- name: note_migration
INSERT INTO {schema}.migrations (number, name, applied_at)
VALUES (:number::integer, :file::text, {schema}.now_us_v1());

-- name: insert_facts
INSERT INTO {schema}.facts (one, namespace, partitions, hash_seed, created_at)
VALUES (1, :namespace::text, :partitions::integer, :hash_seed::bigint, {schema}.now_us_v1());
