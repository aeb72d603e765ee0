-- How far some rebuilds are. $1 subscription, $2 text[] tables, $3 bigint[] events of the rebuilds. Rows, one for each: table,
-- rows done, rows expected, whether it is ready, whether it was given up. Locks: none.
select t.name, coalesce(w.rows_done, 0), coalesce(w.rows_expected, 0), coalesce(w.covered_to >= t.event, false),
       exists (select from rowbell.jobs_waiting j
                where j.subscription_id = s.id and j.event_seq = t.event and j.state in ('poisoned', 'cancelled'))
  from rowbell.subscriptions s
 cross join unnest($2::text[], $3::bigint[]) as t(name, event)
  left join rowbell.index_walks w on w.subscription_id = s.id and w.name = t.name and w.mark >= t.event
 where s.name = $1;
