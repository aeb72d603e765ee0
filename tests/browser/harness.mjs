// What the tests in JavaScript stand on: a database of their own and our programs.
import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { promisify } from 'node:util';

const run = promisify(execFile);
const server = process.env.ROWBELL_TEST_PG;
const redis = process.env.ROWBELL_TEST_REDIS;
const binaries = process.env.ROWBELL_TEST_BIN;
assert.ok(server && redis && binaries, 'run this with dev/test --suite browser');

const database = `t_browser_${process.pid}`;
const url = `${server}/${database}`;
export const psql = async (sql, where = url) => (await run('psql', [where, '-qXAt', '-v', 'ON_ERROR_STOP=1', '-c', sql])).stdout;

const daemons = [];
export function daemonStart(name, ...args) {
    // A flag wins over the variable.
    return programStart(`${binaries}/${name}/rowbell-${name}`, args, { ROWBELL_AUTH: 'none' });
}

export function programStart(path, args, environment = {}) {
    const daemon = spawn(path, args, {
        env: { PATH: process.env.PATH, DATABASE_URL: url, REDIS_URL: redis, ...sanitizerOptions(), ...environment },
        stdio: ['ignore', 'pipe', 'pipe'],
    });
    daemon.log = '';
    for (const stream of [daemon.stdout, daemon.stderr]) stream.setEncoding('utf8').on('data', (text) => (daemon.log += text));
    daemon.ended = new Promise((resolve) => daemon.on('exit', (code, signal) => resolve(signal ?? code)));
    daemon.ended.then((status) => (daemon.status = status));
    daemons.push(daemon);
    return daemon;
}

function sanitizerOptions() {
    return Object.fromEntries(Object.entries(process.env).filter(([name]) => /^(A|UB)SAN_OPTIONS$/.test(name)));
}

// What a program wrote that matches, as soon as it did.
export async function logMatch(daemon, pattern) {
    const late = new Promise((resolve) => setTimeout(resolve, 60_000, 'late').unref());
    for (let now; ; ) {
        const match = pattern.exec(daemon.log);
        if (match) return match;
        assert.equal(daemon.status, undefined, `ended at once:\n${daemon.log}`);
        assert.notEqual(now, 'late', `no ${pattern} in the log:\n${daemon.log}`);
        const more = [daemon.stdout, daemon.stderr].map((stream) => new Promise((resolve) => stream.once('data', resolve)));
        now = await Promise.race([late, daemon.ended, ...more]);
    }
}

// The port of the gateway, from its first log line.
export const listenPort = async (daemon) => Number((await logMatch(daemon, / listen=[^ ]*:(\d+)[ \n]/))[1]);

export async function databaseMake() {
    await psql(`create database ${database} template rowbell_template`, `${server}/postgres`);
    await psql(`update rowbell.installation set id = replace(gen_random_uuid()::text, '-', '')`);
    await psql(`create table posts (id text primary key, title text); insert into posts values ('row-of-the-test', 'old');
                set client_min_messages = warning; select rowbell.publish('posts')`);
}

export async function everythingStop() {
    for (const daemon of daemons) daemon.kill('SIGTERM');
    await Promise.all(daemons.map((daemon) => daemon.ended));
    await psql(`drop database if exists ${database} with (force)`, `${server}/postgres`);
}
