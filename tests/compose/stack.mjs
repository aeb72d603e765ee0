// docker-compose.yml as it is shipped, in an engine that dev/compose has prepared: its containers, looked at, killed and
// replaced from outside; SQL and the command line inside them.
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

export class Stack {
    constructor(project) {
        this.project = project;
        this.environment = { ...process.env, COMPOSE_PROJECT_NAME: project }; // and what docker-compose.yml takes from it
    }

    async docker(...args) {
        return (await run('docker', args, { env: this.environment, maxBuffer: OUTPUT_MOST_BYTES })).stdout.trim();
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

    psql(sql) {
        return this.exec('postgres', 'psql', '-U', 'postgres', '-d', 'rowbell', '-qXAt', '-v', 'ON_ERROR_STOP=1', '-c', sql);
    }

    // As a client of npm's pg would answer, as far as tests/reconcile/ledger.mjs asks.
    async query(sql, [ids] = []) {
        const text = sql.replaceAll('$1', `'{${ids ?? ''}}'::int[]`);
        const rows = await this.psql(`select coalesce(json_agg(t), '[]') from (${text}) as t`);
        return { rows: JSON.parse(rows) };
    }

    async cli(...args) {
        return JSON.parse(await this.exec('relay', 'rowbell', ...args, '--json') || 'null');
    }

    address(container) {
        return container.NetworkSettings.Networks[`${this.project}_default`].IPAddress;
    }

    // The address by which containers reach this machine.
    async hostAddress() {
        const [network] = JSON.parse(await this.docker('network', 'inspect', `${this.project}_default`));
        return network.IPAM.Config[0].Gateway;
    }

    // A metric without labels of one container, from its admin port.
    async metric(container, name) {
        const response = await fetch(`http://${this.address(container)}:9090/metrics`);
        const value = new RegExp(`^${name} (\\S+)$`, 'm').exec(await response.text())?.[1];
        if (value === undefined) throw new Error(`${container.Name} has no metric ${name}`);
        return Number(value);
    }

    async remove() {
        await this.compose('down', '--volumes', '--timeout', '5');
    }
}
