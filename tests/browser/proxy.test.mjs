// The stream through nginx as docker-proxy.conf sets it up: nothing is held back, and a missing gateway is no error that
// EventSource would take as final.
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import http from 'node:http';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { after, before, test } from 'node:test';
import { daemonStart, databaseMake, everythingStop, listenPort, programStart, psql } from './harness.mjs';

const directory = mkdtempSync(`${tmpdir()}/rowbell-proxy-`);
let proxyPort;
let gateway;

async function freePort() {
    const server = net.createServer();
    await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
    const { port } = server.address();
    await new Promise((resolve) => server.close(resolve));
    return port;
}

// A GET whose body is read bit by bit: until(text) waits for the text.
function open(path) {
    return new Promise((resolve, reject) => {
        const request = http.get({ port: proxyPort, host: '127.0.0.1', path, agent: false }, (response) => {
            let body = '';
            response.setEncoding('utf8').on('data', (text) => (body += text));
            const ended = new Promise((end) => response.on('close', end));
            const until = async (text) => {
                while (!body.includes(text)) {
                    const next = await Promise.race([new Promise((data) => response.once('data', data)), ended.then(() => null)]);
                    assert.ok(next !== null || body.includes(text), `closed without '${text}': ${body}`);
                }
            };
            resolve({ response, until, ended, body: () => body, close: () => request.destroy() });
        });
        request.on('error', reject);
    });
}

async function proxyAnswers() {
    for (const end = Date.now() + 10_000; Date.now() < end; ) {
        const answered = await open('/proxy-health').then((reply) => reply.response.statusCode === 204, () => false);
        if (answered) return;
    }
    assert.fail('nginx does not answer');
}

before(async () => {
    await databaseMake();
    daemonStart('relay');
    daemonStart('dispatcher');
    gateway = daemonStart('gateway', '--listen', '127.0.0.1:0');
    const gatewayPort = await listenPort(gateway);
    proxyPort = await freePort();
    // The file as it is shipped, but for addresses and for directories that a user may write to.
    const paths = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map((name) => `${name}_temp_path ${directory}/${name};`);
    const shipped = readFileSync(new URL('../../docker-proxy.conf', import.meta.url), 'utf8');
    const config = shipped
        .replace('listen 8080 default_server', `listen 127.0.0.1:${proxyPort} default_server`)
        .replace('gateway:8080', `127.0.0.1:${gatewayPort}`)
        .replace('pid /run/nginx.pid;', `pid ${directory}/pid;`)
        .replace('http {', `http {\n${paths.join('\n')}`)
        .replace('worker_processes auto', 'worker_processes 1');
    writeFileSync(`${directory}/nginx.conf`, config);
    programStart('/usr/sbin/nginx', ['-p', directory, '-e', 'stderr', '-c', `${directory}/nginx.conf`, '-g', 'daemon off;']);
    await proxyAnswers();
});

after(async () => {
    await everythingStop();
    rmSync(directory, { recursive: true });
});

test('opening bytes and changes pass the proxy at once', { timeout: 20_000 }, async () => {
    const stream = await open('/events');
    assert.equal(stream.response.statusCode, 200);
    assert.match(stream.response.headers['content-type'], /^text\/event-stream/);
    assert.equal(stream.response.headers['content-encoding'], undefined);
    await stream.until('retry: 3000');
    await psql(`update posts set title = 'through the proxy'`);
    const committed = Date.now();
    await stream.until('"key":"row-of-the-test"');
    assert.ok(Date.now() - committed < 1000, `it took ${Date.now() - committed} ms`);
    stream.close();
});

test('without a gateway: 200, retry and close on the stream, 503 elsewhere', { timeout: 40_000 }, async () => {
    gateway.kill('SIGTERM');
    await gateway.ended;
    const stream = await open('/events?table=posts');
    await stream.ended;
    assert.equal(stream.response.statusCode, 200);
    assert.match(stream.response.headers['content-type'], /^text\/event-stream/);
    assert.equal(stream.body(), 'retry: 3000\n\n');
    const other = await open('/openapi.json');
    await other.ended;
    assert.equal(other.response.statusCode, 503);
});
