// `rowbell generate client`: what it writes compiles, and agrees with what capture and rowbell.js do.
import assert from 'node:assert/strict';
import { execFile, execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { after, before, test } from 'node:test';
import { promisify } from 'node:util';
import esbuild from 'esbuild';

const run = promisify(execFile);
const { ROWBELL_TEST_PG: server, ROWBELL_TEST_BIN: binaries } = process.env;
assert.ok(server && binaries, 'run this with dev/test --suite client');
const rowbellModule = new URL('../../client/rowbell.js', import.meta.url).pathname;
const compiler = new URL('../node_modules/typescript/bin/tsc', import.meta.url).pathname;
const database = `t_client_${process.pid}`;
const url = `${server}/${database}`;
const psql = async (sql, where = url) => (await run('psql', [where, '-qXAt', '-v', 'ON_ERROR_STOP=1', '-c', sql])).stdout;
const rowbell = async (...flags) =>
    (await run(`${binaries}/cli/rowbell`, ['generate', 'client', ...flags], { env: { ...process.env, DATABASE_URL: url } })).stdout;

let directory;
let text;
let made;

before(async () => {
    directory = mkdtempSync(`${tmpdir()}/rowbell-generate-`);
    await psql(`create database ${database} template rowbell_template`, `${server}/postgres`);
    await psql(`
        set client_min_messages = warning;
        create table posts (id text primary key, title text);
        create table texts ("class" text, "a b" int, primary key ("class", "a b"));
        create table log (line text);
        create table gone (id int primary key);
        create table odd (id int primary key);
        select rowbell.publish('posts'), rowbell.publish('texts'), rowbell.publish('log'), rowbell.publish('gone'),
               rowbell.publish('odd', name => '__proto__');
        create schema other;
        create table other.t (id int primary key);
        select rowbell.publish('other.t', name => E'"\\\\\`\${x}é');
        drop table gone`);
    text = await rowbell('--module', rowbellModule);
    writeFileSync(`${directory}/made.mjs`, esbuild.transformSync(text, { loader: 'ts' }).code);
    made = await import(`${directory}/made.mjs`);
});

after(async () => {
    rmSync(directory, { recursive: true });
    await psql(`drop database if exists ${database} with (force)`, `${server}/postgres`);
});

test('TypeScript accepts it, strictly', () => {
    writeFileSync(`${directory}/made.ts`, text);
    writeFileSync(
        `${directory}/page.ts`,
        `import { connect } from '${rowbellModule}';
         import { keysByTable, queryKeys, tables } from './made';
         connect('/events', { keysByTable, tables });
         const key: readonly ['posts', 'row', string] = queryKeys.posts.row('p1');
         queryKeys.texts.row('a', 1);
         // @ts-expect-error: both parts of the key
         queryKeys.texts.row('a');
         // @ts-expect-error: a table without a key has no rows
         queryKeys.log.row(1);
         // @ts-expect-error: not published
         queryKeys.gone;
         export default key;`,
    );
    const flags = ['--noEmit', '--strict', '--target', 'es2022', '--module', 'esnext', '--moduleResolution', 'bundler'];
    try {
        execFileSync(process.execPath, [compiler, ...flags, '--lib', 'es2022,dom', 'page.ts'], { cwd: directory });
    } catch (error) {
        assert.fail(`${error.stdout}\n${text}`);
    }
});

test('every published table that still exists is in it', async () => {
    assert.deepEqual(made.tables, ['"\\`${x}é', '__proto__', 'log', 'posts', 'texts']);
    assert.deepEqual(Object.keys(made.keysByTable).sort(), [...made.tables].sort());
    assert.deepEqual(Object.keys(made.queryKeys).sort(), [...made.tables].sort());
    assert.equal(Object.getPrototypeOf(made.keysByTable), Object.prototype);
    assert.deepEqual(JSON.parse(await rowbell('--json')).slice(3), [
        { table: 'posts', key: ['id'] },
        { table: 'texts', key: ['class', 'a b'] },
    ]);
    assert.match(await rowbell(), /^import \{ rowKey, type KeysByTable \} from "rowbell";$/m);
});

test('what a change touches is what the page reads with', async () => {
    const touched = (table, key) => {
        const queries = made.keysByTable[table];
        return typeof queries === 'function' ? queries(key) : queries;
    };
    const covers = (prefix, key) => prefix.every((part, i) => part === key[i]);
    const { posts, texts, log } = made.queryKeys;
    await psql(`insert into posts values ('a b/ü!''', ''); insert into texts values ('x/y', -7); insert into log values ('')`);
    const rows = (await psql(`select coalesce(key, ''), t.type from rowbell.events e join rowbell.event_types t on t.id = type_id order by seq`)).trim().split('\n');
    const [post, words, line] = rows.map((row) => row.split('|')[0]);
    const hit = (table, key, query) => touched(table, key).some((prefix) => covers(prefix, query));
    assert.ok(hit('posts', post, posts.row("a b/ü!'")), post);
    assert.ok(hit('posts', post, posts.list({ page: 1 })));
    assert.ok(!hit('posts', post, posts.row('another')));
    assert.ok(hit('texts', words, texts.row('x/y', -7)), words);
    assert.equal(line, '');
    assert.ok(hit('log', line, log.list()));
    for (const query of [posts.row('another'), posts.list(), posts.all]) assert.ok(hit('posts', '', query));
});
