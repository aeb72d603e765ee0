-- What is wrong with this installation, and with the clock of whoever asks. $1 its time, in seconds since 1970.
-- Rows: one a problem; none when all is well. Locks: none.
select d.problem, d.subject, d.detail, d.remedy from rowbell.doctor() d
union all
select 'clock is wrong', 'this machine', to_char(c.ahead, 'FMSG999999999990') || ' s ahead of the database', 'set the clock of this machine'
  from (select $1::bigint - extract(epoch from clock_timestamp()) as ahead) c
 where abs(c.ahead) > 60
