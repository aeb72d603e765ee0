-- The claim of a pass: a part of pass.sql and pass_plain.sql. Its names, and FOR UPDATE SKIP LOCKED, are in their headers.
  select e.ctid as row_id, e.seq, e.type_id, e.scope
    from rowbell.events e
   where e.fanned_out_at is null and e.poisoned_at is null and e.retry_at is null and e.seq > $1::bigint
   order by e.seq
   limit 200
     for update skip locked
