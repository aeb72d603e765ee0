// What is shipped: its size, its types, and what the package says of itself.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { test } from 'node:test';
import { gzipSync } from 'node:zlib';
import esbuild from 'esbuild';

const client = new URL('../../client/', import.meta.url).pathname;
const compiler = new URL('../node_modules/typescript/bin/tsc', import.meta.url).pathname;
const manifest = JSON.parse(readFileSync(`${client}package.json`, 'utf8'));

test('rowbell.js is under 3 kB, minified and gzipped', (t) => {
    const { code } = esbuild.transformSync(readFileSync(`${client}rowbell.js`, 'utf8'), {
        minify: true,
        format: 'esm',
        target: 'es2022',
    });
    const size = gzipSync(code, { level: 9 }).length;
    t.diagnostic(`rowbell.js: ${size} bytes minified and gzipped, ${code.length} minified`);
    assert.ok(size < 3000, `${size} bytes`);
    assert.ok(size > 500 && /export\s*\{.*connect/.test(code));
});

test('the package needs no other, and holds each file that it names', () => {
    for (const kind of ['dependencies', 'peerDependencies', 'optionalDependencies']) assert.equal(manifest[kind], undefined);
    const named = Object.values(manifest.exports).flatMap(Object.values);
    for (const path of [...named, ...manifest.files]) assert.ok(existsSync(client + path), path);
    for (const path of named) assert.ok(manifest.files.includes(path.slice(2)), path);
    for (const path of named.filter((path) => path.endsWith('.js'))) {
        for (const [, from] of readFileSync(client + path, 'utf8').matchAll(/^import .* from "(.*)";$/gm)) {
            assert.ok(from.startsWith('./') && manifest.files.includes(from.slice(2)), from);
        }
    }
});

test('the types are what the code is', async () => {
    const directory = mkdtempSync(`${tmpdir()}/rowbell-types-`);
    const compile = (text) => {
        writeFileSync(`${directory}/page.ts`, text);
        const flags = ['--noEmit', '--strict', '--target', 'es2022', '--module', 'esnext', '--moduleResolution', 'bundler'];
        try {
            execFileSync(process.execPath, [compiler, ...flags, '--lib', 'es2022,dom', 'page.ts'], { cwd: directory });
        } catch (error) {
            return String(error.stdout);
        }
        return '';
    };
    const begin = `
        import { connect, rowKey, type Change, type KeysByTable } from '${client}rowbell.js';
        import { connectQueryClient } from '${client}tanstack.js';
        import { QueryClient } from '${new URL('../node_modules/@tanstack/query-core/build/modern/index.js', import.meta.url).pathname}';
        const keysByTable = { posts: (key: string) => [['posts', key]], authors: [['authors']] } satisfies KeysByTable;
    `;
    assert.equal(
        compile(`${begin}
            const bell = connect('/events', { keysByTable, invalidate: (keys) => console.log(keys.length), share: false });
            await bell.ready;
            const op: Change['op'] = 'update';
            connect(async () => '/events', { onReset: (reason) => console.log(reason, op, bell.state, rowKey('a', 1)) });
            connectQueryClient(new QueryClient(), '/events', { keysByTable, tables: ['posts'] }).close();
        `),
        '',
    );
    assert.match(compile(`${begin} connect('/events', { tabels: ['posts'] });`), /'tabels' does not exist/);
    assert.match(compile(`${begin} connect('/events').state = 'open';`), /read-only/);

    const exported = await import(`${client}rowbell.js`);
    const declared = [...readFileSync(`${client}rowbell.d.ts`, 'utf8').matchAll(/^export function (\w+)/gm)].map((m) => m[1]);
    assert.deepEqual(Object.keys(exported).sort(), declared.sort());
    rmSync(directory, { recursive: true });
});
