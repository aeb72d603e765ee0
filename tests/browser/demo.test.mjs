// The demo page in a real browser: what psql changes is on the page within a second (G5, through every process).
import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { after, before, test } from 'node:test';
import { promisify } from 'node:util';
import { chromium } from 'playwright-core';

const run = promisify(execFile);
const server = process.env.ROWBELL_TEST_PG;
const redis = process.env.ROWBELL_TEST_REDIS;
const binaries = process.env.ROWBELL_TEST_BIN;
assert.ok(server && redis && binaries, 'run this with dev/test --suite browser');

const database = `t_browser_${process.pid}`;
const url = `${server}/${database}`;
const psql = async (sql, where = url) => (await run('psql', [where, '-qXAt', '-v', 'ON_ERROR_STOP=1', '-c', sql])).stdout;

const daemons = [];
function daemonStart(name, ...args) {
    const daemon = spawn(`${binaries}/${name}/rowbell-${name}`, args, {
        env: { PATH: process.env.PATH, DATABASE_URL: url, REDIS_URL: redis, ...sanitizerOptions() },
        stdio: ['ignore', 'ignore', 'pipe'],
    });
    daemon.log = '';
    daemon.stderr.setEncoding('utf8').on('data', (text) => (daemon.log += text));
    daemon.ended = new Promise((resolve) => daemon.on('exit', (code, signal) => resolve(signal ?? code)));
    daemon.ended.then((status) => (daemon.status = status));
    daemons.push(daemon);
    return daemon;
}

function sanitizerOptions() {
    return Object.fromEntries(Object.entries(process.env).filter(([name]) => /^(A|UB)SAN_OPTIONS$/.test(name)));
}

// The port of the gateway, from its first log line.
async function listenPort(daemon) {
    for (const end = Date.now() + 10_000; Date.now() < end; ) {
        const match = / listen=[^ ]*:(\d+)[ \n]/.exec(daemon.log);
        if (match) return Number(match[1]);
        assert.equal(daemon.status, undefined, `ended at once:\n${daemon.log}`);
        await Promise.race([daemon.ended, new Promise((resolve) => daemon.stderr.once('data', resolve))]);
    }
    assert.fail(`no listen= in the log:\n${daemon.log}`);
}

let browser;
let page;
let problems = [];

before(async () => {
    await psql(`create database ${database} template rowbell_template`, `${server}/postgres`);
    await psql(`update rowbell.installation set id = replace(gen_random_uuid()::text, '-', '')`);
    await psql(`create table posts (id text primary key, title text); insert into posts values ('row-of-the-test', 'old');
                set client_min_messages = warning; select rowbell.publish('posts')`);
    daemonStart('relay');
    daemonStart('dispatcher');
    const port = await listenPort(daemonStart('gateway', '--listen', '127.0.0.1:0', '--demo'));

    const executablePath = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'].find(existsSync);
    assert.ok(executablePath, 'no Chromium: apt-get install chromium');
    browser = await chromium.launch({
        executablePath,
        args: [
            ...(process.getuid() === 0 ? ['--no-sandbox'] : []),
            '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
            '--disable-component-update', '--disable-sync', '--no-proxy-server',
        ],
    });
    page = await browser.newPage();
    page.on('console', (message) => message.type() === 'error' && problems.push(message.text()));
    page.on('pageerror', (error) => problems.push(String(error)));
    const stream = page.waitForResponse((response) => new URL(response.url()).pathname === '/events');
    await page.goto(`http://127.0.0.1:${port}/`);
    assert.equal((await stream).status(), 200);
});

after(async () => {
    await browser?.close();
    for (const daemon of daemons) daemon.kill('SIGTERM');
    await Promise.all(daemons.map((daemon) => daemon.ended));
    await psql(`drop database if exists ${database} with (force)`, `${server}/postgres`);
});

const pageText = () => page.evaluate(() => document.body.innerText);

test('an UPDATE in psql is on the page within a second', async () => {
    assert.doesNotMatch(await pageText(), /row-of-the-test/);
    await psql(`update posts set title = 'new' where id = 'row-of-the-test'`);
    const committed = Date.now();
    await page.waitForFunction(() => document.body.innerText.includes('row-of-the-test'), null, { timeout: 10_000 });
    const waited = Date.now() - committed;
    assert.ok(waited < 1000, `it took ${waited} ms`);
    assert.match(await pageText(), /posts[\s\S]*row-of-the-test[\s\S]*update|update[\s\S]*posts[\s\S]*row-of-the-test/);
});

test('a rolled back change never appears, and the next committed one does', async () => {
    await psql(`begin; insert into posts values ('never', ''); rollback`);
    await psql(`insert into posts values ('after-the-rollback', '')`);
    await page.waitForFunction(() => document.body.innerText.includes('after-the-rollback'), null, { timeout: 10_000 });
    assert.doesNotMatch(await pageText(), /never/);
});

test('the page logs no error', () => assert.deepEqual(problems, []));
