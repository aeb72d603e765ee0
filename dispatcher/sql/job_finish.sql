-- Ends attempts, however they ended (job_finish_delivered has the usual case, with fewer columns to carry).
-- Parameters, arrays of equal length: $1 int[] subscription, $2 bigint[] seq, $3 bigint[] token, $4 smallint[] attempt,
-- $5 bigint[] milliseconds since the attempt began, $6 to $10 real[] dns, connect, tls, first byte, total in milliseconds,
-- $11 smallint[] status, $12 text[] peer, $13 text[] response head, $14 text[] fate (delivered, waiting, held, poisoned,
-- cancelled), $15 bigint[] delay in milliseconds, $16 text[] class, $17 text[] error, $18 bigint[] milliseconds for which the
-- endpoint asked to be left alone (0: it did not), $19 text[] subject, of ordered subscriptions,
-- $20 smallint[] 1 for an attempt that uses up no retry.
-- Rows: subscription_id, event_seq of each that was ended. Locks: jobs rows in the arrays' order (callers sort by key).
-- Index: jobs_pkey, TID scan; jobs_waiting_pkey, subscription_state_pkey.
with ended as (
  select *
    from unnest($1::int[], $2::bigint[], $3::bigint[], $4::smallint[], $5::bigint[],
                $6::real[], $7::real[], $8::real[], $9::real[], $10::real[], $11::smallint[], $12::text[], $13::text[],
                $14::text[], $15::bigint[], $16::text[], $17::text[], $18::bigint[], $19::text[], $20::smallint[])
      as e(subscription_id, event_seq, lease_token, attempt, age_ms, dns_ms, connect_ms, tls_ms, first_byte_ms, total_ms,
           status, peer, response_head, fate, delay_ms, class, error, pause_ms, subject, uncounts)
),
\ir job_finish_ended.sql
