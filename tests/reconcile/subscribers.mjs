// Subscribers of the stream, by the npm package eventsource: as a browser does it, Last-Event-ID and all.
import { EventSource } from 'eventsource';
import { now, sleep, until } from './clock.mjs';
import { Channel, changeOf } from './report.mjs';

export class Subscriber {
    #source = null;
    #cut = null;      // ends the connection below the EventSource
    #position = '';   // the last id, as a page script sees it
    #closed = false;

    constructor(name, url, headers = {}) {
        this.channel = new Channel(name, false);
        this.url = url;
        this.headers = headers;
        this.opened = 0;
        this.problems = [];
        this.#open(url);
    }

    // Resolves when the stream is open and its position is known to the EventSource.
    ready() {
        return until(`${this.channel.name} opens ${this.url}`, 15_000, () => this.#position !== '');
    }

    // The network fails: the EventSource reconnects by itself, with its Last-Event-ID.
    cut() {
        this.#cut?.abort(new TypeError('cut by dev/reconcile'));
    }

    // As a page that was left and came back, maybe to another gateway: positions mean the same there (G6).
    reopen(url) {
        this.#source.close();
        this.#open(url);
    }

    close() {
        this.#closed = true;
        this.#source.close();
    }

    #open(url) {
        const address = new URL('/events', url);
        address.searchParams.set('ping', '1'); // shows the opening position to scripts
        if (this.#position) address.searchParams.set('last_event_id', this.#position);
        const source = new EventSource(address, {
            fetch: (target, init) => {
                this.#cut = new AbortController();
                const headers = { ...init.headers, ...this.headers };
                return fetch(target, { ...init, headers, signal: AbortSignal.any([init.signal, this.#cut.signal]) });
            },
        });
        this.#source = source;
        const listen = (type, take) => source.addEventListener(type, (event) => {
            if (event.lastEventId) this.#position = event.lastEventId;
            take(event);
        });
        source.addEventListener('open', () => this.opened++);
        listen('ping', () => {});
        listen('change', (event) => this.#receive(event));
        listen('reset', (event) => this.channel.resets.push(`${JSON.parse(event.data).reason}, now at ${event.lastEventId}`));
        listen('message', (event) => this.channel.refused.push(`an event without a name: ${event.data}`));
        source.addEventListener('error', (event) => this.#failed(source, event));
    }

    #receive(event) {
        try {
            const { table, key, op } = JSON.parse(event.data);
            this.channel.receive(event.lastEventId, changeOf(table, key, op), event.data, now());
        } catch (error) {
            this.channel.refused.push(`${event.data}: ${error.message}`);
        }
    }

    // Anything but a 200 closes an EventSource for ever, so a gateway must not answer it, not even while it starts or stops.
    async #failed(source, event) {
        if (source.readyState !== EventSource.CLOSED || source !== this.#source || this.#closed) return;
        this.problems.push(`${this.channel.name}: closed for ever: ${event.message}`);
        await sleep(250);
        if (source === this.#source && !this.#closed) this.#open(source.url);
    }
}

// One subscriber that never stays: half of the time its network fails, half of the time it comes back elsewhere.
export async function roam(subscriber, urls, signal) {
    while (!signal.aborted) {
        await sleep(300 + Math.random() * 1700, signal);
        if (signal.aborted) return;
        if (Math.random() < 0.5) subscriber.cut();
        else subscriber.reopen(urls[Math.floor(Math.random() * urls.length)]);
    }
}
