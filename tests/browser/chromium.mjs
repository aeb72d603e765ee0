// Chromium as the tests start it: as root too, and without traffic of its own.
import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { chromium } from 'playwright-core';

// No wait ends sooner: on a slow machine everything takes its time.
const HANG_MS = 60_000;

export async function chromiumStart() {
    const executablePath = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'].find(existsSync);
    assert.ok(executablePath, 'no Chromium: apt-get install chromium');
    const browser = await chromium.launch({
        executablePath,
        timeout: HANG_MS,
        args: [
            ...(process.getuid() === 0 ? ['--no-sandbox'] : []),
            '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
            '--disable-component-update', '--disable-sync', '--no-proxy-server',
        ],
    });
    for (const method of ['newContext', 'newPage']) {
        const make = browser[method].bind(browser);
        browser[method] = async (...options) => {
            const made = await make(...options);
            made.setDefaultTimeout(HANG_MS);
            return made;
        };
    }
    return browser;
}
