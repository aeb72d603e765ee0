-- What is wrong with this installation. Rows: one a problem; none when all is well. Locks: none.
select d.problem, d.subject, d.detail, d.remedy from rowbell.doctor() d
