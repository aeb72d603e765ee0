// Volumes of an older start, and keys that change: what docs/operating.md, "Containers", says about both, done.
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { until } from '../reconcile/clock.mjs';

const SOON_MS = 90_000;
const SERVICES = ['relay', 'dispatcher', 'gateway'];
const LOGINS = ['migrate', 'relay', 'dispatcher', 'gateway', 'operator', 'app'].map((name) => `${name}_login`).join(', ');

let note = 2_000_000_000;
async function deliveryArrives(stack, channel) {
    const before = channel.deliveries.size;
    await stack.psql(`insert into notes (id, body) values (${++note}, 'upgrade')`);
    await until('a change arrives', SOON_MS, () => channel.deliveries.size > before);
    assert.deepEqual(channel.refused, [], 'signed by the same secret');
}

async function start(stack) {
    await stack.compose('up', '-d', '--no-build');
    for (const service of [...SERVICES, 'proxy']) await stack.ready(service, 1);
}

const keyOf = async (stack) => (await stack.secretsOfTool('operator')).ROWBELL_SECRET_KEY;

// As it was with the earlier docker-compose.yml: one volume, the superuser and its password for everything, and no logins; and
// as it is after a release with a new group.
export async function volumesOfAnOlderStart(stack, channel) {
    const key = await keyOf(stack);
    const events = await stack.psql('select count(*) from rowbell.events');
    await stack.compose('rm', '-sf', ...SERVICES, 'proxy', 'redis', 'migrate', 'roles', 'setup');
    await stack.psql(`update rowbell.subscriptions set owner = 'rowbell_owner'; alter role postgres password 'rowbell';
        reassign owned by app_login to postgres; drop owned by ${LOGINS}; drop role ${LOGINS}, rowbell_trusted;
        grant connect, temporary on database rowbell, postgres to public; grant create on schema public to public`);
    await stack.compose('rm', '-sf', 'postgres');
    const volumes = (await stack.docker('volume', 'ls', '-q', '--filter', `label=com.docker.compose.project=${stack.project}`)).split('\n');
    await stack.docker('volume', 'rm', ...volumes.filter((name) => name !== `${stack.project}_postgres`));

    stack.environment.ROWBELL_SECRET_KEY = key;
    await start(stack);
    delete stack.environment.ROWBELL_SECRET_KEY;
    assert.ok(Number(await stack.psql('select count(*) from rowbell.events')) >= Number(events));
    await deliveryArrives(stack, channel);
    assert.equal(await stack.psql("select rolpassword is null from pg_authid where rolname = 'postgres'"), 't');
    assert.equal(await stack.psql("select to_regrole('rowbell_trusted') is not null"), 't');
    const secrets = await stack.secretsOfTool('app');
    assert.equal(await stack.psqlAs([stack.urlHere(secrets), '-c', 'create table mine ()'], 'select current_user'), 'app_login');

    // A start later makes no new secret, and a key that was given once is kept.
    await start(stack);
    assert.deepEqual(await stack.secretsOfTool('app'), secrets);
    assert.equal(await keyOf(stack), key);
}

const sealed = (stack) => stack.psql("select secrets[1] from rowbell.subscriptions where name = 'compose'");

export async function secretKeyIsReplaced(stack, channel) {
    const [old, next, before] = [await keyOf(stack), randomBytes(32).toString('base64'), await sealed(stack)];
    const give = async (key) => {
        stack.environment.ROWBELL_SECRET_KEY = key;
        await stack.compose('up', '-d', '--no-build', 'setup');
        await until('setup is done', SOON_MS, async () => (await stack.containers('setup'))[0].State.Status === 'exited');
        await stack.compose('restart', 'dispatcher');
        await stack.ready('dispatcher', 1);
    };
    await give(`${old},${next}`);
    await deliveryArrives(stack, channel);
    await give(`${next},${old}`);
    await stack.compose('run', '--rm', '-T', 'rekey');
    assert.notEqual(await sealed(stack), before);
    await give(next);
    delete stack.environment.ROWBELL_SECRET_KEY;
    await deliveryArrives(stack, channel);
    assert.equal(await keyOf(stack), next);
}

export async function passwordIsReplaced(stack, channel) {
    const [relay] = await stack.containers('relay');
    const before = await stack.secretsOf(relay);
    await stack.compose('run', '--rm', '-T', 'setup', 'rm', '/secrets/setup/relay', '/secrets/setup/redis-dispatcher');
    await stack.compose('up', '-d', '--no-build', '--force-recreate');
    for (const service of [...SERVICES, 'proxy']) await stack.ready(service, 1);
    const [anew] = await stack.containers('relay');
    assert.notEqual((await stack.secretsOf(anew)).DATABASE_URL, before.DATABASE_URL);
    await assert.rejects(stack.psqlAs([stack.urlHere(before)], 'select 1'), /authentication failed/);
    await deliveryArrives(stack, channel);
}
