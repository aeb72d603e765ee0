-- What became of some transactions.
-- Parameters: $1 text[] receipts. Rows, in their order: state, events, pending, poisoned, open webhook, index and sse jobs,
-- fanned_out, indexed, first_seq. Locks: none. Index: events_pkey (the range of a transaction's numbers), jobs_pkey, jobs_waiting_pkey.
select s.state, s.events, s.pending, s.poisoned, s.webhook, s.index, s.sse, s.fanned_out, s.indexed, s.first_seq
  from unnest($1::text[]) with ordinality r(token, i)
 cross join lateral rowbell.receipt_status(r.token) s
 order by r.i;
