// What was committed, from the application's own tables: our outbox is what is being checked.
import { changeOf } from './report.mjs';

// Each transaction of pgbench left one row in pgbench_history, which names the three rows that it updated. A delta of 0
// changed nothing, so it made no event. History itself has no key: a row there is one event for the whole table.
const changes = `
  select 'pgbench_accounts' as relation, aid::text as key, 'update' as op, count(*)::int as count
    from pgbench_history where delta <> 0 group by aid
  union all
  select 'pgbench_tellers', tid::text, 'update', count(*)::int from pgbench_history where delta <> 0 group by tid
  union all
  select 'pgbench_branches', bid::text, 'update', count(*)::int from pgbench_history where delta <> 0 group by bid
  union all
  select 'pgbench_history', null, 'create', count(*)::int from pgbench_history having count(*) > 0`;

export async function committed(client) {
    const rows = (await client.query(changes)).rows;
    const ledger = (await client.query('select id from ledger')).rows;
    return {
        changes: new Map(rows.map((row) => [changeOf(row.relation, row.key, row.op), row.count])),
        domain: new Set(ledger.map((row) => row.id)),
    };
}

// When it was committed (ms since 1970): of domain events by id, and of accounts that were updated once.
export async function commitTimes(client) {
    const at = 'extract(epoch from pg_xact_commit_timestamp(t.xmin))::float8 * 1000 as at';
    const ledger = (await client.query(`select t.id, ${at} from ledger t`)).rows;
    const once = (await client.query(`select t.aid, ${at} from pgbench_history t where t.delta <> 0
        and not exists (select from pgbench_history o where o.aid = t.aid and o.ctid <> t.ctid)`)).rows;
    return {
        domain: new Map(ledger.map((row) => [row.id, row.at])),
        changes: new Map(once.map((row) => [changeOf('pgbench_accounts', String(row.aid), 'update'), row.at])),
    };
}

// What our processes still have in hand, but for subscriptions that never get done. Only decides when to stop waiting, never
// what was delivered.
export async function openWork(client, stuck = []) {
    const { rows } = await client.query(`
      select (select count(*)::int from rowbell.events where fanned_out_at is null) as events,
             (select count(*)::int from rowbell.jobs where subscription_id <> all ($1)) as jobs,
             (select count(*)::int from rowbell.jobs_waiting where state = 'waiting' and subscription_id <> all ($1)) as waiting,
             (select count(*)::int from rowbell.jobs_waiting where state <> 'waiting' and subscription_id <> all ($1)) as stopped`, [stuck]);
    return rows[0];
}
