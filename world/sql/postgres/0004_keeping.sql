-- Large values and dead letters.

CREATE FUNCTION {schema}.put_value_v1(asked text, of_ref text, of_body bytea) RETURNS void LANGUAGE sql VOLATILE
SET search_path = {schema}, pg_temp AS $$
    INSERT INTO blobs (run_id, ref, body) VALUES (asked, of_ref, of_body) ON CONFLICT DO NOTHING
$$;

-- A source that is there already keeps its letter, also when both come at once.
CREATE FUNCTION {schema}.bury_v1(
    of_kind text, of_subject text, of_code text, of_reason text, of_body bytea, of_headers text, of_source text
) RETURNS bigint LANGUAGE plpgsql VOLATILE SET search_path = {schema}, pg_temp AS $$
DECLARE
    found_number bigint;
BEGIN
    INSERT INTO letters (at, kind, subject, code, reason, body, headers, source)
    VALUES (now_us_v1(), of_kind, of_subject, of_code, of_reason, of_body, of_headers, of_source)
    ON CONFLICT (source) WHERE source <> '' DO NOTHING
    RETURNING number INTO found_number;
    RETURN coalesce(found_number, (SELECT number FROM letters WHERE source = of_source AND source <> ''));
END
$$;

CREATE FUNCTION {schema}.mark_replayed_v1(of_number bigint, led_to text) RETURNS boolean LANGUAGE plpgsql VOLATILE
SET search_path = {schema}, pg_temp AS $$
BEGIN
    UPDATE letters SET replayed_as = led_to WHERE number = of_number;
    RETURN FOUND;
END
$$;
