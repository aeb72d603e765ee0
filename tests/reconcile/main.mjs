// dev/reconcile: does everything that an application commits arrive, everywhere, and nothing else? Commits come from
// pgbench and from a recorder of domain events; deliveries are taken at a webhook receiver and at subscribers of the
// stream; then both are compared (report.mjs). dev/reconcile starts this with a database and a Redis of its own.
import { parseArgs } from 'node:util';
import pg from 'pg';
import { now, sleep } from './clock.mjs';
import { BadEndpoints } from './endpoints.mjs';
import { Fleet } from './fleet.mjs';
import { commitTimes, committed, openWork } from './ledger.mjs';
import { loginsMake, pgbenchRun, prepare, recorderRun } from './load.mjs';
import { Receiver } from './receiver.mjs';
import { account, exitCode, lastLine, percentile, table } from './report.mjs';
import { roam, Subscriber } from './subscribers.mjs';
import { Wire } from './wire.mjs';

// The least that the dispatcher takes: the request deadline of 20 s and a margin. What a killed dispatcher had in flight
// is sent again after so long.
const LEASE_S = 25;
const DRAIN_S = LEASE_S + 30;
const KILL_EVERY_MS = 2000;
const DETAILS_MOST = 20;
const HOT_SHARE = 0.2; // of a core: what no process may use while it only waits for a server

const { values: options } = parseArgs({
    options: {
        seconds: { type: 'string' }, rate: { type: 'string' }, faults: { type: 'boolean', default: false },
        'bad-endpoints': { type: 'boolean', default: false },
        outage: { type: 'string', default: '0' },
        'database-url': { type: 'string' }, 'redis-url': { type: 'string' }, binaries: { type: 'string' },
        pgbench: { type: 'string' }, directory: { type: 'string' }, 'gateway-port': { type: 'string', multiple: true },
    },
});
const outage = Number(options.outage);
// Two outages, and what is normal before, between and after them.
const seconds = Math.max(Number(options.seconds), outage ? 2 * outage + 9 : 0);
const rate = Number(options.rate);
const say = (text) => process.stderr.write(`${text}\n`);

const ending = new AbortController(); // Ctrl-C
const load = new AbortController();   // the end of the load
ending.signal.addEventListener('abort', () => load.abort());

const client = new pg.Client(options['database-url']); // reads what happened; all others have a login of their own
let logins;
const receiver = new Receiver();
const extra = options['bad-endpoints'] ? new BadEndpoints(!options.faults) : null;
// Our processes reach their servers through these; the application reaches the database directly.
const wires = { database: new Wire(), redis: new Wire() };
const throughWire = async (name, url) => {
    const wired = new URL(url);
    wired.port = await wires[name].lay(wired.hostname, Number(wired.port));
    return wired.href;
};
const fleet = new Fleet(options.directory, {
    PATH: process.env.PATH,
    REDIS_URL: outage ? await throughWire('redis', options['redis-url']) : options['redis-url'],
});
const gatewayUrls = options['gateway-port'].map((port) => `http://127.0.0.1:${port}`);
let subscribers = [];

for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) {
    process.on(signal, () => {
        ending.abort();
        fleet.kill();
        process.exit(128 + { SIGHUP: 1, SIGINT: 2, SIGTERM: 15 }[signal]);
    });
}

try {
    process.exitCode = await reconcile();
} catch (error) {
    say(`error: ${error.stack}`);
    process.exitCode = 2;
} finally {
    for (const subscriber of subscribers) subscriber.close();
    fleet.kill();
    receiver.close();
    extra?.close();
    for (const wire of Object.values(wires)) wire.close();
    await client.end().catch(() => {});
    process.exit(); // with the status above; whatever a cut wire has left open is of no use
}

async function reconcile() {
    await client.connect();
    logins = await loginsMake(client, options['database-url']);
    if (outage) for (const program of ['relay', 'dispatcher', 'gateway']) logins[program] = await throughWire('database', logins[program]);
    receiver.trust(await prepare(options.pgbench, logins.app, await receiver.listen()));
    if (extra) await extraAdd();
    await startFleet();
    subscribers = [
        new Subscriber('sse 1a', gatewayUrls[0]), new Subscriber('sse 1b', gatewayUrls[0]),
        new Subscriber('sse 2a', gatewayUrls[1]), new Subscriber('sse roams', gatewayUrls[1]),
    ];
    await Promise.all(subscribers.map((subscriber) => subscriber.ready()));

    const transactions = await loadRun();
    const expected = await committed(client);
    const drained = await drain(expected);
    const open = await openWork(client, extra?.stuck);
    for (const subscriber of subscribers) subscriber.close();
    const stopMs = await fleet.stop();

    const report = compare(expected);
    const problems = [...fleet.problems, ...subscribers.flatMap((subscriber) => subscriber.problems)];
    print(report, transactions, await latencies());
    if (extra) {
        const more = await extra.report(client, expected.domain, (await commitTimes(client)).domain);
        for (const line of more.lines) console.log(line);
        problems.push(...more.problems);
    }
    say(`drained in ${drained.toFixed(1)} s; all six processes stopped in ${(stopMs / 1000).toFixed(1)} s`);
    if (open.events + open.jobs + open.waiting + open.stopped > 0) {
        say(`left in the queue: ${open.events} events, ${open.jobs} jobs, ${open.waiting} waiting, ${open.stopped} held or poisoned`);
    }
    for (const problem of problems) say(`problem: ${problem}`);
    console.log(lastLine(report));
    return exitCode(report) || (problems.length ? 1 : 0);
}

async function extraAdd() {
    const application = new pg.Client(logins.app);
    await application.connect();
    await extra.add(application);
    await application.end();
}

function compare(expected) {
    return account(expected, receiver.channel, subscribers.map((subscriber) => subscriber.channel));
}

async function startFleet() {
    const start = (program, number, ...args) => fleet.start(`${program}-${number}`,
        `${options.binaries}/${program}/rowbell-${program}`, ['--database-url', logins[program], ...args]);
    for (const number of [1, 2]) {
        start('relay', number);
        start('dispatcher', number, '--lease', `${LEASE_S}s`, '--allow-egress', '127.0.0.0/8');
        // A subscriber comes back soon, and what it missed meanwhile is replayed: a reset would be our own doing.
        start('gateway', number, '--auth', 'none', '--listen', `127.0.0.1:${options['gateway-port'][number - 1]}`, '--retry', '250ms',
            '--max-replay', '20000');
    }
    await Promise.all(fleet.names().map((name) => fleet.ready(name)));
}

async function loadRun() {
    say(`load: ${rate} transactions a second for ${seconds} s${options.faults ? ', one process killed every 2 s' : ''}`);
    const roaming = roam(subscribers.at(-1), gatewayUrls, load.signal);
    const killing = options.faults ? kill(load.signal) : null;
    const cutting = outage ? cut(load.signal) : null;
    const recording = recorderRun(logins.app, Math.max(1, rate / 10), load.signal);
    try {
        await Promise.race([pgbenchRun(options.pgbench, logins.app, rate, seconds, ending.signal), recording]);
    } finally {
        load.abort();
    }
    await Promise.all([roaming, killing, cutting]);
    return recording;
}

async function kill(signal) {
    for (;;) {
        await sleep(KILL_EVERY_MS, signal);
        if (signal.aborted) return;
        const names = fleet.names();
        const name = names[Math.floor(Math.random() * names.length)];
        await fleet.killAndRestart(name);
        say(`killed ${name}`);
    }
}

// The database, then Redis, are away for `outage` seconds: half of the time refused, half of it silent.
async function cut(signal) {
    for (const [name, wire] of Object.entries(wires)) {
        await sleep(3000, signal);
        const before = fleet.cpuSeconds();
        for (const state of ['refused', 'silent']) {
            wire.set(state);
            say(`the ${name} is ${state} for ${outage / 2} s`);
            await sleep(outage * 500, signal);
        }
        for (const [member, used] of fleet.cpuSeconds()) {
            const share = (used - before.get(member)) / outage;
            if (name === 'database' && share > HOT_SHARE) fleet.problems.push(`${member} used ${(share * 100).toFixed(0)} % of a core without a ${name}`);
        }
        wire.set('open');
        say(`the ${name} is back`);
    }
}

// Waits until everything has arrived and nothing is in hand any more, at most DRAIN_S. Returns how long it took (s).
async function drain(expected) {
    const began = now();
    for (let said = began; now() < began + DRAIN_S * 1000; await sleep(200, ending.signal)) {
        const { lost } = compare(expected);
        const open = await openWork(client, extra?.stuck);
        if (lost === 0 && !extra?.missing(expected.domain) && open.events + open.jobs + open.waiting === 0) break;
        if (now() > said + 5000) {
            say(`draining: ${lost} deliveries missing, ${open.events} events and ${open.jobs + open.waiting} jobs in hand`);
            said = now();
        }
    }
    return (now() - began) / 1000;
}

// From the commit's timestamp to the first arrival, ms: of domain events by webhook, of updated accounts on the stream.
async function latencies() {
    const times = await commitTimes(client);
    const waits = (channel, committedAt) => {
        const found = [];
        for (const [id, { change, at }] of channel.deliveries) {
            const from = committedAt(id, change);
            if (from !== undefined) found.push(at - from);
        }
        return found;
    };
    const onStream = (_, change) => times.changes.get(change);
    return {
        webhook: waits(receiver.channel, (id, change) => (change === null ? times.domain.get(id) : times.changes.get(change))),
        stream: subscribers.slice(0, -1).flatMap((subscriber) => waits(subscriber.channel, onStream)),
        roaming: waits(subscribers.at(-1).channel, onStream),
    };
}

function print(report, transactions, waits) {
    for (const line of report.details.slice(0, DETAILS_MOST)) console.log(line);
    if (report.details.length > DETAILS_MOST) console.log(`... and ${report.details.length - DETAILS_MOST} more`);
    console.log('');
    console.log(table(report));
    console.log('');
    for (const [name, values] of Object.entries(waits)) {
        const [p50, p99] = [50, 99].map((percent) => percentile(values, percent)?.toFixed(1) ?? '-');
        console.log(`commit to arrival, ${name}: p50 ${p50} ms, p99 ${p99} ms (${values.length})`);
    }
    console.log(`recorder: ${transactions.commit} commits, ${transactions.part} with a part rolled back, `
        + `${transactions.rollback} rollbacks, ${transactions.error} failed`);
    console.log(`connections: ${subscribers.map((each) => `${each.channel.name} ${each.opened}`).join(', ')}`);
    if (options.faults) {
        console.log(`killed: ${[...fleet.kills].sort().map(([name, times]) => `${name} x${times}`).join(', ') || 'none'}`);
    }
    console.log(`committed = ${report.changes} row changes (webhook and stream) + ${report.domain} domain events (webhook only)`);
}
