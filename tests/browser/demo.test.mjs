// The demo page in a real browser: what psql changes is on the page (G5, through every process).
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { chromiumStart } from './chromium.mjs';
import { daemonStart, databaseMake, everythingStop, listenPort, psql } from './harness.mjs';

let browser;
let page;
let problems = [];

before(async () => {
    await databaseMake();
    daemonStart('relay');
    daemonStart('dispatcher');
    const port = await listenPort(daemonStart('gateway', '--listen', '127.0.0.1:0', '--demo'));

    browser = await chromiumStart();
    page = await browser.newPage();
    page.on('console', (message) => message.type() === 'error' && problems.push(message.text()));
    page.on('pageerror', (error) => problems.push(String(error)));
    const stream = page.waitForResponse((response) => new URL(response.url()).pathname === '/events');
    await page.goto(`http://127.0.0.1:${port}/`);
    assert.equal((await stream).status(), 200);
});

after(async () => {
    await browser?.close();
    await everythingStop();
});

const pageText = () => page.evaluate(() => document.body.innerText);

test('an UPDATE in psql is on the page', async () => {
    assert.doesNotMatch(await pageText(), /row-of-the-test/);
    await psql(`update posts set title = 'new' where id = 'row-of-the-test'`);
    await page.waitForFunction(() => document.body.innerText.includes('row-of-the-test'), null, { timeout: 60_000 });
    assert.match(await pageText(), /posts[\s\S]*row-of-the-test[\s\S]*update|update[\s\S]*posts[\s\S]*row-of-the-test/);
});

test('a rolled back change never appears, and the next committed one does', async () => {
    await psql(`begin; insert into posts values ('rolled-back-row', ''); rollback`);
    await psql(`insert into posts values ('after-the-rollback', '')`);
    await page.waitForFunction(() => document.body.innerText.includes('after-the-rollback'), null, { timeout: 60_000 });
    assert.doesNotMatch(await pageText(), /rolled-back-row/);
});

test('the page logs no error', () => assert.deepEqual(problems, []));
