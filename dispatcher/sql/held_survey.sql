-- Active subscriptions with jobs that are held still: a resume, or a relay whose snapshot was older than it.
-- Parameters: none. Rows: id of each. Locks: none. Index: jobs_waiting_held, one probe for each subscription with held jobs.
with recursive held as (
  (select k.subscription_id as id from rowbell.jobs_waiting k
    where k.state = 'held' and not k.blocked order by k.subscription_id limit 1)
  union all
  select (select k.subscription_id from rowbell.jobs_waiting k
           where k.state = 'held' and not k.blocked and k.subscription_id > h.id order by k.subscription_id limit 1)
    from held h
   where h.id is not null
)
select h.id from held h join rowbell.subscriptions s on s.id = h.id and s.state = 'active';
