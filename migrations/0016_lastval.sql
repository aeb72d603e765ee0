-- lastval() of an application stays its own, and a table may be captured as a collection.
-- compatible_from: 6
-- Runs once, as rowbell_owner (with --no-roles: as whoever migrates), in one transaction.

-- What lastval() means after Rowbell took a number (functions/lastval.sql). Any value may be put into them, so that nextval must not end at
-- the greatest one. Their numbers are each session's own; nothing is lost with them in a crash. Sessions share them by their process
-- id, since each use locks the page of a sequence: with one, 16 writers made 0.7 of the inserts.
do $$
begin
  for i in 0 .. 15 loop
    execute format('create %s sequence rowbell.lastval_%s minvalue -9223372036854775808 cycle',
                   case when current_setting('server_version_num')::int >= 150000 then 'unlogged' end, i);   -- 14 has none
  end loop;
end $$;

alter table rowbell.published
  add column capture text not null default 'rows' check (capture in ('rows', 'collection')),
  add column lastval boolean;   -- do statements on it keep lastval(); NULL: where a column takes numbers of a sequence
