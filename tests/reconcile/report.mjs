// The accounting: what was committed against what each channel received. Pure, so that it can be tested by itself.
//
// A change is the text of a row change's address (changeOf). How often it was committed is compared with how many
// different deliveries named it: two commits of one row are two deliveries, and a delivery received twice is a duplicate,
// not a second one. Domain events are compared by id.

export const changeOf = (table, key, op) => JSON.stringify([table, key ?? '', op]);

// A channel is the webhook receiver or one subscriber of the stream.
export class Channel {
    constructor(name, takesDomainEvents) {
        this.name = name;
        this.takesDomainEvents = takesDomainEvents;
        this.deliveries = new Map(); // id (webhook-id, position) -> {change or domain, body, at}
        this.duplicates = new Map(); // id -> how many beyond the first
        this.resets = [];
        this.refused = [];           // what no honest delivery looks like: a bad signature, a body that changed
    }

    // `change` from changeOf, or null: the domain event whose id this is. `body` must be the same each time.
    receive(id, change, body, at) {
        const known = this.deliveries.get(id);
        if (!known) {
            this.deliveries.set(id, { change, body, at });
        } else {
            this.duplicates.set(id, (this.duplicates.get(id) ?? 0) + 1);
            if (known.body !== body) this.refused.push(`${id} came again with another body`);
        }
    }
}

// committed: {changes: Map change -> how often, domain: Set of ids}. Returns what is printed, and {lost, foreign, ...}.
export function account(committed, webhook, subscribers) {
    const channels = [webhook, ...subscribers].map((channel) => accountChannel(committed, channel));
    const streams = channels.slice(1);
    const changes = sum(committed.changes.values());
    let everywhere = 0; // row changes that reached every subscriber
    for (const change of committed.changes.keys()) {
        everywhere += streams.length ? Math.min(...streams.map((stream) => stream.delivered.get(change) ?? 0)) : 0;
    }
    const total = (name) => sum(channels.map((channel) => channel[name]));
    return {
        channels,
        tables: tableRows(committed, channels),
        changes,
        domain: committed.domain.size,
        committed: changes + committed.domain.size,
        webhook_delivered: sum(channels[0].delivered.values()) + channels[0].domain,
        sse_delivered: everywhere,
        duplicates: total('duplicates'),
        resets: total('resets'),
        // Nothing in a run gives a reason for a reset, so each one counts as a loss besides what it covers.
        lost: total('lost') + total('resets'),
        foreign: total('foreign'),
        details: channels.flatMap((channel) => channel.details),
    };
}

function accountChannel(committed, channel) {
    const received = new Map();
    const details = [];
    let domain = 0;
    let foreign = channel.refused.length;
    let lost = 0;
    const say = (text) => details.push(`${channel.name}: ${text}`);

    for (const reason of channel.resets) say(`reset: ${reason}`);
    for (const text of channel.refused) say(`foreign: ${text}`);
    for (const [id, { change }] of channel.deliveries) {
        if (change !== null) {
            received.set(change, (received.get(change) ?? 0) + 1);
        } else if (channel.takesDomainEvents && committed.domain.has(id)) {
            domain++;
        } else {
            foreign++;
            say(`foreign: domain event ${id} was never committed`);
        }
    }
    const delivered = new Map();
    for (const [change, count] of committed.changes) {
        const came = received.get(change) ?? 0;
        delivered.set(change, Math.min(came, count));
        if (came < count) say(`lost: ${change} was committed ${count} times, ${came} came`);
        lost += Math.max(0, count - came);
    }
    for (const [change, came] of received) {
        const count = committed.changes.get(change) ?? 0;
        if (came > count) say(`foreign: ${change} was committed ${count} times, ${came} came`);
        foreign += Math.max(0, came - count);
    }
    if (channel.takesDomainEvents) {
        for (const id of committed.domain) {
            if (!channel.deliveries.has(id)) say(`lost: domain event ${id}`);
        }
        lost += committed.domain.size - domain;
    }
    return {
        name: channel.name, takesDomainEvents: channel.takesDomainEvents, delivered, domain, lost, foreign,
        duplicates: sum(channel.duplicates.values()), resets: channel.resets.length, details,
        duplicatesByTable: duplicatesByTable(channel),
    };
}

const DOMAIN = 'rowbell.record()';
const tableOf = (change) => (change === null ? DOMAIN : JSON.parse(change)[0]);

function duplicatesByTable(channel) {
    const counts = new Map();
    for (const [id, count] of channel.duplicates) {
        const table = tableOf(channel.deliveries.get(id).change);
        counts.set(table, (counts.get(table) ?? 0) + count);
    }
    return counts;
}

// One row for each table: how often committed, and what each channel delivered of that.
function tableRows(committed, channels) {
    const rows = new Map();
    const row = (table) => {
        if (!rows.has(table)) rows.set(table, { table, committed: 0, delivered: channels.map(() => 0), duplicates: 0 });
        return rows.get(table);
    };
    for (const [change, count] of committed.changes) {
        const of = row(tableOf(change));
        of.committed += count;
        channels.forEach((channel, i) => (of.delivered[i] += channel.delivered.get(change)));
    }
    const of = row(DOMAIN);
    of.committed = committed.domain.size;
    of.delivered = channels.map((channel) => (channel.takesDomainEvents ? channel.domain : null));
    for (const each of rows.values()) each.duplicates = sum(channels.map((c) => c.duplicatesByTable.get(each.table) ?? 0));
    return [...rows.values()];
}

const sum = (numbers) => [...numbers].reduce((total, number) => total + number, 0);

// ---- text ----------------------------------------------------------------------------------------------------------

export function lastLine(report) {
    return ['committed', 'webhook_delivered', 'sse_delivered', 'duplicates', 'resets', 'lost', 'foreign']
        .map((name) => `${name} ${report[name]}`).join(' ');
}

export const exitCode = (report) => (report.lost || report.foreign ? 1 : 0);

export function table(report) {
    const cell = (value) => (value === null ? '-' : String(value));
    const lines = [['', 'committed', ...report.channels.map((channel) => channel.name), 'duplicates']];
    for (const row of report.tables) {
        lines.push([row.table, row.committed, ...row.delivered, row.duplicates].map(cell));
    }
    for (const name of ['duplicates', 'resets', 'lost', 'foreign']) {
        lines.push([name, '', ...report.channels.map((channel) => channel[name]), ''].map(cell));
    }
    const widths = lines[0].map((_, i) => Math.max(...lines.map((line) => line[i].length)));
    return lines.map((line) => line
        .map((text, i) => (i === 0 ? text.padEnd(widths[i]) : text.padStart(widths[i]))).join('  ').trimEnd()).join('\n');
}

// Nearest rank; null when there are none.
export function percentile(values, percent) {
    if (values.length === 0) return null;
    const sorted = [...values].sort((a, b) => a - b);
    return sorted[Math.max(0, Math.ceil((percent / 100) * sorted.length) - 1)];
}
