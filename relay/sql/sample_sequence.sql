-- The first half of a sample for the low-water mark: the highest seq given out so far. It must be read before the second
-- half, in a statement of its own. Rows: one: last_value. Locks: none.
select s.last_value from rowbell.events_seq_seq s
