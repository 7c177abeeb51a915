-- Hooks: where the outside may put payloads for a run, under a token.
--
--   hooks      one row per token: whose it is, or was last. A closed row stays (a delivery that is sent again finds its
--              run by it, and learns there that it had arrived) until another hook takes the token over: then the
--              row is that one's. `seq` is where its hook_created stands; `received` and `read` add up weights of payloads
--
-- An open row belongs to its run and is written only under that run's row, like claims and offers. A closed one, or a token
-- without a row, belongs to nobody: who wants it holds the token's lock (`lock_tokens_v1`), in the place of the lock
-- order that new unique ids have. So nobody ever waits for a row of this table: a look that finds a row open and its
-- own, or free and its token locked, stays true until the end of the transaction. A closed row is written by nobody else.
--
-- `runs.owns & 4`: the run may have rows here. One that has not touches no hook.

CREATE TABLE {schema}.hooks (
    token    text COLLATE "C" NOT NULL PRIMARY KEY CHECK (token <> ''),
    run_id   text COLLATE "C" NOT NULL,
    op       text COLLATE "C" NOT NULL CHECK (op <> ''),
    seq      bigint  NOT NULL CHECK (seq >= 1),
    is_open  boolean NOT NULL,
    received bigint  NOT NULL CHECK (received >= 0),
    read     bigint  NOT NULL CHECK (read >= 0)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 2000,
        autovacuum_vacuum_cost_delay = 0);

CREATE INDEX hooks_open ON {schema}.hooks (run_id, op) WHERE is_open;

-- Locks tokens that may become somebody's, ascending. A number stands for many tokens: the server has room for some
-- thousand locks in all (`max_locks_per_transaction`), and a run may ask for as many hooks at once.
CREATE FUNCTION {schema}.lock_tokens_v1(asked text[]) RETURNS void LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('fencepost hook tokens {schema}'), l.number)
    FROM (
        SELECT DISTINCT (hashtextextended(t.token, 0) & 1023)::integer AS number
        FROM unnest(asked) AS t (token)
        ORDER BY number) l;
END
$$;

-- Does to hooks what a batch wants, in the order of its events and then all at once, or says why not: no verdict, or
-- taken (said: operation and owner), no_hook (said: token), hook_full (said: token). The last of a batch's checks, under
-- the run's row and the tokens' locks.
--
--   effects  open   (number: the event's place in the batch), close
--            put    (number: how much room the payload takes)
--            read   (number: how much the operation's code has taken; no token)
--
-- What the batch itself did before counts: a token that it closes is free for the hook it opens next.
CREATE FUNCTION {schema}.write_hooks_v1(
    asked text, first_seq bigint, effects text[], of_ops text[], of_tokens text[], numbers bigint[],
    OUT verdict text, OUT said text)
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    unread_max constant bigint := 1000;
    tokens  text[];
    held    {schema}.hooks[];  -- by token, as they are and then as they will be
    changed boolean[];
    hook    {schema}.hooks;
    is_own  boolean;
    t       integer;
BEGIN
    IF effects = '{put}' THEN  -- what nearly all are: one statement
        UPDATE {schema}.hooks h
        SET received = h.received + numbers[1]
        WHERE h.token = of_tokens[1] AND h.run_id = asked AND h.op = of_ops[1] AND h.is_open
          AND h.received - h.read < unread_max;
        IF FOUND THEN
            RETURN;
        END IF;
    END IF;

    SELECT array_agg(f.token),
           array_agg(ROW(f.token, h.run_id, h.op, h.seq, coalesce(h.is_open, false), h.received, h.read)::{schema}.hooks)
    INTO tokens, held
    FROM (SELECT DISTINCT u.token FROM unnest(of_tokens) AS u (token) WHERE u.token <> '') f
    LEFT JOIN {schema}.hooks h ON h.token = f.token;
    changed := array_fill(false, ARRAY[coalesce(cardinality(tokens), 0)]);

    FOR n IN 1 .. cardinality(effects) LOOP
        CONTINUE WHEN effects[n] = 'read';
        t := array_position(tokens, of_tokens[n]);
        hook := held[t];
        is_own := (hook.run_id, hook.op) IS NOT DISTINCT FROM (asked, of_ops[n]);
        IF effects[n] = 'open' THEN
            CONTINUE WHEN is_own;  -- it is there, or was: inert
            IF hook.is_open THEN
                verdict := 'taken';
                said := json_build_array(of_ops[n], hook.run_id);
                RETURN;
            END IF;
            hook := ROW(hook.token, asked, of_ops[n], first_seq + numbers[n] - 1, true, 0, 0);
        ELSIF effects[n] = 'close' THEN
            CONTINUE WHEN NOT (is_own AND hook.is_open);
            hook.is_open := false;
        ELSIF NOT (is_own AND hook.is_open) THEN
            verdict := 'no_hook';
            said := hook.token;
            RETURN;
        ELSIF hook.received - hook.read >= unread_max THEN
            verdict := 'hook_full';
            said := hook.token;
            RETURN;
        ELSE
            hook.received := hook.received + numbers[n];
        END IF;
        held[t] := hook;
        changed[t] := true;
    END LOOP;

    -- Only what changed: a closed row that it only looked at may be another's by now.
    IF true = ANY (changed) THEN
        INSERT INTO {schema}.hooks
        SELECT h.token, h.run_id, h.op, h.seq, h.is_open, h.received, h.read
        FROM unnest(held, changed) AS h (token, run_id, op, seq, is_open, received, read, changed)
        WHERE h.changed
        ON CONFLICT (token) DO UPDATE
        SET run_id = excluded.run_id, op = excluded.op, seq = excluded.seq, is_open = excluded.is_open,
            received = excluded.received, read = excluded.read;
    END IF;
    IF 'read' = ANY (effects) THEN
        UPDATE {schema}.hooks h
        SET read = f.number
        FROM unnest(effects, of_ops, numbers) AS f (effect, op, number)
        WHERE f.effect = 'read' AND h.run_id = asked AND h.op = f.op AND h.is_open AND h.read < f.number;
    END IF;
END
$$;

-- For nodes of the version before hooks: they write none, but may end a run that has some. `append_v2` is in the second
-- file of this migration.
CREATE OR REPLACE FUNCTION {schema}.append_v1(
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
AS $$
BEGIN
    RETURN QUERY
    SELECT * FROM append_v2(
        patient, known_types, rounds, run_ids, ticks, last_batches, batch_ids, knowns, whole_logs, ats, dues,
        statuses, wakings, revokings, keyed, sorts, event_counts, effect_counts, offer_counts, event_batches,
        event_places, types, ops, keys, datas, effect_batches, effects, effect_ops, effect_attempts,
        effect_dispatches, effect_tokens, effect_incarnations, effect_frees, effect_drains, effect_withdraws,
        offer_batches, offer_ops, offer_queues, offer_attempts, offer_dispatches, '{}', '{}', '{}', '{}', '{}');
END
$$;
