// agentfs, the live view: keeps a page current, times in the reader's zone, logs that follow. Everything works without it.
"use strict";

const two = (n) => String(n).padStart(2, "0");

function localTimes(root) {
  for (const el of root.querySelectorAll("time[datetime], [data-time]")) {
    const when = new Date(el.getAttribute("datetime") || el.dataset.time);
    if (isNaN(when)) continue;
    const clock = `${two(when.getHours())}:${two(when.getMinutes())}:${two(when.getSeconds())}`;
    const day = `${when.getFullYear()}-${two(when.getMonth() + 1)}-${two(when.getDate())}`;
    const today = when.toDateString() === new Date().toDateString();
    if (el.tagName !== "TIME") el.textContent = clock;
    else if (el.dataset.form === "short") { el.textContent = today ? clock.slice(0, 5) : `${day} ${clock.slice(0, 5)}`; el.title = `${day} ${clock}`; }
    else el.textContent = `${day} ${clock}`;
  }
}

// ── a page that stays current ──────────────────────────────────────────────────────────────────────────────
// The server says that something changed; the page is fetched again, and parts that differ are put in place.

const marks = new Map();
const key = (part) => part.id;

const given = new WeakMap(); // whether the server sent a fold open: a person's own choice differs from that

function remember(root) {
  for (const part of root.querySelectorAll("[data-live]")) marks.set(key(part), part.outerHTML);
  noteFolds(root);
}

function noteFolds(root) {
  for (const fold of root.querySelectorAll("details")) given.set(fold, fold.open);
}

function isBusy(part) {
  const at = document.activeElement;
  if (at && part.contains(at) && at.matches("textarea, input, select")) return true;
  return [...part.querySelectorAll("textarea, input[type=text]")].some((el) => el.value !== el.defaultValue);
}

// What a person is about to answer is never exchanged under their hand: it stays, and the server refuses an answer to it.
const asks = (part) => [...part.querySelectorAll("form.answer input[type=hidden]:not([name=token])")].map((el) => `${el.name}=${el.value}`).join("&");

function outdate(part) {
  if (part.classList.contains("outdated")) return;
  part.classList.add("outdated");
  const words = document.createElement("p"), link = document.createElement("a");
  words.setAttribute("role", "status");
  words.append("This has changed since the page was loaded. ", link);
  link.href = self();
  link.className = "button";
  link.textContent = "Show it as it is now";
  part.prepend(words);
}

// A fold without a name of its own is known by its place in what has one.
function sameFold(old, to) {
  const home = old.id ? old : old.parentElement.closest("[id]");
  const there = home.id === to.id ? to : to.querySelector(`#${CSS.escape(home.id)}`);
  if (old.id || !there) return there;
  const unnamed = (root) => [...root.querySelectorAll("details:not([id])")];
  return unnamed(there)[unnamed(home).indexOf(old)];
}

function keepOpen(from, to) {
  noteFolds(to);
  for (const old of from.querySelectorAll("details")) {
    const now = old.open !== given.get(old) && sameFold(old, to);
    if (!now) continue;
    now.open = old.open;
    if (now.open && now.dataset.load) load(now);
  }
}

function put(part) {
  const old = document.getElementById(part.id);
  if (!old || marks.get(key(part)) === part.outerHTML) return;
  if (isBusy(old) || asks(old) && asks(old) !== asks(part)) { outdate(old); return; }
  marks.set(key(part), part.outerHTML);
  const scrolls = [...old.querySelectorAll(".scroll")].map((el) => [el.scrollLeft, el.scrollTop]);
  const focus = document.activeElement && old.contains(document.activeElement) ? document.activeElement.closest("[id]") : null;
  const now = document.importNode(part, true);
  keepOpen(old, now);
  old.replaceWith(now);
  [...now.querySelectorAll(".scroll")].forEach((el, n) => { if (scrolls[n]) [el.scrollLeft, el.scrollTop] = scrolls[n]; });
  if (focus && document.getElementById(focus.id)) (document.getElementById(focus.id).querySelector("summary, a") || document.body).focus({ preventScroll: true });
  localTimes(now);
  begin(now);
}

// The page that answers a form has another address than the page it shows.
function self() {
  const at = document.getElementById("connection");
  return (at && at.dataset.self) || location.pathname + location.search;
}

let fetching = false, again = false;

async function refresh() {
  if (fetching) { again = true; return; }
  fetching = true;
  try {
    const reply = await fetch(self(), { headers: { Accept: "text/html" } });
    if (!reply.ok) { say(reply.status === 401 ? "agentfs web was started again: open the address it printed" : "this page is gone"); return; }
    const page = new DOMParser().parseFromString(await reply.text(), "text/html");
    document.title = page.title;
    place(page);
  } catch {
    say("no connection to agentfs web; trying again…");
  } finally {
    fetching = false;
    if (again) { again = false; setTimeout(refresh, 300); }
  }
}

function place(page) {
  const parts = [...page.querySelectorAll("[data-live]")];
  const known = new Set([...document.querySelectorAll("[data-live]")].map(key));
  const wanted = new Set(parts.map(key));
  if (parts.some((part) => !known.has(key(part))) || [...known].some((id) => !wanted.has(id))) {
    const column = (root, name) => root.querySelector(`.columns > ${name}`);
    for (const name of [".main", "aside"]) {
      const here = column(document, name), there = column(page, name);
      if (here && there && !isBusy(here)) {
        const order = [...there.children].filter((part) => part.id);
        for (const gone of [...here.children]) if (gone.id && !wanted.has(gone.id)) { if (asks(gone)) outdate(gone); else gone.remove(); }
        order.forEach((part, n) => {
          if (document.getElementById(part.id)) return;
          const next = order.slice(n + 1).map((one) => document.getElementById(one.id)).find(Boolean);
          const now = document.importNode(part, true);
          noteFolds(now);
          here.insertBefore(now, next || null);
          marks.set(key(part), part.outerHTML);
          localTimes(now);
          begin(now);
        });
      }
    }
  }
  parts.forEach(put);
}

function say(words) {
  const at = document.getElementById("connection");
  if (at && at.textContent !== words) at.textContent = words;
  if (at) at.dataset.state = words === "live" ? "live" : "lost";
}

// A browser has six connections to a server, for all its tabs together. A tab that is hidden gives its own back, and looks again
// when it is seen; one of them keeps listening, so that a title in the background says what waits.
function whileSeen(connect, keeps) {
  let source = null, release = null;
  const open = () => { if (release) { release(); release = null; } if (!source) source = connect(() => { source = null; }); };
  const close = () => { if (source) source.close(); source = null; };
  const hide = () => {
    if (!keeps || !navigator.locks) { close(); return; }
    navigator.locks.request("agentfs-hidden", { ifAvailable: true }, (lock) => {
      if (!document.hidden) return undefined;
      if (!lock) { close(); return undefined; }
      if (!source) source = connect(() => { source = null; });
      return new Promise((done) => { release = done; });
    });
  };
  const look = () => { if (document.hidden) hide(); else open(); };
  document.addEventListener("visibilitychange", look);
  addEventListener("pagehide", close);
  addEventListener("pageshow", (event) => { if (event.persisted) look(); });
  look();
}

function listen() {
  const at = document.getElementById("connection");
  if (!at || !at.dataset.events) return;
  const connect = (ended) => {
    const source = new EventSource(at.dataset.events);
    source.addEventListener("changed", refresh);
    source.onopen = () => { say("live"); refresh(); };
    source.onerror = () => {
      if (source.readyState !== EventSource.CLOSED) { say("no connection to agentfs web; trying again…"); return; }
      ended();
      refresh();
      setTimeout(() => document.dispatchEvent(new Event("visibilitychange")), 2000);
    };
    return source;
  };
  whileSeen(connect, true);
}

// ── steps that are loaded when they are opened ─────────────────────────────────────────────────────────────

async function load(details) {
  details.dataset.loaded = "1"; // or on its way
  const reply = await fetch(details.dataset.load).catch(() => null);
  if (!reply || !reply.ok) { delete details.dataset.loaded; return; }
  const part = new DOMParser().parseFromString(await reply.text(), "text/html").body.firstElementChild;
  const body = details.querySelector(".body");
  if (!part || !body) return;
  localTimes(part);
  body.replaceWith(document.importNode(part, true));
}

// ── logs ───────────────────────────────────────────────────────────────────────────────────────────────────

const MOST_LINES = 5000;

function follow(list) {
  const [where, query] = list.dataset.follow.split("?");
  const log = list.closest("section");
  let from = query, over = false;
  whileSeen(() => {
    if (over || !list.isConnected) return null;
    const source = new EventSource(`${where}/events?${from}`);
    source.addEventListener("lines", (event) => {
      const bottom = list.scrollHeight - list.scrollTop - list.clientHeight < 40, given = JSON.parse(event.data);
      const page = new DOMParser().parseFromString(`<ol>${given.html}</ol>`, "text/html");
      for (const line of page.querySelectorAll("li")) list.append(document.importNode(line, true));
      while (list.children.length > MOST_LINES) list.firstChild.remove();
      from = `from=${given.offset}`;
      find(log);
      if (bottom) list.scrollTop = list.scrollHeight;
    });
    source.addEventListener("ended", () => { over = true; source.close(); });
    return source;
  });
  list.scrollTop = list.scrollHeight;
}

function find(log) {
  const words = log.querySelector("input.filter").value.toLowerCase();
  for (const line of log.querySelectorAll("ol.log > li")) line.hidden = words !== "" && !line.textContent.toLowerCase().includes(words);
}

// ── the editor ─────────────────────────────────────────────────────────────────────────────────────────────

function goTo(area, line) {
  const lines = area.value.split("\n");
  const start = lines.slice(0, line - 1).join("\n").length + (line > 1 ? 1 : 0);
  area.focus();
  area.setSelectionRange(start, start + (lines[line - 1] || "").length);
  area.scrollTop = Math.max(0, (area.scrollHeight / lines.length) * (line - 6));
}

function editor(form) {
  const area = form.querySelector("textarea.code"), checked = document.getElementById("checked");
  let timer = 0, number = 0;
  const check = async () => {
    const mine = ++number;
    try {
      const reply = await fetch(form.dataset.check, { method: "POST", headers: { "X-Part": "1" }, body: new URLSearchParams(new FormData(form)) });
      const part = new DOMParser().parseFromString(await reply.text(), "text/html").body.firstElementChild;
      if (mine === number && part) checked.replaceChildren(document.importNode(part, true));
    } catch { say("no connection to agentfs web; what you typed is still here"); }
  };
  area.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(check, 300); });
  form.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-line]");
    if (link) { event.preventDefault(); goTo(area, Number(link.dataset.line)); }
  });
  area.addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key === "s") { event.preventDefault(); form.requestSubmit(); }
  });
  if (area.dataset.line) goTo(area, Number(area.dataset.line));
  let leaving = false;
  form.addEventListener("submit", () => { leaving = true; });
  addEventListener("beforeunload", (event) => { if (!leaving && area.value !== area.defaultValue) event.preventDefault(); });
}

function begin(root) {
  for (const list of root.querySelectorAll("ol[data-follow]")) follow(list);
  for (const details of root.querySelectorAll("details[data-load]")) details.addEventListener("toggle", () => { if (details.open && !details.dataset.loaded) load(details); });
  for (const input of root.querySelectorAll("input.filter")) input.addEventListener("input", () => find(input.closest("section")));
}

// A picture that is larger than its frame begins where something is to be seen.
function centre(root) {
  for (const box of root.querySelectorAll("figure .scroll")) {
    const seen = ["bad", "person", "busy"].map((tone) => box.querySelector(`.node.${tone}, .bar.${tone}`)).find(Boolean) || box.querySelector(".node");
    if (!seen) continue;
    const at = seen.getBoundingClientRect(), frame = box.getBoundingClientRect();
    if (box.closest(".graph")) box.scrollLeft += at.left + at.width / 2 - frame.left - frame.width / 2; // a timeline's names stay
    box.scrollTop += at.top + at.height / 2 - frame.top - frame.height / 2;
  }
}

function openTarget() {
  const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  for (let at = target; at; at = at.parentElement && at.parentElement.closest("details")) if (at.tagName === "DETAILS") at.open = true;
  if (target) target.scrollIntoView();
}

if (self() !== location.pathname + location.search) history.replaceState(null, "", self());
remember(document);
localTimes(document);
begin(document);
centre(document);
openTarget();
addEventListener("hashchange", openTarget);
for (const form of document.querySelectorAll("form.edit")) editor(form);
listen();
