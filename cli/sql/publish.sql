-- Captures a table. $1 oid, $2 scope, $3 soft_delete, $4 watch name[], $5 key name[], $6 name, $7 webhook,
-- $8 capture, $9 lastval. One row.
-- Locks: SHARE ROW EXCLUSIVE on the table (triggers are created) until the statement ends.
select rowbell.publish($1::oid::regclass, scope => $2::name, soft_delete => $3::name, watch => $4::name[],
                       key => $5::name[], name => $6, webhook => $7::boolean, capture => $8, lastval => $9::boolean);
