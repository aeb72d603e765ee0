// The commands that the documents print are run as they are printed: only addresses are put in.
import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { readFileSync, readdirSync } from 'node:fs';
import { createServer } from 'node:net';
import { test } from 'node:test';

const root = new URL('../../', import.meta.url).pathname;
const server = process.env.ROWBELL_TEST_PG;
const bin = process.env.ROWBELL_TEST_BIN;
const path = ['relay', 'dispatcher', 'gateway', 'cli'].map(part => `${bin}/${part}`).join(':') + ':' + process.env.PATH;

const blocksOf = (text, language) =>
  [...text.matchAll(/^```(\w*)\n(.*?)^```/gms)].filter(match => match[1] === language).map(match => match[2]);
const shellBlocks = text => blocksOf(text, 'sh');
const psql = (url, sql) =>
  execFileSync('psql', ['-qXAt', '-v', 'ON_ERROR_STOP=1', url, '-c', sql], { encoding: 'utf8' }).trim();

const freePort = () => new Promise(resolve => {
  const probe = createServer().listen(0, '127.0.0.1', () => {
    const { port } = probe.address();
    probe.close(() => resolve(port));
  });
});

async function until(what, condition) {
  const end = Date.now() + 60_000;
  while (!(await condition())) {
    assert.ok(Date.now() < end, `not within a minute: ${what}`);
    await new Promise(resolve => setTimeout(resolve, 50));
  }
}

test('README: use it with your database', { timeout: 300_000 }, async t => {
  const section = readFileSync(`${root}README.md`, 'utf8').split('\n## Use it with your database\n')[1];
  const [commands] = shellBlocks(section);
  const name = `t_docs_${process.pid}`;
  const url = `${server}/${name}`;
  psql(`${server}/postgres`, `create database ${name}`);
  psql(url, `create table posts (id int primary key, tenant_id text, title text); insert into posts values (1, 't1', 'a')`);

  const port = await freePort();
  let script = commands;
  for (const [printed, here] of [
    ['postgres://you@host/app', url], ['redis://host', process.env.ROWBELL_TEST_REDIS], ['127.0.0.1:8080 &', `127.0.0.1:${port} &`],
  ]) {
    assert.ok(script.includes(printed), `the README prints ${printed}`);
    script = script.replace(printed, here);
  }
  // The update is for a gateway that is up: a person types slower than the processes start.
  script = script.replace(/^psql /m, `until curl -sf --noproxy '*' -o /dev/null -m 1 -r 0-0 http://127.0.0.1:${port}/events || [ $? = 28 ]; do sleep 0.1; done\n$&`);
  const shell = spawn('bash', ['-e', '-c', `${script}\nwait`],
    { env: { ...process.env, PATH: path }, detached: true, stdio: ['ignore', 'pipe', 'pipe'] });
  let output = '', errors = '';
  shell.stdout.on('data', bytes => { output += bytes; });
  shell.stderr.on('data', bytes => { errors += bytes; });
  const ended = new Promise(resolve => shell.on('close', resolve));
  t.after(async () => {
    process.kill(-shell.pid, 'SIGTERM');
    await ended;
    psql(`${server}/postgres`, `drop database ${name} with (force)`);
  });

  await until('rowbell status has been printed', () => {
    assert.equal(shell.exitCode, null, `${output}${errors}`);
    return /schema version/.test(output);
  });
  assert.match(output, /whsec_/, 'the secret is printed');
  // The update is in the stream, for the gateway's clients, and at the partner's, who is not there.
  await until('the change is in the log', () => psql(url, `select count(*) from rowbell.stream_log where name = 'posts'`) === '1');
  const before = psql(url, `select prev from rowbell.stream_log where name = 'posts'`);
  const stream = await fetch(`http://127.0.0.1:${port}/events`, { headers: { 'Last-Event-ID': before } });
  assert.equal(stream.status, 200);
  let text = '';
  for await (const bytes of stream.body) {
    text += Buffer.from(bytes).toString();
    if (text.includes('data:')) break;
  }
  assert.match(text, /event: change\nid: \d+\ndata: \{"table":"posts","key":"1","op":"update"\}/);
  await until('the partner was tried', () => psql(url, `select count(*) > 0 from rowbell.attempts`) === 't');
});

test('every flag that a document gives to a program is one of its flags', () => {
  const flagsOf = program => execFileSync(`${bin}/${program.slice(8)}/${program}`, ['--help'], { encoding: 'utf8' });
  const help = Object.fromEntries(['relay', 'dispatcher', 'gateway'].map(part => [`rowbell-${part}`, flagsOf(`rowbell-${part}`)]));
  const files = ['README.md', ...readdirSync(`${root}docs`).filter(file => file.endsWith('.md')).map(file => `docs/${file}`)];
  let seen = 0;
  for (const file of files) {
    for (const line of shellBlocks(readFileSync(root + file, 'utf8')).join('\n').replace(/\\\n/g, ' ').split('\n')) {
      for (const [, program, rest] of line.matchAll(/\b(rowbell-(?:relay|dispatcher|gateway))\b([^#&|]*)/g)) {
        for (const [flag] of rest.matchAll(/--[a-z-]+/g)) {
          assert.ok(help[program].includes(`${flag} `) || help[program].includes(`${flag}\n`), `${file}: ${program} has no ${flag}`);
          seen++;
        }
      }
    }
  }
  assert.ok(seen > 0);
});

// A database of its own with programs on it; what a document prints is run with these in the environment, as a person
// has them.
async function world(t, schema, programs) {
  const name = `t_docs_${process.pid}_${Math.floor(Math.random() * 1e9)}`;
  const url = `${server}/${name}`;
  psql(`${server}/postgres`, `create database ${name}`);
  const { hostname, port, username, password } = new URL(url);
  const env = { ...process.env, PATH: path, DATABASE_URL: url, PGHOST: hostname, PGPORT: port, PGUSER: username,
    PGPASSWORD: decodeURIComponent(password), PGDATABASE: name };
  execFileSync('rowbell', ['migrate'], { env, stdio: 'ignore' });
  psql(url, schema);
  const children = programs.map(([program, ...rest]) => spawn(program, rest, { env, stdio: 'ignore' }));
  t.after(async () => {
    for (const child of children) {
      child.kill('SIGTERM');
      if (child.exitCode === null) await new Promise(resolve => child.on('close', resolve));
    }
    psql(`${server}/postgres`, `drop database ${name} with (force)`);
  });
  const sh = script => execFileSync('bash', ['-e', '-c', script], { env, encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] });
  return { url, sh, sql: statement => psql(url, statement) };
}

const blocks = (file, language) => blocksOf(readFileSync(root + file, 'utf8'), language);

test('docs/indexing.md: a table is searchable, an engine is added, an index is built anew', { timeout: 300_000 }, async t => {
  const { sh, sql } = await world(t, `create table posts (id int primary key, tenant text, title text, body text);
    insert into posts values (1, 'tenant-7', 'Animals', 'a quick fox'), (2, 'tenant-8', 'Others', 'a quick fox')`,
    [['rowbell-relay'], ['rowbell-dispatcher', '--lanes', 'index']]);
  const [first, engines, rebuild, ...others] = blocks('docs/indexing.md', 'sh');
  assert.equal(others.length, 0, 'each block is run here');
  const [search, ...grants] = blocks('docs/indexing.md', 'sql');
  sh(first);
  await until('what was there is found', () => sql(search) !== '');
  sql(`insert into posts values (3, 'tenant-7', 'The hare', 'runs')`);
  await until('what is new is found', () => sql(search).split('\n').length === 2);
  assert.match(sql(search), /^posts\|1\|.*<mark>quick<\/mark> <mark>fox<\/mark>/m);
  assert.match(sh('rowbell index status search'), /posts/);
  for (const statement of grants) sql(statement);
  sh(`KEY=secret\n${engines}`);
  assert.equal(sql(`select string_agg(name || ' ' || (settings ->> 'target'), ',' order by name) from rowbell.subscriptions where kind = 'index'`),
    'es elasticsearch,ms meilisearch,search postgres');
  sql(`delete from rowbell.search`);
  sh(rebuild);
  assert.equal(sql(search).split('\n').length, 2);
});

test('docs/receipts.md: from SQL, HTTP and the browser', { timeout: 300_000 }, async t => {
  const port = await freePort();
  const { sql, sh } = await world(t, `create table posts (id text primary key, title text); insert into posts values ('p1', 'old');
    select rowbell.publish('posts');
    select rowbell.add_index('search', '{posts.*}', null, '{"target": "postgres"}')`,
    [['rowbell-relay'], ['rowbell-dispatcher'], ['rowbell-gateway', '--auth', 'none', '--listen', `127.0.0.1:${port}`]]);
  const [transaction] = blocks('docs/receipts.md', 'sql');
  const [request] = blocks('docs/receipts.md', '').filter(block => block.startsWith('GET '));
  const [answer] = blocks('docs/receipts.md', 'json').map(JSON.parse);
  const gateway = `http://127.0.0.1:${port}`;
  await until('the gateway is there', () => fetch(`${gateway}/receipts/none`).then(() => true, () => false));

  // The first line that the transaction prints is the receipt; the answer has the form that is printed.
  const receipt = sql(transaction);
  assert.match(receipt, /^r2\.[0-9a-f]+\.\d+\.\d+\.\d+\.[0-9a-f]+$/);
  const [, target] = request.match(/^GET (\S+)/);
  const response = await fetch(gateway + target.replace('{token}', receipt).replace('2s', '20s'));
  assert.equal(response.status, 200);
  const told = await response.json();
  assert.deepEqual(Object.keys(told), Object.keys(answer));
  assert.deepEqual(Object.keys(told.open), Object.keys(answer.open));
  assert.equal(told.indexed, true);
  assert.equal(sql(`select count(*) from rowbell.search_documents('new')`), '1');
  const [fromDatabase] = [...readFileSync(`${root}docs/receipts.md`, 'utf8').matchAll(/`(select \* from rowbell\.receipt_status.*?)`/g)];
  assert.match(sql(fromDatabase[1].replace(/r[0-9]+\.\.\.\./, receipt)), /^committed\|1\|0\|/);

  // The page's own code, with an application that answers PUT with a receipt.
  const page = new (Object.getPrototypeOf(async () => {}).constructor)('fetch', 'search', 'body', 'words',
    `let results;\n${blocks('docs/receipts.md', 'js')[0]}\nreturn results`);
  const application = async (path, options) => {
    if (options?.method !== 'PUT') return fetch(gateway + path.replace('2s', '20s'));
    assert.equal(path, '/posts/p1');
    return Response.json({ receipt: sql(`begin; update posts set title = '${options.body}' where id = 'p1'; select rowbell.receipt(); commit`) });
  };
  for (const word of ['aardvark', 'badger', 'civet']) {
    const found = await page(application, words => sql(`select key from rowbell.search_documents('${words}')`), word, word);
    assert.equal(found, 'p1', `${word}: in the very next answer`);
  }
});
