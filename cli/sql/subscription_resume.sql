-- Resumes a subscription, its held jobs at a rate. $1 name, $2 jobs a second or NULL (no limit). One row: was there one?
-- Locks: its rows.
select case when s.kind = 'webhook' then rowbell.set_webhook(s.name, jsonb_build_object('resume_rate', $2::numeric)) else true end
       and rowbell.set_subscription_state(s.name, 'active') as found
  from (select min(kind) as kind, $1::text as name from rowbell.subscriptions where name = $1) as s;
