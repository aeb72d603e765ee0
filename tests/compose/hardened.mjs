// What docker-compose.yml promises of each container, login, secret, network and header, looked at in the running fleet.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';

// The services that run, each with the variables of its file in /secrets, and its login and group in PostgreSQL.
const FLEET = {
    relay: { variables: ['DATABASE_URL'], login: 'relay_login' },
    dispatcher: { variables: ['DATABASE_URL', 'REDIS_URL', 'ROWBELL_SECRET_KEY'], login: 'dispatcher_login' },
    gateway: { variables: ['DATABASE_URL', 'REDIS_URL', 'ROWBELL_JWT_SECRET'], login: 'gateway_login' },
};
const TOOLS = {
    operator: ['DATABASE_URL', 'ROWBELL_SECRET_KEY'],
    rekey: ['DATABASE_URL', 'ROWBELL_SECRET_KEY'],
    app: ['DATABASE_URL', 'ROWBELL_JWT_SECRET'],
};
const GROUPS = {
    migrate_login: 'rowbell_owner',
    relay_login: 'rowbell_relay',
    dispatcher_login: 'rowbell_dispatcher',
    gateway_login: 'rowbell_gateway',
    operator_login: 'rowbell_operator',
    app_login: 'rowbell_app,rowbell_publish',
};
const NETWORKS = {
    relay: ['database'],
    dispatcher: ['database', 'egress', 'redis'],
    gateway: ['database', 'front', 'redis'],
    proxy: ['front', 'public'],
    postgres: ['database'],
    redis: ['redis'],
    migrate: ['database'],
};
const RUNNING = [...Object.keys(FLEET), 'postgres', 'redis', 'proxy'];
const ONCE = ['setup', 'roles', 'migrate'];

const refusal = async (promise) => {
    const error = await promise.then((output) => assert.fail(`it was done: ${output}`), (reason) => reason);
    if (error instanceof assert.AssertionError) throw error;
    return `${error.stdout}${error.stderr}`;
};

// As the kernel sees each container, and not only as it was asked for.
export async function containersHaveNoPowers(stack) {
    for (const service of [...RUNNING, ...ONCE]) {
        for (const { Id, Name, HostConfig, Config, State } of await stack.containers(service)) {
            assert.equal(HostConfig.ReadonlyRootfs, true, Name);
            assert.deepEqual(HostConfig.CapDrop, ['ALL'], Name);
            assert.ok(!HostConfig.Privileged && !HostConfig.CapAdd?.length, Name);
            assert.ok(HostConfig.PidsLimit > 0 && HostConfig.Memory > 0, Name);
            assert.match(Config.User, /^[1-9]/, Name);
            assert.doesNotMatch(Config.Env.join('\n'), /:\/\/|PASSWORD=.|JWT_SECRET|SECRET_KEY=./, `${Name}: no secret that docker inspect shows`);
            const ports = Object.values(HostConfig.PortBindings ?? {}).flat().map(({ HostIp }) => HostIp);
            assert.deepEqual(ports, service === 'proxy' ? ['127.0.0.1'] : [], Name);
            if (!State.Running) continue;
            const pids = (await stack.docker('top', Id, '-eo', 'pid')).split('\n').slice(1).map(Number);
            for (const pid of pids) {
                const status = readFileSync(`/proc/${pid}/status`, 'utf8');
                assert.match(status, /^Uid:\t999\t999\t999\t999$/m, Name);
                assert.match(status, /^Gid:\t999\t999\t999\t999$/m, Name);
                for (const set of ['Inh', 'Prm', 'Eff', 'Bnd', 'Amb']) assert.match(status, new RegExp(`^Cap${set}:\t0{16}$`, 'm'), Name);
                assert.match(status, /^NoNewPrivs:\t1$/m, Name);
            }
            const wrote = 'for d in / /etc /usr/bin; do (: >$d/x) 2>/dev/null && echo $d; done; true';
            assert.equal(await stack.docker('exec', Id, 'sh', '-c', wrote), '', `${Name}: its root is read-only`);
        }
    }
    for (const service of ONCE) {
        for (const { Name, State } of await stack.containers(service)) assert.equal(State.ExitCode, 0, Name);
    }
}

export async function secretsAreApart(stack) {
    const seen = new Map();
    for (const [service, { variables }] of Object.entries(FLEET)) {
        const [container] = await stack.containers(service);
        const secrets = await stack.secretsOf(container);
        assert.deepEqual(Object.keys(secrets), variables, service);
        seen.set(service, secrets);
        const files = await stack.docker('exec', container.Id, 'find', '/secrets', '-type', 'f', '-printf', '%f %m %u\n');
        assert.equal(files, 'env 400 999', service);
    }
    for (const [service, names] of Object.entries(TOOLS)) {
        seen.set(service, await stack.secretsOfTool(service));
        assert.deepEqual(Object.keys(seen.get(service)), names, service);
    }
    const said = await stack.compose('run', '--rm', '-T', '--no-deps', '-e', 'ROWBELL_JWT_SECRET=', '-e', 'REDIS_URL=mine', 'gateway',
        'printenv', 'ROWBELL_JWT_SECRET', 'REDIS_URL', 'DATABASE_URL');
    assert.equal(said.trimEnd(), `\nmine\n${seen.get('gateway').DATABASE_URL}`, 'what the environment says wins');
    const passwords = [...seen.values()].map(({ DATABASE_URL }) => new URL(DATABASE_URL).password);
    assert.equal(new Set(passwords).size, passwords.length);
    for (const password of passwords) assert.match(password, /^[0-9a-f]{64}$/);
    assert.equal(await stack.exec('proxy', 'ls', '/').then((list) => list.includes('secrets')), false);
    assert.equal(await stack.exec('postgres', 'ls', '/secrets'), 'password');
    assert.doesNotMatch(await stack.exec('redis', 'cat', '/secrets/users.acl'), /[^#]\b[0-9a-f]{64}\b|>/, 'digests only');
}

export async function loginsAreTheirOwn(stack) {
    const services = new Map();
    for (const service of Object.keys(FLEET)) {
        for (const container of await stack.containers(service)) services.set(stack.address(container, 'database'), service);
    }
    const sessions = (await stack.query(`select distinct usename as login, client_addr as address, usesuper as super
        from pg_stat_activity join pg_user using (usename) where backend_type = 'client backend' and client_addr is not null`)).rows;
    for (const { login, address, super: superuser } of sessions) {
        assert.equal(login, FLEET[services.get(address)]?.login, `${address}, ${services.get(address)}`);
        assert.equal(superuser, false);
    }
    assert.equal(sessions.length, services.size, 'each process has a session');
    const strong = `select rolname || coalesce(': ' || rolpassword, '') from pg_authid where rolcanlogin
        and (rolsuper or rolcreaterole or rolcreatedb or rolreplication or rolbypassrls)`;
    assert.equal(await stack.psql(strong), 'postgres', 'the superuser alone, without a password');
    const groups = (await stack.query(`select m.rolname as login, string_agg(g.rolname, ',' order by g.rolname) as groups
        from pg_auth_members join pg_roles m on m.oid = member join pg_roles g on g.oid = roleid where m.rolcanlogin group by 1`)).rows;
    assert.deepEqual(Object.fromEntries(groups.map(({ login, groups }) => [login, groups])), GROUPS);
    const connect = `select string_agg(datname, ',') from pg_database, pg_roles 
        where datallowconn and rolname = 'app_login' and has_database_privilege(rolname, datname, 'connect')`;
    assert.equal(await stack.psql(connect), 'rowbell');

    const [gateway] = await stack.containers('gateway');
    const url = stack.urlHere(await stack.secretsOf(gateway));
    for (const relation of ['rowbell.subscriptions', 'rowbell.events', 'rowbell.jobs', 'public.notes', 'pg_catalog.pg_authid']) {
        assert.match(await refusal(stack.psqlAs([url], `select 1 from ${relation} limit 1`)), /permission denied/, relation);
    }
    assert.match(await stack.psqlAs([url], 'select count(*) from rowbell.stream_log'), /^\d+$/);
    for (const role of ['postgres', 'rowbell_owner', 'rowbell_dispatcher']) {
        assert.match(await refusal(stack.psqlAs([url], `set role ${role}`)), /permission denied/, role);
    }
    // The superuser comes in by the socket only, and whoever has no password not at all.
    for (const whom of ['postgres', 'gateway_login']) {
        assert.match(await refusal(stack.psqlAs([`postgres://${whom}:postgres@127.0.0.1/rowbell`], 'select 1')), /authentication failed/);
    }
    assert.match(await refusal(stack.psqlAs(['-U', 'app_login', '-d', 'rowbell'], 'select 1')), /Peer authentication failed/);
}

export async function redisIsLimited(stack) {
    const [{ Id }] = await stack.containers('redis');
    const users = {};
    for (const name of ['dispatcher', 'gateway']) {
        const [container] = await stack.containers(name);
        const { username, password } = new URL((await stack.secretsOf(container)).REDIS_URL);
        assert.equal(username, name);
        users[name] = ['--user', username, '--pass', password, '--no-auth-warning'];
    }
    const ask = (who, ...words) => stack.docker('exec', Id, 'redis-cli', ...(users[who] ?? []), ...words);
    assert.equal(await ask('nobody', 'ping'), 'PONG');
    assert.equal(await ask('dispatcher', 'publish', 'rowbell:test', 'x'), '0');
    const denied = [
        ['nobody', 'publish', 'rowbell:test', 'x'], ['nobody', 'subscribe', 'rowbell:test'], ['nobody', 'info'],
        ['dispatcher', 'publish', 'other', 'x'], ['dispatcher', 'subscribe', 'rowbell:test'], ['dispatcher', 'set', 'a', 'b'],
        ['dispatcher', 'flushall'], ['dispatcher', 'config', 'get', '*'],
        ['gateway', 'publish', 'rowbell:test', 'x'], ['gateway', 'subscribe', 'other'], ['gateway', 'psubscribe', '*'],
        ['gateway', 'acl', 'list'], ['gateway', 'script', 'flush'], ['gateway', 'pubsub', 'channels'], ['gateway', 'keys', '*'],
        ['gateway', 'shutdown', 'nosave'], ['dispatcher', 'psubscribe', 'rowbell:*'], ['dispatcher', 'eval', 'return 1', '0'],
        ['dispatcher', 'client', 'list'], ['dispatcher', 'select', '1'], ['nobody', 'acl', 'whoami'],
    ];
    assert.match(await ask('nobody', 'auth', 'gateway', 'guessed'), /^WRONGPASS/);
    for (const words of denied) assert.match(await ask(...words), /^NOPERM/, words.join(' '));
}

// Names are not found, and addresses are not reached, from a network that has no need of them.
export async function networksAreApart(stack) {
    const [postgres] = await stack.containers('postgres');
    const [redis] = await stack.containers('redis');
    const places = [
        ['postgres', stack.address(postgres, 'database'), 5432],
        ['redis', stack.address(redis, 'redis'), 6379],
    ];
    for (const [name, address, port] of places) {
        for (const host of [name, address]) assert.equal(await stack.reaches('proxy', host, port), false, `${host} from the proxy`);
    }
    assert.equal(await stack.reaches('relay', 'postgres', 5432), true, 'this finds what can be reached');
    assert.equal(await stack.reaches('relay', 'redis', 6379), false);
    for (const [service, networks] of Object.entries(NETWORKS)) {
        for (const container of await stack.containers(service)) assert.deepEqual(stack.networks(container), networks, container.Name);
    }
    for (const network of new Set(Object.values(NETWORKS).flat())) {
        const [{ Internal }] = JSON.parse(await stack.docker('network', 'inspect', `${stack.project}_${network}`));
        assert.equal(Internal, !['egress', 'public'].includes(network), network);
    }
}
