-- Who calls, for what only reads: a call (functions/calls.sql) is an INSERT, which a read-only transaction and a standby refuse. A
-- function with the caller's own rights reads this view: current_user, as PostgreSQL sees it, and a ticket that is good for
-- this transaction of this session. It hands both to a function with our rights, which asks rowbell.caller_is. The key of the
-- tickets is read with the rights of the view's owner, so nobody can make one for another role.
create or replace view rowbell.caller with (security_barrier) as
  select current_user as name,
         encode(sha256(convert_to(format('%s/%s/%s/%s', k.key, current_user, pg_backend_pid(), extract(epoch from now())), 'UTF8')), 'hex') as ticket
    from rowbell.caller_key k;

create or replace function rowbell.caller_is(name name, ticket text) returns boolean
language sql stable
begin atomic
  select coalesce(ticket = encode(sha256(convert_to(format('%s/%s/%s/%s', k.key, name, pg_backend_pid(), extract(epoch from now())), 'UTF8')), 'hex'), false)
    from rowbell.caller_key k;
end;
