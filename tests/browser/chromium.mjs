// Chromium as the tests start it: as root too, and without traffic of its own.
import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { chromium } from 'playwright-core';

export function chromiumStart() {
    const executablePath = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'].find(existsSync);
    assert.ok(executablePath, 'no Chromium: apt-get install chromium');
    return chromium.launch({
        executablePath,
        args: [
            ...(process.getuid() === 0 ? ['--no-sandbox'] : []),
            '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
            '--disable-component-update', '--disable-sync', '--no-proxy-server',
        ],
    });
}
