-- Every NOTIFY of ours. What it tells is found without it, a little later. So none is sent while the queue, which all databases of
-- the cluster share, is half full: a full one fails whatever notifies, and any login can fill it by a LISTEN in a transaction that
-- it leaves open.
create or replace function rowbell.notify(channel text, payload text) returns void
language sql volatile
begin atomic
  select case when pg_notification_queue_usage() < 0.5 then pg_notify(channel, payload) end;
end;
