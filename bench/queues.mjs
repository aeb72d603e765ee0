// The other queues, for jobs.sh and webhook.sh: node queues.mjs QUEUE ACTION DATABASE_URL [--jobs N] [--urls FILE] [--concurrency N]
//   fill: N jobs; run: works until all are done. The last line is jobs/s from the first to the last, then CPU seconds.
// Each at its fastest documented settings: graphile-worker with a local queue and completion in batches, pg-boss with batches
// of 500 and no polling wait. With --urls the task POSTs a signed body with undici, else it does nothing.
import { createHmac, randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import { performance } from "node:perf_hooks";

const [queue, action, url, ...rest] = process.argv.slice(2);
const options = Object.fromEntries(rest.map((word, i) => [word, rest[i + 1]]).filter((_, i) => i % 2 === 0));
const jobs = Number(options["--jobs"] ?? 100000);
const concurrency = Number(options["--concurrency"] ?? 64);
const urls = options["--urls"] && readFileSync(options["--urls"], "utf8").trim().split("\n");

let request;
const secret = randomBytes(32);
if (urls) {
  const undici = await import("undici");
  const agent = new undici.Agent({ connections: concurrency, pipelining: 1 });
  request = async (n) => {
    const body = JSON.stringify({ id: n, type: "posts.create", data: { table: "posts", key: String(n), op: "create" } });
    const now = Math.floor(Date.now() / 1000);
    const signature = createHmac("sha256", secret).update(`${n}.${now}.${body}`).digest("base64");
    const answer = await undici.request(urls[n % urls.length], {
      method: "POST",
      dispatcher: agent,
      body,
      headers: {
        "content-type": "application/json",
        "webhook-id": String(n),
        "webhook-timestamp": String(now),
        "webhook-signature": `v1,${signature}`,
      },
    });
    await answer.body.dump();
    if (answer.statusCode >= 300) throw new Error(`the receiver answered ${answer.statusCode}`);
  };
}

let done = 0;
let first = 0;
let finish;
const finished = new Promise((resolve) => (finish = resolve));
function count(n = 1) {
  first ||= performance.now();
  done += n;
  if (done >= jobs) finish(performance.now());
}
function report(last) {
  const cpu = process.cpuUsage();
  console.log(((done * 1000) / (last - first)).toFixed(0), ((cpu.user + cpu.system) / 1e6).toFixed(2));
}

const queues = {
  graphile: {
    async fill() {
      const { default: pg } = await import("pg");
      const { runMigrations } = await import("graphile-worker");
      await runMigrations({ connectionString: url });
      const client = new pg.Client(url);
      await client.connect();
      await client.query(
        `select graphile_worker.add_jobs(array(select json_populate_record(null::graphile_worker.job_spec,
           json_build_object('identifier', 'task', 'payload', json_build_object('n', i))) from generate_series(1, $1::int) i))`,
        [jobs],
      );
      await client.end();
    },
    async run() {
      const { run } = await import("graphile-worker");
      const { Logger } = await import("graphile-worker");
      const runner = await run({
        connectionString: url,
        logger: new Logger(() => () => {}),
        taskList: { task: request ? (payload) => request(payload.n).then(() => count()) : () => count() },
        preset: {
          worker: {
            concurrentJobs: request ? concurrency : 24,
            maxPoolSize: 10,
            localQueue: { size: 500 },
            completeJobBatchDelay: 0,
            failJobBatchDelay: 0,
          },
        },
      });
      const last = await finished;
      await runner.stop(); // what is completed in batches is written
      report(last);
    },
  },
  pgboss: {
    async fill() {
      const { PgBoss } = await import("pg-boss");
      const { default: pg } = await import("pg");
      const boss = new PgBoss({ connectionString: url, supervise: false, schedule: false });
      await boss.start();
      await boss.createQueue("task");
      for (let i = 0; i < jobs; i += 10000)
        await boss.insert("task", Array.from({ length: Math.min(10000, jobs - i) }, (_, k) => ({ data: { n: i + k } })));
      await boss.stop({ graceful: false });
      const client = new pg.Client(url);
      await client.connect();
      await client.query("vacuum analyze");
      await client.end();
    },
    async run() {
      const { PgBoss } = await import("pg-boss");
      const boss = new PgBoss({ connectionString: url, supervise: false, schedule: false, max: 10 });
      await boss.start();
      const loop = async () => {
        for (;;) {
          const batch = await boss.fetch("task", { batchSize: 500 });
          if (!batch?.length) return;
          if (request) await Promise.all(batch.map((job) => request(job.data.n)));
          first ||= performance.now();
          await boss.complete("task", batch.map((job) => job.id));
          count(batch.length);
        }
      };
      await Promise.all([loop(), loop(), loop(), loop()]);
      const last = await finished;
      await boss.stop({ graceful: false });
      report(last);
    },
  },
};
await queues[queue][action]();
process.exit(0);
