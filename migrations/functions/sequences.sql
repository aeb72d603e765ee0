-- Numbers that are behind. Logical replication does not copy sequences, and a dump of data alone may leave them out: the next number is then one
-- that a row has already, and what takes it fails, the application's writes too.

-- The sequences whose next number is in use. An event's number is also in what outlives the event: in the log of attempts, and in the
-- stream's log, whose newest entry is never pruned.
create or replace function rowbell.sequences_behind() returns table (sequence regclass, next bigint, highest bigint)
language sql volatile
begin atomic
  select v.sequence, v.next, v.highest
    from (select 'rowbell.events_seq_seq'::regclass, q.last_value + q.is_called::int,
                 greatest((select max(e.seq) from rowbell.events e), (select max(a.event_seq) from rowbell.attempts a),
                          (select max(few.event_seq) from (select l.event_seq from rowbell.stream_log l where l.stream_id = 1
                                                            order by l.position desc limit 1000) few))
            from rowbell.events_seq_seq q
          union all
          select 'rowbell.event_types_id_seq', q.last_value + q.is_called::int, (select max(t.id) from rowbell.event_types t) from rowbell.event_types_id_seq q
          union all
          select 'rowbell.subscriptions_id_seq', q.last_value + q.is_called::int, (select max(s.id) from rowbell.subscriptions s) from rowbell.subscriptions_id_seq q
          union all
          select 'rowbell.published_id_seq', q.last_value + q.is_called::int, (select max(p.id) from rowbell.published p) from rowbell.published_id_seq q
          union all
          select 'rowbell.stream_keys_id_seq', q.last_value + q.is_called::int, (select max(k.id) from rowbell.stream_keys k) from rowbell.stream_keys_id_seq q)
      as v(sequence, next, highest)
   where v.next <= v.highest;
end;

-- Puts them above what is in use, with room for numbers that others take meanwhile; never lower. Anybody may call it at any time:
-- what is not behind is not touched. Returns what it raised.
create or replace function rowbell.raise_sequences() returns table (sequence regclass, next bigint)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  if not exists (select from rowbell.sequences_behind()) then
    return;
  end if;
  perform from rowbell.installation for update;   -- one at a time
  return query
    select b.sequence, setval(b.sequence, b.highest + case b.sequence when 'rowbell.events_seq_seq'::regclass then 1000000 else 1000 end) + 1
      from rowbell.sequences_behind() b;
end $$;
