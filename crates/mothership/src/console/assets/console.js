// The console works without this file: it only makes pages live and adds keys. It writes no markup from text: pieces of pages
// come from the server as documents, in which nothing runs.
"use strict";

const find = (selector, root = document) => root.querySelector(selector);
const all = (selector, root = document) => [...root.querySelectorAll(selector)];

/** Rows of output that a page holds: ten blocks. */
const MOST_ROWS = 5000;

/** Fetches a piece of a page. Scripts of such a document never run. */
function piece(path) {
  return new Promise((take, fail) => {
    const request = new XMLHttpRequest();
    request.open("GET", path);
    request.responseType = "document";
    request.timeout = 10000;
    request.onload = () => (request.status === 200 && request.response ? take(request.response) : fail(request.status));
    request.onerror = request.ontimeout = () => fail(0);
    request.send();
  });
}

/** Shows a button. It takes no press for half a second: whoever presses then meant what stood there before. */
function reveal(button) {
  if (button.hidden) button.dataset.shown = Date.now();
  button.hidden = false;
}
const isFresh = (button) => Date.now() - Number(button.dataset.shown || 0) < 500;

function live(log) {
  const status = find("#live");
  const follow = find("#follow");
  const fresh = find("#fresh");
  const polite = find("#polite");
  let source = null;
  let asked = false;
  let running = false;
  let heard = Date.now();
  let unseen = 0;
  let pause = 1000;
  let over = false;
  let added = 0;
  let behind = false;
  let timer = null;
  let pressed = 0;

  const again = () => {
    if (timer === null && !over) timer = setTimeout(() => { timer = null; refresh(); }, pause);
  };
  const say = (state, text) => { status.dataset.state = state; status.textContent = text; };
  const rowsHere = () => all(".l", log).length;
  const toEnd = () => { log.scrollTop = log.scrollHeight; unseen = 0; fresh.hidden = true; };

  // Rows come first and the state last: a page that says "Succeeded" has the whole output.
  async function refresh() {
    if (running) { asked = true; return; }
    running = true;
    try {
      for (;;) {
        asked = false;
        // Who reads keeps the rows that are here: what comes waits on the server.
        if (!follow.checked && rowsHere() >= MOST_ROWS) { reveal(fresh); find("span", fresh).textContent = "more"; break; }
        const tail = behind && follow.checked ? "&tail=1" : "";
        const came = find("[data-after]", await piece(`${log.dataset.source}?after=${log.dataset.after}${tail}`));
        const rows = all(".l", came);
        all(".open", log).forEach((row) => row.remove());
        rows.forEach((row) => log.append(document.importNode(row, true)));
        const more = came.dataset.more === "yes" && came.dataset.after !== log.dataset.after;
        log.dataset.after = came.dataset.after;
        behind = more;
        over = came.dataset.over === "yes" && !more;
        added += rows.length;
        // A page holds ten blocks: older rows are on the server.
        const kept = all(".l", log);
        if (follow.checked) kept.slice(0, Math.max(0, kept.length - MOST_ROWS)).forEach((row) => row.remove());
        if (rows.length && find("#none")) find("#none").remove();
        if (follow.checked) toEnd();
        else if (rows.length) { unseen += rows.length; reveal(fresh); find("span", fresh).textContent = unseen; }
        if (!more && !asked) break;
        if (!more) await new Promise((done) => setTimeout(done, 250));
      }
      await head();
      heard = Date.now();
      if (over) { say("over", "ended"); close(); }
    } catch {
      // What is there stays; the next event or the timer tries again.
      say("lost", "disconnected");
      again();
      pause = Math.min(pause * 2, 30000);
    }
    running = false;
    // An event that came while the head was on its way.
    if (asked && !over) again();
  }

  async function head() {
    const place = find("#head");
    const came = find("#head", await piece(place.dataset.source));
    // A click needs the element of the press at its end: the head waits for it, but not for a release outside of the window.
    while (Date.now() - pressed < 2000) await new Promise((done) => setTimeout(done, 50));
    // A form that is open is not changed under the pointer; it may have been opened while the answer was on its way.
    if (find("details[open]", place) && !over) return;
    const focus = document.activeElement && place.contains(document.activeElement) ? document.activeElement.id : "";
    place.replaceChildren(...[...came.childNodes].map((node) => document.importNode(node, true)));
    if (focus && document.getElementById(focus)) document.getElementById(focus).focus();
  }

  function open() {
    if (source || over || document.hidden) return;
    source = new EventSource(log.dataset.events);
    source.onopen = () => { heard = Date.now(); pause = 1000; say("live", "live"); };
    // The server ends the stream with the directive: what it ended with is asked for.
    source.onerror = () => {
      if (over) return;
      say("lost", `disconnected, last heard ${Math.round((Date.now() - heard) / 1000)} s ago`);
      again();
    };
    for (const name of ["state", "log", "reset"]) source.addEventListener(name, refresh);
    refresh();
  }
  function close() { if (source) source.close(); source = null; }

  find("#head").addEventListener("pointerdown", () => { pressed = Date.now(); });
  // The click follows the release.
  for (const name of ["pointerup", "pointercancel"]) window.addEventListener(name, () => setTimeout(() => { pressed = 0; }));
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  window.addEventListener("pagehide", close);
  window.addEventListener("pageshow", open);
  fresh.addEventListener("click", () => {
    if (isFresh(fresh)) return;
    follow.checked = true;
    toEnd();
    log.focus();
    refresh();
  });
  follow.addEventListener("change", () => { if (follow.checked) toEnd(); });
  // Who scrolls up reads: the rows stay where they are.
  log.addEventListener("scroll", () => {
    if (log.scrollTop + log.clientHeight < log.scrollHeight - 40) follow.checked = false;
  }, { passive: true });
  setInterval(() => {
    if (added) polite.textContent = `${added} new lines`;
    added = 0;
  }, 10000);
  if (follow.checked && !location.hash) toEnd();
  open();
}

/** Tells how old a list is and what came since; nothing of the list moves until its reader says so. */
function news(bar) {
  const [age, show, asks] = [find("#age"), find("#show-news"), find("#asks")];
  const begun = Date.now();
  let heard = begun;
  const seconds = (since) => Math.round((Date.now() - since) / 1000);
  const tell = (isLost) => {
    age.className = isLost ? "live s-bad" : "muted";
    age.textContent = isLost ? `disconnected, last heard ${seconds(heard)} s ago` : `${seconds(begun)} s old`;
  };
  async function look() {
    if (document.hidden) return;
    try {
      const came = find("[data-count]", await piece(bar.dataset.source));
      heard = Date.now();
      if (asks) asks.textContent = came.dataset.asks;
      if (came.dataset.count !== "0") { show.textContent = came.textContent; reveal(show); }
      tell(false);
    } catch { tell(true); }
  }
  show.addEventListener("click", () => { if (!isFresh(show)) location.reload(); });
  document.addEventListener("visibilitychange", look);
  setInterval(look, 2000);
  tell(false);
}

function views(log) {
  const set = (id, name) => {
    const box = document.getElementById(id);
    if (!box) return;
    const apply = () => log.classList.toggle(name, name === "wrap" ? box.checked : !box.checked);
    box.addEventListener("change", apply);
    apply();
  };
  set("wrap", "wrap");
  set("times", "notimes");
}

function keys() {
  const help = find("#help");
  let before = "";
  const go = {
    h: "/", d: "/directives", a: "/approvals", t: "/territories", f: "/facilities", p: "/policies", u: "/audit", s: "/settings",
  };
  const move = (selector, step) => {
    const links = all(selector);
    const at = links.indexOf(document.activeElement);
    const next = links[Math.min(Math.max(at + step, 0), links.length - 1)];
    if (next) next.focus();
  };
  const view = (step) => {
    const links = all(".tabs a");
    const next = links[links.findIndex((link) => link.hasAttribute("aria-current")) + step];
    if (next) next.click();
  };
  document.addEventListener("keydown", (event) => {
    const field = event.target.closest("input, textarea, select");
    if (event.key === "Escape" && field) field.blur();
    if (event.ctrlKey || event.metaKey || event.altKey || (help && help.open) || (field && field.type !== "checkbox")) return;
    if (before === "g") {
      before = "";
      if (go[event.key]) location.assign(go[event.key]);
      return;
    }
    const acts = {
      g: () => { before = "g"; setTimeout(() => { before = ""; }, 1500); },
      "?": () => { if (help) help.showModal(); },
      "/": () => { const filter = find("#filter"); if (filter) { event.preventDefault(); filter.focus(); } },
      j: () => move("[data-row] a.row-link", 1),
      k: () => move("[data-row] a.row-link", -1),
      n: () => move(".l.hit a.ref", 1),
      N: () => move(".l.hit a.ref", -1),
      "[": () => view(-1),
      "]": () => view(1),
      // No key answers a request: this one leads to what it asks for.
      a: () => { const five = find("#five"); if (five) { five.focus(); five.scrollIntoView(); } },
      f: () => { const follow = find("#follow"); if (follow) follow.click(); },
      c: () => { const copy = find("[data-copy]"); if (copy) copy.click(); },
    };
    if (acts[event.key]) acts[event.key]();
  });
}

document.addEventListener("click", async (event) => {
  const copy = event.target.closest("[data-copy]");
  if (!copy) return;
  const before = copy.textContent;
  try {
    await navigator.clipboard.writeText(copy.dataset.copy);
    copy.textContent = "Copied";
  } catch {
    copy.textContent = "Not copied";
  }
  setTimeout(() => { copy.textContent = before; }, 1500);
});

// A second press of the same button sends nothing.
document.addEventListener("submit", (event) => {
  if (event.target.method !== "post") return;
  if (event.target.dataset.sent) { event.preventDefault(); return; }
  event.target.dataset.sent = "yes";
  const button = event.submitter;
  if (button) button.textContent = "Sending";
});

// A page that the browser kept, and whose form was sent, is not what the server has now.
window.addEventListener("pageshow", (event) => { if (event.persisted && find("[data-sent]")) location.reload(); });

const log = find("#log");
if (log) views(log);
if (log && log.dataset.events) live(log);
const bar = find("#news");
if (bar) news(bar);
keys();
