// rowbell.js in a real Chromium, through nginx as docker-proxy.conf sets it up: tabs share a connection, and whatever
// happens to gateways, proxy and tabs, each page hears every change (G5). The page is the demo page.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, afterEach, before, test } from 'node:test';
import { chromiumStart } from './chromium.mjs';
import { daemonStart, databaseMake, everythingStop, listenPort, psql } from './harness.mjs';
import { freePort, proxyStart } from './proxy.mjs';

let browser;
let gateway;
let gatewayPort;
let proxy;
let plainProxy; // one that answers 502, as a proxy does that nobody told
let number = 0;
let asleep; // a process that is stopped

async function gatewayStart() {
    gateway = daemonStart('gateway', '--listen', `127.0.0.1:${gatewayPort}`, '--demo', '--heartbeat', '1s', '--retry', '1s');
    assert.equal(await listenPort(gateway), gatewayPort);
}

async function gatewayKill(signal = 'SIGKILL') {
    gateway.kill(signal);
    await gateway.ended;
}

async function metric(name) {
    const port = Number(/ admin=[^ ]*:(\d+)[ \n]/.exec(gateway.log)?.[1]);
    const text = await (await fetch(`http://127.0.0.1:${port}/metrics`)).text();
    return [...text.matchAll(new RegExp(`^${name}(?:\\{[^}]*\\})? (\\d+)$`, 'gm'))].reduce((sum, match) => sum + Number(match[1]), 0);
}

async function until(what, check, ms = 60_000) {
    for (const end = Date.now() + ms; !(await check()); await new Promise((resolve) => setTimeout(resolve, 20))) {
        assert.ok(Date.now() < end, `not within ${ms} ms: ${what}`);
    }
}

// A tab on the demo page that is connected.
async function tabOpen(context, { port = proxy.port, silence = 4000 } = {}) {
    const page = await context.newPage();
    page.problems = [];
    page.on('pageerror', (error) => page.problems.push(String(error)));
    await page.goto(`http://127.0.0.1:${port}/?silence_ms=${silence}`);
    await page.waitForFunction(() => /^\d+$/.test(document.getElementById('last-id').textContent));
    return page;
}

const rowInsert = async () => {
    const key = `r${process.pid}-${++number}`;
    await psql(`insert into posts values ('${key}', '')`);
    return key;
};
const hears = (page, key, timeout = 60_000) =>
    page.waitForFunction((wanted) => document.querySelector(`#changes li[data-key="${wanted}"]`), key, { timeout });
const resetsOf = (page) => page.evaluate(() => document.getElementById('resets').textContent);

async function expectNothingLost(page, keys) {
    for (const key of keys) await hears(page, key);
    assert.equal(await resetsOf(page), '0');
    assert.deepEqual(page.problems, []);
}

before(async () => {
    await databaseMake();
    daemonStart('relay');
    daemonStart('dispatcher');
    gatewayPort = await freePort();
    await gatewayStart();
    proxy = await proxyStart(gatewayPort);
    plainProxy = await proxyStart(gatewayPort, (config) => config.replace('error_page 502 503 504 = @again;', ''));
    browser = await chromiumStart();
});

after(async () => {
    await browser?.close();
    await everythingStop();
    proxy?.remove();
    plainProxy?.remove();
});

test('two tabs have one connection; when its tab closes, the other goes on without a loss', { timeout: 300_000 }, async () => {
    const context = await browser.newContext();
    const first = await tabOpen(context);
    const second = await tabOpen(context);
    assert.equal(await metric('rowbell_stream_subscribers'), 1);
    const key = await rowInsert();
    await expectNothingLost(first, [key]);
    await expectNothingLost(second, [key]);
    assert.equal(await metric('rowbell_stream_subscribers'), 1);

    const opened = await metric('rowbell_stream_opened_total');
    await first.close();
    const between = await rowInsert();
    await until('the second tab leads', async () => (await metric('rowbell_stream_opened_total')) === opened + 1);
    await expectNothingLost(second, [between, await rowInsert()]);
    await until('one connection is left', async () => (await metric('rowbell_stream_subscribers')) === 1);
    await context.close();
});

test('tabs without Web Locks have a connection each', { timeout: 300_000 }, async () => {
    const context = await browser.newContext();
    await context.addInitScript(() => Object.defineProperty(navigator, 'locks', { value: undefined }));
    const tabs = [await tabOpen(context), await tabOpen(context)];
    await until('two connections', async () => (await metric('rowbell_stream_subscribers')) === 2);
    const key = await rowInsert();
    for (const tab of tabs) await expectNothingLost(tab, [key]);
    await context.close();
    await until('none is left', async () => (await metric('rowbell_stream_subscribers')) === 0);
});

test('a gateway is killed and comes back: nothing is lost, no false reset', { timeout: 300_000 }, async () => {
    const context = await browser.newContext();
    const tabs = [await tabOpen(context), await tabOpen(context)];
    const keys = [await rowInsert()];
    await hears(tabs[0], keys[0]);
    await gatewayKill();
    for (let i = 0; i < 5; i++) keys.push(await rowInsert());
    await gatewayStart();
    keys.push(await rowInsert());
    for (const tab of tabs) await expectNothingLost(tab, keys);
    assert.equal(await metric('rowbell_stream_subscribers'), 1);
    await context.close();
});

test('a connection that drops before its first event has the position from the opening', { timeout: 300_000 }, async () => {
    const context = await browser.newContext();
    const tab = await tabOpen(context);
    await gatewayKill();
    const key = await rowInsert();
    await gatewayStart();
    await expectNothingLost(tab, [key]);
    await context.close();
});

test('a deploy behind the shipped proxy: no error status, nothing lost', { timeout: 300_000 }, async () => {
    const context = await browser.newContext();
    const tab = await tabOpen(context);
    const statuses = new Set();
    tab.on('response', (response) => new URL(response.url()).pathname === '/events' && statuses.add(response.status()));
    await gatewayKill('SIGTERM');
    await tab.waitForResponse((response) => new URL(response.url()).pathname === '/events', { timeout: 60_000 });
    const key = await rowInsert();
    await gatewayStart();
    await expectNothingLost(tab, [key, await rowInsert()]);
    assert.deepEqual([...statuses], [200]);
    await context.close();
});

test('a 502 during a deploy, for which EventSource gives up: the page comes back, nothing lost', { timeout: 300_000 }, async () => {
    const context = await browser.newContext();
    const tab = await tabOpen(context, { port: plainProxy.port });
    const failed = tab.waitForResponse((response) => response.status() === 502, { timeout: 60_000 });
    await gatewayKill();
    const key = await rowInsert();
    await failed;
    await gatewayStart();
    await expectNothingLost(tab, [key, await rowInsert()]);
    await context.close();
});

test('a gateway that stops without a word is noticed by its missing pings', { timeout: 300_000 }, async () => {
    const context = await browser.newContext();
    const tab = await tabOpen(context, { port: gatewayPort });
    const stopped = gateway;
    stopped.kill('SIGSTOP');
    const key = await rowInsert();
    await tab.waitForFunction(() => document.getElementById('state').dataset.state === 'connecting', null, { timeout: 60_000 });
    stopped.kill('SIGCONT');
    await expectNothingLost(tab, [key]);
    await context.close();
});

// The process that runs a page. Which one it is, its use of the processor tells.
async function rendererOf(page) {
    const session = await browser.newBrowserCDPSession();
    const { processInfo } = await session.send('SystemInfo.getProcessInfo');
    await session.detach();
    const renderers = processInfo.filter(({ type }) => type === 'renderer').map(({ id }) => id);
    const ticks = () => renderers.map((id) => Number(readFileSync(`/proc/${id}/stat`, 'utf8').split(') ')[1].split(' ')[11]));
    const earlier = ticks();
    for (;;) {
        await page.evaluate(() => {
            for (const end = performance.now() + 200; performance.now() < end; );
        });
        const used = ticks().map((now, i) => now - earlier[i]);
        const [most, second] = used.toSorted((a, b) => b - a);
        if (most > 10 + 3 * second) return renderers[used.indexOf(most)];
    }
}

// A tab that sleeps. (What DevTools calls frozen has no effect without a window: there every page counts as visible.)
// Its process is stopped: like a frozen tab it runs nothing, and keeps its connection and its lock.
async function sleep(page, others = []) {
    const renderer = await rendererOf(page);
    for (const other of others) assert.notEqual(await rendererOf(other), renderer, 'two tabs in one process');
    process.kill(renderer, 'SIGSTOP');
    asleep = renderer;
}

function wake() {
    if (asleep) process.kill(asleep, 'SIGCONT');
    asleep = undefined;
}
afterEach(wake);

test('a tab that sleeps converges when it wakes', { timeout: 300_000 }, async () => {
    const context = await browser.newContext();
    const tab = await tabOpen(context);
    await sleep(tab);
    const key = await rowInsert();
    await gatewayKill(); // so that its connection is gone as well
    await gatewayStart();
    const later = await rowInsert();
    wake();
    await expectNothingLost(tab, [key, later]);
    await context.close();
});

test('a sleeping tab does not keep the others from hearing', { timeout: 300_000 }, async () => {
    const context = await browser.newContext();
    const leader = await tabOpen(context);
    const other = await tabOpen(context);
    await sleep(leader, [other]);
    const key = await rowInsert();
    await expectNothingLost(other, [key]); // by its own connection, after it has asked the leader in vain
    assert.equal(await metric('rowbell_stream_subscribers'), 2); // the leader's own has not ended yet
    wake();
    const later = await rowInsert();
    await hears(other, later);
    // What it missed, it heard when it woke, or it was told that it missed something.
    await until('the woken tab has it all', () =>
        leader.evaluate(
            ([first, second]) =>
                document.querySelector(`[data-key="${second}"]`) &&
                (document.querySelector(`[data-key="${first}"]`) || document.getElementById('resets').textContent !== '0'),
            [key, later],
        ),
    );
    await until('one connection is left', async () => (await metric('rowbell_stream_subscribers')) === 1);
    await context.close();
});
