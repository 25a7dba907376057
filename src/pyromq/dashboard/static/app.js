// What pages do in the browser: live updates, times, themes, keys, menus. Pages can be read without it.

const root = document.documentElement;
const base = root.dataset.base;
const year = "; path=" + (base || "/") + "; max-age=31536000; samesite=lax";

// Live updates. A hidden page lets its stream go: a browser has only a few connections to a server.

class LiveSource extends EventTarget {
  constructor(url) {
    super();
    this.url = url;
    this.names = new Set();
    this.readyState = EventSource.CONNECTING;
    this.open();
    this.onVisible = () => (document.hidden ? this.drop() : this.source || this.open());
    document.addEventListener("visibilitychange", this.onVisible);
  }

  open() {
    const source = (this.source = new EventSource(this.url));
    source.onopen = (event) => { this.readyState = 1; this.onopen?.(event); mark(true); };
    source.onerror = (event) => { this.readyState = source.readyState; this.onerror?.(event); mark(false); };
    for (const name of this.names) this.listen(name);
  }

  listen(name) {
    this.source?.addEventListener(name, (event) => this.dispatchEvent(new MessageEvent(name, { data: event.data })));
  }

  addEventListener(name, listener) {
    super.addEventListener(name, listener);
    if (!this.names.has(name)) { this.names.add(name); this.listen(name); }
  }

  drop() { this.source?.close(); this.source = null; }

  close() { this.drop(); this.readyState = EventSource.CLOSED; document.removeEventListener("visibilitychange", this.onVisible); }
}

function mark(alive) {
  const dot = document.querySelector(".fresh .dot");
  if (dot && dot.dataset.state === "good") dot.classList.toggle("off", !alive);
}

if (window.htmx) {
  htmx.createEventSource = (url) => new LiveSource(url);
}

// Times: how long ago, kept right; the exact time, in the reader's zone, on hover.

const words = JSON.parse(document.getElementById("words")?.textContent || "{}");
const stamp = new Intl.DateTimeFormat(root.lang, { dateStyle: "medium", timeStyle: "medium" });

function span(seconds) {
  for (const [limit, unit, size] of [[172800, "d", 86400], [5400, "h", 3600], [90, "min", 60]]) {
    if (seconds >= limit) { const n = seconds / size; return (n < 10 ? n.toFixed(1).replace(/\.0$/, "") : Math.round(n)) + " " + unit; }
  }
  return Math.round(seconds) + " s";
}

function times(scope = document) {
  const now = Date.now();
  for (const each of scope.querySelectorAll("time[datetime]")) {
    const when = new Date(each.dateTime);
    if (isNaN(when)) continue;
    const seconds = (now - when) / 1000;
    const text = Math.abs(seconds) < 5 ? words.now : (seconds < 0 ? words.ahead : words.ago).replace("{}", span(Math.abs(seconds)));
    if (each.textContent !== text) each.textContent = text;
    each.title = stamp.format(when) + "." + String(when.getMilliseconds()).padStart(3, "0");
  }
}

setInterval(times, 5000);
times();
document.addEventListener("htmx:afterSwap", (event) => times(event.target.parentElement || document));

// Theme, language, menus.

function dark() {
  return root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-do]");
  const open = document.querySelectorAll("details.drop[open]");
  for (const each of open) if (!each.contains(event.target)) each.open = false;
  if (!button) return;
  switch (button.dataset.do) {
    case "theme":
      root.dataset.theme = dark() ? "light" : "dark";
      document.cookie = "theme=" + root.dataset.theme + year;
      document.dispatchEvent(new Event("theme"));
      break;
    case "menu": {
      const side = document.querySelector(".side");
      side.classList.toggle("shown");
      button.setAttribute("aria-expanded", side.classList.contains("shown"));
      break;
    }
    case "help": document.getElementById("help").showModal(); break;
    case "palette": palette(); break;
    case "close": button.closest("dialog").close(); break;
    case "copy":
      navigator.clipboard?.writeText(button.dataset.text).then(() => { button.dataset.done = ""; });
      break;
    case "all":
      for (const box of document.querySelectorAll("input[name='" + button.dataset.name + "']")) box.checked = button.checked;
      break;
    case "add-row": {
      const row = document.querySelector(button.dataset.row);
      const copy = row.cloneNode(true);
      for (const input of copy.querySelectorAll("input")) input.value = "";
      row.parentElement.append(copy);
      copy.querySelector("input").focus();
      break;
    }
  }
});

document.addEventListener("change", (event) => {
  if (event.target.matches("[data-submit]")) event.target.form.requestSubmit();
  if (event.target.matches("[data-go]")) location.href = event.target.value;
});

document.addEventListener("submit", (event) => {
  const sure = event.target.dataset.sure;
  if (sure && !confirm(sure)) event.preventDefault();
});

// Keys.

const goes = { o: "/", t: "/topics", g: "/groups", m: "/messages", d: "/dlq", b: "/brokers", p: "/producers", j: "/jobs", a: "/audit", l: "/lake" };
let waiting = null;

function rows() {
  const table = document.querySelector("table[data-keys]");
  return table ? [...table.tBodies[0].rows].filter((row) => row.querySelector("a[href]")) : [];
}

function move(step) {
  const all = rows();
  if (!all.length) return;
  const now = all.findIndex((row) => row.classList.contains("at"));
  const next = all[Math.min(all.length - 1, Math.max(0, now + step))];
  all[now]?.classList.remove("at");
  next.classList.add("at");
  next.querySelector("a[href]").focus({ preventScroll: true });
  next.scrollIntoView({ block: "nearest" });
}

document.addEventListener("keydown", (event) => {
  if ((event.ctrlKey || event.metaKey) && event.key === "k") { event.preventDefault(); palette(); return; }
  if (event.key === "Escape") {
    document.querySelector(".side.shown")?.classList.remove("shown");
    for (const each of document.querySelectorAll("details.drop[open]")) each.open = false;
    if (event.target.matches("input, textarea, select")) event.target.blur();
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, textarea, select, [contenteditable]") || document.querySelector("dialog[open]")) return;
  if (waiting) {
    clearTimeout(waiting);
    waiting = null;
    if (goes[event.key]) { event.preventDefault(); location.href = root.dataset.root + goes[event.key]; }
    return;
  }
  switch (event.key) {
    case "/": event.preventDefault(); document.getElementById("find")?.focus(); break;
    case "?": event.preventDefault(); document.getElementById("help")?.showModal(); break;
    case "g": waiting = setTimeout(() => { waiting = null; }, 1200); break;
    case "j": event.preventDefault(); move(1); break;
    case "k": event.preventDefault(); move(-1); break;
    case "Enter": {
      const at = document.querySelector("table[data-keys] tr.at a[href]");
      if (at && document.activeElement !== at) { event.preventDefault(); at.click(); }
      break;
    }
  }
});

// The palette: go anywhere by typing.

function palette() {
  const box = document.getElementById("palette");
  if (!box || box.open) return;
  box.showModal();
  const input = box.querySelector("input");
  input.value = "";
  input.dispatchEvent(new Event("input", { bubbles: true }));
  input.focus();
}

document.getElementById("palette")?.addEventListener("keydown", (event) => {
  const links = [...event.currentTarget.querySelectorAll("li a")];
  const now = links.findIndex((link) => link.classList.contains("at"));
  if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    event.preventDefault();
    const next = links[(now + (event.key === "ArrowDown" ? 1 : -1) + links.length) % links.length];
    links[now]?.classList.remove("at");
    next?.classList.add("at");
    next?.scrollIntoView({ block: "nearest" });
  } else if (event.key === "Enter") {
    event.preventDefault();
    (links[now] || links[0])?.click();
  }
});

// Body views: JSON, text or hex.

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-show]");
  if (!button) return;
  const box = button.closest("[data-views]");
  for (const each of box.querySelectorAll("[data-view]")) each.hidden = each.dataset.view !== button.dataset.show;
  for (const each of box.querySelectorAll("[data-show]")) each.setAttribute("aria-pressed", each === button);
});
