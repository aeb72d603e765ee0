// The console in a real browser, beside a relay and a dispatcher: what is poisoned is seen, looked into, and sent again.
import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { after, before, test } from 'node:test';
import { chromiumStart } from './chromium.mjs';
import { daemonStart, databaseMake, everythingStop, logMatch, programStart, psql } from './harness.mjs';

const TIME = { timeout: 60_000 };
const received = [];
const receiver = createServer((request, response) => {
    received.push(request.headers['webhook-id']);
    request.resume().on('end', () => response.end());
});
let browser, page, console, url, token;
const problems = [];

before(async () => {
    await databaseMake();
    await new Promise((resolve) => receiver.listen(0, '127.0.0.1', resolve));
    const options = `jsonb_build_object('allow_http', true, 'condition', '$.nope')`;
    await psql(`select rowbell.add_webhook('partner', 'http://127.0.0.1:${receiver.address().port}/', '{posts.*}', null, ${options});
                select rowbell.declare_type('order.paid', 'x', true);
                update posts set title = 'new'; insert into posts values ('<img src=x onerror=hacked()>');
                select rowbell.record('order.paid', 'order/42', '{"amount": 123456789012345678901234567890, "price": 1.10}')`);
    daemonStart('relay');
    daemonStart('dispatcher', '--allow-egress', '127.0.0.1/32');
    console = programStart(`${process.env.ROWBELL_TEST_BIN}/cli/rowbell`, ['console', '--listen', '127.0.0.1:0']);
    [, url, token] = await logMatch(console, /(http:\S+\/)#token=(\w+)\n/);

    browser = await chromiumStart();
    page = await browser.newPage();
    page.on('console', (message) => message.type() === 'error' && problems.push(message.text()));
    page.on('pageerror', (error) => problems.push(String(error)));
    await page.goto(`${url}#token=${token}`);
});

after(async () => {
    await browser?.close();
    receiver.close();
    await everythingStop();
});

const card = (name) => page.locator(`[data-card="${name}"]`);
const has = (selector, wanted) =>
    page.waitForFunction(([s, w]) => document.querySelector(s)?.innerText.includes(w), [selector, wanted], TIME);

test('the overview counts what is poisoned, and says what to do', async () => {
    await has('[data-card="jobs poisoned"] b', '2');
    assert.equal(await card('events poisoned').locator('b').innerText(), '0');
    await has('#problems', 'jobs of partner');
    await has('#subscriptions', 'partner');
    assert.equal(new URL(page.url()).hash, '#/', 'the token stays in the address');
});

test('its jobs, and one event with all that is known about it', async () => {
    await card('jobs poisoned').click();
    await has('#jobs', 'condition');
    assert.equal(await page.locator('#filters select[name=state]').inputValue(), 'poisoned');
    await page.locator('#jobs tbody a').nth(1).click();
    await has('#fanout', 'partner');
    await has('#view dl', 'posts/row-of-the-test');
    assert.equal(await page.locator('#fanout tr', { hasText: 'partner' }).locator('.state').first().innerText(), 'poisoned');
});

test('nothing that is stored becomes markup', async () => {
    await page.goto(`${url}#/events`);
    await has('#events', 'posts/%3Cimg%20src%3Dx%20onerror%3Dhacked%28%29%3E');
    assert.equal(await page.locator('#view img').count(), 0);
});

test('numbers of an event are shown as they were recorded', async () => {
    await page.locator('#events tr', { hasText: 'order.paid' }).locator('a').first().click();
    await has('#data', '123456789012345678901234567890');
    await has('#data', '1.10');
});

test('a job is sent again from the page, after its command line was shown', async () => {
    await psql(`update rowbell.subscriptions set condition = null where name = 'partner'`);
    await page.goto(`${url}#/jobs?state=poisoned`);
    const row = page.locator('#jobs tr', { hasText: 'posts/row-of-the-test' });
    const seq = await row.locator('a').nth(1).innerText();
    await row.getByRole('button', { name: 'Send now' }).click();
    assert.equal(await page.locator('#confirm-command').innerText(), `rowbell job retry partner ${seq}`);
    assert.equal(received.length, 0);
    await page.locator('#confirm-run').click();
    await has('#confirm-result', 'It was poisoned, and is in line.');
    await page.locator('#confirm-close').click();
    await page.goto(`${url}#/events/${seq}`);
    await page.waitForFunction(() => [...document.querySelectorAll('#fanout tr')].some((it) => /partner[\s\S]*delivered/.test(it.innerText)), null, TIME);
    assert.equal(received.length, 1);
    assert.match(await page.locator('#attempts').innerText(), /delivered\s+200/);
});

test('all that is poisoned is counted before it is put back', async () => {
    await page.goto(`${url}#/jobs?state=poisoned`);
    await page.getByRole('button', { name: 'Requeue all poisoned' }).click();
    await has('#confirm-result', '1 would be put back.');
    assert.equal(await page.locator('#confirm-command').innerText(), 'rowbell requeue jobs --state=poisoned --all');
    await page.locator('#confirm-run').click();
    await has('#confirm-result', '1 put back in line.');
    await page.locator('#confirm-close').click();
    await has('#jobs', 'There is no such job.');
    await page.goto(`${url}#/attempts?subscription=partner`);
    await page.waitForFunction(() => document.querySelectorAll('#attempts tbody tr').length === 2, null, TIME);
    const known = await psql(`select string_agg(m[1], ' ' order by m[1] collate "C") from pg_constraint,
                              regexp_matches(pg_get_constraintdef(oid), $$'(\\w+)'$$, 'g') m where conname = 'attempts_class_check'`);
    const offered = await page.locator('#filters select[name=class] option').evaluateAll((all) => all.map((it) => it.value));
    assert.equal(offered.filter((name) => name !== '').sort().join(' '), known.trim());
    assert.equal(new Set(received).size, 2);
});

test('a subscription is tested, paused and resumed', async () => {
    await page.goto(`${url}#/subscriptions/partner`);
    await page.getByRole('button', { name: 'Send a test' }).click();
    await page.locator('#confirm-run').click();
    await has('#confirm-result', 'egress'); // the console was not started with --allow-egress
    await page.locator('#confirm-close').click();
    for (const [button, state] of [['Pause', 'paused'], ['Resume', 'active']]) {
        await page.getByRole('button', { name: button }).click();
        await page.locator('#confirm-run').click();
        await has('#confirm-result', `It is ${state}.`);
        await page.locator('#confirm-close').click();
        await page.locator(`.title [data-state="${state}"]`).waitFor(TIME);
        assert.equal(await psql(`select state from rowbell.subscriptions where name = 'partner'`), `${state}\n`);
    }
});

test('an answer that comes late is not shown in the next dialog', async () => {
    let release;
    const held = new Promise((resolve) => (release = resolve));
    await page.route('**/run', async (route) => {
        if (route.request().postData().includes('subscription pause')) await held;
        await route.continue();
    });
    await page.getByRole('button', { name: 'Pause' }).click();
    await page.locator('#confirm-run').click();
    await has('#confirm-result', 'running');
    await page.keyboard.press('Escape');
    await page.getByRole('button', { name: 'Send a test' }).click();
    const answered = page.waitForResponse((response) => response.request().postData()?.includes('subscription pause'));
    release();
    await (await answered).finished();
    await page.locator('.title [data-state="paused"]').waitFor(TIME);
    assert.equal(await page.locator('#confirm-result').innerText(), '');
    assert.equal(await page.locator('#confirm-run').innerText(), 'Send a test');
    await page.keyboard.press('Escape');
    await page.unroute('**/run');
    await psql(`select rowbell.set_subscription_state('partner', 'active')`);
});

test('what has the focus keeps it when the view is drawn again', async () => {
    await page.goto(`${url}#/subscriptions`);
    await has('#subscriptions', 'partner');
    await page.locator('#subscriptions a', { hasText: 'partner' }).focus();
    await psql(`update rowbell.subscriptions set types = '{posts.*,order.paid}' where name = 'partner'`);
    await has('#subscriptions', 'order.paid');
    assert.equal(await page.evaluate(() => document.activeElement.getAttribute('href')), '#/subscriptions/partner');
});

test('an address that is none shows the overview, and the page goes on', async () => {
    for (const hash of ['#/events/%', '#/constructor', '#/__proto__/x', '#token=']) {
        await page.goto(`${url}#/attempts`);
        await has('#attempts', 'delivered');
        await page.goto(url + hash);
        await has('#tables', 'events');
    }
});

test('what is new appears without a hand', async () => {
    await page.goto(`${url}#/events`);
    await has('#events', 'order/42');
    await psql(`insert into posts values ('came-later')`);
    await has('#events', 'posts/came-later');
});

test('an event that is not there is said, and the page goes on', async () => {
    await page.goto(`${url}#/events/999999`);
    await has('#problem', 'there is no event 999999');
    await page.goto(`${url}#/`);
    await has('#subscriptions', 'partner');
    assert.equal(await page.locator('#problem').isVisible(), false);
});

test('the page logs no error', () => assert.deepEqual(problems, []));

test('without the token the page asks for it, and shows nothing', async () => {
    const other = await (await browser.newContext()).newPage();
    await other.goto(url);
    await other.locator('#login').waitFor(TIME);
    await other.locator('#login-token').fill('not the token');
    await other.keyboard.press('Enter');
    await other.waitForFunction(() => document.querySelector('#problem').innerText.includes('expected Authorization'), null, TIME);
    assert.equal(await other.locator('#view').innerText(), '');
    await other.locator('#login-token').fill(token);
    await other.keyboard.press('Enter');
    await other.locator('#subscriptions').waitFor(TIME);
    await other.reload();
    await other.locator('#subscriptions').waitFor(TIME);
});

test('the printed address also serves in a tab that is open, and a token that no header can carry does no harm', async () => {
    const other = await (await browser.newContext()).newPage();
    await other.goto(url);
    await other.locator('#login-token').fill('tok\u2713en');
    await other.keyboard.press('Enter');
    await other.waitForFunction(() => document.querySelector('#problem').innerText.includes('expected Authorization'), null, TIME);
    await other.locator('#login').waitFor(TIME);
    await other.goto(`${url}#token=${token}`);
    await other.locator('#subscriptions').waitFor(TIME);
    assert.equal(await other.locator('#login').isVisible(), false);
    assert.equal(new URL(other.url()).hash, '#/');
});

test('when the console ends, the page says so', async () => {
    await page.goto(`${url}#/`);
    await has('#subscriptions', 'partner');
    console.kill('SIGTERM');
    assert.equal(await console.ended, 0);
    await has('#problem', 'The console does not answer.');
    assert.match(await page.locator('#subscriptions').innerText(), /partner/, 'what was shown stays');
});
