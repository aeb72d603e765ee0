// A hostile neighbour in the place of each part: what it reaches from there besides what docs/operating.md, "Containers", says.
import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { request } from 'node:http';
import * as http2 from 'node:http2';
import { connect } from 'node:net';
import { getuid } from 'node:process';
import { until } from '../reconcile/clock.mjs';

const SOON_MS = 60_000;
const PROBES = ['https://postgres:5432/', 'https://redis:6379/', 'https://relay:9090/', 'https://[::1]:9090/', 'https://127.0.0.1:9090/',
    'https://169.254.169.254/', 'https://172.29.208.2:8080/', 'https://host.docker.internal/'];

// What no login of ours may do in the database: each is refused for want of a right.
const TOO_MUCH = [
    'select * from pg_catalog.pg_authid',
    "select pg_read_file('/secrets/password')",
    "copy (select 1) to program 'id'",
    "select lo_import('/etc/passwd')",
    'create extension pgcrypto',
    'create schema mine',
    'create temp table mine ()',
    'create table rowbell.mine ()',
    'create role mine',
    'create database mine',
    'create publication mine for all tables',
    "select pg_create_physical_replication_slot('mine')",
    "alter role postgres password 'x'",
    'alter system set log_statement = "all"',
    'alter database rowbell set search_path = "mine"',
    'set log_statement = "none"',
    'set role postgres',
    'set role rowbell_owner',
    'set session authorization postgres',
    'grant rowbell_owner to current_user',
    'grant rowbell_dispatcher to current_user',
    'alter table rowbell.events add mine int',
    'drop schema rowbell cascade',
    "select pg_terminate_backend(pid) from pg_stat_activity where usename like '%\\_login' and usename <> current_user",
];

// psql goes on after an error, and says which statements failed.
async function failures(stack, url, statements) {
    const commands = statements.flatMap((sql) => ['-c', sql]);
    const [{ Id }] = await stack.containers('postgres');
    const said = await stack.said('exec', Id, 'psql', url, '-qXAt', '-b', '-v', 'VERBOSITY=terse', ...commands);
    return {
        failed: [...said.matchAll(/^STATEMENT: {2}(.*)$/gm)].map(([, sql]) => sql),
        reasons: [...said.matchAll(/^(?:ERROR|FATAL): {2}(.*)$/gm)].map(([, reason]) => reason),
    };
}

export async function noLoginRises(stack) {
    for (const service of ['relay', 'dispatcher', 'gateway', 'operator', 'app']) {
        const [container] = await stack.containers(service);
        const url = stack.urlHere(container ? await stack.secretsOf(container) : await stack.secretsOfTool(service));
        const { failed, reasons } = await failures(stack, url, TOO_MUCH);
        assert.deepEqual(failed, TOO_MUCH, service);
        for (const reason of reasons) assert.match(reason, /permission denied|must be|must have|cannot set/, `${service}: ${reason}`);
    }
    // Whoever takes all the connections that he gets leaves some to the fleet.
    const many = await stack.said('exec', (await stack.containers('postgres'))[0].Id, 'sh', '-c',
        'echo "select 1;" | pgbench -n -c 95 -t 1 -f /dev/stdin "$0"', stack.applicationUrl);
    assert.match(many, /too many connections for role "app_login"/);
}

// The application may create functions in `public`. With types that fit better than those of pg_catalog, they would be called by
// whoever looks along it: the superuser at the next start, a migration, an operator.
export async function functionsOfTheApplicationAreNotFound(stack, scale) {
    const planted = ['format(text, text)', 'format(text, text, text)', 'concat(text, text)', 'concat_ws(text, text, text)',
        'jsonb_build_object(text, text)', 'pg_has_role(text, text, text)', 'to_regrole(name)', 'pg_notify(name, name)'];
    const typed = planted.map((name) => `create function public.${name} returns ${name.startsWith('pg_has') ? 'boolean' : 'text'}
        language plpgsql as $$ begin insert into public.taken values (current_user); return true; end $$;`);
    await stack.application(`create table public.taken (by name); grant insert on public.taken to public; ${typed.join(' ')}`);
    const [roles] = await stack.containers('roles');
    await stack.docker('start', '-a', roles.Id);
    const [migrate] = await stack.containers('migrate');
    await stack.docker('start', '-a', migrate.Id);
    await stack.compose('run', '--rm', '-T', '--no-deps', 'rekey');
    await stack.cli('doctor');
    await stack.cli('status');
    for (const service of Object.keys(scale)) await stack.docker('restart', (await stack.containers(service))[0].Id);
    for (const [service, count] of Object.entries(scale)) await stack.ready(service, count);
    assert.equal(await stack.psql('select string_agg(distinct by::text, \',\') from public.taken'), '');
    await stack.application(planted.map((name) => `drop function public.${name};`).join(' ') + 'drop table public.taken');
}

// A webhook is sent to no part of the installation, whatever its address is called.
export async function webhooksStayOutside(stack) {
    await stack.application("select rowbell.declare_type('compose.probe', 'reaches for our own services', webhook => true)");
    const names = PROBES.map((_, n) => `probe-${n}`);
    const added = [];
    for (const [n, url] of PROBES.entries()) {
        const add = `select rowbell.add_webhook('${names[n]}', '${url}', '{compose.probe}', 'acme')`;
        await stack.application(add).then(() => added.push(names[n]), ({ stderr }) => assert.match(stderr, /private|reserved|not allowed|loopback/));
    }
    assert.ok(added.length >= 4, added.join());
    await stack.application("select rowbell.record('compose.probe', 'probe/1', '{}', 'acme')");
    await until('each is tried', SOON_MS, async () =>
        await stack.application('select count(distinct subscription) from rowbell.attempt_log()') === String(added.length));
    assert.equal(await stack.application("select count(*) from rowbell.attempt_log() where class not in ('egress_denied', 'dns')"), '0');
    assert.ok(Number(await stack.application("select count(*) from rowbell.attempt_log() where class = 'egress_denied'")) >= 4);
    await stack.application(added.map((name) => `select rowbell.remove_subscription('${name}')`).join(';'));
}

// From a container to all others: only what its work needs listens there.
export async function neighboursAreNotReached(stack) {
    const [gateway] = await stack.containers('gateway');
    for (const service of ['relay', 'dispatcher', 'gateway']) {
        for (const container of await stack.containers(service)) {
            for (const port of [8080, 9090]) {
                const open = service === 'gateway' && port === 8080;
                assert.equal(await stack.reaches('relay', stack.address(container, 'database'), port), open, `${container.Name}:${port}`);
            }
        }
    }
    // The gateway's door is the same for whoever reaches it: nothing that a stranger says is believed.
    const door = (from, address) => stack.exec(from, 'curl', '-s', '-o', '/dev/null', '-w', '%{http_code}', '--max-time', '20',
        '-H', 'X-Rowbell-Scopes: acme', '-H', 'X-Rowbell-Subject: root', `http://${address}:8080/events`);
    assert.equal(await door('relay', stack.address(gateway, 'database')), '401');
    assert.equal(await door('proxy', stack.address(gateway, 'front')), '401');
}

// A place beyond this machine, in a network namespace of its own: only dispatchers get there.
export async function onlyDispatchersGetOut(stack) {
    if (getuid() !== 0 || !existsSync('/usr/sbin/ip')) return;
    const ip = (...args) => execFileSync('/usr/sbin/ip', args, { stdio: 'pipe' });
    const name = 'rowbell-outside';
    ip('netns', 'add', name);
    let listener;
    try {
        ip('link', 'add', 'rowbell-out', 'type', 'veth', 'peer', 'name', 'eth0', 'netns', name);
        ip('address', 'add', '198.51.100.1/30', 'dev', 'rowbell-out');
        ip('link', 'set', 'rowbell-out', 'up');
        ip('-n', name, 'address', 'add', '198.51.100.2/30', 'dev', 'eth0');
        ip('-n', name, 'link', 'set', 'eth0', 'up');
        ip('-n', name, 'route', 'add', 'default', 'via', '198.51.100.1');
        listener = spawn('/usr/sbin/ip', ['netns', 'exec', name, 'perl', '-MIO::Socket::INET', '-e',
            'my $s = IO::Socket::INET->new(Listen => 5, LocalPort => 443) or die; while ($s->accept) {}'], { stdio: 'ignore' });
        await until('the dispatcher gets out', SOON_MS, () => stack.reaches('dispatcher', '198.51.100.2', 443));
        for (const service of ['relay', 'gateway', 'postgres', 'redis']) {
            assert.equal(await stack.reaches(service, '198.51.100.2', 443), false, service);
        }
    } finally {
        listener?.kill('SIGKILL');
        ip('netns', 'delete', name);
    }
}

const NEXT = 'GET /smuggled HTTP/1.1\r\nHost: localhost\r\nX-Rowbell-Scopes: acme\r\n\r\n';
const FORGED = 'X-Rowbell-Scopes: acme\r\nx-rowbell-subject: root\r\nX_Rowbell_Scopes: acme\r\n'
    + 'Forwarded: for=192.0.2.1\r\nX-Forwarded-For: 192.0.2.1\r\nX-Forwarded-For: 192.0.2.2\r\nX-Real-IP: 192.0.2.3\r\n';

function raw(host, port, text) {
    return new Promise((resolve, reject) => {
        let answer = '';
        const socket = connect(port, host, () => socket.write(text));
        socket.setTimeout(SOON_MS, () => socket.destroy(new Error(`no answer to ${text}`)));
        socket.setEncoding('latin1').on('data', (part) => (answer += part)).on('error', reject).on('close', () => resolve(answer));
    });
}

// The image of the proxy before something that answers with all that it was sent. `volumes` are the proxy's.
async function withEcho(stack, volumes, body) {
    const network = `${stack.project}-echo`;
    const echo = 'my $s = IO::Socket::INET->new(Listen => 5, LocalPort => 8080); while (my $c = $s->accept) { my $h = "";'
        + ' while (<$c>) { last if /^\\r\\n/; $h .= $_ } print $c "HTTP/1.1 200 OK\\r\\nConnection: close\\r\\n'
        + 'Content-Length: " . length($h) . "\\r\\n\\r\\n$h"; close $c }';
    const containers = [];
    const run = async (...args) => containers.push(await stack.docker('run', '-d', '--network', network, ...args));
    await stack.docker('network', 'create', network);
    try {
        await run('--network-alias', 'gateway', 'rowbell', 'perl', '-MIO::Socket::INET', '-e', echo);
        await run('--read-only', '--tmpfs', '/tmp', '--user', '999:999', ...volumes, 'rowbell-proxy');
        const [{ NetworkSettings }] = JSON.parse(await stack.docker('inspect', containers[1]));
        const { IPAddress, Gateway } = NetworkSettings.Networks[network];
        const ask = (head, target = '/events') =>
            raw(IPAddress, 8080, `GET ${target} HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n${head}\r\n`).catch(String);
        await until('the proxy passes requests on', SOON_MS, async () => (await ask('')).includes('\r\n\r\nGET /events'));
        await body(ask, IPAddress, Gateway);
    } finally {
        for (const id of containers) await stack.docker('rm', '-f', id);
        await stack.docker('network', 'rm', network);
    }
}

export const proxyClearsHeaders = (stack) => withEcho(stack, [], async (ask, address, client) => {
    for (const head of [`Authorization: Bearer t\r\n${FORGED}`, `${FORGED}Authorization: Bearer t\r\nConnection: X-Forwarded-For, X-Rowbell-Scopes\r\n`]) {
        const answer = await ask(head);
        const passed = answer.slice(answer.indexOf('\r\n\r\n') + 4);
        assert.match(passed, /^authorization: Bearer t$/im, "what is the client's own goes on");
        assert.match(passed, /^host: evil\.example$/im, 'the gateway judges the Host itself');
        assert.deepEqual(passed.match(/^x-forwarded-for:.*$/gim), [`X-Forwarded-For: ${client}`]);
        assert.doesNotMatch(passed, /scopes|subject|^forwarded|192\.0\.2\.[12]|acme|root/im);
    }
    // One request is never taken for two, and none has a target of another host.
    const bodies = ['Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n', 'Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n',
        'Content-Length: 0\r\nContent-Length: 5\r\n\r\n', 'Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n'];
    for (const body of bodies) assert.doesNotMatch(await ask(body + NEXT), /\r\n\r\nGET[^]*smuggled/, body);
    assert.match(await ask('', 'http://postgres:5432/events'), /\r\n\r\nGET \/events HTTP/);
});

// With the line for tls.conf that docker-compose.yml shows.
export async function proxyServesTls(stack) {
    const [line] = /listen 8443 ssl;.*/.exec(readFileSync(new URL('../../docker-compose.yml', import.meta.url), 'utf8'));
    const volume = `${stack.project}-tls`;
    const make = 'cd /tls; openssl req -x509 -nodes -newkey rsa:2048 -subj /CN=localhost -keyout key.pem -out cert.pem; echo "$0" >tls.conf; chown 999 *';
    await stack.docker('volume', 'create', volume);
    try {
        await stack.docker('run', '--rm', '--network', 'none', '--user', '0', '-v', `${volume}:/tls`, 'rowbell', 'sh', '-ec', make, line);
        await withEcho(stack, ['-v', `${volume}:/etc/nginx/tls:ro`], async (ask, address) => {
            const session = http2.connect(`https://${address}:8443`, { rejectUnauthorized: false });
            const stream = session.request({ ':path': '/events', 'x-rowbell-scopes': 'acme' });
            let passed = '';
            for await (const part of stream.setEncoding('latin1')) passed += part;
            session.close();
            assert.match(passed, /^x-forwarded-proto: https$/im);
            assert.doesNotMatch(passed, /scopes|acme/);
        });
    } finally {
        await stack.docker('volume', 'rm', volume);
    }
}

function status(url, path, headers) {
    return new Promise((resolve, reject) => {
        request(`${url}${path}`, { headers, setHost: !headers.Host, agent: false }, (response) => {
            resolve(response.statusCode);
            response.destroy();
        }).on('error', reject).setTimeout(SOON_MS, () => reject(new Error(`${url}${path}: no answer`))).end();
    });
}

// Without a token nobody enters, whatever else he says, and nothing but the streams is there.
export async function onlyTokensOpen(proxyUrl) {
    const forged = { 'X-Rowbell-Scopes': 'acme', 'X-Forwarded-For': '127.0.0.1', Forwarded: 'for=127.0.0.1', Host: 'localhost' };
    for (const headers of [{}, forged, { Authorization: 'Bearer x.y.z' }, { Cookie: 'rowbell_token=x.y.z' }]) {
        for (const path of ['/events', '//events', '/events/../events', '/receipts/r2']) {
            const code = await status(proxyUrl, path, headers);
            assert.ok(code === 401 || (code === 404 && path !== '/events'), `${path}: ${code}`);
        }
    }
    for (const path of ['/metrics', '/healthz', '/readyz', '/proxy-health/../metrics', '/', '/.env', '/nginx_status']) {
        assert.equal(await status(proxyUrl, path, forged), 404, path);
    }
}

// The demo lets everybody in who is on this machine: no page of a site that points its name here. It runs only when it is asked for.
export async function onlyTheDemoIsAnonymous(stack, proxyUrl, demoUrl) {
    assert.deepEqual(await stack.containers('demo'), []);
    await assert.rejects(status(demoUrl, '/events', {}), 'nothing listens');
    await stack.compose('--profile', 'demo', 'up', '-d', '--no-build', '--no-deps', 'demo');
    await stack.ready('demo', 1);
    await stack.compose('--profile', 'demo', 'up', '-d', '--no-build', '--no-deps', 'demo-proxy');
    await stack.ready('demo-proxy', 1);
    assert.equal(await status(demoUrl, '/events', {}), 200);
    for (const path of ['/', '/events', '/receipts/r2']) assert.equal(await status(demoUrl, path, { Host: 'evil.example' }), 403, path);
    assert.equal(await status(proxyUrl, '/events', {}), 401);
    const [demo] = await stack.containers('demo');
    assert.deepEqual(Object.keys(await stack.secretsOf(demo)), ['DATABASE_URL', 'REDIS_URL']);
    for (const service of ['demo', 'demo-proxy']) {
        const [{ Id }] = await stack.containers(service);
        await stack.docker('rm', '-f', Id);
    }
}
