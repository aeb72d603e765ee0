// The endpoint of the webhook subscription: verifies each request with an independent implementation of Standard Webhooks
// and writes it down before it answers. What does not verify is refused, and counts as foreign.
import { createServer } from 'node:http';
import { Webhook } from 'standardwebhooks';
import { now } from './clock.mjs';
import { Channel, changeOf } from './report.mjs';

const BODY_MOST = 64 * 1024;

export class Receiver {
    constructor() {
        this.channel = new Channel('webhook', true);
        this.server = createServer((request, response) => this.#handle(request, response));
        this.server.keepAliveTimeout = 60_000;
    }

    async listen(address = '127.0.0.1') {
        await new Promise((resolve, reject) => this.server.once('error', reject).listen(0, address, resolve));
        return `http://${address}:${this.server.address().port}/webhook`;
    }

    // Until this is called everything is refused.
    trust(secret) {
        this.verifier = new Webhook(secret);
    }

    close() {
        this.server.close();
        this.server.closeAllConnections();
    }

    async #handle(request, response) {
        let body = '';
        try {
            request.setEncoding('utf8');
            for await (const text of request) {
                body += text;
                if (body.length > BODY_MOST) throw new Error(`a body over ${BODY_MOST} bytes`);
            }
        } catch (error) {
            // The sender went away in the middle of its request (it was killed): nothing was delivered.
            if (request.complete) this.channel.refused.push(error.message);
            request.destroy();
            return;
        }
        const status = this.#receive(request, body);
        response.writeHead(status).end();
    }

    #receive(request, body) {
        const id = request.headers['webhook-id'];
        try {
            const event = this.verifier.verify(body, request.headers);
            if (event.id !== id) throw new Error(`webhook-id ${id} has a body with id ${event.id}`);
            // A row change has its address as data; a domain event has whatever the application gave.
            const { table, key, op } = event.data;
            const change = event.type === `${table}.${op}` ? changeOf(table, key, op) : null;
            this.channel.receive(id, change, body, now());
            return 204;
        } catch (error) {
            this.channel.refused.push(`${request.method} ${request.url} ${id}: ${error.message}`);
            return 401;
        }
    }
}
