-- Version 3: hooks, and whose each token is.

-- `seq` is where its `hook_created` stands. A closed row stays until the next hook takes the token over: who sends
-- once more what had arrived is told so, also after the end of the run.
CREATE TABLE hooks (
    token    TEXT    NOT NULL PRIMARY KEY CHECK (token <> ''),
    run_id   TEXT    NOT NULL,
    op       TEXT    NOT NULL CHECK (op <> ''),
    seq      INTEGER NOT NULL CHECK (seq >= 1),
    is_open  INTEGER NOT NULL DEFAULT 1 CHECK (is_open IN (0, 1)),
    received INTEGER NOT NULL DEFAULT 0 CHECK (received >= 0),
    read     INTEGER NOT NULL DEFAULT 0 CHECK (read >= 0)
) STRICT, WITHOUT ROWID;

CREATE INDEX hooks_open ON hooks (run_id, op) WHERE is_open = 1;
