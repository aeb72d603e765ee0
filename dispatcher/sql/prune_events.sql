-- Parameters: $1 bigint retention in milliseconds, $2 bigint the seq to begin after. Rows: 1: how many went, how far it looked (NULL: to
-- the end). Locks and indexes: see migrations/functions/housekeeping.sql, as for the others.
select p.pruned, p.last_seq from rowbell.prune_events($1::bigint, $2::bigint) p;
