-- Puts poisoned events back in line. $1 text[] of seqs and UUIDs, or NULL; $2 since, $3 until (of their poisoning), $4 dry
-- run, $5 the most (NULL: all). One row: how many. Locks: the events, skipping locked ones. Index: events_set_aside_pkey, events_pkey.
select rowbell.requeue_events((select array_agg(case when v ~ '^[0-9]+$' then v::bigint else rowbell.event_seq(v::uuid) end)
                                 from unnest($1::text[]) as v),
                              $2::timestamptz, $3::timestamptz, $4::boolean, $5::int) as requeued;
