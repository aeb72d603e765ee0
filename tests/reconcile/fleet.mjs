// Our processes: started, killed, started again, stopped.
import { spawn } from 'node:child_process';
import { openSync, closeSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { now, sleep, until } from './clock.mjs';

const RESTART_PAUSE_MS = 1000; // of a process that ended by itself
const STOP_MS = 15_000;

export class Fleet {
    #directory;
    #environment;
    #members = new Map(); // name -> {path, args, child, expected}
    #stopping = false;

    // Logs and pids are files in `directory`.
    constructor(directory, environment) {
        this.#directory = directory;
        this.#environment = environment;
        this.kills = new Map(); // name -> times
        this.problems = [];     // what no process may do: end by itself, not stop
    }

    names() {
        return [...this.#members.keys()];
    }

    start(name, path, args) {
        const member = { name, path, args };
        this.#members.set(name, member);
        writeFileSync(this.#logPath(name), '');
        this.#spawn(member);
    }

    // Resolves when the process says that it is ready.
    async ready(name) {
        let admin;
        await until(`${name} logs its admin address`, 15_000, () => {
            admin = /\badmin=(\S+)/.exec(readFileSync(this.#logPath(name), 'utf8'))?.[1];
            return admin;
        });
        await until(`${name} is ready (http://${admin}/readyz)`, 15_000, async () => {
            const response = await fetch(`http://${admin}/readyz`).catch(() => null);
            await response?.arrayBuffer();
            return response?.ok;
        });
    }

    // SIGKILL, and at once the next one with the same arguments.
    async killAndRestart(name) {
        const member = this.#members.get(name);
        this.kills.set(name, (this.kills.get(name) ?? 0) + 1);
        if (!member.child) return; // it has just ended by itself, which was noted
        member.expected = true;
        member.child.kill('SIGKILL');
        await member.ended;
        this.#spawn(member);
    }

    // name -> processor time so far (s), from /proc/PID/stat.
    cpuSeconds() {
        return new Map([...this.#members.values()].filter((member) => member.child?.pid).map(({ name, child }) => {
            const fields = readFileSync(`/proc/${child.pid}/stat`, 'utf8').replace(/^.*\) /, '').split(' ');
            return [name, (Number(fields[11]) + Number(fields[12])) / 100];
        }));
    }

    // SIGTERM to all. Returns how long the slowest took (ms).
    async stop() {
        this.#stopping = true;
        const began = now();
        const members = [...this.#members.values()].filter((member) => member.child);
        for (const member of members) {
            member.expected = true;
            member.child.kill('SIGTERM');
        }
        await Promise.all(members.map(async (member) => {
            const late = setTimeout(() => {
                this.problems.push(`${member.name} did not stop within ${STOP_MS / 1000} s of SIGTERM`);
                member.child.kill('SIGKILL');
            }, STOP_MS);
            const status = await member.ended;
            clearTimeout(late);
            if (status !== 0) this.problems.push(`${member.name} answered SIGTERM with status ${status}`);
        }));
        return now() - began;
    }

    // For a run that is given up.
    kill() {
        this.#stopping = true;
        for (const member of this.#members.values()) member.child?.kill('SIGKILL');
    }

    #logPath(name) {
        return `${this.#directory}/${name}.log`;
    }

    #spawn(member) {
        const log = openSync(this.#logPath(member.name), 'a');
        // A session of its own: Ctrl-C is for dev/reconcile, which hands it on.
        const child = spawn(member.path, member.args, { env: this.#environment, stdio: ['ignore', log, log], detached: true });
        closeSync(log);
        const pidPath = `${this.#directory}/${member.name}.pid`;
        if (child.pid) writeFileSync(pidPath, `${child.pid}\n`);
        member.child = child;
        member.expected = false;
        member.ended = new Promise((resolve) => {
            child.on('error', (error) => resolve(error.message));
            child.on('exit', (code, signal) => resolve(signal ?? code));
        });
        member.ended.then((status) => {
            member.child = null;
            rmSync(pidPath, { force: true });
            if (!member.expected && !this.#stopping) this.#endedByItself(member, status);
        });
    }

    async #endedByItself(member, status) {
        this.problems.push(`${member.name} ended by itself with status ${status}: see ${this.#logPath(member.name)}`);
        await sleep(RESTART_PAUSE_MS);
        if (!this.#stopping) this.#spawn(member);
    }
}
