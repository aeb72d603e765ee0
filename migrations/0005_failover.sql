-- Which history of the database the indexes of search engines follow, so that a failover or a restore is noticed.
-- compatible_from: 1
-- Runs once, as rowbell_owner (with --no-roles: as whoever migrates), in one transaction.

alter table rowbell.installation
  add column timeline          text,
  add column system_identifier bigint;
-- What the stream was appended under: a failover since then is noticed too.
update rowbell.installation i
   set timeline = s.timeline, system_identifier = s.system_identifier
  from rowbell.streams s where s.id = 1;
alter table rowbell.installation
  alter column timeline set not null,
  alter column system_identifier set not null;
