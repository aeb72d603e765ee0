-- A publication FOR ALL TABLES has our tables, too, and PostgreSQL then deletes only from those whose rows it can name.
-- compatible_from: 6
-- Runs once, as rowbell_owner (with --no-roles: as whoever migrates), in one transaction.

-- attempts has no key, which would be one more index on a hot path; the others have one.
alter table rowbell.attempts replica identity full;
