// --bad-endpoints: 20 healthy receivers beside one that answers after 30 s, one that refuses connections, one whose answers
// are 500 at random, and one that says 429 with Retry-After. Each is a webhook subscription for the recorded domain events.
// Nothing may be lost by those that answer at last; what the others never took must be visible, job by job; and the healthy
// ones must not notice.
import { createServer } from 'node:http';
import { Webhook } from 'standardwebhooks';
import { now, sleep } from './clock.mjs';
import { DOMAIN_TYPE } from './load.mjs';
import { percentile } from './report.mjs';

const HEALTHY = 20;
const SLOW_MS = 30_000;
const BUSY_EVERY_MS = 3000;

const behaviours = {
    slow: async (endpoint, signal) => { await sleep(SLOW_MS, signal); return [204]; },
    random: async () => [Math.random() < 0.3 ? 500 : 204],
    busy: async (endpoint) => {
        if (now() < (endpoint.busyAt ?? 0) + BUSY_EVERY_MS) return [204];
        endpoint.busyAt = now();
        endpoint.quietUntil = now() + 1000;
        return [429, { 'Retry-After': '1' }];
    },
    healthy: async () => [204],
};

class Endpoint {
    constructor(name, kind) {
        this.name = name;
        this.kind = kind;
        this.arrived = new Map(); // id -> when it was taken
        this.again = 0;
        this.problems = [];
    }
}

export class BadEndpoints {
    // strict: nothing is killed.
    constructor(strict) {
        this.strict = strict;
        this.endpoints = [
            ...['slow', 'refusing', 'random', 'busy'].map((kind) => new Endpoint(`bad-${kind}`, kind)),
            ...Array.from({ length: HEALTHY }, (_, i) => new Endpoint(`healthy-${i + 1}`, 'healthy')),
        ];
        this.ending = new AbortController();
        this.server = createServer((request, response) => this.#handle(request, response));
        this.server.keepAliveTimeout = 60_000;
    }

    // Adds the subscriptions, as the application.
    async add(client) {
        await new Promise((resolve) => this.server.listen(0, '127.0.0.1', resolve));
        const port = this.server.address().port;
        const retry = Array.from({ length: 50 }, (_, i) => Math.min(200 * 2 ** i, 2000));
        for (const endpoint of this.endpoints) {
            const url = `http://127.0.0.1:${endpoint.kind === 'refusing' ? 1 : port}/${endpoint.name}`;
            const { rows } = await client.query('select subscription_id, secret from rowbell.add_webhook($1, $2, $3, null, $4, true)',
                [endpoint.name, url, [DOMAIN_TYPE], { allow_http: true, deadline_ms: 2000, retry }]);
            endpoint.id = rows[0].subscription_id;
            endpoint.verifier = new Webhook(rows[0].secret);
        }
    }

    close() {
        this.ending.abort();
        this.server.close();
        this.server.closeAllConnections();
    }

    async #handle(request, response) {
        let body = '';
        try {
            request.setEncoding('utf8');
            for await (const text of request) body += text;
        } catch {
            request.destroy();
            return;
        }
        const endpoint = this.endpoints.find((each) => request.url === `/${each.name}`);
        // What was on its way when the 429 was said is nobody's fault, and a killed dispatcher takes the answer along.
        const quietMs = (endpoint.quietUntil ?? 0) - now();
        if (this.strict && quietMs > 50 && quietMs < 700) endpoint.problems.push('was sent to before its Retry-After had passed');
        const [status, headers] = await behaviours[endpoint.kind](endpoint, this.ending.signal);
        if (status < 300) this.#take(endpoint, request, body);
        response.writeHead(status, headers).end();
    }

    #take(endpoint, request, body) {
        try {
            const { id } = endpoint.verifier.verify(body, request.headers);
            if (endpoint.arrived.has(id)) endpoint.again++;
            else endpoint.arrived.set(id, now());
        } catch (error) {
            endpoint.problems.push(error.message);
        }
    }

    // Of the events, how many are missing where all must arrive.
    missing(domain) {
        return this.endpoints.filter((each) => ['random', 'busy', 'healthy'].includes(each.kind))
            .reduce((sum, each) => sum + [...domain].filter((id) => !each.arrived.has(id)).length, 0);
    }

    // The subscriptions that never empty their queue.
    get stuck() {
        return this.endpoints.filter((each) => ['slow', 'refusing'].includes(each.kind)).map((each) => each.id);
    }

    // What is printed, and what is wrong. times: id -> when it was committed.
    async report(client, domain, times) {
        const lines = [], problems = [];
        for (const endpoint of this.endpoints) for (const problem of endpoint.problems) problems.push(`${endpoint.name}: ${problem}`);
        const missing = this.missing(domain);
        if (missing > 0) problems.push(`${missing} deliveries to the extra endpoints are missing`);
        for (const endpoint of this.endpoints.filter((each) => this.stuck.includes(each.id))) {
            const { rows } = await client.query(`select count(*)::int as open from rowbell.job_states where subscription_id = $1`, [endpoint.id]);
            lines.push(`${endpoint.name}: ${rows[0].open} of ${domain.size} open and visible, ${endpoint.arrived.size} taken`);
            const delivered = await client.query(`select count(distinct event_seq)::int as n from rowbell.attempts
                where subscription_id = $1 and class = 'delivered'`, [endpoint.id]);
            if (rows[0].open + delivered.rows[0].n < domain.size) problems.push(`${endpoint.name}: jobs are gone without a trace`);
        }
        const waits = this.endpoints.filter((each) => each.kind === 'healthy')
            .flatMap((each) => [...each.arrived].filter(([id]) => times.has(id)).map(([id, at]) => at - times.get(id)));
        lines.push(`commit to arrival, ${HEALTHY} healthy endpoints: p50 ${percentile(waits, 50)?.toFixed(1)} ms, `
            + `p99 ${percentile(waits, 99)?.toFixed(1)} ms (${waits.length})`);
        const again = this.endpoints.map((each) => each.again).reduce((a, b) => a + b, 0);
        lines.push(`extra endpoints: ${again} duplicates`);
        return { lines, problems };
    }
}
