-- Ends attempts that delivered, of which there is no more to say: no error, no pause, no subject that waits for its end.
-- Parameters: $1 to $13 of job_finish. Rows, locks and indexes: those of job_finish.
with ended as (
  select e.*, 'delivered' as fate, 0::bigint as delay_ms, 'delivered' as class, null::text as error, 0::bigint as pause_ms,
         null::text as subject, 0::smallint as uncounts
    from unnest($1::int[], $2::bigint[], $3::bigint[], $4::smallint[], $5::bigint[],
                $6::real[], $7::real[], $8::real[], $9::real[], $10::real[], $11::smallint[], $12::text[], $13::text[])
      as e(subscription_id, event_seq, lease_token, attempt, age_ms, dns_ms, connect_ms, tls_ms, first_byte_ms, total_ms,
           status, peer, response_head)
),
\ir job_finish_ended.sql
