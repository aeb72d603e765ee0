-- Parameters: $1 bigint the seq to begin after. Rows: 1: how many were listed, how far it looked (NULL: to the end). Locks: those entries.
-- Index: events_pkey, events_claim, events_set_aside_due.
select l.listed, l.last_seq from rowbell.list_set_aside($1::bigint) l;
