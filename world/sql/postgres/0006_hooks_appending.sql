-- How logs grow since there are hooks: `append_v2`. It is `append_v1`, whose head (0005_appending.sql) says what the
-- arrays hold, and besides
--
--   sorts          64 hooks: the batch has lines in the arrays of hooks; 128 or 256 a hook_conflict: decided is
--                  what was before, or nothing
--   hook_batches, hook_effects, hook_ops, hook_tokens, hook_numbers
--                  what a batch does to hooks, in the order of its events (`write_hooks_v1`)
--
-- Verdicts besides: taken, no_hook, hook_full (as `write_hooks_v1` says). What they need is written where they are told, batch
-- by batch: the next batch of the round may want a token that this one lets go.
CREATE FUNCTION {schema}.append_v2(
    patient boolean, known_types text[], rounds integer[],
    run_ids text[], ticks bigint[], last_batches text[], batch_ids text[], knowns bigint[], whole_logs boolean[],
    ats bigint[], dues bigint[], statuses text[], wakings integer[], revokings integer[], keyed integer[],
    sorts integer[], event_counts integer[], effect_counts integer[], offer_counts integer[],
    event_batches integer[], event_places integer[], types text[], ops text[], keys text[], datas text[],
    effect_batches integer[], effects text[], effect_ops text[], effect_attempts integer[], effect_dispatches integer[],
    effect_tokens text[], effect_incarnations text[], effect_frees boolean[], effect_drains boolean[],
    effect_withdraws boolean[],
    offer_batches integer[], offer_ops text[], offer_queues text[], offer_attempts integer[], offer_dispatches integer[],
    hook_batches integer[], hook_effects text[], hook_ops text[], hook_tokens text[], hook_numbers bigint[])
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
    hook_from  integer; hook_to    integer;  -- of this batch
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
    IF 'open' = ANY (hook_effects) THEN
        PERFORM lock_tokens_v1(ARRAY(
            SELECT f.token FROM unnest(hook_effects, hook_tokens) AS f (effect, token) WHERE f.effect = 'open'));
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
                        SELECT FROM claims c JOIN members m ON m.incarnation = c.incarnation AND m.left_at IS NULL
                        WHERE c.run_id = run_ids[f.b] AND c.op = f.op AND c.attempt = f.attempt AND c.token = f.token
                          AND NOT c.draining)
                    WHEN f.effect = 'start' THEN NOT f.incarnation = ANY (living) OR NOT f.is_free OR EXISTS (  -- `is_free_v1`
                        SELECT FROM events e
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
            IF verdict IS NULL AND sorts[b] & 64 <> 0 THEN
                hook_from := array_position(hook_batches, b);
                hook_to := hook_from - 1 + cardinality(array_positions(hook_batches, b));
                SELECT h.verdict, h.said INTO verdict, said
                FROM write_hooks_v1(run.run_id, run.seq + 1, hook_effects[hook_from:hook_to], hook_ops[hook_from:hook_to],
                                    hook_tokens[hook_from:hook_to], hook_numbers[hook_from:hook_to]) h;
                run.owns := run.owns | 4;
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
                run.decided_seq := CASE WHEN sorts[b] & 256 <> 0 THEN 0 WHEN sorts[b] & 128 <> 0 THEN run.decided_seq
                                        WHEN ats[b] IS NULL THEN known
                                        ELSE run.seq + event_counts[b] END;
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
                    IF run.owns & 4 <> 0 THEN
                        UPDATE hooks h SET is_open = false WHERE h.run_id = run.run_id AND h.is_open;
                    END IF;
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
            sort := sort | CASE WHEN new_dues[b] IS NULL AND line.due IS NOT NULL THEN 32 ELSE 0 END;
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
                      SELECT FROM unnest(offer_batches[offer_from:offer_to], offer_ops[offer_from:offer_to]) AS w (b, op)
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
            FOR i IN batch_from .. batch_to LOOP
                EXIT WHEN waiting = '{}';
                new_dues[i] := CASE WHEN run_ids[i] = ANY (waiting) THEN soon_dues[i] ELSE new_dues[i] END;
            END LOOP;
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
