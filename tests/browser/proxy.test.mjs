// The stream through nginx as docker-proxy.conf sets it up: nothing is held back, and a missing gateway is no error that
// EventSource would take as final.
import assert from 'node:assert/strict';
import http from 'node:http';
import { after, before, test } from 'node:test';
import { daemonStart, databaseMake, everythingStop, listenPort, psql } from './harness.mjs';
import { proxyStart } from './proxy.mjs';

let proxy;
let gateway;

// A GET whose body is read bit by bit: until(text) waits for the text.
function open(path) {
    return new Promise((resolve, reject) => {
        const request = http.get({ port: proxy.port, host: '127.0.0.1', path, agent: false }, (response) => {
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

before(async () => {
    await databaseMake();
    daemonStart('relay');
    daemonStart('dispatcher');
    gateway = daemonStart('gateway', '--listen', '127.0.0.1:0');
    proxy = await proxyStart(await listenPort(gateway));
});

after(async () => {
    await everythingStop();
    proxy?.remove();
});

test('opening bytes and changes pass the proxy while the stream is open', { timeout: 300_000 }, async () => {
    const stream = await open('/events');
    assert.equal(stream.response.statusCode, 200);
    assert.match(stream.response.headers['content-type'], /^text\/event-stream/);
    assert.equal(stream.response.headers['content-encoding'], undefined);
    await stream.until('retry: 3000');
    await psql(`update posts set title = 'through the proxy'`);
    await stream.until('"key":"row-of-the-test"'); // while the stream is open, so nothing holds it back
    stream.close();
});

test('without a gateway: 200, retry and close on the stream, 503 elsewhere', { timeout: 300_000 }, async () => {
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
