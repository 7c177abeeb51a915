-- Version 2: several nodes. Incarnations with a lease, partitions and whose they are, offers that name their attempt,
-- due by app.

ALTER TABLE members ADD COLUMN lease_us INTEGER CHECK (lease_us > 0);
ALTER TABLE members ADD COLUMN lease_until INTEGER;
ALTER TABLE members ADD COLUMN takes INTEGER NOT NULL DEFAULT 1 CHECK (takes IN (0, 1));
ALTER TABLE members ADD COLUMN hears INTEGER NOT NULL DEFAULT 1 CHECK (hears IN (0, 1));

-- When a node last asked for its share, while somebody had a lease.
ALTER TABLE facts ADD COLUMN asked_at INTEGER;

-- An empty incarnation: free, since `free_since`. `newest` is the largest code ordinal that ever owned it.
CREATE TABLE partitions (
    app         TEXT    NOT NULL,
    partition   INTEGER NOT NULL CHECK (partition >= 0),
    incarnation TEXT    NOT NULL DEFAULT '',
    newest      INTEGER NOT NULL DEFAULT 0 CHECK (newest >= 0),
    free_since  INTEGER,
    PRIMARY KEY (app, partition),
    CHECK (incarnation = '' OR free_since IS NULL)
) STRICT, WITHOUT ROWID;

-- What was on offer before has no attempt of its own: the first one, which a claim refuses where it was started.
-- Who joins rings those runs, and their next batch offers anew.
ALTER TABLE offers ADD COLUMN attempt INTEGER NOT NULL DEFAULT 1 CHECK (attempt >= 1);
ALTER TABLE offers ADD COLUMN dispatch INTEGER NOT NULL DEFAULT 1 CHECK (dispatch >= 1);

ALTER TABLE due ADD COLUMN app TEXT NOT NULL DEFAULT '';
UPDATE due SET app = coalesce((SELECT app FROM runs WHERE run_id = due.id), '') WHERE kind = 'run';
CREATE INDEX due_of_app ON due (app, at);

CREATE INDEX claims_draining ON claims (incarnation) WHERE draining = 1;
