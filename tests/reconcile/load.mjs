// The application: pgbench's standard transactions, and one that records domain events and changes its mind.
import { execFile, spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { promisify } from 'node:util';
import pg from 'pg';
import { sleep } from './clock.mjs';

export const DOMAIN_TYPE = 'reconcile.noted';
const run = promisify(execFile);

const tables = ['pgbench_accounts', 'pgbench_tellers', 'pgbench_branches', 'pgbench_history'];

// The application and each of our programs log in with the rights of their role and no more. Returns a URL for each.
export async function loginsMake(client, databaseUrl) {
    const urls = {};
    for (const program of ['app', 'relay', 'dispatcher', 'gateway']) {
        const url = new URL(databaseUrl);
        url.username = `reconcile_${program}`;
        url.password = randomUUID();
        await client.query(`create role ${url.username} login password '${url.password}' in role rowbell_${program}`);
        urls[program] = url.href;
    }
    // It publishes its own tables, and subscribes to events of every scope.
    await client.query('grant rowbell_publish to reconcile_app; grant execute on function rowbell.all_scopes() to reconcile_app');
    await client.query(`do $$ begin execute format('alter database %I owner to reconcile_app', current_database()); end $$`);
    return urls;
}

// Tables, published; the ledger; the webhook subscription, whose secret is returned. As the application.
export async function prepare(pgbench, databaseUrl, receiverUrl) {
    await run(pgbench, ['-i', '-q', '-s', '2', databaseUrl]);
    const client = new pg.Client(databaseUrl);
    await client.connect();
    for (const table of tables) await client.query('select rowbell.publish($1)', [table]);
    await client.query(`select rowbell.declare_type($1, 'dev/reconcile wrote a line into its ledger', webhook => true)`,
        [DOMAIN_TYPE]);
    await client.query('create table ledger (id uuid primary key, subject text not null)');
    // The receiver is there all the time, so a failed request means a killed dispatcher or a full machine: soon again.
    const retry = Array.from({ length: 20 }, (_, i) => Math.min(200 * 2 ** i, 5000));
    const added = await client.query(`select secret from rowbell.add_webhook('reconcile', $1, '{*}', null, $2, true)`,
        [receiverUrl, { allow_http: true, deadline_ms: 2000, retry }]);
    await client.end();
    return added.rows[0].secret;
}

// Ends when the time is over; fails when pgbench does.
export async function pgbenchRun(pgbench, databaseUrl, rate, seconds, signal) {
    const child = spawn(pgbench, ['-n', '--rate', String(rate), '-T', String(seconds), '-c', '4', '-j', '1', databaseUrl],
        { stdio: ['ignore', 'pipe', 'pipe'], detached: true });
    const stop = () => child.kill('SIGTERM');
    signal.addEventListener('abort', stop);
    let output = '';
    for (const stream of [child.stdout, child.stderr]) stream.setEncoding('utf8').on('data', (text) => (output += text));
    const status = await new Promise((resolve, reject) => child.on('error', reject).on('close', (code, by) => resolve(by ?? code)));
    signal.removeEventListener('abort', stop);
    if (status !== 0 && !signal.aborted) throw new Error(`pgbench ended with ${status}:\n${output}`);
    return output;
}

// Each way a transaction may end. All record an event and write its id into the ledger; the last three take it back,
// and a row change with it.
const endings = [
    ['commit', async (client) => client.query('commit')],
    ['commit', async (client) => client.query('commit')],
    ['part', async (client, index) => {
        await client.query('savepoint part');
        await client.query(changeSomething, [index]);
        await record(client, index);
        await client.query('rollback to savepoint part');
        await client.query('commit');
    }],
    ['rollback', async (client, index) => {
        await client.query(changeSomething, [index]);
        await client.query('rollback');
    }],
    ['error', async (client, index) => {
        await client.query(changeSomething, [index]);
        await client.query('select 1 / 0').catch((error) => {
            if (error.code !== '22012') throw error;
        });
        await client.query('commit'); // of a failed transaction: PostgreSQL rolls it back
    }],
];
const changeSomething = 'update pgbench_accounts set abalance = abalance + 1 where aid = 1 + $1::int % 200000';
const record = (client, index) => client.query(
    `insert into ledger (id, subject)
     select rowbell.record($1, s.subject, jsonb_build_object('line', $2::int)), s.subject
       from (values ('ledger/' || $2::int)) as s(subject)`, [DOMAIN_TYPE, index]);

// Records `rate` events a second until `signal`. Returns how many transactions ended in which way.
export async function recorderRun(databaseUrl, rate, signal) {
    const ended = { commit: 0, part: 0, rollback: 0, error: 0 };
    const client = new pg.Client(databaseUrl);
    await client.connect();
    for (let index = 0; !signal.aborted; index++) {
        const [name, end] = endings[index % endings.length];
        await client.query('begin');
        await record(client, index);
        await end(client, index);
        ended[name]++;
        await sleep(1000 / rate, signal);
    }
    await client.end();
    return ended;
}
