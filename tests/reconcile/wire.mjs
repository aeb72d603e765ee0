// The wire between our processes and a server, which can be cut: refused, or silent as a black hole.
import { connect, createServer } from 'node:net';

export class Wire {
    #sockets = new Set();
    #state = 'open';

    // Returns the port on 127.0.0.1 that leads to host:port.
    async lay(host, port) {
        this.server = createServer((near) => {
            this.#keep(near);
            if (this.#state === 'refused') near.destroy();
            if (this.#state !== 'open') return;
            const far = connect(port, host);
            this.#keep(far);
            near.on('data', (bytes) => this.#pass(far, bytes));
            far.on('data', (bytes) => this.#pass(near, bytes));
            near.on('close', () => far.destroy());
            far.on('close', () => near.destroy());
        });
        await new Promise((resolve) => this.server.listen(0, '127.0.0.1', resolve));
        return this.server.address().port;
    }

    // `refused`: connections end, and new ones too. `silent`: they stay, and nothing passes.
    set(state) {
        this.#state = state;
        // What was silent has lost bytes: it must not go on.
        if (state !== 'silent') for (const socket of this.#sockets) socket.destroy();
    }

    close() {
        this.set('refused');
        this.server?.close();
    }

    #pass(socket, bytes) {
        if (this.#state === 'open') socket.write(bytes);
    }

    #keep(socket) {
        this.#sockets.add(socket);
        socket.on('close', () => this.#sockets.delete(socket)).on('error', () => {});
    }
}
