-- How the functions that write are called (0002_writing.sql, 0006_hooks_appending.sql).

-- name: append
SELECT verdict, first_seq, at_us, now_tick, now_batch, said, landed
FROM {schema}.append_v2(
    :patient::boolean, :known_types::text[], :rounds::integer[],
    :run_ids::text[], :ticks::bigint[], :last_batches::text[], :batch_ids::text[], :knowns::bigint[],
    :whole_logs::boolean[], :ats::bigint[], :dues::bigint[], :statuses::text[], :wakings::integer[],
    :revokings::integer[], :keyed::integer[], :sorts::integer[],
    :event_counts::integer[], :effect_counts::integer[], :offer_counts::integer[],
    :event_batches::integer[], :event_places::integer[], :types::text[], :ops::text[], :keys::text[], :datas::text[],
    :effect_batches::integer[], :effects::text[], :effect_ops::text[], :effect_attempts::integer[],
    :effect_dispatches::integer[], :effect_tokens::text[], :effect_incarnations::text[], :effect_frees::boolean[],
    :effect_drains::boolean[], :effect_withdraws::boolean[],
    :offer_batches::integer[], :offer_ops::text[], :offer_queues::text[], :offer_attempts::integer[],
    :offer_dispatches::integer[],
    :hook_batches::integer[], :hook_effects::text[], :hook_ops::text[], :hook_tokens::text[], :hook_numbers::bigint[]);

-- name: find_appended
SELECT verdict, first_seq, at_us, now_tick, now_batch, said, landed
FROM {schema}.find_appended_v1(:run_ids::text[], :ticks::bigint[], :batch_ids::text[], :knowns::bigint[]);

-- name: claim
SELECT verdict, workflow, app, partition, attempt, dispatch, said, landed
FROM {schema}.claim_v1(
    :patient::boolean, :run_ids::text[], :ops::text[], :tokens::text[], :incarnations::text[], :heads::text[]);

-- name: create
SELECT verdict, run_id, app
FROM {schema}.create_v1(
    :run_ids::text[], :chain_ids::text[], :apps::text[], :workflows::text[], :partitions::integer[], :parents::text[],
    :digests::text[], :dues::bigint[], :datas::text[],
    :attribute_runs::text[], :attribute_names::text[], :attribute_values::text[]);

-- name: stall
SELECT verdict, said FROM {schema}.stall_v1(:run_id::text, :tick::bigint, :last_batch::text, :why::text);

-- name: unstall
SELECT verdict, said FROM {schema}.unstall_v1(:run_id::text);

-- name: end_claim
SELECT verdict, said FROM {schema}.end_claim_v1(:run_id::text, :token::text);
