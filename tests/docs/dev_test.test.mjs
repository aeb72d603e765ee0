// dev/test says what it cannot find: a run of no test must not look like one in which nothing failed.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { basename } from 'node:path';
import { test } from 'node:test';

const root = new URL('../../', import.meta.url).pathname;
// What this test belongs to is built: build-clang-werror, say.
const built = basename(process.env.ROWBELL_TEST_BIN).split('-').slice(1).map(word => `--${word}`);

const devTest = (...words) => {
  const { ROWBELL_TEST_FILTER, ...env } = process.env;
  const { status, stdout, stderr } = spawnSync(`${root}dev/test`, [...built, '--no-build', ...words], { encoding: 'utf8', env });
  return { status, text: stdout + stderr };
};

test('dev/test: a misspelt filter or suite is an error that names it', { timeout: 300_000 }, () => {
  const suite = devTest('--suite', 'unit', '--suite', 'relais');
  assert.equal(suite.status, 2, suite.text);
  assert.match(suite.text, /--suite relais: there is no such suite; there are: .*\brelay\b/);
  const filter = devTest('--suite', 'unit', '--filter', 'no_such_test');
  assert.equal(filter.status, 2, filter.text);
  assert.match(filter.text, /--filter no_such_test: no test of unit has this in its name/);
  for (const { text } of [suite, filter]) assert.doesNotMatch(text, /passed/);
});
