// The console. All that it knows and does are commands of `rowbell`, run by POST /run; what changes something shows its command
// line before it runs. A view is an entry of `views`: what to load, and how to draw it. It loads again every three seconds,
// and is drawn again only where the answer is another. Element ids and data attributes are what the page's tests look at.

const REFRESH_MS = 3000;
const DOCTOR_MS = 30000;
const element = (id) => document.getElementById(id);

// ---- the token: of the address's fragment, kept for this tab once it was taken

let token = sessionStorage.getItem("token");

function takeToken() {
  const given = /^#token=([\x21-\x7e]+)$/.exec(location.hash);
  if (given === null) return;
  token = given[1];
  history.replaceState(null, "", "#/");
  element("login").close();
}

function askToken() {
  if (!element("login").open) element("login").showModal();
}
element("login").addEventListener("close", () => {
  const typed = element("login-token").value.trim();
  element("login-token").value = "";
  if (typed !== "") token = /^[\x21-\x7e]+$/.test(typed) ? typed : "?";
  show();
});

// ---- commands

// A number that JavaScript would round stays as it was written.
const exact = (_, value, context) =>
  typeof value === "number" && context?.source !== undefined && String(value) !== context.source && JSON.rawJSON
    ? JSON.rawJSON(context.source)
    : value;

// Throws where there is no output; a command can fail and have one (doctor, subscription test).
async function run(command, words = [], options = {}, signal = undefined) {
  let response;
  try {
    response = await fetch("/run", {
      method: "POST",
      signal,
      headers: { authorization: `Bearer ${token ?? "?"}`, "content-type": "application/json" },
      body: JSON.stringify({ command, arguments: words, options }),
    });
  } catch (error) {
    throw error.name === "AbortError" ? error : new Error("The console does not answer. Does rowbell console still run?");
  }
  if (response.status === 401) askToken();
  else sessionStorage.setItem("token", token);
  if (response.headers.get("content-type") !== "application/json") throw new Error(`${response.status} ${response.statusText}`);
  const answer = JSON.parse(await response.text(), command === "event show" ? exact : undefined);
  if (!response.ok) throw new Error(answer.error);
  if (answer.output === null) throw new Error(answer.error ?? `${answer.command} ended with status ${answer.exit}`);
  return answer;
}

// For what a view loads: given up when another is looked at.
let loader = new AbortController();
const output = async (command, words, options) => (await run(command, words, options, loader.signal)).output;

let problems = { at: -Infinity, list: [] };
async function doctor() {
  if (performance.now() - problems.at > DOCTOR_MS) problems = { at: performance.now(), list: await output("doctor") };
  return problems.list;
}

// ---- elements

function make(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name === "data") Object.assign(made.dataset, value);
    else if (name in made) made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return made;
}

const words = (value) => (Array.isArray(value) ? value.join(", ") : typeof value === "object" ? JSON.stringify(value) : String(value));
const text = (value) => (value === null || value === undefined || value === "" ? make("span", { className: "soft" }, "–") : words(value));
const count = (value) => (value >= 100000 ? "100,000 or more" : value.toLocaleString("en"));

const tones = {
  good: ["active", "delivered", "fanned-out", "ok"],
  busy: ["ready", "running", "pending"],
  warn: ["waiting", "held", "retrying", "paused", "timeout", "http_5xx", "lost", "connect", "dns", "tls"],
  bad: ["poisoned", "disabled", "rejected", "http_4xx", "egress_denied", "condition", "failed"],
};
function state(name) {
  if (name === null) return text(null);
  const tone = Object.keys(tones).find((key) => tones[key].includes(name)) ?? "";
  return make("span", { className: `state ${tone}`, data: { state: name } }, name);
}

function duration(seconds) {
  const units = [[86400, "d"], [3600, "h"], [60, "min"]];
  const [size, name] = units.find(([least]) => seconds >= 2 * least) ?? [1, "s"];
  return `${Math.floor(Math.max(seconds, 0) / size)} ${name}`;
}
function age(iso) {
  const seconds = (Date.now() - Date.parse(iso)) / 1000;
  return seconds < 0 ? `in ${duration(-seconds)}` : `${duration(seconds)} ago`;
}
const when = (iso) => (iso ? make("time", { dateTime: iso, title: iso }, age(iso)) : text(null));

const link = (label, ...path) => make("a", { href: `#/${path.map(encodeURIComponent).join("/")}` }, label);
const filtered = (label, view, options) => make("a", { href: `#/${view}?${new URLSearchParams(options)}` }, label);
const eventLink = (row) => link(String(row.seq), "events", row.seq);
const subscriptionLink = (name) => (name && !name.startsWith("#") ? link(name, "subscriptions", name) : text(name));

// columns: [heading, cell of a row, class]
function table(id, rows, columns, empty) {
  if (rows.length === 0) return make("p", { className: "empty", id }, empty);
  return make("table", { id },
    make("thead", {}, make("tr", {}, columns.map(([heading, , kind]) => make("th", { scope: "col", className: kind ?? "" }, heading)))),
    make("tbody", {}, rows.map((row) => make("tr", {}, columns.map(([, cell, kind]) => make("td", { className: kind ?? "" }, cell(row)))))));
}
const section = (heading, ...children) => make("section", {}, make("h2", {}, heading), ...children);
const record = (pairs) => make("dl", {}, pairs.map(([name, value]) => [make("dt", {}, name), make("dd", {}, value instanceof Node ? value : text(value))]));
const title = (name, ...rest) => make("div", { className: "title" }, make("h2", {}, name), ...rest);

// ---- actions: what they do, the command line, then its result

const quoted = (word) => (/^[\w./:,@%+=-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`);
function commandLine(command, args, options) {
  const flags = Object.entries(options).map(([name, value]) => (value === true ? ` --${name}` : ` ${quoted(`--${name}=${value}`)}`));
  return `rowbell ${command}${flags.join("")}${args.map((word) => ` ${quoted(String(word))}`).join("")}`;
}

// { label, says, command, args, options, result(output), dry: say first how many it would be }
function action(it) {
  const { command, args = [], options = {} } = it;
  const line = commandLine(command, args, options);
  return make("button", { type: "button", data: { command: line }, onclick: () => confirm({ ...it, args: args.map(String), options, line }) }, it.label);
}

let dialogs = 0; // an answer that comes after its dialog was closed is not for the next one
element("confirm").addEventListener("close", () => dialogs++);

async function confirm({ label, says, command, args, options, line, result, dry }) {
  const mine = dialogs;
  const button = element("confirm-run");
  const say = (...what) => mine === dialogs && element("confirm-result").replaceChildren(...what);
  element("confirm-title").textContent = label;
  element("confirm-text").textContent = says;
  element("confirm-command").textContent = line;
  element("confirm-close").textContent = "Cancel";
  button.hidden = false;
  button.disabled = true;
  button.textContent = label;
  say();
  element("confirm").showModal();
  button.onclick = async () => {
    button.disabled = true;
    say("running");
    try {
      const answer = await run(command, args, options);
      say(...[result ? result(answer.output) : "done"].flat(), ...(answer.error !== null ? [make("p", {}, answer.error)] : []));
      if (mine === dialogs) {
        button.hidden = true;
        element("confirm-close").textContent = "Close";
      }
    } catch (error) {
      say(error.message);
      if (mine === dialogs) button.disabled = false;
    }
    problems.at = -Infinity;
    show();
  };
  let many = 1;
  if (dry) {
    say("counting");
    try {
      many = (await run(command, args, { ...options, "dry-run": true })).output.requeued;
      say(`${count(many)} would be put back.`);
    } catch (error) {
      many = 0;
      say(error.message);
    }
  }
  if (mine !== dialogs) return;
  button.disabled = many === 0;
  button.focus();
}

const requeued = (answer) => `${count(answer.requeued)} put back in line.`;
const requeueJobs = (label, says, options) =>
  action({ label, says, command: "requeue jobs", options, dry: true, result: requeued });
const retryJob = (subscription, seq) =>
  action({ label: "Send now", says: `Event ${seq} goes to ${subscription} at once, also if it was delivered before.`, command: "job retry",
    args: [subscription, seq], result: (answer) => `It was ${answer.was}, and is in line.` });
const cancelJob = (subscription, seq) =>
  action({ label: "Cancel", says: `Event ${seq} will not go to ${subscription}. An ordered subscription goes on without it.`,
    command: "job cancel", args: [subscription, seq], result: () => "It is cancelled." });
const jobActions = (name, seq, has) => (name === null || name.startsWith("#") ? null
  : make("span", { className: "actions" }, retryJob(name, seq), has ? cancelJob(name, seq) : null));
const testSteps = (answer) =>
  make("ol", {}, answer.steps.map((step) => make("li", {}, state(step.passed ? "ok" : "failed"), ` ${step.step}: ${step.text}`)));

// ---- views

const eventStates = ["pending", "retrying", "poisoned", "cancelled", "fanned-out"];
const jobStates = ["ready", "running", "waiting", "held", "poisoned", "cancelled"];
const classes = ["delivered", "dns", "connect", "tls", "timeout", "http_4xx", "http_5xx", "rejected", "lost", "egress_denied", "condition", "aborted"];
const limits = ["50", "200", "1000"];

const subscriptionColumns = [
  ["Name", (row) => subscriptionLink(row.name)],
  ["Kind", (row) => text(row.kind)],
  ["State", (row) => state(row.state)],
  ["Types", (row) => text(row.types)],
  ["Scope", (row) => text(row.scope)],
  ["Open", (row) => filtered(count(row.open), "jobs", { subscription: row.name }), "number"],
  ["Oldest", (row) => (row.oldest_seconds === null ? text(null) : duration(row.oldest_seconds)), "number"],
  ["Waiting", (row) => filtered(count(row.waiting), "jobs", { subscription: row.name, state: "waiting" }), "number"],
  ["Held", (row) => filtered(count(row.held), "jobs", { subscription: row.name, state: "held" }), "number"],
  ["Poisoned", (row) => filtered(count(row.poisoned), "jobs", { subscription: row.name, state: "poisoned" }), "number"],
];
const attemptColumns = [
  ["#", (row) => text(row.attempt), "number"],
  ["Began", (row) => when(row.started_at)],
  ["Result", (row) => state(row.class)],
  ["Status", (row) => text(row.status), "number"],
  ["ms", (row) => text(row.total_ms), "number"],
  ["Peer", (row) => text(row.peer)],
];
const bytes = (size) => {
  const step = size < 1024 ? 0 : Math.min(4, Math.floor(Math.log2(size) / 10));
  return `${(size / 1024 ** step).toFixed(step > 0 ? 1 : 0)} ${["B", "KiB", "MiB", "GiB", "TiB"][step]}`;
};

function card(name, value, under, href, tone) {
  return make("a", { className: "card", href, data: { card: name, state: tone } }, make("b", {}, value), make("span", {}, name), make("span", {}, under));
}
const bad = (value) => (value > 0 ? "bad" : "");
const warn = (value) => (value > 0 ? "warn" : "");

const views = {
  "": {
    load: async () => ({ problems: await doctor(), status: await output("status") }),
    draw: ({ problems, status: now }) => [
      problems.length === 0 ? null : make("div", { className: "problems", id: "problems" }, make("ul", {}, problems.map((it) =>
        make("li", {}, make("p", {}, make("b", {}, `${it.problem}: ${it.subject}`), it.detail ? ` (${it.detail})` : ""), make("p", {}, it.remedy))))),
      make("div", { className: "cards" },
        card("events pending", count(now.events_pending), now.events_oldest_age_seconds === null ? "none waits" : `the oldest for ${duration(now.events_oldest_age_seconds)}`,
          "#/events?state=pending", warn(now.events_oldest_age_seconds > 60)),
        card("events retrying", count(now.events_retrying), "in fan-out", "#/events?state=retrying", warn(now.events_retrying)),
        card("events poisoned", count(now.events_poisoned), "wait for a person", "#/events?state=poisoned", bad(now.events_poisoned)),
        card("jobs open", count(now.jobs_open), "ready or running", "#/jobs", ""),
        card("jobs waiting", count(now.jobs_waiting), "for their next attempt", "#/jobs?state=waiting", warn(now.jobs_waiting)),
        card("jobs held", count(now.jobs_held), "paused, or behind another", "#/jobs?state=held", ""),
        card("jobs poisoned", count(now.jobs_poisoned), "wait for a person", "#/jobs?state=poisoned", bad(now.jobs_poisoned))),
      section("Subscriptions", table("subscriptions", now.subscriptions, subscriptionColumns, "There is none: rowbell subscription add webhook NAME URL.")),
      section("Largest tables", table("tables", now.tables, [
        ["Table", (row) => text(row.table)],
        ["Rows, about", (row) => text(row.rows.toLocaleString("en")), "number"],
        ["Dead", (row) => text(row.dead.toLocaleString("en")), "number"],
        ["Size", (row) => bytes(row.bytes), "number"]], "none")),
      make("p", { className: "soft" }, `Schema ${now.schema_version}, stream at ${now.stream_position}.`),
    ],
  },

  events: {
    filters: { state: eventStates, type: null, limit: limits },
    load: (options) => output("event list", [], options),
    draw: (rows, options) => [
      options.state !== "poisoned" ? null : make("div", { className: "actions" },
        action({ label: "Requeue all poisoned", says: "Every poisoned event goes back in line, with its failures forgotten.", command: "requeue events",
          options: { all: true }, dry: true, result: requeued })),
      make("section", {}, table("events", rows, [
        ["Event", eventLink],
        ["Type", (row) => text(row.type)],
        ["Subject", (row) => text(row.subject), "text"],
        ["Scope", (row) => text(row.scope)],
        ["State", (row) => state(row.state)],
        ["Jobs", (row) => text(row.subscriptions), "number"],
        ["When", (row) => when(row.occurred_at)]], "There is no such event.")),
    ],
  },

  event: {
    load: (_, id) => output("event show", [id]),
    draw: (event) => [
      title(`Event ${words(event.seq)}`, state(event.state), event.state !== "poisoned" ? null : make("div", { className: "actions" },
        action({ label: "Requeue", says: "It goes back in line, with its failures forgotten.", command: "requeue events", options: { id: words(event.seq) }, dry: true, result: requeued }),
        action({ label: "Give up", says: "No webhook and no index will get it; the stream does. Ordered subscriptions go on without it.",
          command: "event cancel", args: [words(event.seq)], result: () => "It is cancelled." }))),
      make("section", {}, record([
        ["id", make("code", {}, event.id)], ["type", event.type], ["subject", event.subject], ["scope", event.scope], ["key", event.key], ["op", event.op],
        ["occurred", when(event.occurred_at)], ["fanned out", when(event.fanned_out_at)],
        ...(event.fanout_attempts > 0 ? [["fan-out failed", `${event.fanout_attempts} times`]] : []),
        ...(event.retry_at && event.state === "retrying" ? [["retried", when(event.retry_at)]] : []),
        ...(event.poisoned_at ? [["poisoned", when(event.poisoned_at)]] : []),
        ...(event.last_error ? [["last error", event.last_error]] : [])])),
      event.data === null ? null : section("Data", make("pre", { id: "data" }, JSON.stringify(event.data, null, 2))),
      section("Fanned out to", table("fanout", event.fanout, [
        ["Subscription", (row) => subscriptionLink(row.subscription)],
        ["Kind", (row) => text(row.kind)],
        ["State", (row) => state(row.state)],
        ["Attempts", (row) => text(row.attempts), "number"],
        ["Due", (row) => when(row.run_at)],
        ["Last result", (row) => state(row.last_class)],
        ["", (row) => (row.kind === "sse" || row.state === "removed" ? null : jobActions(row.subscription, words(event.seq), !["delivered", "cancelled"].includes(row.state)))]],
      event.fanned_out_at ? "Nobody wanted it." : "It is not fanned out.")),
      section("Attempts", table("attempts", event.attempts, [
        ["Subscription", (row) => subscriptionLink(row.subscription)], ...attemptColumns,
        ["Answer", (row) => (row.response_head ? make("code", {}, row.response_head) : text(null)), "text"]], "No request was made for it.")),
    ],
  },

  jobs: {
    filters: { state: jobStates, subscription: null, limit: limits },
    load: (options) => output("job list", [], options),
    draw: (rows, { state: only, subscription }) => [
      ["poisoned", "cancelled", "held", "waiting"].includes(only) ? make("div", { className: "actions" },
        requeueJobs(`Requeue all ${only}`, `Every ${only} job${subscription ? ` of ${subscription}` : ""} goes back in line.`,
          { state: only, ...(subscription ? { subscription } : { all: true }) })) : null,
      make("section", {}, table("jobs", rows, [
        ["Subscription", (row) => subscriptionLink(row.subscription)],
        ["Event", eventLink],
        ["Type", (row) => text(row.type)],
        ["Subject", (row) => text(row.subject), "text"],
        ["State", (row) => state(row.state)],
        ["Attempts", (row) => text(row.attempts), "number"],
        ["Due", (row) => when(row.run_at)],
        ["Last result", (row) => state(row.last_class)],
        ["", (row) => jobActions(row.subscription, row.seq, row.state !== "cancelled")]], "There is no such job.")),
    ],
  },

  attempts: {
    filters: { subscription: null, class: classes, limit: limits },
    load: (options) => output("attempt list", [], options),
    draw: (rows) => [
      make("section", {}, table("attempts", rows, [
        ["Subscription", (row) => subscriptionLink(row.subscription)], ["Event", eventLink], ...attemptColumns], "There is no such attempt.")),
    ],
  },

  subscriptions: {
    load: () => output("subscription list"),
    draw: (rows) => [
      make("section", {}, table("subscriptions", rows, [...subscriptionColumns, ["URL", (row) => text(row.url), "text"]], "There is none: rowbell subscription add webhook NAME URL.")),
    ],
  },

  subscription: {
    load: async (_, name) => ({ it: await output("subscription show", [name]), log: await output("attempt list", [], { subscription: name }) }),
    draw: ({ it, log }) => [
      title(it.name, state(it.state), make("div", { className: "actions" },
        it.kind !== "webhook" ? null : action({ label: "Send a test", says: "A signed test event is sent from the console's machine, and every step explained. Nothing is stored.",
          command: "subscription test", args: [it.name], result: testSteps }),
        it.poisoned === 0 ? null : requeueJobs("Requeue poisoned", `Every poisoned job of ${it.name} goes back in line.`, { subscription: it.name, state: "poisoned" }),
        it.kind === "sse" ? null : it.state === "active"
          ? action({ label: "Pause", says: "Its jobs are held until it is resumed.", command: "subscription pause", args: [it.name], result: () => "It is paused." })
          : action({ label: "Resume", says: "It is sent to again, held jobs first.", command: "subscription resume", args: [it.name], result: () => "It is active." }))),
      make("section", {}, record([
        ["kind", it.kind], ["types", it.types], ["scope", it.scope], ["owner", it.owner], ["ordered", it.ordered ? "one at a time for each subject" : "no"], ["signs with", it.signs_with],
        ["jobs", make("span", {}, filtered(`${count(it.open)} open`, "jobs", { subscription: it.name }), `, ${count(it.waiting)} waiting, ${count(it.held)} held, ${count(it.poisoned)} poisoned`)],
        ["last success", when(it.last_success_at)], ["last failure", when(it.last_failure_at)],
        ...(it.failing_since ? [["failing since", when(it.failing_since)]] : []), ...(it.last_error ? [["last error", it.last_error]] : []),
        ["settings", make("pre", {}, JSON.stringify(it.settings, null, 2))], ["created", when(it.created_at)]])),
      section("Delivery log", table("log", log, [["Event", eventLink], ...attemptColumns], "No request was made.")),
    ],
  },
};

// ---- the address: #/view/id?filter=value

function route() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  let [name, id] = path.split("/");
  try {
    id = id === undefined ? undefined : decodeURIComponent(id);
  } catch {
    name = id = undefined; // no address of ours
  }
  const view = id === undefined ? name : name.replace(/s$/, "");
  const options = Object.fromEntries([...new URLSearchParams(query)].filter(([, value]) => value !== ""));
  return { name, id, options, view: Object.hasOwn(views, view) ? views[view] : views[""] };
}

function drawFilters({ view, name, options }) {
  const fields = Object.entries(view.filters ?? {}).map(([field, choices]) => make("label", {}, field,
    choices === null ? make("input", { name: field, value: options[field] ?? "", size: 18, spellcheck: false })
      : make("select", { name: field }, (choices === limits ? choices : ["", ...choices]).map((choice) =>
        make("option", { value: choice, selected: choice === (options[field] ?? "") }, choice || "any")))));
  element("filters").replaceChildren(...fields);
  element("filters").hidden = fields.length === 0;
  element("filters").onchange = element("filters").onsubmit = (event) => {
    event.preventDefault();
    const chosen = [...new FormData(element("filters"))].filter(([field, value]) => value !== "" && !(field === "limit" && value === limits[0]));
    location.hash = `#/${name}${chosen.length > 0 ? `?${new URLSearchParams(chosen)}` : ""}`;
  };
  for (const item of document.querySelectorAll("nav a")) {
    if (item.hash === `#/${name}`) item.setAttribute("aria-current", "page");
    else item.removeAttribute("aria-current");
  }
}

let turn = 0;
let drawn = null; // { where, text }

function fresh(name, says) {
  element("fresh").dataset.state = name;
  element("fresh").textContent = says;
}

// What has the focus, to be found again among new elements: the nth of those with this command line or link.
const focusKey = (node) => node.dataset.command ?? node.getAttribute("href");
function focusTake() {
  const view = element("view");
  const node = document.activeElement;
  if (!view.contains(node)) return () => {};
  const alike = () => [...view.querySelectorAll("a, button")].filter((it) => focusKey(it) === focusKey(node));
  const place = alike().indexOf(node);
  return () => alike()[place]?.focus();
}

async function show() {
  const mine = ++turn;
  const where = location.hash;
  const { view, options, id } = route();
  try {
    const loaded = await view.load(options, id);
    if (mine !== turn) return;
    const text = JSON.stringify(loaded);
    if (drawn?.where !== where || drawn.text !== text) {
      const focusGive = focusTake();
      element("view").replaceChildren(...view.draw(loaded, options).filter((node) => node !== null));
      focusGive();
      drawn = { where, text };
    }
    element("problem").hidden = true;
    fresh("good", `as of ${new Date().toLocaleTimeString()}`);
  } catch (error) {
    if (mine !== turn) return;
    if (drawn?.where !== where) {
      element("view").replaceChildren(); // what is there is not what the address says
      drawn = null;
    }
    element("problem").textContent = error.message;
    element("problem").hidden = false;
    fresh("bad", "not up to date");
  }
}

function navigate() {
  takeToken();
  loader.abort();
  loader = new AbortController();
  drawFilters(route());
  show();
}

// Slow answers are asked for less often.
async function refresh() {
  const began = performance.now();
  for (const time of document.querySelectorAll("#view time")) time.textContent = age(time.dateTime);
  if (!document.hidden && document.querySelector("dialog[open]") === null) await show();
  setTimeout(refresh, Math.max(REFRESH_MS, 10 * (performance.now() - began)));
}

addEventListener("hashchange", navigate);
document.addEventListener("visibilitychange", () => document.hidden || show());
setTimeout(refresh, REFRESH_MS);
navigate();
if (token === null) askToken();
