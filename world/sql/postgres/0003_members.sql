-- Incarnations: they join, live by their lease, are declared dead, and share an app's partitions.
--
-- Ending one is two transactions. The first only marks it (`end_incarnation_v1`, `share_v1`): it waits for whoever
-- writes a claim of it right now. The second (`settle_v1`) makes its runs due, run rows ascending: it sees every claim.
-- In one, each could wait for the other: the claim's writer holds a run and wants the member, this one the reverse.
-- Whoever comes next does the second when the first was the last thing its caller did (`members.settled`).

CREATE FUNCTION {schema}.ring_runs_v1(ids text[], now bigint) RETURNS void LANGUAGE sql VOLATILE
SET search_path = {schema}, pg_temp AS $$
    -- Under the locks of these runs. Only ever earlier.
    INSERT INTO due (kind, id, app, partition, at)
    SELECT 'run', run_id, app, partition, now
    FROM runs
    WHERE run_id = ANY (ids) AND ended_at IS NULL
    ORDER BY run_id
    ON CONFLICT (kind, id) DO UPDATE SET at = excluded.at WHERE excluded.at < due.at
$$;

CREATE FUNCTION {schema}.lock_runs_v1(ids text[]) RETURNS text[] LANGUAGE sql VOLATILE
SET search_path = {schema}, pg_temp AS $$
    -- The lock order: ascending. Returns those that are there.
    SELECT coalesce(array_agg(run_id), '{}')
    FROM (SELECT run_id FROM runs WHERE run_id = ANY (ids) ORDER BY run_id FOR UPDATE) locked
$$;

CREATE FUNCTION {schema}.end_incarnation_v1(ended text) RETURNS boolean LANGUAGE plpgsql VOLATILE
SET search_path = {schema}, pg_temp SET lock_timeout = '10s' AS $$
BEGIN
    PERFORM FROM members WHERE incarnation = ended AND left_at IS NULL FOR UPDATE;
    UPDATE members SET left_at = now_us_v1() WHERE incarnation = ended AND left_at IS NULL;
    RETURN FOUND;
END
$$;

CREATE FUNCTION {schema}.settle_v1() RETURNS integer LANGUAGE plpgsql VOLATILE
SET search_path = {schema}, pg_temp SET lock_timeout = '10s' AS $$
DECLARE
    dead   text[];
    locked text[];
BEGIN
    dead := ARRAY(SELECT incarnation FROM members WHERE left_at IS NOT NULL AND NOT settled);
    locked := lock_runs_v1(ARRAY(SELECT DISTINCT run_id FROM claims WHERE incarnation = ANY (dead)));
    PERFORM ring_runs_v1(ARRAY(SELECT DISTINCT run_id FROM claims
                               WHERE run_id = ANY (locked) AND incarnation = ANY (dead)), now_us_v1());
    -- What drains on a dead node has ended: nobody runs it any more.
    DELETE FROM claims WHERE run_id = ANY (locked) AND incarnation = ANY (dead) AND draining;
    PERFORM FROM members WHERE incarnation = ANY (dead) ORDER BY number FOR NO KEY UPDATE;
    UPDATE members SET settled = true WHERE incarnation = ANY (dead);
    RETURN cardinality(locked);
END
$$;

CREATE FUNCTION {schema}.renew_v1(renewed text) RETURNS boolean LANGUAGE plpgsql VOLATILE
SET search_path = {schema}, pg_temp SET lock_timeout = '10s' AS $$
BEGIN
    UPDATE members SET lease_until = now_us_v1() + lease_us WHERE incarnation = renewed AND left_at IS NULL;
    RETURN FOUND;
END
$$;

CREATE FUNCTION {schema}.knows_v1(of_app text, workflow text) RETURNS boolean LANGUAGE sql STABLE
SET search_path = {schema}, pg_temp AS $$
    -- Whether a live member of an app knows a workflow.
    SELECT EXISTS (SELECT FROM members m WHERE m.left_at IS NULL AND m.app = of_app AND workflow = ANY (m.workflows))
$$;

CREATE FUNCTION {schema}.join_v1(
    joins_as text, joins_app text, joins_code text, knows text[], serves text[], lease bigint, takes_any boolean,
    after text
) RETURNS text LANGUAGE plpgsql VOLATILE
SET search_path = {schema}, pg_temp SET lock_timeout = '30s' AS $$
DECLARE
    now      bigint;
    code_was text;
    ordinal  bigint;
    locked   text[];
    joined   text;
BEGIN
    PERFORM unknown_workflows_v1(true);  -- one joins at a time
    SELECT code INTO code_was FROM members WHERE app = joins_app ORDER BY number DESC LIMIT 1;
    locked := lock_runs_v1(ARRAY(
        SELECT run_id FROM claims
        WHERE incarnation NOT IN (SELECT incarnation FROM members WHERE left_at IS NULL)
        UNION
        SELECT run_id FROM offers WHERE queue = ANY (serves)
        UNION
        SELECT run_id FROM runs r
        WHERE status = 'pending' AND workflow = ANY (knows)
          AND (app <> joins_app OR NOT EXISTS (SELECT FROM due d WHERE d.kind = 'run' AND d.id = r.run_id))
        UNION
        SELECT run_id FROM runs WHERE stalled <> '' AND app = joins_app AND code_was <> joins_code));
    now := now_us_v1();

    -- Look again: what was true before the locks were held need not be now.
    DELETE FROM claims
    WHERE run_id = ANY (locked) AND draining
      AND incarnation NOT IN (SELECT incarnation FROM members WHERE left_at IS NULL);
    PERFORM ring_runs_v1(ARRAY(
        SELECT run_id FROM claims
        WHERE run_id = ANY (locked)
          AND incarnation NOT IN (SELECT incarnation FROM members WHERE left_at IS NULL)
        UNION
        SELECT run_id FROM offers WHERE run_id = ANY (locked) AND queue = ANY (serves)
        UNION
        SELECT run_id FROM runs
        WHERE run_id = ANY (locked) AND stalled <> '' AND app = joins_app AND code_was <> joins_code), now);
    UPDATE runs SET stalled = ''
    WHERE run_id = ANY (locked) AND stalled <> '' AND app = joins_app AND code_was <> joins_code;

    -- Runs nobody of their own app could begin go to the app that knows their workflow, and their due goes with them.
    UPDATE runs SET app = joins_app
    WHERE run_id = ANY (locked) AND status = 'pending' AND app <> joins_app AND workflow = ANY (knows)
      AND NOT knows_v1(app, workflow);
    UPDATE due d SET app = joins_app
    FROM runs r
    WHERE d.kind = 'run' AND d.id = r.run_id AND d.app <> joins_app
      AND r.run_id = ANY (locked) AND r.status = 'pending' AND r.app = joins_app;
    -- Only those without a due: one that has it begins then, which may be later on purpose.
    INSERT INTO due (kind, id, app, partition, at)
    SELECT 'run', run_id, app, partition, now
    FROM runs
    WHERE run_id = ANY (locked) AND status = 'pending' AND stalled = '' AND app = joins_app AND workflow = ANY (knows)
    ORDER BY run_id
    ON CONFLICT (kind, id) DO NOTHING;

    -- The ordinal of code that is live stays, also while its supervisor starts it anew; code that is not (again)
    -- becomes the newest, so that a rollback is.
    SELECT coalesce(
        (SELECT code_ordinal FROM members
         WHERE app = joins_app AND code = joins_code AND (left_at IS NULL OR incarnation = after)
         ORDER BY number DESC LIMIT 1),
        (SELECT max(code_ordinal) + 1 FROM members WHERE app = joins_app),
        1) INTO ordinal;
    INSERT INTO members (name, app, code, code_ordinal, workflows, queues, takes, lease_us, lease_until, joined_at)
    VALUES (joins_as, joins_app, joins_code, ordinal, knows, serves, takes_any, lease, now + lease, now)
    RETURNING incarnation INTO joined;
    RETURN joined;
END
$$;

-- Who lives. Two statements a second and node, so the pulse is written only when it would be missed.
CREATE FUNCTION {schema}.declare_dead_v1(now bigint, pulse_us bigint) RETURNS void LANGUAGE plpgsql VOLATILE
SET search_path = {schema}, pg_temp AS $$
DECLARE
    before bigint;
BEGIN
    SELECT at INTO before FROM pulse;
    IF now - before < 100000 THEN
        NULL;
    ELSE
        SELECT at INTO before FROM pulse FOR UPDATE;
        UPDATE pulse SET at = greatest(at, now);
    END IF;
    IF now - before > pulse_us THEN
        -- Nobody asked for long: the world was away, and nobody could renew. Who was alive then is so for one lease more.
        UPDATE members SET lease_until = now + lease_us
        WHERE number IN (SELECT number FROM members
                         WHERE left_at IS NULL AND lease_until > before
                         ORDER BY number FOR NO KEY UPDATE);
    ELSE
        -- One that is held writes a claim at this moment: half a second later is early enough.
        UPDATE members SET left_at = now
        WHERE number IN (SELECT number FROM members
                         WHERE left_at IS NULL AND lease_until <= now
                         ORDER BY number FOR UPDATE SKIP LOCKED);
    END IF;
END
$$;

-- Who has which partitions. The rules are those of `sharing.py`, in its words; the contract suite holds both to them.
CREATE FUNCTION {schema}.retire_v1(retired text) RETURNS void LANGUAGE plpgsql VOLATILE
SET search_path = {schema}, pg_temp SET lock_timeout = '10s' AS $$
BEGIN
    PERFORM FROM partitions WHERE owner = retired ORDER BY app, partition FOR UPDATE;
    UPDATE partitions SET owner = NULL, free_since = now_us_v1() WHERE owner = retired;
    UPDATE members SET takes = false WHERE incarnation = retired;
END
$$;

CREATE FUNCTION {schema}.share_v1(
    asked text, give integer[], take boolean, to_newer boolean, hears_bus boolean, older_after bigint, pulse_us bigint,
    OUT is_alive boolean, OUT owned integer[], OUT surplus integer[], OUT living text[], OUT stopping text[],
    OUT newer boolean, OUT heard boolean, OUT now bigint, OUT unsettled boolean
) LANGUAGE plpgsql VOLATILE
SET search_path = {schema}, pg_temp SET lock_timeout = '10s' AS $$
DECLARE
    of_app    text;
    mine      bigint;
    takes_any boolean;
    total     integer;
    all_codes bigint[];  -- of all who take
    ordinals  bigint[];  -- of those who share: who does not hear the bus does not, while another does
    part      record;
    sharers   integer;
    fair      integer;
BEGIN
    SELECT app, code_ordinal, takes INTO of_app, mine, takes_any FROM members WHERE incarnation = asked;
    SELECT f.partitions INTO total FROM facts f;
    IF takes_any AND (SELECT count(*) FROM partitions WHERE app = of_app) < total THEN
        INSERT INTO partitions (app, partition, free_since)
        SELECT of_app, n, now_us_v1() FROM generate_series(0, total - 1) n
        ON CONFLICT DO NOTHING;
    END IF;
    -- The lock order: partitions ascending, then the pulse, then members ascending.
    PERFORM FROM partitions WHERE app = of_app ORDER BY partition FOR UPDATE;
    now := now_us_v1();
    PERFORM declare_dead_v1(now, pulse_us);
    unsettled := EXISTS (SELECT FROM members WHERE left_at IS NOT NULL AND NOT settled);
    UPDATE members SET hears = hears_bus WHERE incarnation = asked AND left_at IS NULL AND hears <> hears_bus;
    is_alive := EXISTS (SELECT FROM members WHERE incarnation = asked AND left_at IS NULL);
    IF NOT is_alive THEN
        RETURN;
    END IF;

    living := ARRAY(SELECT incarnation FROM members WHERE left_at IS NULL ORDER BY number);
    stopping := ARRAY(SELECT token FROM claims WHERE incarnation = asked AND draining);
    heard := EXISTS (SELECT FROM members
                     WHERE left_at IS NULL AND app = of_app AND takes AND hears AND incarnation <> asked);
    all_codes := ARRAY(SELECT code_ordinal FROM members WHERE left_at IS NULL AND app = of_app AND takes);
    ordinals := ARRAY(SELECT code_ordinal FROM members
                      WHERE left_at IS NULL AND app = of_app AND takes AND (hears OR NOT (heard OR hears_bus)));
    newer := coalesce((SELECT max(code) > mine FROM unnest(all_codes) code), false);

    UPDATE partitions
    SET owner = NULL, free_since = share_v1.now,
        newest = CASE WHEN to_newer THEN greatest(newest, (SELECT max(code) FROM unnest(all_codes) code)) ELSE newest END
    WHERE app = of_app AND owner = asked AND partition = ANY (give);
    owned := ARRAY(SELECT partition FROM partitions WHERE app = of_app AND owner = asked ORDER BY partition);
    surplus := '{}';
    IF take AND takes_any AND (hears_bus OR NOT heard) THEN
        FOR part IN
            SELECT p.partition AS number, p.newest, coalesce(m.left_at, p.free_since) AS free_since
            FROM partitions p LEFT JOIN members m ON m.incarnation = p.owner
            WHERE p.app = of_app AND (m.incarnation IS NULL OR m.left_at IS NOT NULL)
            ORDER BY p.partition
        LOOP
            sharers := (SELECT count(*) FROM unnest(ordinals) o WHERE o >= part.newest);
            CONTINUE WHEN mine < part.newest AND (sharers > 0 OR share_v1.now - part.free_since < older_after);
            fair := ceil(total::numeric / CASE WHEN sharers > 0 THEN sharers ELSE cardinality(ordinals) END);
            IF cardinality(owned) < fair THEN
                UPDATE partitions SET owner = asked, newest = greatest(newest, mine)
                WHERE app = of_app AND partition = part.number;
                owned := owned || part.number;
            END IF;
        END LOOP;
    END IF;
    FOR part IN
        SELECT p.partition AS number, p.newest
        FROM partitions p WHERE p.app = of_app AND p.owner = asked
        ORDER BY p.partition DESC
    LOOP
        sharers := (SELECT count(*) FROM unnest(ordinals) o WHERE o >= part.newest);
        fair := CASE WHEN mine < part.newest OR NOT hears_bus AND heard THEN 0
                     ELSE ceil(total::numeric / greatest(sharers, 1)) END;
        IF sharers > 0 AND cardinality(owned) - cardinality(surplus) > fair THEN
            surplus := surplus || part.number;
        END IF;
    END LOOP;
END
$$;
