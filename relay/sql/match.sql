-- The subscriptions that each kind of event in a batch goes to: a part of a pass, after `claimed`
-- (row_id, seq, type_id, scope). Index: routes_match, subscriptions_pkey.
--
-- Once per distinct (type, scope). plain: subscriptions that get every such event, lanes: whom to wake for these;
-- special: those for which the event has to be looked at, all_plain: there is none.
kinds as materialized (
  select c.type_id, c.scope, count(*) as claimed, max(c.seq) as highest, clock_timestamp() as claimed_at, array[c.type_id] as once
    from claimed c group by c.type_id, c.scope
),
matched as materialized (
  select d.type_id, coalesce(d.scope, '') as scope, d.claimed, d.highest, d.claimed_at, s.plain, s.lanes, s.special, s.all_plain,
         -- Adds no row. The planner takes it for ten, so that the marking UPDATE hashes the kinds; for one it would read the
         -- batch once for each kind (a batch of 200 tenants took five times as long).
         unnest(d.once)
    from kinds d
   cross join lateral (
     select coalesce(array_agg(b.id order by b.id) filter (where b.plain), '{}') as plain,
            array_agg(b.lane) filter (where b.plain) as lanes,
            array_agg(b.id) filter (where not b.plain) as special,
            coalesce(bool_and(b.plain), true) as all_plain
       from (select r.subscription_id from rowbell.routes r
              where r.type_id = d.type_id and (r.scope is null or r.scope = d.scope)
             union all
             select r.subscription_id from rowbell.routes r
              where r.type_id = d.type_id and r.scope is not null and d.scope = '*') w
      cross join lateral (
        select s.id, s.kind || ' ' || s.id % 64 as lane,
               s.state = 'active' and not s."coalesce" and s.condition is null as plain
          from rowbell.subscriptions s where s.id = w.subscription_id
        offset 0) b) s   -- offset 0: by index, however many there are
),
