-- How the world is written: logs (`append_v1`, `claim_v1`), new runs (`create_v1`), and what a person or a node does
-- to one run (`stall_v1`, `unstall_v1`, `end_claim_v1`). One call is one transaction and one round trip.
--
-- LOCK, LOOK, WRITE. The first statement of each function locks the run rows it will write, ascending; only the
-- statements after it look at anything. A function in one statement fails: under READ COMMITTED it looks at what was
-- true when it began, and then waits for the lock while claims change hands. So these are VOLATILE plpgsql functions,
-- where every statement sees what was committed before it. (In another isolation they refuse to run.)
--
-- Then the lock order of 0001: run rows, new unique ids, member rows. What a run owns (claims, offers, due) is read
-- and written under its row and needs no lock of its own. A row locked by somebody else is passed over and its asks
-- answer `busy`: one stopped session must not hold up a node. With `patient` they wait, at most `lock_timeout`.
--
-- Refusals are verdicts, never errors: many asks share a call, and an error would take all of them with it.
--
-- Their settings: rows are reached by index and one by one, whatever the statistics say of tables that are new; and
-- plans are kept (`force_generic_plan`), since making one for each call took longer than what it is for.
--
-- What can be told from a batch alone (the kinds of its events, what they do to claims) is told by the caller
-- (postgres/appending.py), so that this says only what needs the rows.

-- ---- what the functions share

-- Events between two positions as JSON text, NULL for none. `data` goes as a string: taken apart as JSON it could not hold
-- the NULs that users' strings may.
CREATE FUNCTION {schema}.landed_v1(asked text, after bigint, before bigint) RETURNS text LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (
        SELECT json_agg(json_build_array(e.seq, e.tick, e.at, e.type, e.data) ORDER BY e.seq)
        FROM {schema}.events e
        WHERE e.run_id = asked AND e.seq > after AND e.seq < before);
END
$$;

-- Whether an attempt can be started: not once its operation is settled, nor when it or a later one was started before.
-- (`folding.is_free`) `attempt` and `dispatch` are our own numbers, and a quote inside a string is escaped: so the
-- pattern meets keys only.
CREATE FUNCTION {schema}.is_free_v1(asked text, asked_op text, attempt integer, dispatch integer)
RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN NOT EXISTS (
        SELECT
        FROM {schema}.events e
        WHERE e.run_id = asked AND e.op = asked_op AND e.op <> ''
          AND (e.type IN ('step_completed', 'step_failed', 'step_cancelled', 'wait_completed')
               OR e.type = 'step_started'
                  AND (substring(e.data, '"attempt":([0-9]+)')::integer,
                       coalesce(substring(e.data, '"dispatch":([0-9]+)')::integer, 1)) >= (attempt, dispatch)));
END
$$;

-- Makes a run due now, unless it was due before.
CREATE FUNCTION {schema}.ring_v1(asked text) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    INSERT INTO {schema}.due (kind, id, app, partition, at)
    SELECT 'run', r.run_id, r.app, r.partition, {schema}.now_us_v1()
    FROM {schema}.runs r
    WHERE r.run_id = asked
    ON CONFLICT (kind, id) DO UPDATE SET at = excluded.at WHERE excluded.at < due.at;
END
$$;

-- Refuses to work where a statement would see an older state than the one before it locked.
CREATE FUNCTION {schema}.check_isolation_v1() RETURNS void LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'the isolation here is %, and fencepost needs read committed: '
            'ALTER ROLE … SET default_transaction_isolation = ''read committed''',
            current_setting('transaction_isolation')
            USING ERRCODE = 'serialization_failure';
    END IF;
END
$$;

-- ---- append: `append_v1` is in 0005_appending.sql

-- Which in-band batches are in, asked after their answers were lost: a batch is in if the run still has the tick and
-- the batch it would have left. Else nobody knows: it never came, or somebody else has decided since. Waits for the
-- run's row, because the session that was cut off may be about to commit. An empty batch stands at the tail.
CREATE FUNCTION {schema}.find_appended_v1(run_ids text[], ticks bigint[], batch_ids text[], knowns bigint[])
RETURNS TABLE (verdict text, first_seq bigint, at_us bigint, now_tick bigint, now_batch text, said text, landed text)
LANGUAGE plpgsql VOLATILE
SET search_path = {schema}, pg_temp
SET lock_timeout = '150ms'
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    run record;
BEGIN
    PERFORM FROM runs r WHERE r.run_id = ANY (run_ids) ORDER BY r.run_id FOR UPDATE;
    FOR b IN 1 .. cardinality(run_ids) LOOP
        verdict := 'busy'; first_seq := NULL; at_us := NULL; now_tick := NULL; now_batch := NULL; landed := NULL;
        SELECT r.seq, r.last_at INTO run
        FROM runs r
        WHERE r.run_id = run_ids[b] AND r.tick = ticks[b] + 1 AND r.last_batch = batch_ids[b];
        IF FOUND THEN
            verdict := 'accepted';
            now_tick := ticks[b] + 1;
            now_batch := batch_ids[b];
            SELECT e.seq, e.at INTO first_seq, at_us
            FROM events e
            WHERE e.run_id = run_ids[b] AND e.seq > knowns[b] AND e.tick = ticks[b] + 1
            ORDER BY e.seq
            LIMIT 1;
            first_seq := coalesce(first_seq, run.seq + 1);
            at_us := coalesce(at_us, run.last_at);
            landed := landed_v1(run_ids[b], knowns[b], first_seq);
        END IF;
        RETURN NEXT;
    END LOOP;
END
$$;

-- ---- claim

-- Takes offers: `step_started` from outside, the claim, no due. `heads` are the events' JSON up to what only the offer
-- tells: its attempt and dispatch. A claim that the token has already is answered again, unless it drains.
--
-- Verdicts: claimed (landed: the operation's events), busy, not_found, ended (said: status), claim_lost.
CREATE FUNCTION {schema}.claim_v1(
    patient boolean, run_ids text[], ops text[], tokens text[], incarnations text[], heads text[])
RETURNS TABLE (verdict text, workflow text, app text, partition integer, attempt integer, dispatch integer,
               said text, landed text)
LANGUAGE plpgsql VOLATILE
SET search_path = {schema}, pg_temp
SET lock_timeout = '150ms'
SET enable_seqscan = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    locked   text[];
    living   text[];
    clock_us bigint;
    run      record;
    taken    record;
BEGIN
    PERFORM check_isolation_v1();

    -- Lock.
    IF patient THEN
        locked := ARRAY(SELECT r.run_id FROM runs r WHERE r.run_id = ANY (run_ids) ORDER BY r.run_id FOR UPDATE);
    ELSE
        locked := ARRAY(SELECT r.run_id FROM runs r WHERE r.run_id = ANY (run_ids)
                        ORDER BY r.run_id FOR UPDATE SKIP LOCKED);
    END IF;
    living := ARRAY(SELECT m.incarnation FROM members m
                    WHERE m.incarnation = ANY (incarnations) AND m.left_at IS NULL
                    ORDER BY m.incarnation FOR KEY SHARE);
    clock_us := now_us_v1();

    FOR c IN 1 .. cardinality(run_ids) LOOP
        verdict := NULL; workflow := NULL; app := NULL; partition := NULL; attempt := NULL; dispatch := NULL;
        said := NULL; landed := NULL;

        -- Look.
        IF NOT run_ids[c] = ANY (locked) THEN
            PERFORM FROM runs r WHERE r.run_id = run_ids[c];
            verdict := CASE WHEN FOUND THEN 'busy' ELSE 'not_found' END;
            RETURN NEXT;
            CONTINUE;
        END IF;
        SELECT r.workflow, r.app, r.partition, r.status, r.seq, r.last_at INTO run FROM runs r WHERE r.run_id = run_ids[c];
        SELECT k.attempt, k.dispatch, k.draining INTO taken
        FROM claims k
        WHERE k.run_id = run_ids[c] AND k.op = ops[c] AND k.token = tokens[c];
        IF FOUND THEN
            verdict := CASE WHEN taken.draining THEN 'claim_lost' ELSE 'claimed' END;
        ELSIF run.status NOT IN ('pending', 'running') THEN
            verdict := 'ended';
            said := run.status;
        ELSE
            SELECT o.attempt, o.dispatch, false AS draining INTO taken FROM offers o WHERE o.run_id = run_ids[c] AND o.op = ops[c];
            IF NOT FOUND OR NOT incarnations[c] = ANY (living)
               OR NOT is_free_v1(run_ids[c], ops[c], taken.attempt, taken.dispatch) THEN
                verdict := 'claim_lost';
            END IF;
        END IF;

        -- Write. One that drains is over, and its body never began: it ends here, or nobody would end it.
        IF taken.draining THEN
            DELETE FROM claims k WHERE k.run_id = run_ids[c] AND k.op = ops[c] AND k.token = tokens[c];
            IF run.status IN ('pending', 'running') THEN
                PERFORM ring_v1(run_ids[c]);
            END IF;
        ELSIF verdict IS NULL THEN
            verdict := 'claimed';
            clock_us := greatest(clock_us, run.last_at);
            INSERT INTO events (run_id, seq, at, type, op, data)
            VALUES (run_ids[c], run.seq + 1, clock_us, 'step_started', ops[c],
                    heads[c] || ',"attempt":' || taken.attempt || ',"dispatch":' || taken.dispatch || '}');
            INSERT INTO claims (run_id, op, attempt, dispatch, token, incarnation)
            VALUES (run_ids[c], ops[c], taken.attempt, taken.dispatch, tokens[c], incarnations[c]);
            DELETE FROM offers o WHERE o.run_id = run_ids[c] AND o.op = ops[c];
            UPDATE runs r SET seq = run.seq + 1, last_at = clock_us, owns = r.owns | 1 WHERE r.run_id = run_ids[c];
        END IF;
        IF verdict = 'claimed' THEN
            workflow := run.workflow; app := run.app; partition := run.partition;
            attempt := taken.attempt; dispatch := taken.dispatch;
            landed := (
                SELECT json_agg(json_build_array(e.seq, e.tick, e.at, e.type, e.data) ORDER BY e.seq)
                FROM events e
                WHERE e.run_id = run_ids[c] AND e.op = ops[c] AND e.op <> '');
        END IF;
        RETURN NEXT;
    END LOOP;
END
$$;

-- ---- create

-- Creates runs, each id once in a call. New ids go in by class and ascending: chains, then runs. Another session that
-- creates one of them is waited for, and what it made is then found. A chain is held first and given back when its run
-- turns out to exist: looking for the run first fails, since it can appear while the chain is waited for.
--
-- Verdicts: created, existing (run_id: whose the id is), exists (the same, started with something else), busy (again).
CREATE FUNCTION {schema}.create_v1(
    run_ids text[], chain_ids text[], apps text[], workflows text[], partitions integer[], parents text[],
    digests text[], dues bigint[], datas text[],
    attribute_runs text[], attribute_names text[], attribute_values text[])
RETURNS TABLE (verdict text, run_id text, app text)
LANGUAGE plpgsql VOLATILE
SET search_path = {schema}, pg_temp
SET lock_timeout = '150ms'
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    clock_us bigint;
    held     text[];  -- runs whose chain is ours, and these
    held_chains text[];
    made     text[];
BEGIN
    PERFORM check_isolation_v1();

    -- Lock: the ids themselves, and who may know a workflow that nobody here knows.
    IF '' = ANY (apps) THEN
        PERFORM unknown_workflows_v1(false);
        FOR n IN 1 .. cardinality(run_ids) LOOP
            CONTINUE WHEN apps[n] <> '';
            apps[n] := coalesce((
                SELECT m.app
                FROM members m
                WHERE m.left_at IS NULL AND create_v1.workflows[n] = ANY (m.workflows)
                ORDER BY m.number DESC
                LIMIT 1), '');
        END LOOP;
    END IF;
    clock_us := now_us_v1();
    WITH inserted AS (
        INSERT INTO chains (chain_id, run_id)
        SELECT a.chain_id, a.run_id
        FROM unnest(chain_ids, run_ids) WITH ORDINALITY AS a (chain_id, run_id, n)
        WHERE a.chain_id <> ''
        ORDER BY a.chain_id, a.n
        ON CONFLICT (chain_id) DO NOTHING
        RETURNING chains.chain_id, chains.run_id)
    SELECT coalesce(array_agg(inserted.run_id), '{}'), coalesce(array_agg(inserted.chain_id), '{}')
    INTO held, held_chains
    FROM inserted;
    WITH inserted AS (
        INSERT INTO runs (run_id, chain_id, app, workflow, partition, parent, input_digest, created_at, seq, last_at,
                          waking_seq)
        SELECT a.run_id, a.chain_id, a.app, a.workflow, a.partition, a.parent, a.digest, clock_us, 1, clock_us, 1
        FROM unnest(run_ids, chain_ids, apps, workflows, partitions, parents, digests)
             AS a (run_id, chain_id, app, workflow, partition, parent, digest)
        WHERE a.chain_id = '' OR a.run_id = ANY (held)
        ORDER BY a.run_id
        ON CONFLICT (run_id) DO NOTHING
        RETURNING runs.run_id)
    SELECT coalesce(array_agg(inserted.run_id), '{}') INTO made FROM inserted;

    -- Write.
    DELETE FROM chains
    USING unnest(held_chains, held) AS h (chain_id, run_id)
    WHERE chains.chain_id = h.chain_id AND h.run_id <> ALL (made);
    INSERT INTO events (run_id, seq, at, type, data)
    SELECT a.run_id, 1, clock_us, 'run_created', a.data
    FROM unnest(run_ids, datas) AS a (run_id, data)
    WHERE a.run_id = ANY (made);
    INSERT INTO attributes (run_id, name, value)
    SELECT a.run_id, a.name, a.value
    FROM unnest(attribute_runs, attribute_names, attribute_values) AS a (run_id, name, value)
    WHERE a.run_id = ANY (made);
    INSERT INTO due (kind, id, app, partition, at)
    SELECT 'run', a.run_id, a.app, a.partition, coalesce(a.due, clock_us)
    FROM unnest(run_ids, apps, partitions, dues) AS a (run_id, app, partition, due)
    WHERE a.run_id = ANY (made)
    ORDER BY a.run_id;

    -- Look: at those that were there.
    RETURN QUERY
    SELECT CASE WHEN a.run_id = ANY (made) THEN 'created'
                WHEN r.run_id IS NULL THEN 'busy'
                WHEN (r.chain_id, r.workflow, r.input_digest) = (a.chain_id, a.workflow, a.digest) THEN 'existing'
                ELSE 'exists' END,
           coalesce(r.run_id, a.run_id),
           coalesce(r.app, a.app)
    FROM unnest(run_ids, chain_ids, apps, workflows, digests) WITH ORDINALITY
         AS a (run_id, chain_id, app, workflow, digest, n)
    LEFT JOIN chains c ON c.chain_id = a.chain_id
    LEFT JOIN runs r ON r.run_id = coalesce(c.run_id, a.run_id)
    ORDER BY a.n;
END
$$;

-- ---- one run

-- Marks a live run as stalled; `fence_tick` NULL: whoever decides. Verdicts: done, not_found, ended, superseded.
CREATE FUNCTION {schema}.stall_v1(asked text, fence_tick bigint, fence_batch text, why text)
RETURNS TABLE (verdict text, said text)
LANGUAGE plpgsql VOLATILE
SET search_path = {schema}, pg_temp
SET lock_timeout = '150ms'
AS $$
DECLARE
    run record;
BEGIN
    SELECT r.status, r.tick, r.last_batch INTO run FROM runs r WHERE r.run_id = asked FOR UPDATE;
    IF NOT FOUND THEN
        verdict := 'not_found';
    ELSIF run.status NOT IN ('pending', 'running') THEN
        verdict := 'ended';
        said := run.status;
    ELSIF (fence_tick, fence_batch) <> (run.tick, run.last_batch) THEN
        verdict := 'superseded';
    ELSE
        verdict := 'done';
        UPDATE runs r SET stalled = why WHERE r.run_id = asked;
        DELETE FROM due d WHERE d.kind = 'run' AND d.id = asked;
    END IF;
    RETURN NEXT;
END
$$;

-- Lets a stalled run go on. Verdicts: done, nothing (it was not stalled), not_found, ended.
CREATE FUNCTION {schema}.unstall_v1(asked text)
RETURNS TABLE (verdict text, said text)
LANGUAGE plpgsql VOLATILE
SET search_path = {schema}, pg_temp
SET lock_timeout = '150ms'
AS $$
DECLARE
    run record;
BEGIN
    SELECT r.status, r.stalled INTO run FROM runs r WHERE r.run_id = asked FOR UPDATE;
    IF NOT FOUND THEN
        verdict := 'not_found';
    ELSIF run.status NOT IN ('pending', 'running') THEN
        verdict := 'ended';
        said := run.status;
    ELSIF run.stalled = '' THEN
        verdict := 'nothing';
    ELSE
        verdict := 'done';
        UPDATE runs r SET stalled = '' WHERE r.run_id = asked;
        PERFORM ring_v1(asked);
    END IF;
    RETURN NEXT;
END
$$;

-- Ends a claim whose body left no outcome, also of an ended run. Verdicts: done, nothing (no such claim), not_found.
CREATE FUNCTION {schema}.end_claim_v1(asked text, asked_token text)
RETURNS TABLE (verdict text, said text)
LANGUAGE plpgsql VOLATILE
SET search_path = {schema}, pg_temp
SET lock_timeout = '150ms'
AS $$
DECLARE
    run record;
BEGIN
    SELECT r.status INTO run FROM runs r WHERE r.run_id = asked FOR UPDATE;
    IF NOT FOUND THEN
        verdict := 'not_found';
        RETURN NEXT;
        RETURN;
    END IF;
    DELETE FROM claims c WHERE c.run_id = asked AND c.token = asked_token;
    verdict := CASE WHEN FOUND THEN 'done' ELSE 'nothing' END;
    IF verdict = 'done' AND run.status IN ('pending', 'running') THEN
        PERFORM ring_v1(asked);
    END IF;
    RETURN NEXT;
END
$$;
