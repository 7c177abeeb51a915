-- The world as tables. This is version 1; later versions are files of their own (`0002_nodes.sql` …), applied by
-- number (sqlite/schema.py). What is said here is true of the newest.
--
-- A workflow's progress is its log: `events`, numbered 1, 2, 3 … per run without a hole. Everything else here
-- is either derived from logs so that nobody has to read them again, or a right that a log cannot express.
--
--   facts      one row: what the namespace fixed when it was made, and when a node last asked for its share
--   runs       one row per run: the tail of its log (seq), the fence of its decider (tick, last_batch), how far
--              the last decision had read (decided_seq), the last event that can resume code (waking_seq) or takes
--              a right away (revoked_seq). Every write about a run locks this row first
--   chains     a user's id → its present run. Ids above runs outlive them
--   events     the logs. `tick` is the batch's tick, NULL for what came from outside. Never updated
--   claims     the right to record the outcome of one attempt. No claim, no outcome. `draining`: given up, its
--              body may still run
--   offers     steps that wait for a slot or for a node that serves their queue, and the attempt that would start
--   hooks      which run's operation has a token, or had it last (`is_open`), and how many payloads were put there
--              (`received`) and taken by the run's code (`read`). One open hook per token in the namespace
--   due        everything live has a row that will wake it: the run, and when to look at it. Never later than
--              the truth. With the app and partition of whom it concerns. A table of its own, because an indexed
--              column that moves with every append would make every append rewrite the indexes of `runs`
--   bells      what one transaction owes somebody else. Inserted only; who reads one deletes it
--   blobs      large values of a run, by their hash
--   attributes what a run can be searched by
--   members    incarnations of nodes. A claim is as alive as its incarnation (left_at IS NULL). One with a lease is
--              declared dead, by whoever looks next, when `lease_until` has come; it never lives again
--   partitions which incarnation decides for the runs of an app's partition (none: free), and the newest code that
--              ever did. Made when a node of the app first asks. About speed only: the fence decides who may write
--   letters    messages nobody could take, with the reason
--
-- Instants are whole microseconds since 1970 in UTC, on the world's clock, never before the run's last one.
-- Lock order of every transaction: run rows ascending, then key rows ascending, then new unique ids ascending;
-- what a run owns is touched only under its run row. SQLite has one writer, so here the order is for the reader;
-- the queries keep to it all the same, since other worlds are written after this one.
-- No foreign key leads from events to runs: on the hottest row of the house it would cost a lock per event.
-- `runs.owns` says in which tables a run may have rows (1 claims, 2 offers, 4 hooks; later 8 waiters, 16 leases,
-- 32 streams), so that a run without steps touches no claim and a run without hooks touches no hook.

CREATE TABLE facts (
    one         INTEGER PRIMARY KEY CHECK (one = 1),
    namespace   TEXT    NOT NULL,
    partitions  INTEGER NOT NULL CHECK (partitions > 0),
    hash_seed   INTEGER NOT NULL CHECK (hash_seed BETWEEN 0 AND 4294967295),
    created_at  INTEGER NOT NULL
) STRICT;

CREATE TABLE runs (
    run_id        TEXT    NOT NULL PRIMARY KEY CHECK (run_id <> ''),
    chain_id      TEXT    NOT NULL DEFAULT '',
    app           TEXT    NOT NULL,
    workflow      TEXT    NOT NULL,
    partition     INTEGER NOT NULL CHECK (partition >= 0),
    parent        TEXT    NOT NULL DEFAULT '',
    input_digest  TEXT    NOT NULL,
    created_at    INTEGER NOT NULL,
    status        TEXT    NOT NULL DEFAULT 'pending',
    stalled       TEXT    NOT NULL DEFAULT '',
    ended_at      INTEGER,
    seq           INTEGER NOT NULL,
    tick          INTEGER NOT NULL DEFAULT 0,
    last_batch    TEXT    NOT NULL DEFAULT '',
    last_at       INTEGER NOT NULL,
    decided_seq   INTEGER NOT NULL DEFAULT 0,
    waking_seq    INTEGER NOT NULL,
    revoked_seq   INTEGER NOT NULL DEFAULT 0,
    in_band_count INTEGER NOT NULL DEFAULT 0,
    owns          INTEGER NOT NULL DEFAULT 0,
    CHECK (status IN ('pending', 'running', 'completed', 'failed', 'cancelled', 'terminated', 'continued')),
    CHECK ((ended_at IS NULL) = (status IN ('pending', 'running'))),
    CHECK (stalled = '' OR ended_at IS NULL),
    CHECK (seq >= 1 AND tick >= 0 AND owns >= 0),
    CHECK (decided_seq BETWEEN 0 AND seq),
    CHECK (waking_seq BETWEEN 1 AND seq),
    CHECK (revoked_seq BETWEEN 0 AND seq),
    CHECK (in_band_count BETWEEN 0 AND seq)
) STRICT, WITHOUT ROWID;

CREATE INDEX runs_newest ON runs (created_at, run_id);
CREATE INDEX runs_by_status ON runs (status, created_at, run_id);
CREATE INDEX runs_live ON runs (created_at, run_id) WHERE ended_at IS NULL;
CREATE INDEX runs_stalled ON runs (created_at, run_id) WHERE stalled <> '';

CREATE TABLE chains (
    chain_id TEXT NOT NULL PRIMARY KEY CHECK (chain_id <> ''),
    run_id   TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE events (
    run_id TEXT    NOT NULL,
    seq    INTEGER NOT NULL CHECK (seq >= 1),
    tick   INTEGER CHECK (tick >= 0),
    at     INTEGER NOT NULL,
    type   TEXT    NOT NULL CHECK (type <> ''),
    op     TEXT    NOT NULL DEFAULT '',
    key    TEXT    NOT NULL DEFAULT '',
    data   TEXT    NOT NULL,
    PRIMARY KEY (run_id, seq)
) STRICT, WITHOUT ROWID;

CREATE INDEX events_by_op ON events (run_id, op, seq) WHERE op <> '';
CREATE INDEX events_by_key ON events (run_id, type, key) WHERE key <> '';

CREATE TRIGGER events_are_final BEFORE UPDATE ON events
BEGIN
    SELECT RAISE(ABORT, 'a log is never rewritten');
END;

CREATE TABLE claims (
    run_id      TEXT    NOT NULL,
    op          TEXT    NOT NULL CHECK (op <> ''),
    attempt     INTEGER NOT NULL CHECK (attempt >= 1),
    dispatch    INTEGER NOT NULL CHECK (dispatch >= 1),
    token       TEXT    NOT NULL CHECK (token <> ''),
    incarnation TEXT    NOT NULL,
    draining    INTEGER NOT NULL DEFAULT 0 CHECK (draining IN (0, 1)),
    PRIMARY KEY (run_id, op, attempt, dispatch)
) STRICT, WITHOUT ROWID;

CREATE TABLE offers (
    run_id TEXT NOT NULL,
    op     TEXT NOT NULL CHECK (op <> ''),
    queue  TEXT NOT NULL CHECK (queue <> ''),
    PRIMARY KEY (run_id, op)
) STRICT, WITHOUT ROWID;

CREATE INDEX offers_by_queue ON offers (queue);

CREATE TABLE due (
    kind      TEXT    NOT NULL CHECK (kind IN ('run', 'key', 'schedule')),
    id        TEXT    NOT NULL,
    partition INTEGER NOT NULL,
    at        INTEGER NOT NULL,
    PRIMARY KEY (kind, id)
) STRICT, WITHOUT ROWID;

CREATE INDEX due_earliest ON due (at);

CREATE TABLE bells (
    partition INTEGER NOT NULL,
    kind      TEXT    NOT NULL CHECK (kind IN ('run', 'key')),
    id        TEXT    NOT NULL,
    PRIMARY KEY (partition, kind, id)
) STRICT, WITHOUT ROWID;

CREATE TABLE blobs (
    run_id     TEXT    NOT NULL,
    ref        TEXT    NOT NULL CHECK (length(ref) = 64),
    body       BLOB    NOT NULL,
    PRIMARY KEY (run_id, ref)
) STRICT;

CREATE TABLE attributes (
    run_id TEXT NOT NULL,
    name   TEXT NOT NULL,
    value  TEXT NOT NULL,
    PRIMARY KEY (run_id, name)
) STRICT, WITHOUT ROWID;

CREATE INDEX attributes_by_value ON attributes (name, value, run_id);

CREATE TABLE members (
    number       INTEGER NOT NULL PRIMARY KEY,
    incarnation  TEXT    NOT NULL UNIQUE,
    name         TEXT    NOT NULL,
    app          TEXT    NOT NULL,
    code         TEXT    NOT NULL,
    code_ordinal INTEGER NOT NULL CHECK (code_ordinal >= 1),
    workflows    TEXT    NOT NULL,
    queues       TEXT    NOT NULL,
    joined_at    INTEGER NOT NULL,
    left_at      INTEGER
) STRICT;

CREATE INDEX members_by_app ON members (app, number);
CREATE INDEX members_alive ON members (incarnation) WHERE left_at IS NULL;

CREATE TABLE letters (
    number      INTEGER NOT NULL PRIMARY KEY,
    at          INTEGER NOT NULL,
    kind        TEXT    NOT NULL,
    subject     TEXT    NOT NULL,
    code        TEXT    NOT NULL,
    reason      TEXT    NOT NULL,
    body        BLOB    NOT NULL,
    headers     TEXT    NOT NULL,
    source      TEXT    NOT NULL DEFAULT '',
    replayed_as TEXT    NOT NULL DEFAULT ''
) STRICT;

CREATE UNIQUE INDEX letters_by_source ON letters (source) WHERE source <> '';
