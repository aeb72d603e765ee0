-- What a test event for an endpoint needs. $1 name. One row or none: settings, secrets as stored (JSON array, newest first;
-- NULL where this login may not read one), id and time of the event, whether this login may read all that a request needs,
-- seal_id, the time in seconds since 1970. Locks: none. Index: subscriptions_name_key.
select s.kind, rowbell.subscription_settings(s.name)::text as settings,
       (select json_agg(case when c.ends_at is null then '' else 'until=' || extract(epoch from c.ends_at)::bigint || ';' end
                        || c.form)
          from rowbell.subscription_secrets(s.name) as c)::text as secrets,
       rowbell.event_id(now(), 0)::text as id,
       to_char(now() at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as at,
       has_column_privilege('rowbell.subscriptions', 'settings', 'select')
         or not rowbell.subscription_settings(s.name) ?| '{headers,client_key}' as readable,
       s.seal_id, extract(epoch from now())::bigint as at_s
  from rowbell.subscriptions s where s.name = $1;
