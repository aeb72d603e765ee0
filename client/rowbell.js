// rowbell.js: follows a Rowbell stream (GET /events, docs/stream.md) and says which queries to fetch again.
//
//  EventSource --> this tab, if it leads --> BroadcastChannel --> the other tabs
//                          \-> changes wait 250 ms, one call of invalidate() for all of them
//
// One tab of an origin leads: the one that holds a Web Lock. It has the connection and tells the others all that comes,
// each time with the position before and after. A tab whose own position is not the one before has missed something (it
// slept, say) and counts that as a reset. When the leader ends, the browser gives the lock to the next tab, which goes
// on from its own last position. A leader that stands still (a frozen tab keeps its lock) is asked, and then replaced.
//
// EventSource comes back by itself only after 200 and a closed connection. After anything else it is closed for ever,
// and a half-open connection it never notices. So the last position is kept here, a closed one is opened again, and a
// silent one (the gateway pings, ?ping=1) as well.

const FLOOR_MS = 500; // between two tries, whatever happens
const BACKOFF_MS = 1000; // doubles with each try, up to
const BACKOFF_MOST_MS = 30000;
const ANSWER_MS = 3000; // a leader that has not answered by then stands still
const KEYS_MOST = 100; // with more changed rows of a table in one call: the whole collection

// A row's key as the stream writes it: each part percent-encoded (RFC 3986), joined by "/".
export const rowKey = (...parts) =>
  parts
    .map((part) =>
      encodeURIComponent(part).replace(/[!'()*]/g, (c) => "%" + c.charCodeAt(0).toString(16).toUpperCase()),
    )
    .join("/");

// The options are described in rowbell.d.ts. `host` has the browser's globals; tests pass their own.
export function connect(url, options = {}, host = globalThis) {
  const {
    tables = [],
    keysByTable = {},
    withCredentials = false,
    share = typeof url === "string" && url,
    coalesceMs = 250,
    spreadMs = 5000,
    silenceMs = 60000,
  } = options;
  const { setTimeout, clearTimeout, Date, Math } = host;
  const locks = host.navigator?.locks;
  const name = "rowbell 1 " + JSON.stringify([share, tables, withCredentials]);
  const channel = share && locks && host.BroadcastChannel ? new host.BroadcastChannel(name) : undefined;

  let id = ""; // the last position, "" before the first
  let told = ""; // the position that the other tabs know
  let uncovered = false; // a connection ended before its position was known: nobody can say what was missed
  let state = "connecting";
  let leading = false;
  let closed = false;
  let source;
  let attempt = 0; // what began before the newest attempt no longer counts
  let tries = 0;
  let retryTimer, watchTimer, flushTimer, resetTimer;
  let heardAt = Date.now();
  let asked = false;
  let candidacy; // the AbortController of our request for the lock
  let release; // gives the lock back
  let becomeReady;
  const ready = new Promise((resolve) => (becomeReady = resolve));

  // ---- what the application is told ----

  const pending = new Map(); // table -> the keys that changed

  const flush = () => {
    const found = new Map(); // by their text: each query once
    for (const [table, keys] of pending) {
      const queries = Object.hasOwn(keysByTable, table) ? keysByTable[table] : [];
      // "" is the whole collection, which covers each row.
      for (const key of keys.has("") || keys.size > KEYS_MOST ? [""] : keys) {
        for (const query of typeof queries === "function" ? queries(key) : queries) {
          found.set(JSON.stringify(query), query);
        }
      }
    }
    pending.clear();
    if (found.size) options.invalidate?.([...found.values()]);
  };

  // The application's own functions come last: what they throw loses nothing.
  const handle = (type, data) => {
    if (type === "change") {
      if (!pending.size) flushTimer = setTimeout(flush, coalesceMs);
      pending.set(data.table, (pending.get(data.table) ?? new Set()).add(data.key));
    } else if (type === "reset") {
      // A reset often reaches everybody at once; their reads must not.
      resetTimer ??= setTimeout(() => {
        resetTimer = undefined;
        options.invalidateAll?.(data.reason);
      }, Math.random() * spreadMs);
    }
    if (id && becomeReady) {
      becomeReady();
      becomeReady = undefined;
      options.onReady?.();
    }
    if (type === "change") options.onChange?.(data, id);
    if (type === "reset") options.onReset?.(data.reason, id);
    options.onPosition?.(id);
  };

  const post = (type, data) => {
    channel?.postMessage({ type, data, state, before: told, id });
    if (type !== "ask") told = id;
  };

  const setState = (now) => {
    if (now === state) return;
    state = now;
    options.onState?.(state);
    if (leading) post("state");
  };

  const heard = () => {
    heardAt = Date.now();
    asked = false;
  };

  // ---- the connection ----

  const disconnect = () => {
    attempt++;
    clearTimeout(retryTimer);
    retryTimer = undefined;
    source?.close();
    source = undefined;
  };

  const reopen = () => {
    disconnect();
    uncovered ||= !id;
    setState("connecting");
    retryTimer = setTimeout(open, FLOOR_MS + Math.random() * Math.min(BACKOFF_MOST_MS, BACKOFF_MS * 2 ** tries++));
  };

  const tell = (type, data) => {
    post(type, data);
    handle(type, data);
  };

  const listen = (address) => {
    const target = new URL(address, host.location?.href);
    for (const table of tables) target.searchParams.append("table", table);
    target.searchParams.set("ping", "1");
    if (id) target.searchParams.set("last_event_id", id);
    const mine = (source = new host.EventSource(target.href, { withCredentials }));
    let opened = false;

    mine.onopen = () => {
      if (mine !== source) return;
      heard();
      opened = true;
      tries = 0;
      setState("open");
      post("state");
    };
    mine.onerror = () => {
      if (mine !== source) return;
      heard();
      // One reconnect is the browser's, after the time that the gateway asked for. If that fails, it would try the same
      // URL for ever, without backing off.
      if (!opened || mine.readyState === 2) return reopen();
      opened = false;
      uncovered ||= !id;
      setState("connecting");
    };
    for (const type of ["ping", "change", "reset"]) {
      mine.addEventListener(type, (event) => {
        if (mine !== source) return;
        heard();
        id = event.lastEventId || id; // "" until this EventSource itself has had one
        const missed = uncovered && id;
        uncovered &&= !id;
        if (missed && type !== "reset") tell("reset", { reason: "position_unknown" });
        tell(type, JSON.parse(event.data));
      });
    }
  };

  const open = () => {
    disconnect();
    heard();
    if (typeof url === "string") return listen(url);
    const mine = attempt;
    Promise.resolve()
      .then(url)
      .then((address) => mine === attempt && listen(address))
      .catch(() => mine === attempt && reopen());
  };

  // ---- the other tabs ----

  const lead = () => {
    leading = true;
    told = id;
    open();
  };

  const campaign = (steal) => {
    candidacy?.abort();
    const mine = (candidacy = new AbortController());
    locks
      .request(name, steal ? { steal } : { signal: mine.signal }, () => {
        if (closed || mine !== candidacy) return;
        lead();
        return new Promise((resolve) => (release = resolve));
      })
      .catch((error) => {
        if (closed || mine !== candidacy) return;
        if (error.name !== "AbortError") return lead(); // no locks here: then without sharing
        // Another tab took over, since this one stood still.
        leading = false;
        disconnect();
        heard();
        campaign();
        ask();
      });
  };

  const hear = ({ data: message }) => {
    if (message.type === "ask") return leading && post("state");
    if (leading) return; // from a leader that was replaced and does not know it yet
    heard();
    if (message.id) {
      const missed = id && message.before !== id;
      id = message.id;
      if (missed && message.type !== "reset") handle("reset", { reason: "tab_missed" });
    }
    setState(message.state);
    handle(message.type, message.data);
  };

  const ask = () => {
    if (!leading) post("ask");
  };

  const watch = () => {
    clearTimeout(watchTimer);
    const age = Date.now() - heardAt;
    const silent = age < 0 || age >= silenceMs; // below 0: the clock was set back
    if (silent && leading && !retryTimer) {
      heard();
      reopen();
    } else if (silent && !leading && asked) {
      heard();
      campaign(true);
    } else if (silent && !leading) {
      ask();
      asked = true;
    }
    watchTimer = setTimeout(watch, asked ? ANSWER_MS : silent ? silenceMs : silenceMs - age);
  };

  // Back from sleep: the leader says whether something was missed, or its silence is noticed now.
  const wake = () => {
    if (host.document.visibilityState !== "visible") return;
    ask();
    watch();
  };

  const onWake = (change) => {
    for (const event of ["visibilitychange", "resume"]) host.document?.[change](event, wake);
  };

  if (typeof url === "string") new URL(url, host.location?.href); // a wrong one is an error now, not a silent retry
  onWake("addEventListener");
  watch();
  if (channel) {
    channel.onmessage = hear;
    campaign();
    ask();
  } else {
    lead();
  }

  return {
    ready,
    get state() {
      return state;
    },
    get lastEventId() {
      return id;
    },
    close() {
      closed = true;
      disconnect();
      for (const timer of [watchTimer, flushTimer, resetTimer]) clearTimeout(timer);
      onWake("removeEventListener");
      candidacy?.abort();
      release?.();
      channel?.close();
    },
  };
}
