// The blog's page: a section for each tenant, which fetches its posts through the blog's API and follows the stream to
// know when to fetch again.
import { connect } from "./rowbell.js";

const HEARD_MOST = 8;
const tenants = new URLSearchParams(location.search).getAll("tenant");

function section(tenant) {
  const root = document.getElementById("blog").content.cloneNode(true).firstElementChild;
  const part = (selector) => root.querySelector(selector);
  const api = `/api/${tenant}/posts`;
  const save = (path, method, title) => fetch(api + path, { method, body: JSON.stringify({ title }) });
  root.dataset.tenant = tenant;
  part("h2").textContent = tenant;
  document.getElementById("blogs").append(root);

  let shown = false; // what changes after that is highlighted

  // The row's key is the row's path.
  const row = (post) => {
    const key = encodeURIComponent(post.id);
    const item = part(`[data-key="${CSS.escape(key)}"]`) ?? document.createElement("li");
    if (!item.isConnected) {
      item.dataset.key = key;
      const title = document.createElement("input");
      title.maxLength = 200;
      title.setAttribute("aria-label", "Title");
      title.addEventListener("change", () => save(`/${key}`, "PUT", title.value));
      const remove = document.createElement("button");
      remove.textContent = "Delete";
      remove.addEventListener("click", () => fetch(`${api}/${key}`, { method: "DELETE" }));
      item.append(title, remove);
    }
    const title = item.querySelector("input");
    if (title.value !== post.title && document.activeElement !== title) {
      title.value = post.title;
      item.classList.remove("changed");
      if (shown) requestAnimationFrame(() => item.classList.add("changed"));
    }
    return item;
  };

  let wanted = 0;
  const refresh = async () => {
    const mine = ++wanted; // of two answers the one that was asked for last counts
    const response = await fetch(api);
    const posts = response.ok && (await response.json());
    if (!posts || mine !== wanted) return;
    part(".posts").replaceChildren(...posts.map(row));
    shown = true;
  };

  const hear = (text) => {
    const item = document.createElement("li");
    item.textContent = text;
    part(".heard").prepend(item);
    if (part(".heard").children.length > HEARD_MOST) part(".heard").lastElementChild.remove();
  };

  part("form").addEventListener("submit", (event) => {
    event.preventDefault();
    save("", "POST", event.target.elements.title.value);
    event.target.reset();
  });

  // The URL is asked for at each connection: the next gateway, since the last one may be gone, and a new ticket.
  let gateway = Math.floor(Math.random() * 2);
  const streamUrl = async () => {
    const urls = await (await fetch(`/api/${tenant}/stream`)).json();
    return urls[gateway++ % urls.length];
  };

  // `share` names who is listening, so that tabs of one tenant share a connection and tabs of two never do.
  const bell = connect(streamUrl, {
    share: tenant,
    tables: ["posts"],
    keysByTable: { posts: [["posts"]] },
    invalidate: refresh,
    invalidateAll: refresh,
    spreadMs: 1000,
    onReady: refresh,
    onChange: ({ op, table, key }) => hear(`${op} ${table}${key && "/"}${key}`),
    onReset: (reason) => hear(`reset: ${reason}`),
    onState: (state) => {
      part(".state").textContent = state === "open" ? "connected" : state;
      part(".state").dataset.state = state;
    },
  });
  addEventListener("pagehide", () => bell.close());
}

for (const tenant of tenants.length > 0 ? tenants : ["acme", "globex"]) section(tenant);
