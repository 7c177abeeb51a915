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
            USING ERRCODE = 'FP001';
    END IF;
END
$$;

-- ---- append

-- Appends batches, each all or nothing, in rounds: a run has one batch in a round, and its next one sees all that the
-- round before wrote. Within a round each thing is written by one statement for all batches, because most of what a
-- statement costs is its beginning. (One statement after the other for each batch took five times as long.)
--
-- The arrays hold one element per batch, then per event, per effect and per offer, in the order of the batches; these
-- name their batch. A row is answered for each batch, in order.
--
--   rounds               how many batches each round has
--   ticks, last_batches  the fence; NULL for a batch from outside
--   knowns               the last position the writer has seen, -1 for none
--   statuses             what the events make of a pending run (`pending`: they do not touch the status)
--   wakings, revokings   which event of the batch is the last that resumes code, the first that revokes; 0 for none
--   keyed                the first event of a batch in which keys make events idempotent; 0 for others
--   sorts                which kinds of effects the batch has: 1 start, 2 end, 4 drain, 8 one that withdraws, 16 offers
--   effects              what an event does to claims:
--                          start   makes one; not `effect_frees`: the batch itself has used the attempt up;
--                                  `effect_drains`: and the batch itself has given it up
--                          end     an outcome by token, which ends its own
--                          drain   an outcome by token that leaves its own draining; without token, the attempt's own
--                          cancel  (also a failure by verdict) leaves those of its operation draining
--                          stop    (a terminal event) leaves all draining
--                          twice   an outcome whose token was used in the batch before: there is no claim left
--   effect_withdraws     whether it ends the operation's offer
--
-- Verdicts: accepted, busy, not_found, repeated, ended (said: status), superseded, stale, claim_lost (said: ops),
-- unknown (said: position and type of an event that landed and that the caller cannot read: none of `known_types`).
CREATE FUNCTION {schema}.append_v1(
    patient boolean, known_types text[], rounds integer[],
    run_ids text[], ticks bigint[], last_batches text[], batch_ids text[], knowns bigint[], whole_logs boolean[],
    ats bigint[], dues bigint[], statuses text[], wakings integer[], revokings integer[], keyed integer[],
    sorts integer[], event_counts integer[], effect_counts integer[], offer_counts integer[],
    event_batches integer[], event_places integer[], types text[], ops text[], keys text[], datas text[],
    effect_batches integer[], effects text[], effect_ops text[], effect_attempts integer[], effect_dispatches integer[],
    effect_tokens text[], effect_incarnations text[], effect_frees boolean[], effect_drains boolean[],
    effect_withdraws boolean[],
    offer_batches integer[], offer_ops text[], offer_queues text[], offer_attempts integer[], offer_dispatches integer[])
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
    ahead_us  constant bigint := 1000000;
    slack_us  constant bigint := 15000000;
    locked    text[];
    living    text[];
    clock_us  bigint;
    size      integer;
    b         integer := 0;
    -- what belongs to this round: batches, events, effects, offers
    batch_to  integer := 0;
    event_to  integer := 0;
    effect_to integer := 0;
    offer_to  integer := 0;
    batch_from integer; event_from integer; effect_from integer; offer_from integer;
    -- by batch
    lost      text[];
    written   boolean[] := array_fill(false, ARRAY[cardinality(run_ids)]);
    firsts    bigint[] := array_fill(NULL::bigint, ARRAY[cardinality(run_ids)]);
    apps      text[];
    partitions integer[];
    new_ticks bigint[] := firsts;
    new_ats   bigint[] := firsts;
    old_dues  bigint[] := firsts;
    new_dues  bigint[] := firsts;
    soon_dues bigint[] := firsts;
    line      record;
    run       runs;
    in_band   boolean;
    known     bigint;
    -- by round
    sort      integer;  -- what there is to write: `sorts`, and 32 dues that end
    changed   runs[];
    waiting   text[];
BEGIN
    PERFORM check_isolation_v1();

    -- LOCK.
    IF patient THEN
        locked := ARRAY(SELECT r.run_id FROM runs r WHERE r.run_id = ANY (run_ids) ORDER BY r.run_id FOR UPDATE);
    ELSE
        locked := ARRAY(SELECT r.run_id FROM runs r WHERE r.run_id = ANY (run_ids)
                        ORDER BY r.run_id FOR UPDATE SKIP LOCKED);
    END IF;
    IF 'start' = ANY (effects) THEN  -- `is_alive_v1` for all of them
        living := ARRAY(SELECT m.incarnation FROM members m
                        WHERE m.incarnation = ANY (effect_incarnations) AND m.left_at IS NULL
                        ORDER BY m.incarnation FOR KEY SHARE);
    END IF;
    clock_us := now_us_v1();

    FOREACH size IN ARRAY rounds LOOP
        batch_from := batch_to + 1;
        event_from := event_to + 1;
        effect_from := effect_to + 1;
        offer_from := offer_to + 1;
        FOR i IN batch_from .. batch_to + size LOOP
            event_to := event_to + event_counts[i];
            effect_to := effect_to + effect_counts[i];
            offer_to := offer_to + offer_counts[i];
        END LOOP;
        batch_to := batch_to + size;
        lost := NULL;
        sort := 0;
        changed := '{}';
        waiting := '{}';

        -- LOOK: at claims and attempts. What comes back does not fit: it refuses its batch, or (a start in-band, where
        -- a worker was faster) it does nothing.
        IF effect_to >= effect_from THEN
            FOR line IN
                SELECT f.n + effect_from - 1 AS n, f.b, f.op, f.effect = 'start' AND f.incarnation = ANY (living)
                       AND ticks[f.b] IS NOT NULL AS is_inert
                FROM unnest(effect_batches[effect_from:effect_to], effects[effect_from:effect_to],
                            effect_ops[effect_from:effect_to], effect_attempts[effect_from:effect_to],
                            effect_dispatches[effect_from:effect_to], effect_tokens[effect_from:effect_to],
                            effect_incarnations[effect_from:effect_to], effect_frees[effect_from:effect_to])
                     WITH ORDINALITY AS f (b, effect, op, attempt, dispatch, token, incarnation, is_free, n)
                WHERE CASE
                    WHEN f.effect = 'twice' THEN true
                    WHEN f.effect IN ('end', 'drain') AND f.token <> '' THEN NOT EXISTS (
                        SELECT
                        FROM claims c
                        JOIN members m ON m.incarnation = c.incarnation AND m.left_at IS NULL
                        WHERE c.run_id = run_ids[f.b] AND c.op = f.op AND c.attempt = f.attempt AND c.token = f.token
                          AND NOT c.draining)
                    WHEN f.effect = 'start' THEN NOT f.incarnation = ANY (living) OR NOT f.is_free OR EXISTS (
                        SELECT  -- `is_free_v1`
                        FROM events e
                        WHERE e.run_id = run_ids[f.b] AND e.op = f.op AND e.op <> ''
                          AND (e.type IN ('step_completed', 'step_failed', 'step_cancelled', 'wait_completed')
                               OR e.type = 'step_started'
                                  AND (substring(e.data, '"attempt":([0-9]+)')::integer,
                                       coalesce(substring(e.data, '"dispatch":([0-9]+)')::integer, 1))
                                      >= (f.attempt, f.dispatch)))
                    ELSE false END
                ORDER BY f.effect = 'start', f.n
            LOOP
                IF line.is_inert THEN
                    effects[line.n] := 'none';
                ELSE
                    lost[line.b] := coalesce(lost[line.b] || ',', '') || to_json(line.op);
                END IF;
            END LOOP;
        END IF;

        -- LOOK: at the runs, and tell each batch.
        FOR line IN
            SELECT r AS run, r.run_id IS NOT NULL AS is_there, r.run_id = ANY (locked) AS is_locked, d.at AS due
            FROM unnest(run_ids[batch_from:batch_to]) WITH ORDINALITY AS a (run_id, n)
            LEFT JOIN runs r ON r.run_id = a.run_id
            LEFT JOIN due d ON d.kind = 'run' AND d.id = a.run_id
            ORDER BY a.n
        LOOP
            b := b + 1;
            verdict := NULL; first_seq := NULL; at_us := NULL; said := NULL; landed := NULL;
            IF line.is_locked IS NOT TRUE THEN
                verdict := CASE WHEN line.is_there THEN 'busy' ELSE 'not_found' END;
                RETURN NEXT;
                CONTINUE;
            END IF;
            run := line.run;
            in_band := ticks[b] IS NOT NULL;
            known := knowns[b];

            IF keyed[b] > 0 THEN
                FOR i IN keyed[b] .. keyed[b] + event_counts[b] - 1 LOOP
                    CONTINUE WHEN keys[i] = '';
                    SELECT 'repeated', e.seq, e.at INTO verdict, first_seq, at_us
                    FROM events e
                    WHERE e.run_id = run.run_id AND e.type = types[i] AND e.key = keys[i] AND e.key <> ''
                    ORDER BY e.seq
                    LIMIT 1;
                    EXIT WHEN FOUND;
                END LOOP;
            END IF;
            IF verdict IS NOT NULL THEN
                NULL;
            ELSIF run.status NOT IN ('pending', 'running') THEN
                verdict := 'ended';
                said := run.status;
            ELSIF in_band AND (ticks[b] <> run.tick OR last_batches[b] <> run.last_batch OR known > run.seq) THEN
                verdict := 'superseded';
            ELSIF whole_logs[b] AND run.waking_seq > known OR in_band AND run.revoked_seq > known
                  OR ats[b] NOT BETWEEN run.last_at AND greatest(run.last_at, clock_us + ahead_us) THEN
                verdict := 'stale';
            END IF;
            IF known >= 0 AND known < run.seq AND (verdict IS NULL OR verdict IN ('repeated', 'stale')) THEN
                SELECT json_build_array(e.seq, e.type) INTO said
                FROM events e
                WHERE e.run_id = run.run_id AND e.seq > known AND NOT e.type = ANY (known_types)
                ORDER BY e.seq
                LIMIT 1;
                IF FOUND THEN
                    verdict := 'unknown';
                ELSE
                    landed := landed_v1(run.run_id, known, run.seq + 1);
                END IF;
            END IF;
            IF verdict IS NULL AND lost[b] IS NOT NULL THEN
                verdict := 'claim_lost';
                said := '[' || lost[b] || ']';
            END IF;
            now_tick := run.tick;
            now_batch := run.last_batch;
            IF verdict IS NOT NULL THEN
                RETURN NEXT;
                CONTINUE;
            END IF;

            -- Accepted: what the run will be, and when to look at it again (`folding.due_after`), by the clock: an `at`
            -- may be ahead of it.
            verdict := 'accepted';
            first_seq := run.seq + 1;
            at_us := coalesce(ats[b], greatest(clock_us, run.last_at));
            written[b] := true;
            firsts[b] := first_seq;
            new_ats[b] := at_us;
            apps[b] := run.app;
            partitions[b] := run.partition;
            old_dues[b] := line.due;
            IF in_band THEN
                now_tick := run.tick + 1;
                now_batch := batch_ids[b];
                new_ticks[b] := now_tick;
                new_dues[b] := CASE
                    WHEN run.waking_seq > known THEN least(line.due, clock_us)
                    WHEN clock_us < line.due AND dues[b] BETWEEN line.due AND line.due + slack_us THEN line.due
                    ELSE dues[b] END;
                soon_dues[b] := least(line.due, clock_us);
                run.tick := now_tick;
                run.last_batch := now_batch;
                run.decided_seq := CASE WHEN ats[b] IS NULL THEN known ELSE run.seq + event_counts[b] END;
                run.in_band_count := run.in_band_count + event_counts[b];
            ELSE
                new_dues[b] := CASE WHEN wakings[b] > 0 THEN least(line.due, clock_us) ELSE line.due END;
                soon_dues[b] := new_dues[b];
            END IF;
            IF wakings[b] > 0 THEN
                run.waking_seq := run.seq + wakings[b];
            END IF;
            IF revokings[b] > 0 AND run.revoked_seq = 0 THEN
                run.revoked_seq := run.seq + revokings[b];
            END IF;
            IF event_counts[b] > 0 THEN
                run.seq := run.seq + event_counts[b];
                run.last_at := at_us;
            END IF;
            IF statuses[b] <> 'pending' THEN
                run.status := statuses[b];
                IF statuses[b] <> 'running' THEN
                    run.stalled := '';
                    run.ended_at := at_us;
                    new_dues[b] := NULL;
                    soon_dues[b] := NULL;
                END IF;
            END IF;
            -- A run that owns no claim touches no claim, and one without offers no offer.
            run.owns := run.owns | (sorts[b] & 1);
            IF run.owns & 1 <> 0 THEN
                sort := sort | (sorts[b] & 7);
                IF in_band THEN
                    waiting := waiting || run.run_id;
                END IF;
            END IF;
            IF in_band AND (run.owns & 2 <> 0 OR sorts[b] & 16 <> 0) THEN
                sort := sort | 16;
                run.owns := (run.owns & ~2) | ((sorts[b] & 16) >> 3);
            ELSIF run.owns & 2 <> 0 THEN
                sort := sort | (sorts[b] & 8);
            END IF;
            IF new_dues[b] IS NULL AND line.due IS NOT NULL THEN
                sort := sort | 32;
            END IF;
            changed := changed || run;
            RETURN NEXT;
        END LOOP;
        CONTINUE WHEN cardinality(changed) = 0;

        -- WRITE: the events.
        INSERT INTO events (run_id, seq, tick, at, type, op, key, data)
        SELECT run_ids[e.b], firsts[e.b] + e.place - 1, new_ticks[e.b], new_ats[e.b], e.type, e.op, e.key, e.data
        FROM unnest(event_batches[event_from:event_to], event_places[event_from:event_to], types[event_from:event_to],
                    ops[event_from:event_to], keys[event_from:event_to], datas[event_from:event_to])
             AS e (b, place, type, op, key, data)
        WHERE written[e.b];

        -- WRITE: the claims. First what ends or drains, then what begins, which nothing before it can mean.
        IF sort & 2 <> 0 THEN
            DELETE FROM claims c
            USING unnest(effect_batches[effect_from:effect_to], effects[effect_from:effect_to],
                         effect_ops[effect_from:effect_to], effect_tokens[effect_from:effect_to])
                  AS f (b, effect, op, token)
            WHERE written[f.b] AND f.effect = 'end'
              AND c.run_id = run_ids[f.b] AND c.op = f.op AND c.token = f.token;
        END IF;
        IF sort & 4 <> 0 THEN
            UPDATE claims c SET draining = true
            FROM unnest(effect_batches[effect_from:effect_to], effects[effect_from:effect_to],
                        effect_ops[effect_from:effect_to], effect_attempts[effect_from:effect_to])
                 AS f (b, effect, op, attempt)
            WHERE written[f.b] AND f.effect IN ('drain', 'cancel', 'stop')
              AND c.run_id = run_ids[f.b] AND (f.effect = 'stop' OR c.op = f.op)
              AND (f.effect <> 'drain' OR c.attempt = f.attempt);
        END IF;
        IF sort & 1 <> 0 THEN
            INSERT INTO claims (run_id, op, attempt, dispatch, token, incarnation, draining)
            SELECT run_ids[f.b], f.op, f.attempt, f.dispatch, f.token, f.incarnation, f.drains
            FROM unnest(effect_batches[effect_from:effect_to], effects[effect_from:effect_to],
                        effect_ops[effect_from:effect_to], effect_attempts[effect_from:effect_to],
                        effect_dispatches[effect_from:effect_to], effect_tokens[effect_from:effect_to],
                        effect_incarnations[effect_from:effect_to], effect_drains[effect_from:effect_to])
                 AS f (b, effect, op, attempt, dispatch, token, incarnation, drains)
            WHERE written[f.b] AND f.effect = 'start';
        END IF;
        IF sort & 4 <> 0 THEN  -- what drains on a dead node has ended: nobody runs it any more
            DELETE FROM claims c
            USING unnest(effect_batches[effect_from:effect_to], effects[effect_from:effect_to]) AS f (b, effect)
            WHERE written[f.b] AND f.effect IN ('drain', 'cancel', 'stop')
              AND c.run_id = run_ids[f.b] AND c.draining
              AND NOT EXISTS (SELECT FROM members m WHERE m.incarnation = c.incarnation AND m.left_at IS NULL);
        END IF;

        -- WRITE: the offers. In-band they become exactly those that are named and can be taken (a worker may have been
        -- faster, which the decider has not seen); from outside, what began or ended is gone.
        IF sort & 16 <> 0 THEN
            FOR line IN
                SELECT w.n + offer_from - 1 AS n
                FROM unnest(offer_batches[offer_from:offer_to], offer_ops[offer_from:offer_to],
                            offer_attempts[offer_from:offer_to], offer_dispatches[offer_from:offer_to])
                     WITH ORDINALITY AS w (b, op, attempt, dispatch, n)
                WHERE written[w.b] AND NOT is_free_v1(run_ids[w.b], w.op, w.attempt, w.dispatch)
            LOOP
                offer_batches[line.n] := NULL;
            END LOOP;
        END IF;
        IF sort & 24 <> 0 THEN
            DELETE FROM offers o
            USING generate_series(batch_from, batch_to) AS a (b)
            WHERE written[a.b] AND o.run_id = run_ids[a.b]
              AND CASE WHEN ticks[a.b] IS NOT NULL THEN NOT EXISTS (
                      SELECT
                      FROM unnest(offer_batches[offer_from:offer_to], offer_ops[offer_from:offer_to]) AS w (b, op)
                      WHERE w.b = a.b AND w.op = o.op)
                  ELSE EXISTS (
                      SELECT
                      FROM unnest(effect_batches[effect_from:effect_to], effects[effect_from:effect_to],
                                  effect_ops[effect_from:effect_to], effect_withdraws[effect_from:effect_to])
                           AS f (b, effect, op, withdraws)
                      WHERE f.b = a.b AND f.withdraws AND (f.effect = 'stop' OR f.op = o.op)) END;
        END IF;
        IF sort & 16 <> 0 THEN
            INSERT INTO offers (run_id, op, queue, attempt, dispatch)
            SELECT run_ids[w.b], w.op, w.queue, w.attempt, w.dispatch
            FROM unnest(offer_batches[offer_from:offer_to], offer_ops[offer_from:offer_to],
                        offer_queues[offer_from:offer_to], offer_attempts[offer_from:offer_to],
                        offer_dispatches[offer_from:offer_to]) AS w (b, op, queue, attempt, dispatch)
            WHERE written[w.b]
            ON CONFLICT (run_id, op) DO UPDATE
            SET queue = excluded.queue, attempt = excluded.attempt, dispatch = excluded.dispatch
            WHERE (offers.queue, offers.attempt, offers.dispatch)
                <> (excluded.queue, excluded.attempt, excluded.dispatch);
        END IF;

        -- WRITE: the runs.
        UPDATE runs r
        SET seq = u.seq, tick = u.tick, last_batch = u.last_batch, last_at = u.last_at, decided_seq = u.decided_seq,
            waking_seq = u.waking_seq, revoked_seq = u.revoked_seq, in_band_count = u.in_band_count, owns = u.owns,
            status = u.status, stalled = u.stalled, ended_at = u.ended_at
        FROM unnest(changed) AS u
        WHERE r.run_id = u.run_id;

        -- WRITE: when to look at them. Those that wait for the dead, soon: an attempt's node has left, and nobody has
        -- said so in the log. A writer who does not know must not move later what its end made due.
        IF waiting <> '{}' THEN
            waiting := ARRAY(
                SELECT c.run_id
                FROM unnest(waiting) AS a (run_id)
                JOIN claims c ON c.run_id = a.run_id AND NOT c.draining
                WHERE NOT EXISTS (SELECT FROM members m WHERE m.incarnation = c.incarnation AND m.left_at IS NULL));
            IF waiting <> '{}' THEN
                FOR i IN batch_from .. batch_to LOOP
                    IF run_ids[i] = ANY (waiting) THEN
                        new_dues[i] := soon_dues[i];
                    END IF;
                END LOOP;
            END IF;
        END IF;
        IF sort & 32 <> 0 THEN
            DELETE FROM due d
            USING generate_series(batch_from, batch_to) AS a (b)
            WHERE written[a.b] AND new_dues[a.b] IS NULL AND old_dues[a.b] IS NOT NULL
              AND d.kind = 'run' AND d.id = run_ids[a.b];
        END IF;
        INSERT INTO due (kind, id, app, partition, at)
        SELECT 'run', run_ids[a.b], apps[a.b], partitions[a.b], new_dues[a.b]
        FROM generate_series(batch_from, batch_to) AS a (b)
        WHERE written[a.b] AND new_dues[a.b] <> coalesce(old_dues[a.b], -1)
        ON CONFLICT (kind, id) DO UPDATE SET at = excluded.at;
    END LOOP;
END
$$;

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
