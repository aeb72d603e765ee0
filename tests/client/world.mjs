// A browser in which nothing happens by itself: a clock, and tabs with EventSource, Web Locks and BroadcastChannel. It
// is strict: what a page must not do, or what this world does not know, is an error.
import assert from 'node:assert/strict';

const turn = () => new Promise((resolve) => setImmediate(resolve)); // every microtask has run by then

export class World {
    now = 1_800_000_000_000;
    timers = new Map();
    nextTimer = 1;
    sources = []; // every EventSource ever made
    channels = new Set();
    locks = new Map(); // name -> { holder, queue }
    accept = () => true; // may this connection be opened? else it is refused

    // Runs what is due, in order, up to now + ms. A frozen tab's timers wait.
    async pass(ms) {
        const end = this.now + ms;
        await turn();
        for (;;) {
            const due = [...this.timers.values()].filter((timer) => timer.at <= end && !timer.tab.frozen);
            if (due.length === 0) break;
            const next = due.reduce((a, b) => (b.at < a.at ? b : a));
            this.timers.delete(next.number);
            this.now = Math.max(this.now, next.at);
            next.run();
            await turn();
        }
        this.now = end;
        await turn();
    }

    tab(options) {
        return new Tab(this, options);
    }

    get open() {
        return this.sources.filter((source) => source.readyState === 1);
    }

    later(tab, run, ms = 0) {
        const number = this.nextTimer++;
        this.timers.set(number, { number, at: this.now + ms, tab, run });
        return number;
    }
}

class Tab {
    frozen = false;
    random = 0.5;
    closers = [];
    listeners = new Map();

    constructor(world, { sharing = true, visibilityState = 'visible' } = {}) {
        this.world = world;
        const tab = this;
        this.host = {
            location: { href: 'https://app.example/page' },
            setTimeout: (run, ms) => world.later(tab, run, ms),
            clearTimeout: (number) => world.timers.delete(number),
            Date: { now: () => world.now },
            Math: { random: () => tab.random, min: Math.min },
            document: {
                visibilityState,
                addEventListener(type, run) {
                    tab.listeners.set(type, run);
                },
                removeEventListener(type, run) {
                    assert.equal(tab.listeners.get(type), run);
                    tab.listeners.delete(type);
                },
            },
            EventSource: class extends Source {
                constructor(url, init) {
                    super(tab, url, init);
                }
            },
            navigator: {},
        };
        if (sharing) {
            this.host.navigator.locks = { request: (name, options, callback) => lockRequest(tab, name, options, callback) };
            this.host.BroadcastChannel = class extends Channel {
                constructor(name) {
                    super(tab, name);
                }
            };
        }
    }

    get sources() {
        return this.world.sources.filter((source) => source.tab === this);
    }

    // The newest connection.
    get source() {
        return this.sources.at(-1);
    }

    freeze() {
        this.frozen = true;
    }

    thaw() {
        this.frozen = false;
        this.listeners.get('resume')?.();
    }

    // The tab is gone: its connection, its locks, its channels.
    crash() {
        this.frozen = true;
        for (const source of this.sources) source.readyState = 2;
        for (const channel of this.world.channels) if (channel.tab === this) this.world.channels.delete(channel);
        for (const lock of this.world.locks.values()) {
            lock.queue = lock.queue.filter((request) => request.tab !== this);
            if (lock.holder?.tab === this) lockRelease(this.world, lock);
        }
    }
}

class Source {
    readyState = 0;
    lastId = '';
    onopen = null;
    onerror = null;
    listeners = new Map();

    constructor(tab, url, init) {
        assert.ok(!tab.frozen, 'a frozen tab runs no script');
        this.tab = tab;
        this.url = new URL(url); // must be absolute and well-formed
        this.init = init;
        this.at = tab.world.now;
        tab.world.sources.push(this);
        tab.world.later(tab, () => {
            if (this.readyState !== 0) return;
            if (tab.world.accept(this)) this.opened();
            else this.fail(2);
        });
    }

    addEventListener(type, run) {
        assert.ok(['ping', 'change', 'reset'].includes(type), type);
        assert.ok(!this.listeners.has(type));
        this.listeners.set(type, run);
    }

    close() {
        this.readyState = 2;
    }

    // ---- what a test makes happen ----

    opened() {
        this.readyState = 1;
        this.onopen({});
        const { last_event_id } = this.query;
        if (!last_event_id && !this.lastId && this.tab.world.position) this.send('ping', {}, this.tab.world.position);
    }

    get query() {
        return Object.fromEntries(this.url.searchParams);
    }

    send(type, data = {}, id = '') {
        assert.equal(this.readyState, 1, 'sent on a connection that is not open');
        assert.ok(!this.tab.frozen);
        this.lastId = id || this.lastId;
        this.listeners.get(type)?.({ type, data: JSON.stringify(data), lastEventId: this.lastId });
    }

    change(id, key = 'p1', table = 'posts', op = 'update') {
        this.send('change', { table, key, op }, id);
    }

    // 0: the browser tries again by itself; 2: it has given up.
    fail(readyState) {
        this.readyState = readyState;
        this.onerror({});
    }
}

class Channel {
    onmessage = null;

    constructor(tab, name) {
        this.tab = tab;
        this.name = name;
        tab.world.channels.add(this);
    }

    postMessage(message) {
        assert.ok(this.tab.world.channels.has(this), 'posted on a closed channel');
        assert.ok(!this.tab.frozen);
        const data = structuredClone(message);
        for (const other of this.tab.world.channels) {
            if (other === this || other.name !== this.name) continue;
            if (other.tab.deaf) continue;
            this.tab.world.later(other.tab, () => this.tab.world.channels.has(other) && other.onmessage?.({ data }));
        }
    }

    close() {
        this.tab.world.channels.delete(this);
    }
}

function lockRequest(tab, name, options, callback) {
    const { world } = tab;
    if (tab.lockError) return Promise.reject(tab.lockError);
    assert.ok(!(options.steal && options.signal), 'NotSupportedError: steal and signal');
    const lock = world.locks.get(name) ?? { holder: null, queue: [] };
    world.locks.set(name, lock);
    return new Promise((resolve, reject) => {
        const request = { tab, callback, resolve, reject };
        if (options.steal) {
            const robbed = lock.holder;
            if (robbed) world.later(robbed.tab, () => robbed.reject(new DOMException('stolen', 'AbortError')));
            lock.holder = null;
            lock.queue.unshift(request);
        } else {
            lock.queue.push(request);
            options.signal.addEventListener('abort', () => {
                if (!lock.queue.includes(request)) return;
                lock.queue.splice(lock.queue.indexOf(request), 1);
                reject(options.signal.reason);
            });
        }
        lockGrant(world, lock);
    });
}

function lockGrant(world, lock) {
    if (lock.holder || lock.queue.length === 0) return;
    const holder = (lock.holder = lock.queue.shift());
    world.later(holder.tab, async () => {
        if (lock.holder !== holder) return;
        try {
            holder.resolve(await holder.callback({}));
        } catch (error) {
            holder.reject(error);
        }
        if (lock.holder === holder) lockRelease(world, lock);
    });
}

function lockRelease(world, lock) {
    lock.holder = null;
    lockGrant(world, lock);
}
