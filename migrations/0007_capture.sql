-- Capture names nothing by a number of this database: a published table has a number of its own, and is kept by name.
-- compatible_from: 6
-- Runs once, as rowbell_owner (with --no-roles: as whoever migrates), in one transaction.

-- What was made of these columns is made again by the functions that follow.
do $$
declare
  dependent text;
begin
  loop
    select format('drop %s if exists %s', case when d.classid = 'pg_proc'::regclass then 'function' else 'view' end,
                  case when d.classid = 'pg_proc'::regclass then d.objid::regprocedure::text else r.ev_class::regclass::text end)
      into dependent
      from pg_depend d
      join pg_attribute a on a.attrelid = d.refobjid and a.attnum = d.refobjsubid and a.attname = 'relation'
      left join pg_rewrite r on d.classid = 'pg_rewrite'::regclass and r.oid = d.objid
     where d.refclassid = 'pg_class'::regclass and d.refobjid in ('rowbell.published'::regclass, 'rowbell.event_types'::regclass)
       and (d.classid = 'pg_proc'::regclass or r.ev_type = '1') limit 1;
    exit when not found;
    execute dependent;
  end loop;
end $$;

-- A dump has the names of regclass columns, so a restored table is found again, whatever its new OID.
alter table rowbell.published
  alter column relation type regclass,
  add column id int generated always as identity unique;   -- in the names of its capture functions
drop trigger if exists routes_of_type on rowbell.event_types;
alter table rowbell.event_types alter column relation type regclass;

-- How many triggers of partitions and children are still to fire for a TRUNCATE of a published table that runs now.
create table rowbell.truncating (
  published_id int not null,
  xact         xid8 not null,
  left_to_skip int not null,
  primary key (published_id, xact)
);

-- What rowbell.record takes at most.
alter table rowbell.installation
  add column event_bytes int not null default 262144 check (event_bytes between 1024 and 16777216);
