// What a gateway serves as /openapi.json, judged by Redocly's linter (npm @redocly/cli).
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { test } from 'node:test';

const cli = new URL('../node_modules/@redocly/cli/bin/cli.js', import.meta.url).pathname;
const description = new URL('../../gateway/openapi.json', import.meta.url).pathname;

test('/openapi.json is valid, and nothing in it is warned of', { skip: !existsSync(cli) && 'npm @redocly/cli is not installed' }, () => {
    const { status, stdout, stderr } = spawnSync(process.execPath, [cli, 'lint', '--format', 'json', description], {
        encoding: 'utf8',
        env: { PATH: process.env.PATH, REDOCLY_TELEMETRY: 'off', REDOCLY_SUPPRESS_UPDATE_NOTICE: 'true', CI: 'true' },
    });
    assert.equal(status, 0, stderr);
    assert.deepEqual(JSON.parse(stdout).totals, { errors: 0, warnings: 0, ignored: 0 }, stdout);
});
