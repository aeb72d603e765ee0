-- Does LISTEN deliver? A message to ourselves, sent from another connection than the one that listens.
-- Parameters: $1 the payload.
select pg_notify('rowbell_events', $1::text)
