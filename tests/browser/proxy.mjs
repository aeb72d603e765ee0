// nginx with docker-proxy.conf as it is shipped, but for addresses and for directories that a user may write to.
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import http from 'node:http';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { programStart } from './harness.mjs';

// Below those that the kernel gives to outgoing connections: it stays free until it is used.
export async function freePort() {
    for (;;) {
        const port = 20000 + Math.floor(Math.random() * 12000);
        const server = net.createServer();
        const free = await new Promise((resolve) => {
            server.once('error', () => resolve(false)).listen(port, '127.0.0.1', () => resolve(true));
        });
        if (free) {
            await new Promise((resolve) => server.close(resolve));
            return port;
        }
    }
}

const status = (port, path) =>
    new Promise((resolve) => {
        const request = http.get({ port, host: '127.0.0.1', path, agent: false }, (response) => {
            resolve(response.statusCode);
            request.destroy();
        });
        request.on('error', () => resolve(0));
    });

// Starts it before a gateway; change() may alter the configuration. Returns its port, and stop() for its directory.
export async function proxyStart(gatewayPort, change = (config) => config) {
    const directory = mkdtempSync(`${tmpdir()}/rowbell-proxy-`);
    const port = await freePort();
    const shipped = readFileSync(new URL('../../docker-proxy.conf', import.meta.url), 'utf8');
    const config = shipped
        .replace('listen 8080 default_server', `listen 127.0.0.1:${port} default_server`)
        .replace('gateway:8080', `127.0.0.1:${gatewayPort}`)
        .replaceAll(' /tmp/', ` ${directory}/`)
        .replace('worker_processes auto', 'worker_processes 1');
    writeFileSync(`${directory}/nginx.conf`, change(config));
    programStart('/usr/sbin/nginx', ['-p', directory, '-e', 'stderr', '-c', `${directory}/nginx.conf`, '-g', 'daemon off;']);
    for (const end = Date.now() + 60_000; (await status(port, '/proxy-health')) !== 204; ) {
        assert.ok(Date.now() < end, 'nginx does not answer');
    }
    return { port, remove: () => rmSync(directory, { recursive: true }) };
}
