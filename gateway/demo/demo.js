// The demo page: what the stream says, by rowbell.js. All tabs of this page share one connection. A `?ticket=` of its own
// goes to the stream. Element ids and data attributes are what the page's tests look at.
import { connect } from "./rowbell.js";

const SHOWN_MOST = 200;
const element = (id) => document.getElementById(id);
const list = element("changes");
let seen = 0;
let resets = 0;

function showState(state) {
  element("state").textContent = state === "open" ? "connected" : state;
  element("state").dataset.state = state;
}

function span(className, text) {
  const made = document.createElement("span");
  made.className = className;
  made.textContent = text;
  return made;
}

function showChange(change) {
  const item = document.createElement("li");
  item.dataset.table = change.table;
  item.dataset.key = change.key;
  item.dataset.op = change.op;
  const time = document.createElement("time");
  const now = new Date();
  time.dateTime = now.toISOString();
  time.textContent = now.toLocaleTimeString();
  const address = change.key === "" ? `${change.table} (the whole table)` : `${change.table}/${change.key}`;
  item.append(span("op", change.op), span("address", address), time);
  list.prepend(item);
  if (list.children.length > SHOWN_MOST) {
    list.lastElementChild.remove();
  }
  element("empty").hidden = true;
  element("count").textContent = String(++seen);
}

function showReset(reason) {
  element("resets").textContent = String(++resets);
  element("reset-banner").textContent =
    `The stream could not be resumed (${reason}). A page would now refetch everything that it shows.`;
  element("reset-banner").hidden = false;
}

const parameters = new URLSearchParams(location.search);
const ticket = parameters.get("ticket");

connect("/events" + (ticket ? `?ticket=${encodeURIComponent(ticket)}` : ""), {
  onState: showState,
  onChange: showChange,
  onReset: showReset,
  onPosition: (position) => {
    if (position) element("last-id").textContent = position;
  },
  // A hint for tests: how long silence is believed. The default is a minute.
  silenceMs: Number(parameters.get("silence_ms")) || undefined,
});
