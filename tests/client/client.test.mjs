// rowbell.js in a world of our own (world.mjs): time, connections and tabs do what the test says.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { QueryClient } from '@tanstack/query-core';
import { connect, rowKey } from '../../client/rowbell.js';
import { connectQueryClient } from '../../client/tanstack.js';
import { World } from './world.mjs';

const SILENCE_MS = 60_000;
const keysByTable = {
    posts: (key) => (key === '' ? [['posts']] : [['posts', 'list'], ['posts', 'row', key]]),
    authors: [['authors'], ['posts', 'list']],
};

// A connection in a tab, and all that it says.
function follow(tab, options = {}, url = 'https://gateway.example/events') {
    const said = { queries: [], all: [], changes: [], resets: [], states: [], ready: 0 };
    const bell = connect(
        url,
        {
            keysByTable,
            invalidate: (queries) => said.queries.push(queries),
            invalidateAll: (reason) => said.all.push(reason),
            onChange: (change, id) => said.changes.push(`${change.table}/${change.key}@${id}`),
            onReset: (reason) => said.resets.push(reason),
            onState: (state) => said.states.push(state),
            onReady: () => said.ready++,
            ...options,
        },
        tab.host,
    );
    return { ...said, said, bell, tab };
}

function world({ position = '100' } = {}) {
    return Object.assign(new World(), { position });
}

test('a fresh connection asks for pings and takes its position from the first', async () => {
    const w = world();
    const { said, bell, tab } = follow(w.tab({ sharing: false }), { tables: ['posts', 'a&b'], withCredentials: true });
    assert.equal(bell.lastEventId, '');
    await w.pass(0);
    assert.equal(tab.source.url.href, 'https://gateway.example/events?table=posts&table=a%26b&ping=1');
    assert.deepEqual(tab.source.init, { withCredentials: true });
    assert.equal(bell.lastEventId, '100');
    assert.equal(bell.state, 'open');
    assert.equal(said.ready, 1);
    await bell.ready;
    assert.deepEqual(said.resets, []);
});

test('a relative URL is of the page, a malformed one an error at once', async () => {
    const w = world();
    follow(w.tab({ sharing: false }), {}, '/events?x=1');
    await w.pass(0);
    assert.equal(w.sources[0].url.href, 'https://app.example/events?x=1&ping=1');
    assert.throws(() => connect('http://[', {}, w.tab().host), TypeError);
    await w.pass(SILENCE_MS);
    assert.equal(w.sources.length, 1);
});

test('a closed EventSource is opened again with the last id, and nothing is a reset', async () => {
    const w = world();
    const { said, tab, bell } = follow(w.tab({ sharing: false }));
    await w.pass(0);
    tab.source.change('105');
    tab.source.fail(2);
    assert.equal(bell.state, 'connecting');
    await w.pass(1000);
    assert.equal(tab.sources.length, 2);
    assert.equal(tab.source.query.last_event_id, '105');
    tab.source.send('ping'); // this EventSource has had no id yet
    assert.equal(bell.lastEventId, '105');
    tab.source.change('106');
    await w.pass(10_000);
    assert.deepEqual(said.changes, ['posts/p1@105', 'posts/p1@106']);
    assert.deepEqual([said.resets, said.all], [[], []]);
    assert.equal(bell.state, 'open');
});

test('an error that the browser handles by itself is left to the browser', async () => {
    const w = world();
    const { said, tab } = follow(w.tab({ sharing: false }));
    await w.pass(0);
    tab.source.fail(0);
    await w.pass(30_000);
    tab.source.opened();
    await w.pass(1000);
    assert.equal(w.sources.length, 1);
    assert.deepEqual(said.states, ['open', 'connecting', 'open']);
    assert.deepEqual(said.resets, []);
});

test('a browser that reconnects in vain is relieved, with a URL that is asked for anew', async () => {
    const w = world();
    let asked = 0;
    const { tab, said } = follow(w.tab({ sharing: false }), {}, () => `/events?n=${++asked}`);
    await w.pass(0);
    tab.source.fail(0);
    tab.source.opened();
    tab.source.fail(0);
    await w.pass(3000);
    assert.equal(w.sources.length, 1);
    tab.source.fail(0);
    await w.pass(1500);
    assert.deepEqual([w.sources.length, w.sources[0].readyState, tab.source.query.n], [2, 2, '2']);
    assert.equal(tab.source.query.last_event_id, '100');
    assert.deepEqual(said.resets, []);
});

// Field failure 11.
test('refused connections never cause more than 2 tries in 500 ms', async () => {
    for (const random of [0, 0.001, 0.5, 1 - 2 ** -53]) {
        const w = world();
        w.accept = () => false;
        const tab = w.tab({ sharing: false });
        tab.random = random;
        follow(tab);
        await w.pass(300_000);
        const times = tab.sources.map((source) => source.at);
        assert.ok(times.length >= 8, `it gave up after ${times.length} tries`);
        for (let i = 2; i < times.length; i++) {
            assert.ok(times[i] - times[i - 2] >= 1000 && times[i] - times[i - 1] >= 500, `${times[i] - times[i - 1]} ms`);
        }
        for (let i = 1; i < times.length; i++) assert.ok(times[i] - times[i - 1] <= 30_500);
    }
});

test('the pause between tries is drawn from a range that doubles up to 30 s, and begins anew after success', async () => {
    const w = world();
    const tab = w.tab({ sharing: false });
    tab.random = 1;
    w.accept = () => false;
    follow(tab);
    await w.pass(120_000);
    const pauses = tab.sources.slice(1).map((source, i) => source.at - tab.sources[i].at);
    assert.deepEqual(pauses.slice(0, 7), [1500, 2500, 4500, 8500, 16_500, 30_500, 30_500]);
    w.accept = () => true;
    await w.pass(31_000);
    tab.source.fail(2);
    const before = w.now;
    await w.pass(1500);
    assert.equal(tab.source.at, before + 1500);
});

test('a silent connection is opened again; one that pings is not', async () => {
    const w = world();
    const { said, tab } = follow(w.tab({ sharing: false }));
    await w.pass(0);
    for (let i = 0; i < 10; i++) {
        await w.pass(25_000);
        tab.source.send('ping');
    }
    assert.equal(w.sources.length, 1);
    await w.pass(SILENCE_MS + 1000);
    assert.equal(w.sources.length, 2);
    assert.equal(w.sources[0].readyState, 2);
    assert.equal(tab.source.query.last_event_id, '100');
    assert.deepEqual(said.resets, []);
});

test('a connection that hangs before it opens is given up', async () => {
    const w = world();
    follow(w.tab({ sharing: false }));
    w.sources[0].opened = () => {};
    await w.pass(SILENCE_MS + 1001);
    assert.equal(w.sources[0].readyState, 2);
    assert.equal(w.open.length, 1);
});

test('the watch does not put off a try that is due anyway', async () => {
    const w = world();
    w.accept = () => false;
    const tab = w.tab({ sharing: false });
    tab.random = 1;
    follow(tab, { silenceMs: 2000 });
    await w.pass(200_000);
    assert.ok(tab.sources.length >= 9, `${tab.sources.length} tries`);
});

test('a clock that is set back counts as silence, and nothing is lost', async () => {
    const w = world();
    const { tab } = follow(w.tab({ sharing: false }));
    await w.pass(0);
    const timers = [...w.timers.values()];
    w.now -= 3_600_000;
    for (const timer of timers) timer.at -= 3_600_000;
    await w.pass(SILENCE_MS + 1001);
    assert.equal(tab.sources.length, 2);
    assert.equal(tab.source.query.last_event_id, '100');
});

test('a reopening without an id is a reset, once the position is known', async () => {
    const w = world({ position: null }); // the connection drops before its opening ping
    const { said, tab } = follow(w.tab({ sharing: false }));
    await w.pass(0);
    tab.source.fail(2);
    assert.equal(said.ready, 0);
    w.position = '200';
    await w.pass(1000);
    assert.equal(tab.source.query.last_event_id, undefined);
    assert.deepEqual(said.resets, ['position_unknown']);
    tab.source.fail(2);
    await w.pass(10_000);
    assert.deepEqual(said.resets, ['position_unknown']);
    assert.deepEqual(said.all, ['position_unknown']);
});

test("the browser's own reconnect without an id is a reset too, and the gateway's reset is not doubled", async () => {
    const w = world({ position: null });
    const a = follow(w.tab({ sharing: false }));
    await w.pass(0);
    a.tab.source.fail(0);
    a.tab.source.opened();
    a.tab.source.send('ping', {}, '7');
    assert.deepEqual(a.said.resets, ['position_unknown']);

    const b = follow(w.tab({ sharing: false }));
    await w.pass(0);
    b.tab.source.fail(0);
    b.tab.source.opened();
    b.tab.source.send('reset', { reason: 'id_unreadable' }, '9');
    assert.deepEqual(b.said.resets, ['id_unreadable']);
});

// Field failure 10.
test('changes of one key within 250 ms are one invalidation, each query once', async () => {
    const w = world();
    const { said, tab } = follow(w.tab({ sharing: false }));
    await w.pass(0);
    for (let i = 0; i < 40; i++) tab.source.change(`${101 + i}`, i % 2 ? 'p1' : 'p2');
    tab.source.change('150', 'ada', 'authors');
    await w.pass(249);
    assert.deepEqual(said.queries, []);
    await w.pass(1);
    assert.deepEqual(said.queries, [[['posts', 'list'], ['posts', 'row', 'p2'], ['posts', 'row', 'p1'], ['authors']]]);
    assert.equal(said.changes.length, 41);
    await w.pass(10_000);
    assert.equal(said.queries.length, 1);
});

test('a key that changes without end is still invalidated every 250 ms', async () => {
    const w = world();
    const { said, tab } = follow(w.tab({ sharing: false }));
    await w.pass(0);
    for (let i = 0; i < 50; i++) {
        tab.source.change(`${101 + i}`);
        await w.pass(50);
    }
    assert.ok(said.queries.length >= 8 && said.queries.length <= 10, `${said.queries.length} in 2.5 s`);
});

test('a keyless change covers its rows; so does a change of very many', async () => {
    const w = world();
    const { said, tab } = follow(w.tab({ sharing: false }));
    await w.pass(0);
    tab.source.change('101', 'p1');
    tab.source.change('102', '');
    await w.pass(250);
    assert.deepEqual(said.queries, [[['posts']]]);
    for (let i = 0; i < 101; i++) tab.source.change(`${200 + i}`, `p${i}`);
    await w.pass(250);
    assert.deepEqual(said.queries[1], [['posts']]);
    for (let i = 0; i < 100; i++) tab.source.change(`${400 + i}`, `p${i}`);
    await w.pass(250);
    assert.equal(said.queries[2].length, 101);
});

test('tables that no query reads invalidate nothing, whatever they are called', async () => {
    const w = world();
    const { said, tab } = follow(w.tab({ sharing: false }));
    await w.pass(0);
    for (const table of ['other', 'constructor', '__proto__', 'toString']) tab.source.change('101', 'p1', table);
    await w.pass(1000);
    assert.deepEqual(said.queries, []);
    assert.equal(said.changes.length, 4);
});

test('after a reset everything is invalidated once, at a random time within the spread', async () => {
    const w = world();
    const { said, tab, bell } = follow(w.tab({ sharing: false }));
    await w.pass(0);
    tab.random = 0.9;
    tab.source.send('reset', { reason: 'history_expired' }, '300');
    tab.source.send('reset', { reason: 'replay_limit' }, '301');
    assert.deepEqual(said.resets, ['history_expired', 'replay_limit']);
    assert.equal(bell.lastEventId, '301');
    await w.pass(4499);
    assert.deepEqual(said.all, []);
    await w.pass(1);
    assert.deepEqual(said.all, ['history_expired']);
    tab.random = 0;
    tab.source.send('reset', { reason: 'stream_rewound' }, '250');
    await w.pass(0);
    assert.deepEqual(said.all, ['history_expired', 'stream_rewound']);
    assert.equal(bell.lastEventId, '250');
});

test("an error in the application's own functions loses no invalidation", async () => {
    const w = world();
    const { said, tab } = follow(w.tab({ sharing: false }), {
        onChange() {
            throw new Error('of the application');
        },
    });
    await w.pass(0);
    assert.throws(() => tab.source.change('101'), /of the application/);
    await w.pass(250);
    assert.equal(said.queries.length, 1);
});

test('close ends everything', async () => {
    const w = world();
    const a = follow(w.tab());
    const b = follow(w.tab());
    await w.pass(0);
    a.tab.source.change('101');
    a.tab.source.send('reset', { reason: 'replay_limit' }, '102');
    await w.pass(0);
    b.bell.close();
    a.bell.close();
    await w.pass(10 * SILENCE_MS);
    assert.deepEqual([w.open.length, w.timers.size, w.channels.size, w.sources.length], [0, 0, 0, 1]);
    assert.deepEqual([a.said.queries, a.said.all, b.said.all, a.tab.listeners.size], [[], [], [], 0]);
    for (const lock of w.locks.values()) assert.ok(!lock.holder && lock.queue.length === 0);
});

test('a URL from a function is asked for anew each time; its failure is a failed connection', async () => {
    const w = world();
    let asked = 0;
    const { tab } = follow(w.tab(), {}, async () => {
        if (++asked === 2) throw new Error('no ticket');
        if (asked === 3) return 'http://[';
        return `/events?ticket=${asked}`;
    });
    await w.pass(0);
    assert.equal(tab.source.query.ticket, '1');
    tab.source.fail(2);
    await w.pass(10_000);
    assert.equal(asked, 4);
    assert.equal(tab.source.url.href, 'https://app.example/events?ticket=4&ping=1&last_event_id=100');
    assert.equal(w.channels.size, 0); // not shared unless told under which name
});

test('a URL function that never answers is given up', async () => {
    const w = world();
    let asked = 0;
    follow(w.tab(), {}, () => (++asked === 1 ? new Promise(() => {}) : '/events'));
    await w.pass(SILENCE_MS + 1001);
    assert.equal(asked, 2);
    assert.equal(w.open.length, 1);
});

// ---- tabs ----

test('tabs share one connection, and each hears everything', async () => {
    const w = world();
    const tabs = [follow(w.tab()), follow(w.tab()), follow(w.tab())];
    await w.pass(0);
    assert.equal(w.sources.length, 1);
    tabs[0].tab.source.change('101', 'p9');
    await w.pass(250);
    for (const { said, bell } of tabs) {
        assert.deepEqual(said.changes, ['posts/p9@101']);
        assert.deepEqual(said.queries, [[['posts', 'list'], ['posts', 'row', 'p9']]]);
        assert.deepEqual([said.ready, bell.state, bell.lastEventId, said.resets.length], [1, 'open', '101', 0]);
    }
    const late = follow(w.tab());
    await w.pass(0);
    assert.deepEqual([late.said.ready, late.bell.state, late.bell.lastEventId], [1, 'open', '101']);
    tabs[0].tab.source.send('reset', { reason: 'replay_limit' }, '500');
    await w.pass(5000);
    for (const { said } of [...tabs, late]) assert.deepEqual(said.all, ['replay_limit']);
    assert.equal(w.sources.length, 1);
});

test('tabs of another name, URL or choice of tables have a connection of their own', async () => {
    const w = world();
    follow(w.tab(), { share: 'ada' });
    follow(w.tab(), { share: 'bob' });
    follow(w.tab(), { share: 'ada', tables: ['posts'] });
    follow(w.tab(), { share: false });
    follow(w.tab(), {}, '/other');
    follow(w.tab(), { share: 'ada' });
    await w.pass(0);
    assert.equal(w.open.length, 5);
});

test('a dying leader hands over with the last id', async () => {
    const w = world();
    const [a, b, c] = [follow(w.tab()), follow(w.tab()), follow(w.tab())];
    await w.pass(0);
    a.tab.source.change('101');
    await w.pass(0);
    a.tab.crash();
    await w.pass(0);
    assert.equal(w.open.length, 1);
    assert.equal(w.open[0].tab, b.tab);
    assert.equal(b.tab.source.query.last_event_id, '101');
    b.tab.source.change('102');
    await w.pass(0);
    assert.deepEqual(c.said.changes, ['posts/p1@101', 'posts/p1@102']);
    assert.deepEqual([b.said.resets, c.said.resets], [[], []]);
    b.bell.close();
    await w.pass(0);
    assert.equal(w.open[0].tab, c.tab);
    assert.equal(c.tab.source.query.last_event_id, '102');
});

test('a tab that missed what the leader said counts it as a reset', async () => {
    const w = world();
    const [a, b] = [follow(w.tab()), follow(w.tab())];
    await w.pass(0);
    b.tab.deaf = true;
    a.tab.source.change('101');
    await w.pass(1000);
    b.tab.deaf = false;
    a.tab.source.send('ping');
    await w.pass(5000);
    assert.deepEqual(b.said.resets, ['tab_missed']);
    assert.deepEqual(b.said.all, ['tab_missed']);
    assert.deepEqual(a.said.resets, []);
    a.tab.source.change('102');
    await w.pass(0);
    assert.deepEqual([b.said.resets.length, b.bell.lastEventId], [1, '102']);
});

test('a tab that wakes asks at once whether it missed something', async () => {
    const w = world();
    const [a, b] = [follow(w.tab()), follow(w.tab())];
    await w.pass(0);
    b.tab.freeze();
    b.tab.deaf = true; // what was said meanwhile does not reach it
    a.tab.source.change('101');
    await w.pass(1000);
    b.tab.deaf = false;
    b.tab.thaw();
    await w.pass(0);
    assert.deepEqual([b.said.resets, b.bell.lastEventId], [['tab_missed'], '101']);
});

test('a leader that stands still is replaced, and steps down when it wakes', async () => {
    const w = world();
    const [a, b] = [follow(w.tab()), follow(w.tab())];
    await w.pass(0);
    a.tab.source.change('101');
    await w.pass(0);
    a.tab.freeze();
    await w.pass(SILENCE_MS + 3000);
    assert.equal(w.open.at(-1).tab, b.tab);
    assert.equal(b.tab.source.query.last_event_id, '101');
    b.tab.source.change('102');
    await w.pass(0);
    a.tab.thaw();
    await w.pass(5000);
    assert.equal(w.open.length, 1);
    assert.equal(w.open[0].tab, b.tab);
    assert.deepEqual(a.said.changes, ['posts/p1@101', 'posts/p1@102']); // what was said meanwhile waited for it
    assert.deepEqual([a.said.resets, b.said.resets], [[], []]);
    b.tab.source.change('103');
    await w.pass(0);
    assert.equal(a.bell.lastEventId, '103');
    assert.equal(a.said.changes.at(-1), 'posts/p1@103');
    b.tab.crash();
    await w.pass(0);
    assert.equal(w.open[0].tab, a.tab);
    assert.equal(a.tab.source.query.last_event_id, '103');
});

test('a leader that is only quiet is not replaced', async () => {
    const w = world();
    const [a] = [follow(w.tab(), { silenceMs: 600_000 }), follow(w.tab())];
    await w.pass(SILENCE_MS * 5);
    assert.equal(w.sources.length, 1);
    assert.equal(w.open[0].tab, a.tab);
});

test('the state of the connection reaches every tab', async () => {
    const w = world();
    const [a, b] = [follow(w.tab()), follow(w.tab())];
    await w.pass(0);
    a.tab.source.fail(2);
    await w.pass(0);
    assert.equal(b.bell.state, 'connecting');
    await w.pass(1000);
    assert.equal(b.bell.state, 'open');
    assert.deepEqual(b.said.resets, []);
});

test('where locks are forbidden, the tab has a connection of its own', async () => {
    const w = world();
    const tab = w.tab();
    tab.lockError = new DOMException('opaque origin', 'SecurityError');
    const { bell } = follow(tab);
    await w.pass(0);
    assert.equal(bell.lastEventId, '100');
    await w.pass(SILENCE_MS / 2);
    assert.equal(w.sources.length, 1);
});

// What the application was shown, against what happened: tabs come, sleep, lose messages and die at random.
test('G5 across tabs: for every tab, a change is heard or a reset covers it', async () => {
    const seed = Number(process.env.ROWBELL_TEST_SEED ?? Math.floor(Math.random() * 2 ** 31));
    let x = seed || 1;
    const random = (n) => {
        x ^= x << 13;
        x ^= x >>> 17;
        x ^= x << 5;
        return (x >>> 0) % n;
    };
    for (let round = 0; round < 60; round++) {
        const w = world();
        const log = []; // { id, key }
        const tabs = [];
        let newest = 100;
        // A gateway: each connection is a cursor over the log.
        const serve = () => {
            for (const source of w.open) {
                source.cursor ??= Number(source.query.last_event_id ?? source.lastId);
                if (source.tab.frozen) continue;
                for (const { id, key } of log) {
                    if (id <= source.cursor || source.readyState !== 1) continue;
                    source.cursor = id;
                    source.change(String(id), key);
                }
            }
        };
        const arrive = () => {
            const tab = w.tab();
            tab.random = random(1000) / 1000;
            const f = follow(tab, {
                onReady: () => (f.from = newest),
                onReset: () => (f.resetAt = newest),
                onChange: (change, id) => f.got.add(Number(id)),
            });
            f.got = new Set();
            tabs.push(f);
        };
        arrive();
        for (let step = 0; step < 150; step++) {
            const alive = tabs.filter((f) => !f.dead);
            const one = alive[random(alive.length)];
            const what = random(12);
            if (what < 4) log.push({ id: (newest += 1 + random(5)), key: `p${random(9)}` });
            else if (what === 4 && tabs.length < 8) arrive();
            else if (what === 5 && alive.length > 1) (one.dead = true), one.tab.crash();
            else if (what === 6) one.tab.freeze();
            else if (what === 7 && one?.tab.frozen) one.tab.thaw();
            else if (what === 8) one.tab.deaf = !one.tab.deaf;
            else if (what === 9) one.tab.source?.readyState === 1 && !one.tab.frozen && one.tab.source.fail(random(2) * 2);
            else await w.pass(random(4) ? random(2000) : random(90_000));
            for (const source of w.sources) if (source.readyState === 0 && source.onerror && source.cursor !== undefined && !source.tab.frozen) source.opened();
            w.position = String(newest);
            serve();
        }
        for (const f of tabs) {
            f.tab.deaf = false;
            if (!f.dead && f.tab.frozen) f.tab.thaw();
        }
        for (let i = 0; i < 8; i++) {
            await w.pass(25_000);
            for (const source of w.sources) if (source.readyState === 0 && source.cursor !== undefined && !source.tab.frozen) source.opened();
            serve();
            for (const source of w.open) if (!source.tab.frozen) source.send('ping');
        }
        await w.pass(1000);
        for (const [number, f] of tabs.entries()) {
            if (f.dead) continue;
            assert.equal(f.bell.lastEventId, String(newest), `seed ${seed} round ${round} tab ${number}`);
            for (const { id } of log) {
                if (id <= f.from) continue;
                assert.ok(f.got.has(id) || f.resetAt >= id, `seed ${seed} round ${round} tab ${number}: ${id} is missing`);
            }
        }
        assert.equal(w.open.length, 1, `seed ${seed} round ${round}`);
        for (const f of tabs) f.bell.close();
    }
});

// ---- the rest ----

test('a key is rendered as the database renders it', () => {
    assert.equal(rowKey('p1'), 'p1');
    assert.equal(rowKey("a b/c!'()*~._-", 7, 'é€'), 'a%20b%2Fc%21%27%28%29%2A~._-/7/%C3%A9%E2%82%AC');
});

test('TanStack Query: a change fetches the row and the lists again, and no other row', async () => {
    const w = world();
    const tab = w.tab();
    const client = new QueryClient();
    const keys = [['posts', 'list', { page: 1 }], ['posts', 'row', 'p1'], ['posts', 'row', 'p2'], ['unrelated']];
    const stale = () => keys.map((key) => client.getQueryState(key).isInvalidated);
    const read = () => keys.forEach((key) => client.setQueryData(key, 'read'));
    read();
    let ready = 0;
    const bell = connectQueryClient(client, '/events', { keysByTable, onReady: () => ready++ }, tab.host);
    await w.pass(0);
    assert.deepEqual(stale(), [true, true, true, true]); // read before the stream began
    assert.equal(ready, 1);
    read();
    tab.source.change('101', 'p1');
    await w.pass(250);
    assert.deepEqual(stale(), [true, true, false, false]);
    read();
    tab.source.send('reset', { reason: 'replay_limit' }, '200');
    await w.pass(5000);
    assert.deepEqual(stale(), [true, true, true, true]);
    bell.close();
});
