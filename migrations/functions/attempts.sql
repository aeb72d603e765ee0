-- The latest requests of the caller's subscriptions, newest first: of one subscription, that ended in one class, or all (NULL). A log
-- for people.
--
-- attempts has no index by subscription and time, which each delivery would pay for. The summary of pages by time
-- (attempts_started) finds the last minute, then the two before, then four, until there are enough rows. A rare subscription among
-- hundreds of millions of attempts ends the search after some three seconds; what is older is then left out.
create or replace function rowbell.attempt_log(of_subscription text default null, of_class text default null, most int default 50)
returns table (subscription text, seq bigint, attempt smallint, manual boolean, started_at timestamptz, class text, status smallint,
               total_ms numeric, peer text)
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  answer jsonb;
begin
  insert into rowbell.calls (name, arguments)
    values ('attempt_log', jsonb_build_object('subscription', of_subscription, 'class', of_class, 'most', most)) returning result into answer;
  return query select l.subscription, l.seq, l.attempt, l.manual, l.started_at, l.class, l.status, l.total_ms, l.peer
                 from jsonb_to_recordset(answer) as l (subscription text, seq bigint, attempt smallint, manual boolean, started_at timestamptz,
                                                       class text, status smallint, total_ms numeric, peer text);
end $$;

create or replace function rowbell.attempt_log_as(caller name, arguments jsonb) returns jsonb
language plpgsql stable security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off set enable_bitmapscan = on as $$
declare
  of_class constant text := arguments ->> 'class';
  most     int := case when arguments ->> 'most' is not null then least((arguments ->> 'most')::bigint, 10000) end;
  every    constant boolean := arguments ->> 'subscription' is null and rowbell.is_operator(caller);
  targets  int[];
  upper_at timestamptz := 'infinity';
  lower_at timestamptz := now() - interval '1 minute';
  span     interval := '1 minute';
  found_rows jsonb;
  answer   jsonb := '[]';
begin
  if arguments ->> 'subscription' is not null then
    targets := array[(rowbell.subscription_require(caller, arguments ->> 'subscription')).id];
  elsif not every then
    targets := array(select s.id from rowbell.subscriptions s where rowbell.may_manage(caller, s.owner));
  end if;
  while most > 0 and span < interval '128 days' and clock_timestamp() < statement_timestamp() + interval '3 seconds' loop
    select coalesce(jsonb_agg(to_jsonb(f) order by f.started_at desc, f.seq desc, f.attempt desc), '[]') into found_rows
      from (select coalesce(s.name, '#' || a.subscription_id) as subscription, a.event_seq as seq, a.attempt, a.manual, a.started_at, a.class,
                   a.status, round(a.total_ms::numeric, 1) as total_ms, a.peer
              from rowbell.attempts a left join rowbell.subscriptions s on s.id = a.subscription_id
             where a.started_at > lower_at and a.started_at <= upper_at
               and (every or a.subscription_id = any (targets)) and (of_class is null or a.class = of_class)
             order by a.started_at desc, a.event_seq desc, a.attempt desc
             limit most) as f;
    answer := answer || found_rows;
    most := most - jsonb_array_length(found_rows);
    upper_at := lower_at;
    span := span * 2;
    lower_at := lower_at - span;
  end loop;
  return answer;
end $$;
