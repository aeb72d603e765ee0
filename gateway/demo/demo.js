// The demo page: one EventSource on /events, and what it says. ?ping=1, so that the opening position is an event that a
// script sees. Element ids and data attributes are what the page's test looks at.
"use strict";

const SHOWN_MOST = 200;
const element = (id) => document.getElementById(id);
const list = element("changes");
let seen = 0;
let resets = 0;

function showState(state) {
  element("state").textContent = state === "open" ? "connected" : state;
  element("state").dataset.state = state;
}

function showPosition(event) {
  if (event.lastEventId) {
    element("last-id").textContent = event.lastEventId;
  }
}

function span(className, text) {
  const made = document.createElement("span");
  made.className = className;
  made.textContent = text;
  return made;
}

function showChange(event) {
  const change = JSON.parse(event.data);
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
  showPosition(event);
}

function showReset(event) {
  const { reason } = JSON.parse(event.data);
  element("resets").textContent = String(++resets);
  element("reset-banner").textContent =
    `The stream could not be resumed (${reason}). A page would now refetch everything that it shows.`;
  element("reset-banner").hidden = false;
  showPosition(event);
}

const source = new EventSource("/events?ping=1");
source.addEventListener("open", () => showState("open"));
source.addEventListener("error", () => showState(source.readyState === EventSource.CLOSED ? "closed" : "reconnecting"));
source.addEventListener("ping", showPosition);
source.addEventListener("change", showChange);
source.addEventListener("reset", showReset);
