-- Puts jobs back in line. $1 subscription or NULL, $2 text[] of events (seqs and UUIDs) or NULL, $3 since, $4 until (of the
-- events), $5 text[] states, $6 dry run, $7 the most (NULL: all). One row: how many. Locks: the jobs, skipping locked ones.
-- Index: jobs_waiting_state.
select rowbell.requeue_jobs($1,
                            (select array_agg(case when v ~ '^[0-9]+$' then v::bigint else rowbell.event_seq(v::uuid) end)
                               from unnest($2::text[]) as v),
                            $3::timestamptz, $4::timestamptz, $6::boolean,
                            coalesce($5::text[], '{poisoned,cancelled}'), $7::int) as requeued;
