// The application: psql with the application's login, which writes rows, and beside them what it did. Those two tables are
// what deliveries are compared with: our outbox is what is being checked.
import { spawn } from 'node:child_process';
import { changeOf } from '../reconcile/report.mjs';
import { sleep } from '../reconcile/clock.mjs';

const PAUSE_MS = 60;
const AGAIN_MS = 500; // psql starts anew after the server went away

export const schema = `
  create table notes (id bigint primary key, body text not null, tenant text not null default 'acme');
  create table journal (note bigint not null, op text not null);
  create table ledger (id uuid primary key);
  select rowbell.declare_type('compose.noted', 'the application wrote a line into its ledger', webhook => true);
  select rowbell.publish('notes', scope => 'tenant')`;

// One transaction: a row is made, another changed, sometimes one deleted and a domain event recorded; sometimes all of
// it is taken back. Numbers are never used twice, since nobody knows whether a commit that met a crash was done.
export const transaction = (n) => `
  begin;
  with made as (insert into notes (id, body) values (${n}, 'new') returning id) insert into journal select id, 'create' from made;
  with changed as (update notes set body = body || '.' where id = ${n - 1 - (n % 5)} returning id)
    insert into journal select id, 'update' from changed;
  ${n % 3 ? '' : `with gone as (delete from notes where id = ${n - 20} returning id)
    insert into journal select id, 'delete' from gone;`}
  ${n % 4 ? '' : `insert into ledger select rowbell.record('compose.noted', 'notes/${n}', '{"line": ${n}}');`}
  ${n % 7 ? 'commit' : 'rollback'};\n`;

export async function committed(stack) {
    const rows = (await stack.query('select note, op, count(*) as count from public.journal group by note, op')).rows;
    const ledger = (await stack.query('select id from public.ledger')).rows;
    return {
        changes: new Map(rows.map(({ note, op, count }) => [changeOf('notes', String(note), op), count])),
        domain: new Set(ledger.map(({ id }) => id)),
    };
}

// Writes until `signal`; when its psql ends, another one takes over. Returns {started, said}: how many psqls there were,
// and what they complained about.
export async function write(stack, signal) {
    const ended = { started: 0, said: '' };
    let n = 0;
    while (!signal.aborted) {
        const [{ Id }] = await stack.containers('postgres');
        const psql = spawn('docker', ['exec', '-i', Id, 'psql', stack.applicationUrl, '-qX', '-v', 'ON_ERROR_STOP=1'],
            { env: stack.environment, stdio: ['pipe', 'ignore', 'pipe'] });
        ended.started++;
        let over = false;
        const end = new Promise((resolve) => psql.on('close', resolve)).then(() => (over = true));
        psql.stdin.on('error', () => {}); // it ended while it was written to: `close` says so
        psql.stderr.setEncoding('utf8').on('data', (text) => (ended.said += text));
        while (!signal.aborted && !over) {
            psql.stdin.write(transaction(++n));
            await sleep(PAUSE_MS, signal);
        }
        psql.stdin.end();
        await end;
        if (!signal.aborted) await sleep(AGAIN_MS, signal);
    }
    return ended;
}
