// The blog of dev/up: two tenants, edits that arrive in other tabs, a gateway that is killed and pages that converge.
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { after, before, test } from 'node:test';
import { chromiumStart } from './chromium.mjs';
import { daemonStart, databaseMake, everythingStop, listenPort, programStart, psql } from './harness.mjs';
import { freePort } from './proxy.mjs';

let browser;
let origin; // of the blog
let hasty; // of the same blog with tickets that end after 3 s, which a slow machine hardly uses in time
let gateways;

before(async () => {
    await databaseMake();
    await psql(`alter table posts add tenant text, add updated_at timestamptz; delete from posts;
                insert into posts values ('p1', 'A first post', 'acme'), ('p3', 'A third post', 'globex');
                set client_min_messages = warning; select rowbell.publish('posts', scope => 'tenant')`);
    daemonStart('relay');
    daemonStart('dispatcher');
    [origin, hasty] = await Promise.all([1, 2].map(async () => `http://127.0.0.1:${await freePort()}`));
    const secret = randomBytes(32).toString('hex');
    const flags = ['--listen', '127.0.0.1:0', '--cors-origin', origin, '--cors-origin', hasty, '--auth', 'jwt', '--jwt-secret', secret, '--jwt-leeway', '1s'];
    gateways = [1, 2].map(() => daemonStart('gateway', ...flags));
    const ports = await Promise.all(gateways.map(listenPort));
    const urls = ports.map((port) => `http://127.0.0.1:${port}`).join(' ');
    const blog = new URL('../../dev/blog/blog.py', import.meta.url).pathname;
    const environment = { BLOG_GATEWAYS: urls, BLOG_TICKET_SECRET: secret };
    await listenPort(programStart(blog, [new URL(origin).port], environment));
    await listenPort(programStart(blog, [new URL(hasty).port], { ...environment, BLOG_TICKET_SECONDS: 3 }));
    browser = await chromiumStart();
});

after(async () => {
    await browser?.close();
    await everythingStop();
});

async function open(context, url) {
    const page = await context.newPage();
    page.problems = [];
    page.on('pageerror', (error) => page.problems.push(String(error)));
    await page.goto(url);
    await page.waitForFunction(() => [...document.querySelectorAll('section')].every((blog) => blog.querySelector('.posts li')));
    // The page lists only the newest that it heard. Before it was ready, a first try that failed counts as one.
    await page.evaluate(() => {
        window.resets = [];
        const heard = new MutationObserver((all) => {
            const texts = all.flatMap(({ addedNodes }) => [...addedNodes].map((node) => node.textContent));
            window.resets.push(...texts.filter((text) => text.startsWith('reset:')));
        });
        for (const list of document.querySelectorAll('.heard')) heard.observe(list, { childList: true });
    });
    return page;
}
const resets = (page) => page.evaluate(() => window.resets);

const titles = (page, tenant) =>
    page.evaluate((wanted) => [...document.querySelectorAll(`[data-tenant="${wanted}"] .posts input`)].map((input) => input.value), tenant);
const heard = (page, tenant) =>
    page.evaluate((wanted) => [...document.querySelectorAll(`[data-tenant="${wanted}"] .heard li`)].map((item) => item.textContent), tenant);
const shows = (page, tenant, title) =>
    page.waitForFunction(
        ([wanted, text]) => [...document.querySelectorAll(`[data-tenant="${wanted}"] .posts input`)].some((input) => input.value === text),
        [tenant, title],
        { timeout: 60_000 },
    );

test('an edit in one tab is in the other; each tenant reads its own posts', { timeout: 300_000 }, async () => {
    const context = await browser.newContext();
    const both = await open(context, origin);
    const acme = await open(context, `${origin}/?tenant=acme`);
    assert.deepEqual([await titles(both, 'acme'), await titles(both, 'globex')], [['A first post'], ['A third post']]);
    assert.equal(await acme.evaluate(() => document.querySelectorAll('section').length), 1);

    const title = acme.locator('[data-key="p1"] input');
    await title.fill('Edited <b>here</b>');
    await title.press('Tab');
    await shows(both, 'acme', 'Edited <b>here</b>');
    assert.deepEqual(await titles(both, 'globex'), ['A third post']);
    await psql(`update posts set title = 'A fourth post' where id = 'p3'`);
    await shows(both, 'globex', 'A fourth post');
    assert.deepEqual([await heard(both, 'acme'), await heard(both, 'globex')], [['update posts/p1'], ['update posts/p3']]); // G7

    await acme.locator('form input').fill('A new one');
    await acme.locator('form button').click();
    await shows(both, 'acme', 'A new one');
    await psql(`delete from posts where title = 'A new one'`);
    for (const page of [both, acme]) {
        await page.waitForFunction(() => document.querySelectorAll('[data-tenant="acme"] .posts li').length === 1);
        assert.deepEqual(page.problems, []);
    }
    await context.close();
});

test('a gateway is killed while rows change: the pages converge by the other one', { timeout: 300_000 }, async () => {
    const context = await browser.newContext();
    const page = await open(context, origin);
    gateways[0].kill('SIGKILL');
    await gateways[0].ended;
    await psql(`update posts set title = 'While it was gone ' || tenant`);
    for (const tenant of ['acme', 'globex']) await shows(page, tenant, `While it was gone ${tenant}`);
    await page.waitForFunction(() => [...document.querySelectorAll('.state')].every((state) => state.dataset.state === 'open'));
    assert.deepEqual(await resets(page), []);
    assert.deepEqual(page.problems, []);
    await context.close();
});

test('a ticket that ends is renewed, and nothing is lost', { timeout: 300_000 }, async () => {
    const context = await browser.newContext();
    const page = await open(context, `${hasty}/?tenant=acme`);
    const tickets = new Set();
    page.on('request', (request) => {
        const url = new URL(request.url());
        if (url.pathname === '/events') tickets.add(url.searchParams.get('ticket'));
    });
    for (let i = 0; tickets.size < 3; i++) {
        await psql(`update posts set title = 'Title ${i}' where id = 'p1'`);
        await shows(page, 'acme', `Title ${i}`);
    }
    assert.deepEqual(await resets(page), []);
    await context.close();
});

test('what is no title, tenant or row is refused', async () => {
    const ask = async (path, method = 'GET', body) => (await fetch(`${origin}${path}`, { method, body })).status;
    assert.equal(await ask('/api/other/posts'), 404);
    assert.equal(await ask('/api/acme/posts/p3'), 404);
    assert.equal(await ask('/api/acme/posts/p3', 'PUT', '{"title":"x"}'), 404);
    assert.equal(await ask('/api/acme/posts', 'POST', '{"title":""}'), 400);
    assert.equal(await ask('/api/acme/posts', 'POST', '[]'), 400);
    assert.equal(await ask('/api/acme/posts/p1', 'POST', '{"title":"x"}'), 405);
    assert.equal(await ask(`/api/acme/posts/${encodeURIComponent(`'; delete from posts; --`)}`), 404);
    assert.equal(await ask('/../blog.py'), 404);
});
