// docker-compose.yml as it is shipped, in an engine that dev/compose has prepared: its containers, looked at, killed and
// replaced from outside; SQL and the command line inside them, as the logins that the file makes.
import { execFile } from 'node:child_process';
import { kill } from 'node:process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { until } from '../reconcile/clock.mjs';

const run = promisify(execFile);
const root = fileURLToPath(new URL('../..', import.meta.url));
const OUTPUT_MOST_BYTES = 64 * 1024 * 1024;
const READY_MS = 90_000; // a health check runs every 5 s, and the machine may be busy
const STOP_S = 30;       // stop_grace_period of docker-compose.yml

const variables = (text) => Object.fromEntries(text.trim().split('\n').map((line) => {
    const at = line.indexOf('=');
    return [line.slice(0, at), line.slice(at + 1)];
}));

export class Stack {
    constructor(project) {
        this.project = project;
        this.environment = { ...process.env, COMPOSE_PROJECT_NAME: project }; // and what docker-compose.yml takes from it
    }

    async docker(...args) {
        return (await run('docker', args, { env: this.environment, maxBuffer: OUTPUT_MOST_BYTES })).stdout.trim();
    }

    // What a command complained about, whether it failed or not.
    said(...args) {
        const options = { env: this.environment, maxBuffer: OUTPUT_MOST_BYTES };
        return run('docker', args, options).then(({ stderr }) => stderr, ({ stderr }) => stderr);
    }

    async compose(...args) {
        return (await run('docker-compose', args, { cwd: root, env: this.environment, maxBuffer: OUTPUT_MOST_BYTES })).stdout;
    }

    // The containers of a service, oldest first, as `docker inspect` describes them.
    async containers(service) {
        const ids = await this.docker('ps', '-aq', '--no-trunc', '--filter', `label=com.docker.compose.project=${this.project}`,
            '--filter', `label=com.docker.compose.service=${service}`, '--filter', 'label=com.docker.compose.oneoff=False');
        if (ids === '') return [];
        const found = JSON.parse(await this.docker('inspect', ...ids.split('\n')));
        return found.sort((a, b) => a.Created.localeCompare(b.Created));
    }

    // Resolves when the service has so many containers, and each is healthy.
    ready(service, count) {
        return until(`${service}: ${count} healthy`, READY_MS, async () => {
            const states = (await this.containers(service)).map(({ State }) => State.Running && State.Health?.Status);
            return states.length === count && states.every((state) => state === 'healthy');
        });
    }

    // A crash: SIGKILL from outside the container, so that its restart policy applies; `docker kill` would suspend it.
    // Resolves when the engine has started the same container again.
    async crash(container) {
        kill(container.State.Pid, 'SIGKILL');
        await until(`${container.Name} is restarted`, READY_MS, async () => {
            const [{ State, RestartCount }] = JSON.parse(await this.docker('inspect', container.Id));
            return State.Running && RestartCount > container.RestartCount;
        });
    }

    // The rolling step: SIGTERM, wait for the drain, and another container from the image that the tag names now. Returns how
    // it ended.
    async replace(service, container, count) {
        await this.docker('stop', '--time', String(STOP_S), container.Id);
        const [{ State }] = JSON.parse(await this.docker('inspect', container.Id));
        await this.docker('rm', container.Id);
        await this.compose('up', '-d', '--no-build', '--no-deps', '--no-recreate', '--scale', `${service}=${count}`, service);
        await this.ready(service, count);
        return { status: State.ExitCode, oom: State.OOMKilled };
    }

    async exec(service, ...command) {
        const [{ Id }] = await this.containers(service);
        return this.docker('exec', Id, ...command);
    }

    // Does a container of the service get a connection to that place?
    async reaches(service, host, port) {
        const script = 'print IO::Socket::INET->new(PeerAddr => $ARGV[0], Timeout => 3) ? "yes" : "no"';
        return await this.exec(service, 'perl', '-MIO::Socket::INET', '-e', script, `${host}:${port}`) === 'yes';
    }

    // As the superuser, through the socket in the database's container, the only way there is.
    psql(sql) {
        return this.psqlAs('-U postgres -d rowbell'.split(' '), sql);
    }

    async psqlAs(whom, sql) {
        return this.exec('postgres', 'psql', ...whom, '-qXAt', '-v', 'ON_ERROR_STOP=1', '-c', sql);
    }

    // The variables that a service of a profile, or a container, gets from its file.
    async secretsOfTool(service) {
        return variables(await this.compose('run', '--rm', '-T', '--no-deps', service, 'cat', '/secrets/env'));
    }

    async secretsOf(container) {
        return variables(await this.docker('exec', container.Id, 'cat', '/secrets/env'));
    }

    // A database URL of a service, for psql in the database's container.
    urlHere(secrets) {
        return secrets.DATABASE_URL.replace('@postgres:', '@127.0.0.1:');
    }

    async application(sql) {
        this.applicationUrl ??= this.urlHere(await this.secretsOfTool('app'));
        return this.psqlAs([this.applicationUrl], sql);
    }

    // As a client of npm's pg would answer, as far as tests/reconcile/ledger.mjs asks.
    async query(sql, [ids] = []) {
        const text = sql.replaceAll('$1', `'{${ids ?? ''}}'::int[]`);
        const rows = await this.psql(`select coalesce(json_agg(t), '[]') from (${text}) as t`);
        return { rows: JSON.parse(rows) };
    }

    // The operator's command line.
    async cli(...args) {
        return JSON.parse(await this.compose('run', '--rm', '-T', '--no-deps', 'operator', 'rowbell', ...args, '--json') || 'null');
    }

    address(container, network) {
        return container.NetworkSettings.Networks[`${this.project}_${network}`].IPAddress;
    }

    networks(container) {
        return Object.keys(container.NetworkSettings.Networks).map((name) => name.replace(`${this.project}_`, '')).sort();
    }

    // The address by which dispatchers reach this machine.
    async hostAddress() {
        const [network] = JSON.parse(await this.docker('network', 'inspect', `${this.project}_egress`));
        return network.IPAM.Config[0].Gateway;
    }

    // A metric without labels of one container, from its admin port, which nothing outside it reaches.
    async metric(container, name) {
        const text = await this.docker('exec', container.Id, 'curl', '-fsS', 'http://127.0.0.1:9090/metrics');
        const value = new RegExp(`^${name} (\\S+)$`, 'm').exec(text)?.[1];
        if (value === undefined) throw new Error(`${container.Name} has no metric ${name}`);
        return Number(value);
    }

    async remove() {
        await this.compose('--profile', 'demo', '--profile', 'tools', 'down', '--volumes', '--timeout', '5');
    }
}
