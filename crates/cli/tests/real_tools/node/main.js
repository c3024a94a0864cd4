const { Worker, isMainThread, parentPort, workerData } = require('node:worker_threads');
const child = require('node:child_process');
const crypto = require('node:crypto');
const fs = require('node:fs');
const http = require('node:http');
const os = require('node:os');
const path = require('node:path');
const { once } = require('node:events');

async function worker() {
  const shared = new SharedArrayBuffer(4);
  const workers = [1, 2, 3].map((n) => new Worker(__filename, { workerData: { shared, n } }));
  const answers = await Promise.all(workers.map((one) => once(one, 'message')));
  console.log('workers', answers.map(([n]) => n), Atomics.load(new Int32Array(shared), 0));
}

async function children() {
  const ran = child.spawnSync('sh', ['-c', 'cat; echo err >&2; exit 3'], { input: 'in' });
  console.log('spawnSync', ran.status, String(ran.stdout), String(ran.stderr));
  const killed = child.spawn('sleep', ['60']);
  killed.kill('SIGTERM');
  console.log('killed', await once(killed, 'exit'));
  const fork = child.fork(__filename, ['child']);
  fork.send({ n: 20 });
  console.log('fork', (await once(fork, 'message'))[0]);
  await once(fork, 'exit');
  const missing = child.spawnSync('no-such-program');
  console.log('missing', missing.error.code);
}

async function files() {
  fs.mkdirSync('made/deep', { recursive: true });
  const seen = new Promise((done) => {
    const watcher = fs.watch('made', () => { watcher.close(); done('seen'); });
  });
  fs.writeFileSync('made/a', 'x'.repeat(100000));
  console.log('watch', await seen);
  fs.renameSync('made/a', 'made/deep/b');
  fs.copyFileSync('made/deep/b', 'made/c');
  fs.appendFileSync('made/c', 'more');
  fs.symlinkSync('deep/b', 'made/link');
  fs.chmodSync('made/c', 0o600);
  fs.utimesSync('made/c', 1000000000, 1000000000);
  fs.truncateSync('made/deep/b', 10);
  fs.appendFileSync('config.json', '\n');
  const stat = fs.statSync('made/c');
  console.log('files', stat.size, (stat.mode & 0o777).toString(8), stat.mtimeMs, fs.readFileSync('made/link', 'utf8'));
  const temporary = fs.mkdtempSync(path.join(os.tmpdir(), 'x-'));
  fs.writeFileSync(path.join(temporary, 'y'), '');
  fs.rmSync(temporary, { recursive: true });
  fs.rmSync('old', { recursive: true });
  console.log('list', fs.readdirSync('.').sort(), fs.readdirSync('made', { recursive: true }).sort());
}

async function web() {
  const server = http.createServer((request, response) => response.end('you asked for ' + request.url));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const answer = await fetch(`http://127.0.0.1:${server.address().port}/page`);
  console.log('web', answer.status, await answer.text());
  server.close();
  server.closeAllConnections();
  const refused = await fetch('http://127.0.0.1:1/').catch((error) => error.cause?.code ?? error.message);
  console.log('refused', refused);
}

function numbers() {
  console.log('sha256', crypto.createHash('sha256').update('nexus').digest('hex'));
  console.log('hmac', crypto.createHmac('sha512', 'key').update('text').digest('base64'));
  console.log('random', crypto.randomBytes(16).length, crypto.randomUUID().length);
  const { publicKey, privateKey } = crypto.generateKeyPairSync('ed25519');
  console.log('signed', crypto.verify(null, Buffer.from('x'), publicKey, crypto.sign(null, Buffer.from('x'), privateKey)));
  console.log('interfaces', os.networkInterfaces());
  console.log('system', os.type(), os.tmpdir(), os.homedir(), os.EOL === '\n');
}

if (!isMainThread) {
  Atomics.add(new Int32Array(workerData.shared), 0, workerData.n);
  parentPort.postMessage(workerData.n * workerData.n);
} else if (process.argv[2] === 'child') {
  process.on('message', ({ n }) => { process.send(n * 2); process.disconnect(); });
} else {
  worker().then(children).then(files).then(web).then(numbers);
}
