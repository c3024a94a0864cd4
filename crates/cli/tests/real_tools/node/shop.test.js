const test = require('node:test');
const assert = require('node:assert');

test('adds', () => assert.strictEqual(1 + 1, 2));
test('waits', async () => assert.strictEqual(await Promise.resolve(3), 3));
test('nested', async (t) => {
  await t.test('inner', () => assert.deepStrictEqual({ a: [1] }, { a: [1] }));
  await t.test('left out', { skip: true }, () => assert.fail());
});
