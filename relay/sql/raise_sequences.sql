-- Puts sequences that are behind their tables above them. Rows: one for each: sequence, next. Locks: rowbell.installation, if there is one.
select r.sequence::text, r.next from rowbell.raise_sequences() r
