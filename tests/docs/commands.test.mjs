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

const shellBlocks = text => [...text.matchAll(/^```sh\n(.*?)^```/gms)].map(match => match[1]);
const psql = (url, sql) =>
  execFileSync('psql', ['-qXAt', '-v', 'ON_ERROR_STOP=1', url, '-c', sql], { encoding: 'utf8' }).trim();

const freePort = () => new Promise(resolve => {
  const probe = createServer().listen(0, '127.0.0.1', () => {
    const { port } = probe.address();
    probe.close(() => resolve(port));
  });
});

async function until(what, seconds, condition) {
  const end = Date.now() + seconds * 1000;
  while (!(await condition())) {
    assert.ok(Date.now() < end, `not within ${seconds} s: ${what}`);
    await new Promise(resolve => setTimeout(resolve, 50));
  }
}

test('README: use it with your database', { timeout: 90_000 }, async t => {
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

  await until('rowbell status has been printed', 60, () => {
    assert.equal(shell.exitCode, null, `${output}${errors}`);
    return /schema version/.test(output);
  });
  assert.match(output, /whsec_/, 'the secret is printed');
  // The update is in the stream, for the gateway's clients, and at the partner's, who is not there.
  await until('the change is in the log', 20, () => psql(url, `select count(*) from rowbell.stream_log where name = 'posts'`) === '1');
  const before = psql(url, `select prev from rowbell.stream_log where name = 'posts'`);
  const stream = await fetch(`http://127.0.0.1:${port}/events`, { headers: { 'Last-Event-ID': before } });
  assert.equal(stream.status, 200);
  let text = '';
  for await (const bytes of stream.body) {
    text += Buffer.from(bytes).toString();
    if (text.includes('data:')) break;
  }
  assert.match(text, /event: change\nid: \d+\ndata: \{"table":"posts","key":"1","op":"update"\}/);
  await until('the partner was tried', 20, () => psql(url, `select count(*) > 0 from rowbell.attempts`) === 't');
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
