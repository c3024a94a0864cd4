// The console works without this file: it only makes pages live and adds keys. It writes no markup from text: pieces of pages
// come from the server as documents, in which nothing runs.
"use strict";

const find = (selector, root = document) => root.querySelector(selector);
const all = (selector, root = document) => [...root.querySelectorAll(selector)];

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

  let timer = null;

  const again = () => {
    if (timer === null && !over) timer = setTimeout(() => { timer = null; refresh(); }, pause);
  };
  const say = (state, text) => { status.dataset.state = state; status.textContent = text; };
  const toEnd = () => { log.scrollTop = log.scrollHeight; unseen = 0; fresh.hidden = true; };

  // Rows come first and the state last: a page that says "Succeeded" has the whole output.
  async function refresh() {
    if (running) { asked = true; return; }
    running = true;
    try {
      for (;;) {
        asked = false;
        const came = find("[data-after]", await piece(`${log.dataset.source}?after=${log.dataset.after}`));
        const rows = all(".l", came);
        all(".open", log).forEach((row) => row.remove());
        rows.forEach((row) => log.append(document.importNode(row, true)));
        const more = came.dataset.more === "yes" && came.dataset.after !== log.dataset.after;
        log.dataset.after = came.dataset.after;
        over = came.dataset.over === "yes" && !more;
        added += rows.length;
        // A page holds ten blocks: older rows are on the server.
        const kept = all(".l", log);
        kept.slice(0, Math.max(0, kept.length - 5000)).forEach((row) => row.remove());
        if (rows.length && find("#none")) find("#none").remove();
        if (follow.checked) toEnd();
        else if (rows.length) { unseen += rows.length; fresh.hidden = false; find("span", fresh).textContent = unseen; }
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

  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  window.addEventListener("pagehide", close);
  window.addEventListener("pageshow", open);
  fresh.addEventListener("click", () => { follow.checked = true; toEnd(); log.focus(); });
  follow.addEventListener("change", () => { if (follow.checked) toEnd(); });
  // Who scrolls up reads: the rows stay where they are.
  for (const kind of ["wheel", "touchmove", "keydown"]) {
    log.addEventListener(kind, () => setTimeout(() => {
      if (log.scrollTop + log.clientHeight < log.scrollHeight - 40) follow.checked = false;
    }, 50), { passive: true });
  }
  setInterval(() => {
    if (added) polite.textContent = `${added} new lines`;
    added = 0;
  }, 10000);
  if (follow.checked && !location.hash) toEnd();
  open();
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
  const go = { h: "/", d: "/directives", p: "/approvals", t: "/territories", f: "/facilities", a: "/audit", s: "/settings" };
  const rows = () => all("[data-row] a.row-link");
  const move = (step) => {
    const links = rows();
    const at = links.indexOf(document.activeElement);
    const next = links[Math.min(Math.max(at + step, 0), links.length - 1)];
    if (next) next.focus();
  };
  document.addEventListener("keydown", (event) => {
    const field = event.target.closest("input, textarea, select");
    if (event.ctrlKey || event.metaKey || event.altKey || (field && field.type !== "checkbox")) return;
    if (before === "g") {
      before = "";
      if (go[event.key]) location.assign(go[event.key]);
      return;
    }
    const acts = {
      g: () => { before = "g"; setTimeout(() => { before = ""; }, 1500); },
      "?": () => { if (help) help.showModal(); },
      "/": () => { const filter = find("#filter"); if (filter) { event.preventDefault(); filter.focus(); } },
      j: () => move(1),
      k: () => move(-1),
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
  if (event.target.dataset.sent) { event.preventDefault(); return; }
  event.target.dataset.sent = "yes";
  const button = event.submitter;
  if (button) button.textContent = "Sending";
});

const log = find("#log");
if (log) views(log);
if (log && log.dataset.events) live(log);
keys();
