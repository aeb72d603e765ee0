// The accounting of dev/reconcile must see what it is there for: a loss, a stranger, a duplicate, a reset.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { account, Channel, changeOf, exitCode, lastLine, percentile, table } from './report.mjs';

const update = changeOf('accounts', '7', 'update');
const create = changeOf('history', null, 'create');

// Two updates of one row, one keyless create and one domain event, received by everybody.
function run() {
    const committed = { changes: new Map([[update, 2], [create, 1]]), domain: new Set(['d1']) };
    const webhook = new Channel('webhook', true);
    const streams = [new Channel('sse a', false), new Channel('sse b', false)];
    webhook.receive('w1', update, 'w1', 0);
    webhook.receive('w2', update, 'w2', 0);
    webhook.receive('w3', create, 'w3', 0);
    webhook.receive('d1', null, 'd1', 0);
    for (const stream of streams) {
        stream.receive('1', update, update, 0);
        stream.receive('2', create, create, 0);
        stream.receive('3', update, update, 0);
    }
    return { committed, webhook, streams, report: () => account(committed, webhook, streams) };
}

test('a complete run has nothing lost and nothing foreign', () => {
    const report = run().report();
    assert.equal(lastLine(report), 'committed 4 webhook_delivered 4 sse_delivered 3 duplicates 0 resets 0 lost 0 foreign 0');
    assert.equal(exitCode(report), 0);
    assert.deepEqual(report.details, []);
});

test('one webhook that did not come is lost', () => {
    const { webhook, report } = run();
    webhook.deliveries.delete('w2');
    assert.equal(lastLine(report()), 'committed 4 webhook_delivered 3 sse_delivered 3 duplicates 0 resets 0 lost 1 foreign 0');
    assert.equal(exitCode(report()), 1);
    assert.match(report().details.join(), /webhook: lost: .*accounts.* was committed 2 times, 1 came/);
});

test('a domain event that did not come is lost', () => {
    const { webhook, report } = run();
    webhook.deliveries.delete('d1');
    assert.equal(report().lost, 1);
    assert.equal(exitCode(report()), 1);
});

test('a change that one subscriber of two missed is lost', () => {
    const { streams, report } = run();
    streams[1].deliveries.delete('2');
    assert.equal(lastLine(report()), 'committed 4 webhook_delivered 4 sse_delivered 2 duplicates 0 resets 0 lost 1 foreign 0');
    assert.equal(exitCode(report()), 1);
});

test('a duplicate does not make up for a loss', () => {
    const { webhook, report } = run();
    webhook.deliveries.delete('w2');
    webhook.receive('w1', update, 'w1', 0);
    assert.equal(lastLine(report()), 'committed 4 webhook_delivered 3 sse_delivered 3 duplicates 1 resets 0 lost 1 foreign 0');
});

test('duplicates alone are allowed, and counted for each channel', () => {
    const { webhook, streams, report } = run();
    webhook.receive('w1', update, 'w1', 0);
    webhook.receive('w1', update, 'w1', 0);
    streams[0].receive('2', create, create, 0);
    assert.equal(report().duplicates, 3);
    assert.equal(exitCode(report()), 0);
    assert.deepEqual(report().tables.map((row) => [row.table, row.duplicates]),
        [['accounts', 2], ['history', 1], ['rowbell.record()', 0]]);
});

for (const [what, add] of Object.entries({
    'a third delivery of a row that was committed twice': ({ webhook }) => webhook.receive('w9', update, 'w9', 0),
    'a key that was never committed': ({ webhook }) => webhook.receive('w9', changeOf('accounts', '8', 'update'), '', 0),
    'an operation that was never committed': ({ streams }) => streams[0].receive('9', changeOf('accounts', '7', 'delete'), '', 0),
    'a table that is not published': ({ streams }) => streams[0].receive('9', changeOf('secrets', '7', 'update'), '', 0),
    'a domain event that was rolled back': ({ webhook }) => webhook.receive('rolled-back', null, '', 0),
    'a domain event on the stream': ({ streams }) => streams[0].receive('d1', null, '', 0),
    'a request with a bad signature': ({ webhook }) => webhook.refused.push('bad signature'),
    'a repeated delivery whose body changed': ({ webhook }) => webhook.receive('w1', update, 'another', 0),
})) {
    test(`${what} is foreign`, () => {
        const each = run();
        add(each);
        assert.equal(each.report().foreign, 1);
        assert.equal(each.report().lost, 0);
        assert.equal(exitCode(each.report()), 1);
        assert.match(each.report().details.join(), /foreign: /);
    });
}

test('a reset counts as a loss', () => {
    const { streams, report } = run();
    streams[0].resets.push('replay_limit');
    assert.equal(lastLine(report()), 'committed 4 webhook_delivered 4 sse_delivered 3 duplicates 0 resets 1 lost 1 foreign 0');
    assert.equal(exitCode(report()), 1);
});

test('the table has a row for each table and a column for each channel', () => {
    assert.equal(table(run().report()), [
        '                  committed  webhook  sse a  sse b  duplicates',
        'accounts                  2        2      2      2           0',
        'history                   1        1      1      1           0',
        'rowbell.record()          1        1      -      -           0',
        'duplicates                         0      0      0',
        'resets                             0      0      0',
        'lost                               0      0      0',
        'foreign                            0      0      0',
    ].join('\n'));
});

test('percentiles are of the nearest rank', () => {
    const values = Array.from({ length: 200 }, (_, i) => 200 - i);
    assert.equal(percentile(values, 50), 100);
    assert.equal(percentile(values, 99), 198);
    assert.equal(percentile([], 99), null);
});
