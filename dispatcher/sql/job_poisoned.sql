-- An alert for the jobs that the ends before it poisoned, one for each subscription. Events that are alerts make none.
-- Parameters: $1 int[] subscription, $2 bigint[] seq, $3 smallint[] attempt. Rows: one for each alert. Locks: none but its event.
-- Index: jobs_waiting_pkey, events_pkey.
select rowbell.alert('rowbell.job.poisoned', 'subscription/' || p.name,
                     jsonb_build_object('subscription', p.name, 'jobs', p.jobs, 'class', p.class, 'seqs', to_jsonb(p.seqs[1:20])))
  from (select s.name, count(*) as jobs, max(w.last_class) as class, array_agg(w.event_seq order by w.event_seq) as seqs
          from unnest($1::int[], $2::bigint[], $3::smallint[]) e(subscription_id, event_seq, attempt)
          join rowbell.jobs_waiting w on w.subscription_id = e.subscription_id and w.event_seq = e.event_seq
           and w.attempts = e.attempt and w.state = 'poisoned'
          join rowbell.subscriptions s on s.id = e.subscription_id
         where not exists (select from rowbell.events v join rowbell.event_types t on t.id = v.type_id
                            where v.seq = e.event_seq and starts_with(t.type, 'rowbell.'))
         group by s.name) p;
