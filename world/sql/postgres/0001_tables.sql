-- The world as tables. `{schema}` is the namespace's schema (postgres/migrating.py).
--
-- A workflow's progress is its log: `events`, numbered 1, 2, 3 … per run without a hole. Everything else here
-- is either derived from logs so that nobody has to read them again, or a right that a log cannot express.
--
--   migrations which files were applied, and when. What a node compares itself with
--   facts      one row: what the namespace fixed when it was made
--   runs       one row per run: the tail of its log (seq), the fence of its decider (tick, last_batch), how far
--              the last decision had read (decided_seq), the last event that can resume code (waking_seq) or takes
--              a right away (revoked_seq). Every write about a run locks this row first
--   chains     a user's id → its present run. Ids above runs outlive them
--   events     the logs. `tick` is the batch's tick, NULL for what came from outside. Never updated
--   claims     the right to record the outcome of one attempt. No claim, no outcome. `draining`: given up, its
--              body may still run
--   offers     steps that wait for a slot or for a node that serves their queue
--   due        everything live has a row that will wake it: the run, and when to look at it. Never later than
--              the truth. A table of its own, because an indexed column that moves with every append would
--              make every append rewrite the indexes of `runs`
--   bells      what one transaction owes somebody else. Inserted only; who reads one deletes it
--   blobs      large values of a run, by their hash
--   attributes what a run can be searched by
--   members    incarnations of nodes. A claim is as alive as its incarnation (left_at IS NULL). `settled`: its runs
--              with claims were made due after it had left
--   partitions who looks after which part of an app's runs. For speed only: the fence and the claims are for safety
--   pulse      one row: when somebody last asked for its share. A long pause says that the world itself was away
--   letters    messages nobody could take, with the reason
--
-- Instants are whole microseconds since 1970 in UTC, on the world's clock (`now_us_v1`).
--
-- LOCK ORDER of every transaction: run rows ascending, then key rows ascending, then new unique ids ascending, then
-- partition rows ascending,
-- then the pulse, then member rows ascending. What a run owns (claims, offers, due) is touched only under
-- its run row. Who writes a claim locks its incarnation FOR KEY SHARE once it has the run rows; who ends
-- an incarnation holds it FOR UPDATE and touches no run in that transaction. So every claim of a dead incarnation is
-- visible to the transaction that settles it, and neither waits for the other in a circle.
-- A run of no app is created under the advisory lock `unknown_workflows_v1(false)`, and a member joins under
-- `unknown_workflows_v1(true)`: else each could miss the other. It is the first lock its transaction takes.
-- No foreign key leads from events to runs: on the hottest row of the house it would cost a lock per event.
-- `runs.owns` says in which tables a run may have rows (1 claims, 2 offers; later 4 hooks, 8 waiters, 16 leases,
-- 32 streams), so that a run without steps touches no claim and a run without locks touches no lock table.
--
-- Rows of `runs` and `claims` are updated in place (HOT) by appends: no index names a column that moves with
-- each of them, and pages keep room. Hot tables are vacuumed early, since what was deleted is walked over until then.

CREATE TABLE {schema}.facts (
    one         integer PRIMARY KEY CHECK (one = 1),
    namespace   text    NOT NULL,
    partitions  integer NOT NULL CHECK (partitions > 0),
    hash_seed   bigint  NOT NULL CHECK (hash_seed BETWEEN 0 AND 4294967295),
    created_at  bigint  NOT NULL
);

CREATE TABLE {schema}.runs (
    run_id        text COLLATE "C" NOT NULL PRIMARY KEY CHECK (run_id <> ''),
    chain_id      text COLLATE "C" NOT NULL DEFAULT '',
    app           text COLLATE "C" NOT NULL,
    workflow      text COLLATE "C" NOT NULL,
    partition     integer NOT NULL CHECK (partition >= 0),
    parent        text COLLATE "C" NOT NULL DEFAULT '',
    input_digest  text COLLATE "C" NOT NULL,
    created_at    bigint  NOT NULL,
    status        text COLLATE "C" NOT NULL DEFAULT 'pending',
    stalled       text    NOT NULL DEFAULT '',
    ended_at      bigint,
    seq           bigint  NOT NULL,
    tick          bigint  NOT NULL DEFAULT 0,
    last_batch    text COLLATE "C" NOT NULL DEFAULT '',
    last_at       bigint  NOT NULL,
    decided_seq   bigint  NOT NULL DEFAULT 0,
    waking_seq    bigint  NOT NULL,
    revoked_seq   bigint  NOT NULL DEFAULT 0,
    in_band_count bigint  NOT NULL DEFAULT 0,
    owns          integer NOT NULL DEFAULT 0,
    CHECK (status IN ('pending', 'running', 'completed', 'failed', 'cancelled', 'terminated', 'continued')),
    CHECK ((ended_at IS NULL) = (status IN ('pending', 'running'))),
    CHECK (stalled = '' OR ended_at IS NULL),
    CHECK (seq >= 1 AND tick >= 0 AND owns >= 0),
    CHECK (decided_seq BETWEEN 0 AND seq),
    CHECK (waking_seq BETWEEN 1 AND seq),
    CHECK (revoked_seq BETWEEN 0 AND seq),
    CHECK (in_band_count BETWEEN 0 AND seq)
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

CREATE INDEX runs_newest ON {schema}.runs (created_at, run_id);
CREATE INDEX runs_by_status ON {schema}.runs (status, created_at, run_id);
CREATE INDEX runs_live ON {schema}.runs (created_at, run_id) WHERE ended_at IS NULL;
CREATE INDEX runs_stalled ON {schema}.runs (created_at, run_id) WHERE stalled <> '';

CREATE TABLE {schema}.chains (
    chain_id text COLLATE "C" NOT NULL PRIMARY KEY CHECK (chain_id <> ''),
    run_id   text COLLATE "C" NOT NULL
);

CREATE TABLE {schema}.events (
    run_id text COLLATE "C" NOT NULL,
    seq    bigint NOT NULL CHECK (seq >= 1),
    tick   bigint CHECK (tick >= 0),
    at     bigint NOT NULL,
    type   text COLLATE "C" NOT NULL CHECK (type <> ''),
    op     text COLLATE "C" NOT NULL DEFAULT '',
    key    text COLLATE "C" NOT NULL DEFAULT '',
    data   text NOT NULL,
    PRIMARY KEY (run_id, seq)
);

CREATE INDEX events_by_op ON {schema}.events (run_id, op, seq) WHERE op <> '';
CREATE INDEX events_by_key ON {schema}.events (run_id, type, key) WHERE key <> '';

CREATE FUNCTION {schema}.refuse_update_v1() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'a log is never rewritten';
END
$$;

CREATE TRIGGER events_are_final BEFORE UPDATE ON {schema}.events
FOR EACH ROW EXECUTE FUNCTION {schema}.refuse_update_v1();

CREATE TABLE {schema}.claims (
    run_id      text COLLATE "C" NOT NULL,
    op          text COLLATE "C" NOT NULL CHECK (op <> ''),
    attempt     integer NOT NULL CHECK (attempt >= 1),
    dispatch    integer NOT NULL CHECK (dispatch >= 1),
    token       text COLLATE "C" NOT NULL CHECK (token <> ''),
    incarnation text COLLATE "C" NOT NULL,
    draining    boolean NOT NULL DEFAULT false,
    PRIMARY KEY (run_id, op, attempt, dispatch)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
        autovacuum_vacuum_cost_delay = 0);

CREATE INDEX claims_draining ON {schema}.claims (incarnation) WHERE draining;

CREATE TABLE {schema}.offers (
    run_id   text COLLATE "C" NOT NULL,
    op       text COLLATE "C" NOT NULL CHECK (op <> ''),
    queue    text COLLATE "C" NOT NULL CHECK (queue <> ''),
    attempt  integer NOT NULL CHECK (attempt >= 1),
    dispatch integer NOT NULL CHECK (dispatch >= 1),
    PRIMARY KEY (run_id, op)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);

CREATE INDEX offers_by_queue ON {schema}.offers (queue, run_id, op);

CREATE TABLE {schema}.due (
    kind      text COLLATE "C" NOT NULL CHECK (kind IN ('run', 'key', 'schedule')),
    id        text COLLATE "C" NOT NULL,
    app       text COLLATE "C" NOT NULL,
    partition integer NOT NULL,
    at        bigint  NOT NULL,
    PRIMARY KEY (kind, id)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000,
        autovacuum_vacuum_cost_delay = 0);

CREATE INDEX due_earliest ON {schema}.due (app, partition, at);

CREATE TABLE {schema}.bells (
    partition integer NOT NULL,
    kind      text COLLATE "C" NOT NULL CHECK (kind IN ('run', 'key')),
    id        text COLLATE "C" NOT NULL,
    PRIMARY KEY (partition, kind, id)
);

CREATE TABLE {schema}.blobs (
    run_id text COLLATE "C" NOT NULL,
    ref    text COLLATE "C" NOT NULL CHECK (length(ref) = 64),
    body   bytea NOT NULL,
    PRIMARY KEY (run_id, ref)
);

-- Pieces are read by offset: that is only cheap where the whole is not compressed.
ALTER TABLE {schema}.blobs ALTER COLUMN body SET STORAGE EXTERNAL;

CREATE TABLE {schema}.attributes (
    run_id text COLLATE "C" NOT NULL,
    name   text COLLATE "C" NOT NULL,
    value  text COLLATE "C" NOT NULL,
    PRIMARY KEY (run_id, name)
);

CREATE INDEX attributes_by_value ON {schema}.attributes (name, value, run_id);

CREATE TABLE {schema}.members (
    number       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    incarnation  text COLLATE "C" NOT NULL GENERATED ALWAYS AS ('inc_' || number::text) STORED UNIQUE,
    name         text    NOT NULL,
    app          text COLLATE "C" NOT NULL,
    code         text COLLATE "C" NOT NULL,
    code_ordinal bigint  NOT NULL CHECK (code_ordinal >= 1),
    workflows    text[] COLLATE "C" NOT NULL,
    queues       text[] COLLATE "C" NOT NULL,
    takes        boolean NOT NULL,
    hears        boolean NOT NULL DEFAULT true,
    lease_us     bigint  CHECK (lease_us > 0),
    lease_until  bigint,
    joined_at    bigint  NOT NULL,
    left_at      bigint,
    settled      boolean NOT NULL DEFAULT false,
    CHECK ((lease_us IS NULL) = (lease_until IS NULL)),
    CHECK (left_at IS NOT NULL OR NOT settled)
) WITH (fillfactor = 50);

CREATE INDEX members_by_app ON {schema}.members (app, number);
CREATE INDEX members_alive ON {schema}.members (incarnation) WHERE left_at IS NULL;
CREATE INDEX members_unsettled ON {schema}.members (number) WHERE left_at IS NOT NULL AND NOT settled;

CREATE TABLE {schema}.partitions (
    app        text COLLATE "C" NOT NULL,
    partition  integer NOT NULL CHECK (partition >= 0),
    owner      text COLLATE "C",
    newest     bigint NOT NULL DEFAULT 0,
    free_since bigint NOT NULL,
    PRIMARY KEY (app, partition)
) WITH (fillfactor = 50);

CREATE TABLE {schema}.pulse (
    one integer PRIMARY KEY CHECK (one = 1),
    at  bigint
) WITH (fillfactor = 10);

INSERT INTO {schema}.pulse (one) VALUES (1);

CREATE TABLE {schema}.letters (
    number      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at          bigint NOT NULL,
    kind        text   NOT NULL,
    subject     text   NOT NULL,
    code        text   NOT NULL,
    reason      text   NOT NULL,
    body        bytea  NOT NULL,
    headers     text   NOT NULL,
    source      text COLLATE "C" NOT NULL DEFAULT '',
    replayed_as text   NOT NULL DEFAULT ''
);

CREATE UNIQUE INDEX letters_by_source ON {schema}.letters (source) WHERE source <> '';

-- The world's clock. Tests put one of their own in its place; nothing else does.
CREATE FUNCTION {schema}.now_us_v1() RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
$$;

-- Who creates a run of no app (`false`) and who joins (`true`) keep each other out. See the head of this file.
CREATE FUNCTION {schema}.unknown_workflows_v1(joins boolean) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    lock_id constant bigint := hashtextextended('fencepost unknown workflows {schema}', 0);
BEGIN
    IF joins THEN
        PERFORM pg_advisory_xact_lock(lock_id);
    ELSE
        PERFORM pg_advisory_xact_lock_shared(lock_id);
    END IF;
END
$$;
