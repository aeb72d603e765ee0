-- The latest requests, newest first: of one subscription, that ended in one class, or all (NULL). A log for people.
--
-- attempts has no index by subscription and time, which each delivery would pay for. The summary of pages by time
-- (attempts_started) finds the last minute, then the two before, then four, until there are enough rows. A rare subscription among
-- hundreds of millions of attempts ends the search after some three seconds; what is older is then left out.
create or replace function rowbell.attempt_log(of_subscription text default null, of_class text default null, most int default 50)
returns table (subscription text, seq bigint, attempt smallint, manual boolean, started_at timestamptz, class text, status smallint,
               total_ms numeric, peer text)
language plpgsql stable set search_path = pg_catalog, pg_temp set enable_seqscan = off set enable_bitmapscan = on as $$
declare
  wanted_id int;
  upper_at  timestamptz := 'infinity';
  lower_at  timestamptz := now() - interval '1 minute';
  span      interval := '1 minute';
  got       int;
begin
  if of_subscription is not null then
    select s.id into wanted_id from rowbell.subscriptions s where s.name = of_subscription;
    if not found then
      raise exception 'there is no subscription named %', quote_literal(of_subscription) using errcode = 'undefined_object';
    end if;
  end if;
  while most > 0 and span < interval '128 days' and clock_timestamp() < statement_timestamp() + interval '3 seconds' loop
    return query
      select coalesce(s.name, '#' || a.subscription_id), a.event_seq, a.attempt, a.manual, a.started_at, a.class, a.status,
             round(a.total_ms::numeric, 1), a.peer
        from rowbell.attempts a left join rowbell.subscriptions s on s.id = a.subscription_id
       where a.started_at > lower_at and a.started_at <= upper_at
         and (wanted_id is null or a.subscription_id = wanted_id) and (of_class is null or a.class = of_class)
       order by a.started_at desc, a.event_seq desc, a.attempt desc
       limit most;
    get diagnostics got = row_count;
    most := most - got;
    upper_at := lower_at;
    span := span * 2;
    lower_at := lower_at - span;
  end loop;
end $$;
