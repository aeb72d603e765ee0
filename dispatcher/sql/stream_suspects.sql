-- After an append failed for data: the jobs that were in it, to be appended one by one.
-- Parameters: $1 int stream, $2 bigint[] seqs that are known to fail. Rows: event_seq, ascending. Locks: none. Index: jobs_pkey.
select k.event_seq
  from rowbell.jobs k
 where k.subscription_id = (select t.subscription_id from rowbell.streams t where t.id = $1::int)
   and k.event_seq <> all($2::bigint[])
 order by k.event_seq
 limit 500;
