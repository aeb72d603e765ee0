// docker-compose.yml, run for real: the fleet of the README behind its proxy, an application that writes through psql, two
// browsers' EventSources and an endpoint for webhooks. First: what each container, login and network may do. Then containers
// crash, Redis forgets everything, an event is poisoned and requeued, and every container of ours is replaced by one of a new image. In the end what was committed is
// compared with what arrived (G4, G5, G6, G9). The tests are steps of one story: each needs those before it.
import assert from 'node:assert/strict';
import { createHmac } from 'node:crypto';
import { after, test } from 'node:test';
import { now, until } from '../reconcile/clock.mjs';
import { openWork } from '../reconcile/ledger.mjs';
import { Receiver } from '../reconcile/receiver.mjs';
import { account, lastLine, table } from '../reconcile/report.mjs';
import { Subscriber } from '../reconcile/subscribers.mjs';
import * as hardened from './hardened.mjs';
import * as hostile from './hostile.mjs';
import { Stack } from './stack.mjs';
import * as upgrade from './upgrade.mjs';
import { committed, schema, write } from './writer.mjs';

const SCALE = { relay: 2, dispatcher: 3, gateway: 2 };
const DRAINED_MS = 90_000; // the lease of a crashed dispatcher (30 s), and the load of a busy machine
const ARRIVAL_MS = 45_000; // of something that must come although a container has just gone
const POISON_NOTE = 1_000_000_000;

const load = new AbortController();
const receiver = new Receiver();
const subscribers = [];
const proxyUrl = `http://127.0.0.1:${process.env.ROWBELL_PORT}`;
const stack = new Stack(process.env.ROWBELL_COMPOSE_PROJECT);
const demoUrl = `http://127.0.0.1:${process.env.ROWBELL_DEMO_PORT}`;
let writing;
let failed = false;

const services = Object.keys(SCALE);
const delivered = (channel) => channel.deliveries.size;
const channels = () => [receiver.channel, ...subscribers.map((subscriber) => subscriber.channel)];

// Everybody receives something that is committed from now on.
async function everythingArrives() {
    const marks = new Map(channels().map((channel) => [channel, delivered(channel)]));
    for (const [channel, mark] of marks) {
        await until(`${channel.name} receives`, ARRIVAL_MS, () => delivered(channel) > mark + 5);
    }
}

const streamsOf = async () => Promise.all((await stack.containers('gateway'))
    .map((container) => stack.metric(container, 'rowbell_stream_subscribers')));

// As the application signs it for a browser.
function token(secret) {
    const part = (value) => Buffer.from(JSON.stringify(value)).toString('base64url');
    const signed = `${part({ alg: 'HS256' })}.${part({ scopes: ['acme'], sub: 'compose', exp: Math.floor(Date.now() / 1000) + 3600 })}`;
    return `${signed}.${createHmac('sha256', secret).update(signed).digest('base64url')}`;
}

const step = (name, body) => test(name, async (context) => {
    if (failed) return context.skip('an earlier step failed');
    const began = now();
    try {
        await body();
    } catch (error) {
        failed = true;
        throw error;
    }
    context.diagnostic(`${((now() - began) / 1000).toFixed(1)} s`);
});

after(async () => {
    load.abort();
    await writing?.catch(() => {});
    for (const subscriber of subscribers) subscriber.close();
    receiver.close();
    if (failed) process.stderr.write(await stack.compose('logs', '--no-color', '--tail', '30').catch(String));
    if (!process.env.ROWBELL_TEST_KEEP) await stack.remove();
});

step('the fleet starts: two relays, three dispatchers, two gateways, one proxy', async () => {
    // The endpoint is on this machine, whose address in their network is known when the network is made.
    await stack.compose('up', '-d', '--no-build', 'setup');
    stack.environment.ROWBELL_ALLOW_EGRESS = `${await stack.hostAddress()}/32`;
    await stack.compose('up', '-d', '--no-build', ...services.flatMap((name) => ['--scale', `${name}=${SCALE[name]}`]));
    for (const service of services) await stack.ready(service, SCALE[service]);
    await stack.ready('proxy', 1);
});

step('the application makes and publishes a table', () => stack.application(schema));

step('a webhook is sent to no part of the installation', () => hostile.webhooksStayOutside(stack));

step('an operator adds a webhook', async () => {
    const url = await receiver.listen(await stack.hostAddress());
    const added = await stack.cli('subscription', 'add', 'webhook', 'compose', url, '--type', '*', '--allow-http',
        '--deadline', '5s', '--retry', Array(20).fill('2s').join(','));
    receiver.trust(added.secret);
    assert.match(await stack.psql(`select secrets[1] from rowbell.subscriptions where name = 'compose'`), /^sealed:2:/);
});

step('containers run as a user, with no capabilities and a read-only root', () => hardened.containersHaveNoPowers(stack));
step('each service sees its own secrets and no other', () => hardened.secretsAreApart(stack));
step('each process has its login, none is a superuser, and a gateway reads no subscriptions', () => hardened.loginsAreTheirOwn(stack));
step('Redis lets dispatchers publish and gateways subscribe, and no more', () => hardened.redisIsLimited(stack));
step('networks are those of the documentation, and the proxy does not reach PostgreSQL and Redis', () => hardened.networksAreApart(stack));
step('only dispatchers reach a place outside', () => hostile.onlyDispatchersGetOut(stack));
step('a neighbour reaches the gateways alone, and is not believed there', () => hostile.neighboursAreNotReached(stack));
step('no login gains a right, nor all connections', () => hostile.noLoginRises(stack));
step('nobody calls a function that the application planted', () => hostile.functionsOfTheApplicationAreNotFound(stack, SCALE));
step('the proxy clears what gateways believe of a proxy, and takes one request for one', () => hostile.proxyClearsHeaders(stack));
step('the proxy serves TLS and HTTP/2 as docker-compose.yml says', () => hostile.proxyServesTls(stack));
step('without a token nobody enters, and nothing but streams is there', () => hostile.onlyTokensOpen(proxyUrl));
step('only the demo is anonymous, and runs only with its profile', () => hostile.onlyTheDemoIsAnonymous(stack, proxyUrl, demoUrl));

step('two EventSources go through the proxy to different gateways', async () => {
    const headers = { Authorization: `Bearer ${token((await stack.secretsOfTool('app')).ROWBELL_JWT_SECRET)}` };
    subscribers.push(new Subscriber('sse a', proxyUrl, headers), new Subscriber('sse b', proxyUrl, headers));
    await Promise.all(subscribers.map((subscriber) => subscriber.ready()));
    await until('the proxy spreads two streams over two gateways', 60_000, async () => {
        const streams = await streamsOf();
        if (streams.join() === '1,1') return true;
        if (streams.some((count) => count > 1)) {
            const { opened } = subscribers[1];
            subscribers[1].reopen(proxyUrl);
            await until('it opens again', 10_000, () => subscribers[1].opened > opened);
        }
        return false;
    });
});

step('writes by psql arrive at the endpoint and at both streams', async () => {
    writing = write(stack, load.signal);
    await everythingArrives();
    await stack.psql(`
        create function public.refuse() returns trigger language plpgsql as $$ begin
          if (select key = '${POISON_NOTE}' from rowbell.events where seq = new.event_seq) then
            raise exception 'refused' using errcode = 'check_violation';
          end if;
          return new;
        end $$;
        create trigger refuse before insert on rowbell.jobs for each row execute function public.refuse()`);
    await stack.psql(`begin; insert into notes (id, body) values (${POISON_NOTE}, 'poison');
        insert into journal values (${POISON_NOTE}, 'create'); commit`);
});

for (const service of [...services, 'redis', 'proxy', 'postgres']) {
    step(`one container of ${service} crashes, is restarted, and nothing waits for it`, async () => {
        await stack.crash((await stack.containers(service))[0]);
        await everythingArrives();
        await stack.ready(service, SCALE[service] ?? 1);
        for (const each of services) await stack.ready(each, SCALE[each]);
    });
}

step('Redis is away, then back', async () => {
    const [redis] = await stack.containers('redis');
    await stack.docker('stop', redis.Id);
    await everythingArrives();
    await stack.docker('start', redis.Id);
    await stack.ready('redis', 1);
    await everythingArrives();
});

step('an event that the database refused five times is requeued by the command line', async () => {
    const poisoned = () => stack.cli('event', 'list', '--state', 'poisoned');
    await until('it is poisoned', 60_000, async () => (await poisoned()).length > 0);
    const [event, ...others] = await poisoned();
    assert.deepEqual(others, []);
    assert.equal(event.subject, `notes/${POISON_NOTE}`);
    assert.ok(!receiver.channel.deliveries.has(event.id));
    await stack.psql('drop trigger refuse on rowbell.jobs');
    await stack.cli('requeue', 'events', '--id', event.id);
    await until('it arrives', ARRIVAL_MS, () => receiver.channel.deliveries.has(event.id));
    assert.deepEqual(await poisoned(), []);
});

step('each container of ours drains and is replaced by one of a new image', async () => {
    await stack.docker('tag', 'rowbell:next', 'rowbell');
    const [{ Id: image }] = JSON.parse(await stack.docker('image', 'inspect', 'rowbell'));
    for (const service of services) {
        for (const container of await stack.containers(service)) {
            assert.notEqual(container.Image, image);
            const end = await stack.replace(service, container, SCALE[service]);
            assert.deepEqual(end, { status: 0, oom: false }, `${container.Name}: killed, or failed, instead of drained`);
        }
        assert.deepEqual((await stack.containers(service)).map(({ Image }) => Image), Array(SCALE[service]).fill(image));
        await everythingArrives();
    }
});

step('reconciled: lost 0, foreign 0, no reset', async () => {
    load.abort();
    const psqls = await writing;
    const expected = await committed(stack);
    const compare = () => account(expected, receiver.channel, subscribers.map((subscriber) => subscriber.channel));
    let open;
    for (const end = now() + DRAINED_MS; now() < end; ) {
        open = await openWork(stack);
        if (compare().lost === 0 && open.events + open.jobs + open.waiting === 0) break;
    }
    const report = compare();
    console.log(`${table(report)}\n${lastLine(report)}`);
    console.log(`psql started ${psqls.started} times; streams opened ${subscribers.map(({ opened }) => opened).join(' and ')} times`);
    assert.deepEqual(report.details, []);
    assert.equal(report.lost + report.foreign + report.resets, 0, lastLine(report));
    assert.deepEqual(open, { events: 0, jobs: 0, waiting: 0, stopped: 0 });
    assert.ok(report.committed > 500, 'there was load all the time');
    assert.deepEqual(subscribers.flatMap((subscriber) => subscriber.problems), []);
});

step('an installation of the earlier file, and a release with a new group, start on their volumes', () =>
    upgrade.volumesOfAnOlderStart(stack, receiver.channel));
step('the key that seals secrets is replaced without a delivery missed', () => upgrade.secretKeyIsReplaced(stack, receiver.channel));
step('passwords are replaced', () => upgrade.passwordIsReplaced(stack, receiver.channel));
