-- Subscriptions that are new, changed or gone since the caller last looked.
-- Parameters: $1 int[] known subscriptions, $2 text[] the version of each, $3 text[] kinds.
-- Rows: id, name, kind, state, ordered, settings, secrets (JSON array), version, milliseconds that its endpoint still
-- asked to be left alone, milliseconds since it fails (-1: it does not), milliseconds since its last attempt ended (-1: none),
-- seal_id; name is NULL when the subscription is gone. Locks: none.
-- Index: none; subscriptions is small and read whole.
select s.id, s.name, s.kind, s.state, s.ordered, s.settings::text, to_json(s.secrets)::text, s.xmin::text,
       greatest(0, ceil(extract(epoch from h.not_before - now()) * 1000))::bigint,
       coalesce((extract(epoch from now() - h.failing_since) * 1000)::bigint, -1),
       coalesce((extract(epoch from now() - greatest(h.last_success_at, h.last_failure_at)) * 1000)::bigint, -1),
       s.seal_id::text
  from rowbell.subscriptions s
  left join unnest($1::int[], $2::text[]) k(id, version) on k.id = s.id
  left join rowbell.subscription_state h on h.subscription_id = s.id
 where s.kind = any($3::text[])
   and k.version is distinct from s.xmin::text
union all
select k.id, null, null, null, null, null, null, null, null, null, null, null
  from unnest($1::int[]) k(id)
 where not exists (select from rowbell.subscriptions s where s.id = k.id);
