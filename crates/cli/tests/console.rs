//! The console in Chromium, against real directives on a real territory: `nexus up`.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

#[path = "console/connections.rs"]
mod connections;
mod console_support;
mod fleet_support;
#[path = "../../mothership/tests/suite/hostile.rs"]
mod hostile;
#[path = "console/hostile.rs"]
mod hostile_everywhere;
#[path = "console/output.rs"]
mod output;
#[path = "console/pages.rs"]
mod pages;

use console_support::{Chromium, Tab};
use fleet_support::Scene;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::path::PathBuf;
use std::time::Duration;

/// Both widths with both themes.
const LOOKS: [(u32, &str); 4] = [(1280, "light"), (1280, "dark"), (360, "light"), (360, "dark")];

/// A fleet of one machine, and the address of its console.
struct Fleet {
    scene: Scene,
    console: String,
}

impl Fleet {
    fn up() -> Self {
        Self::begin(|_| {})
    }

    /// A fleet in which commands start only with an approval.
    fn asking() -> Self {
        Self::begin(Scene::ask_for_approvals)
    }

    /// A control plane without a daemon: the test plays one.
    fn alone() -> Self {
        let mut scene = Scene::new();
        let data = scene.path("mothership");
        let ready = scene.serve("mothership", &["mothership", "serve", "--json", "--listen", "127.0.0.1:0"], &data);
        ready["api_url"].as_str().unwrap().clone_into(&mut scene.url);
        ready["api_key"].as_str().unwrap().clone_into(&mut scene.key);
        let console = ready["console_url"].as_str().unwrap().to_owned();
        Self { scene, console }
    }

    fn begin(prepare: impl FnOnce(&Scene)) -> Self {
        let mut scene = Scene::new();
        prepare(&scene);
        let data = scene.path("data");
        let ready = scene.serve("up", &["up", "--json", "--listen", "127.0.0.1:0"], &data);
        ready["api_url"].as_str().unwrap().clone_into(&mut scene.url);
        ready["api_key"].as_str().unwrap().clone_into(&mut scene.key);
        let console = ready["console_url"].as_str().unwrap().to_owned();
        assert!(console.starts_with("http://nexus.localhost:"), "{console}");
        Self { scene, console }
    }

    /// A fleet in which web.test is this host.
    fn named() -> Self {
        let mut scene = Scene::new();
        let (data, etc) = (scene.path("data"), scene.names());
        let words = ["up", "--json", "--listen", "127.0.0.1:0"];
        let ready = scene.serve_by("up", &words, &data, |command| fleet_support::named(&etc, &command));
        ready["api_url"].as_str().unwrap().clone_into(&mut scene.url);
        ready["api_key"].as_str().unwrap().clone_into(&mut scene.key);
        let console = ready["console_url"].as_str().unwrap().to_owned();
        Self { scene, console }
    }

    fn browser(&self) -> Chromium {
        Chromium::start(self.scene.base.path())
    }

    fn facility(&self) -> String {
        self.scene.ok(&["facility", "create"]).trim().to_owned()
    }

    fn create(&self, facility: &str, script: &str) -> String {
        self.scene.ok(&["directive", "create", "--facility", facility, "--", script]).trim().to_owned()
    }

    fn at(&self, path: &str) -> String {
        format!("{}{}", self.console, path.trim_start_matches('/'))
    }

    fn sign_in(&self, tab: &mut Tab<'_>, key: &str) {
        tab.go(&self.at("/login"));
        tab.press("#key");
        tab.write(key);
        tab.press_to("button.primary");
        tab.until("document.querySelector('nav a[aria-current]')");
    }
}

fn no_faults(tab: &mut Tab<'_>) {
    let faults = tab.faults();
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn a_person_signs_in_watches_a_directive_live_and_ends_it() {
    let fleet = Fleet::up();
    let agent = fleet.scene.make_key("agent");
    let mut chromium = fleet.browser();
    for (width, theme) in LOOKS {
        let facility = fleet.facility();
        let mut tab = chromium.tab(width);
        tab.scheme(theme);
        tab.go(&fleet.at("/"));
        assert!(tab.eval("location.pathname").as_str().unwrap().starts_with("/login"));
        tab.press("#key");
        tab.write("nxk_wrong");
        tab.press_to("button.primary");
        assert_eq!(tab.eval("document.querySelector('#why').textContent"), json!("The key is not known."));
        tab.press("#key");
        tab.write(&agent);
        tab.press_to("button.primary");
        let why = tab.eval("document.querySelector('#why').textContent");
        assert!(why.as_str().unwrap().starts_with("A key of an agent cannot sign in"), "{why}");
        assert_eq!(tab.eval("document.cookie"), json!(""));
        // The browser's console names the answers 401 and 403 itself; from here on nothing may stand there.
        let before = tab.faults().len();
        fleet.sign_in(&mut tab, &fleet.scene.key);
        // The command prints its clock, in milliseconds, five times a second.
        let script = "i=0; while [ $i -lt 300 ]; do i=$((i+1)); echo \"now $(date +%s%3N) $i\"; sleep 0.2; done";
        let id = fleet.create(&facility, script);
        fleet.scene.until(&id, |one| one["state"] == "running");
        tab.go(&fleet.at("/directives"));
        tab.until(&format!("document.querySelector('a[href=\"/directives/{id}\"]')"));
        tab.press_to(&format!("a[href=\"/directives/{id}\"]"));
        tab.until("document.querySelector('#live').dataset.state === 'live'");
        let watch = "window.late = []; new MutationObserver(list => list.forEach(change => change.addedNodes.forEach(row => {
            const said = /^now (\\d+)/.exec((row.querySelector && row.querySelector('code') || {}).textContent || '');
            if (said) window.late.push(Date.now() - Number(said[1])); }))).observe(document.querySelector('#log'), {childList: true});";
        tab.eval(watch);
        tab.until("window.late.length >= 8");
        let late = tab.eval("window.late");
        let best = late.as_array().unwrap().iter().filter_map(Value::as_i64).min().unwrap();
        println!("{width} {theme}: a line is on the screen after {late} ms");
        assert!(best <= 500, "{late}");
        // Every line once and in order, also across a reload and a return.
        tab.eval("document.querySelector('#follow').checked = false");
        let numbers = "[...document.querySelectorAll('#log .l code')].map(e => /^now \\d+ (\\d+)$/.exec(e.textContent)).filter(Boolean).map(m => +m[1])";
        let in_order = format!("(n => n.length > 5 && n.every((x, i) => !i || x === n[i - 1] + 1))({numbers})");
        assert_eq!(tab.eval(&in_order), json!(true), "{}", tab.eval(numbers));
        tab.eval("window.__old = true");
        tab.call("Page.reload", json!({}));
        tab.until("!window.__old && document.readyState === 'complete'");
        tab.until(&format!("{numbers}.length > 10"));
        assert_eq!(tab.eval(&in_order), json!(true), "{}", tab.eval(numbers));
        assert_eq!(tab.eval("document.documentElement.scrollWidth <= innerWidth"), json!(true), "{width} px");
        // The end: asked for in its place, and shown by the page without a reload.
        // Events come while the button is held, and the press still counts.
        tab.hold("#cancel", Duration::from_millis(900));
        tab.until("document.querySelector('details.confirm[open]')");
        tab.press_to("details.confirm button.danger");
        tab.until("document.querySelector('#head').textContent.includes('Canceled')");
        tab.until(
            "document.querySelector('#live') === null || document.querySelector('#live').dataset.state === 'over'",
        );
        assert_eq!(fleet.scene.ended(&id)["state"], "canceled");
        assert_eq!(tab.eval("document.querySelectorAll('details.confirm').length"), json!(0));
        let faults = tab.faults();
        assert_eq!(faults.len(), before, "{faults:#?}");
    }
}

#[test]
fn hostile_output_and_names_do_nothing_in_the_browser() {
    let fleet = Fleet::up();
    let name = "<img src=x onerror=window.pwned=1><script>window.pwned=1</script>";
    let facility = fleet.scene.ok(&["facility", "create", name]).trim().to_owned();
    let acts = "printf '%s\\n' '<script>window.pwned=1</script>' '<img src=x onerror=window.pwned=1>' '</code></div><h1 id=forged>x</h1>'; \
        printf '\\033]0;forged title\\007\\033]52;c;Zm9yZ2Vk\\007\\033]8;;javascript:window.pwned=1\\033\\\\link\\033]8;;\\033\\\\\\n'; \
        printf '\\033[31mred\\033[0m \\342\\200\\256abc\\n'; printf '10%%\\r99%%\\n'";
    let id = fleet.create(&facility, acts);
    assert_eq!(fleet.scene.ended(&id)["state"], "succeeded");
    let mut chromium = fleet.browser();
    let mut tab = chromium.tab(1280);
    fleet.sign_in(&mut tab, &fleet.scene.key);
    for path in [
        format!("/directives/{id}"),
        "/directives".to_owned(),
        "/facilities".to_owned(),
        "/".to_owned(),
        "/audit".to_owned(),
    ] {
        tab.go(&fleet.at(&path));
        assert_eq!(tab.eval("typeof window.pwned"), json!("undefined"), "{path}");
        assert_eq!(
            tab.eval("document.querySelectorAll('#forged, main img, main script, main iframe').length"),
            json!(0)
        );
        assert!(!tab.eval("document.title").as_str().unwrap().contains("forged"), "{path}");
    }
    tab.go(&fleet.at(&format!("/directives/{id}")));
    let lines = tab.eval("[...document.querySelectorAll('#log .l code')].map(e => e.textContent)");
    let expected = json!([
        "<script>window.pwned=1</script>",
        "<img src=x onerror=window.pwned=1>",
        "</code></div><h1 id=forged>x</h1>",
        "link",
        "red <U+202E>abc",
        "99%",
    ]);
    assert_eq!(lines, expected);
    assert_eq!(tab.eval("document.querySelectorAll('#log .c1').length"), json!(1));
    // A piece of a page with a script in it runs nothing, and a page takes no markup from a script.
    let inert =
        "new Promise(done => { const d = new DOMParser; let refused = false; const div = document.createElement('div');
        try { div.innerHTML = '<b>x</b>'; } catch { refused = true; } done(refused); })";
    assert_eq!(tab.eval(inert), json!(true), "markup from text is refused");
    let refused = tab.faults();
    assert!(
        refused.iter().all(|fault| fault.contains("require-trusted-types-for") || fault.contains("TrustedHTML")),
        "{refused:#?}"
    );
}

#[test]
fn the_console_works_without_script_by_keyboard_and_in_both_themes() {
    let fleet = Fleet::up();
    let facility = fleet.facility();
    let done = fleet.create(&facility, "echo out; echo err >&2; exit 3");
    fleet.scene.ended(&done);
    let long = fleet.create(&facility, "echo begun; sleep 60");
    fleet.scene.until(&long, |one| one["state"] == "running");
    let mut chromium = fleet.browser();
    for (width, theme) in LOOKS {
        let mut tab = chromium.tab(width);
        fleet.sign_in(&mut tab, &fleet.scene.key);
        // The theme is a form; the page comes in its colours from the first byte.
        tab.go(&fleet.at("/settings"));
        tab.press(&format!("input[value={theme}]"));
        tab.press_to("form[action='/settings/theme'] button");
        let colours = tab.eval(
            "[document.documentElement.dataset.theme, getComputedStyle(document.documentElement).backgroundColor]",
        );
        let expected = if theme == "dark" { "rgb(16, 19, 23)" } else { "rgb(255, 255, 255)" };
        assert_eq!(colours, json!([theme, expected]));
        // Every page: no sideways scroll, one heading, named controls, captions, scopes, readable colours.
        let one = format!("/directives/{done}");
        let views = ["egress", "changes", "receipt", "spec"].map(|view| format!("{one}?view={view}"));
        let plain = [
            "/",
            "/directives?q=state:failed",
            "/facilities",
            "/territories",
            "/policies",
            "/policies/replay",
            "/audit?verify=1",
            "/settings",
        ]
        .map(str::to_owned);
        for path in plain.iter().chain([&one]).chain(&views) {
            tab.go(&fleet.at(path));
            let problems = problems(&mut tab);
            assert_eq!(problems, json!([]), "{path} at {width} px, {theme}");
        }
        // The keyboard: a list by letters, a page by Enter, and back.
        if width > 600 {
            // The letters are heard once the script has run.
            tab.go(&fleet.at("/"));
            tab.key("g");
            tab.eval("window.__old = true");
            tab.key("d");
            tab.until("!window.__old && document.readyState === 'complete' && location.pathname === '/directives'");
            tab.key("j");
            tab.key("j");
            tab.eval("window.__old = true");
            tab.key("Enter");
            tab.until(&format!("!window.__old && location.pathname === '{one}'"));
            tab.eval("window.__old = true; history.back()");
            tab.until("location.pathname === '/directives'");
        }
        no_faults(&mut tab);
    }
    // Without script: signing in, reading, ending.
    let mut tab = chromium.tab(1280);
    tab.call("Emulation.setScriptExecutionDisabled", json!({ "value": true }));
    fleet.sign_in(&mut tab, &fleet.scene.key);
    tab.go(&fleet.at(&format!("/directives/{long}")));
    assert!(tab.eval("document.querySelector('#log').textContent").as_str().unwrap().contains("begun"));
    tab.press("#cancel");
    tab.press_to("details.confirm button.danger");
    assert_eq!(fleet.scene.ended(&long)["state"], "canceled");
}

/// Returns the problems of a page that a program can find. Where `NEXUS_AXE` names the file of axe-core, its findings are among them.
fn problems(tab: &mut Tab<'_>) -> Value {
    let mut found = tab.eval(ACCESSIBLE);
    if let Some(file) = std::env::var_os("NEXUS_AXE") {
        tab.eval(&std::fs::read_to_string(file).unwrap());
        let run = "axe.run().then(all => all.violations.map(one => one.id + ': ' + one.nodes.map(node => node.html).join(' | ')))";
        found.as_array_mut().unwrap().extend(tab.eval(run).as_array().unwrap().clone());
    }
    found
}

/// Problems of a page that a program can find, as a list.
const ACCESSIBLE: &str = "(() => {
    const problems = [];
    const all = s => [...document.querySelectorAll(s)];
    if (document.documentElement.scrollWidth > innerWidth) problems.push('scrolls sideways: ' + document.documentElement.scrollWidth);
    if (all('h1').length !== 1) problems.push('headings: ' + all('h1').length);
    if (!document.title || !document.documentElement.lang) problems.push('title or language');
    for (const e of all('button, a, summary')) if (!e.textContent.trim() && !e.getAttribute('aria-label')) problems.push('no name: ' + e.outerHTML);
    for (const e of all('input:not([type=hidden])')) if (!e.labels.length) problems.push('no label: ' + e.outerHTML);
    for (const e of all('table')) if (!e.caption) problems.push('no caption');
    for (const e of all('th')) if (!e.scope) problems.push('no scope: ' + e.textContent);
    for (const e of all('[id]')) if (all('#' + CSS.escape(e.id)).length > 1) problems.push('id twice: ' + e.id);
    const numbers = c => c.match(/[\\d.]+/g).map(Number);
    const light = ([r, g, b]) => [r, g, b].map(v => v / 255).map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
        .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
    const ground = e => { for (; e; e = e.parentElement) { const c = numbers(getComputedStyle(e).backgroundColor); if (c.length < 4 || c[3] > 0) return c; } return [255, 255, 255]; };
    for (const e of all('body *')) {
        if (![...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()) || !e.offsetParent) continue;
        const [a, b] = [light(numbers(getComputedStyle(e).color)), light(ground(e))].sort((x, y) => y - x);
        const ratio = (a + 0.05) / (b + 0.05);
        if (ratio < 4.5) problems.push('contrast ' + ratio.toFixed(2) + ': ' + e.outerHTML.slice(0, 120));
    }
    return problems;
})()";

#[test]
fn another_site_can_neither_post_nor_frame_nor_read_the_session() {
    let fleet = Fleet::up();
    let facility = fleet.facility();
    let id = fleet.create(&facility, "sleep 60");
    fleet.scene.until(&id, |one| one["state"] == "running");
    let mut chromium = fleet.browser();
    let mut tab = chromium.tab(1280);
    fleet.sign_in(&mut tab, &fleet.scene.key);
    assert_eq!(tab.eval("document.cookie"), json!(""), "no script reads the session");
    // The token of this very session, sent by a page of another origin.
    tab.go(&fleet.at(&format!("/directives/{id}")));
    let token = tab.eval("document.querySelector('details.confirm [name=token]').value");
    let form = format!(
        "<form method=post action='{}'><input name=token value='{}'></form>",
        fleet.at(&format!("/directives/{id}/cancel")),
        token.as_str().unwrap()
    );
    tab.go(&format!("data:text/html,{}", form.replace('#', "%23")));
    tab.eval("window.__old = true; document.forms[0].submit()");
    tab.until("!window.__old && document.readyState === 'complete' && document.body.textContent.includes('This did not work')");
    assert_eq!(fleet.scene.json(&["directive", "show", "--json", &id])["cancel_requested"], json!(false));
    tab.go(&format!("data:text/html,<p>x<iframe src='{}'></iframe>", fleet.at("/directives")));
    tab.until_heard("Network.loadingFailed", |failed| failed["errorText"] == "net::ERR_BLOCKED_BY_RESPONSE");
    // Names under which previews are served are other sites, and so is each port of the address: no cookie goes there.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let heard = std::thread::spawn(move || listen_for_cookies(&listener));
    for host in ["127.0.0.1", "a.preview.localhost"] {
        tab.go(&format!("http://{host}:{port}/{host}"));
        assert_eq!(tab.eval("document.body.textContent"), json!("seen"));
    }
    // The control: the name of the console at another port does get it, so previews never have that name.
    tab.go(&format!("http://nexus.localhost:{port}/last"));
    let heard = heard.join().unwrap();
    let got: Vec<(&str, bool)> = heard.iter().map(|(path, cookie)| (path.as_str(), *cookie)).collect();
    assert_eq!(got, [("/127.0.0.1", false), ("/a.preview.localhost", false), ("/last", true)]);
    // Another name of this machine is another site: the cookie does not go there.
    tab.go(&format!("{}/directives", fleet.scene.url));
    assert!(tab.eval("location.pathname").as_str().unwrap().starts_with("/login"));
}

/// Answers requests up to that for `/last`, and returns the path of each with whether it had a cookie of the console.
fn listen_for_cookies(listener: &std::net::TcpListener) -> Vec<(String, bool)> {
    let mut heard = Vec::new();
    for stream in listener.incoming() {
        let mut stream = stream.unwrap();
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap_or(0) == 1 {
            head.push(byte[0]);
        }
        let text = String::from_utf8_lossy(&head).to_lowercase();
        let path = text.split(' ').nth(1).unwrap_or_default().to_owned();
        let page = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 4\r\nConnection: close\r\n\r\nseen";
        stream.write_all(page.as_bytes()).ok();
        // A browser asks for an icon too, and opens connections in advance.
        if matches!(&*path, "/127.0.0.1" | "/a.preview.localhost" | "/last") {
            let is_last = path == "/last";
            heard.push((path, text.contains("cookie: ") && text.contains("nexus=")));
            if is_last {
                break;
            }
        }
    }
    heard
}

#[test]
fn a_page_whose_server_is_gone_keeps_what_it_has_and_says_so() {
    let mut fleet = Fleet::up();
    let facility = fleet.facility();
    let id = fleet.create(&facility, "echo kept; sleep 60");
    fleet.scene.until(&id, |one| one["state"] == "running");
    let mut chromium = fleet.browser();
    let mut tab = chromium.tab(1280);
    fleet.sign_in(&mut tab, &fleet.scene.key);
    tab.go(&fleet.at(&format!("/directives/{id}")));
    tab.until("document.querySelector('#live').dataset.state === 'live' && document.querySelector('#log').textContent.includes('kept')");
    let home = tab.beside(&fleet.at("/"), 1).remove(0);
    tab.until_in(&home, "document.querySelector('#age').textContent.endsWith('s old')");
    tab.call("Page.bringToFront", json!({}));
    tab.until("!document.hidden && document.querySelector('#live').dataset.state === 'live'");
    fleet.scene.kill("up");
    tab.until("document.querySelector('#live').dataset.state === 'lost'");
    assert!(tab.eval("document.querySelector('#live').textContent").as_str().unwrap().starts_with("disconnected"));
    assert!(tab.eval("document.querySelector('#log').textContent").as_str().unwrap().contains("kept"));
    // A list that a person comes back to says it, too.
    tab.call_in(&home, "Page.bringToFront", json!({}));
    tab.until_in(&home, "document.querySelector('#age').textContent.startsWith('disconnected')");
    assert_eq!(tab.eval_in(&home, "document.querySelectorAll('main table').length > 0"), json!(true));
}

/// Pictures for the documentation; where `NEXUS_PICTURES` names a directory they go there.
#[test]
fn the_pages_have_their_pictures() {
    let fleet = Fleet::begin(pages::put_policy);
    let facility = fleet.scene.ok(&["facility", "create", "web"]).trim().to_owned();
    for script in
        ["make check", "echo 1922 passed", "printf '\\033[32mok\\033[0m 212 tests\\n'; echo text > notes.txt", "exit 3"]
    {
        fleet.scene.ended(&fleet.create(&facility, script));
    }
    let script = "printf '\\033[1mcollected 212 items\\033[0m\\n'; i=0; while [ $i -lt 24 ]; do i=$((i+1)); \
        printf 'tests/test_%02d.py \\033[32mPASSED\\033[0m\\n' $i; sleep 0.05; done; \
        echo 'WARNING: the cache is cold' >&2; printf 'tests/test_25.py \\033[31mFAILED\\033[0m  assert 3 == 4\\n'; sleep 120";
    let id = fleet.create(&facility, script);
    let agent = fleet.scene.make_key("agent");
    let deploy = fleet.facility();
    let words = ["--allow", "packages.test:443", "--env", "STAGE=test", "--", "deploy --to test"];
    let (_, approval) = fleet.scene.asked(&agent, &deploy, &words);
    let target = std::env::var_os("NEXUS_PICTURES").map_or_else(|| fleet.scene.path("pictures"), PathBuf::from);
    std::fs::create_dir_all(&target).unwrap();
    let mut chromium = fleet.browser();
    let mut tab = chromium.tab(1280);
    tab.scheme("light");
    fleet.sign_in(&mut tab, &fleet.scene.key);
    let territory =
        fleet.scene.json(&["territory", "ls", "--json"])["territories"][0]["territory_id"].as_str().unwrap().to_owned();
    let here = format!("/directives/{id}");
    let pages = [
        ("home", "/".to_owned(), 1280, 640, "light"),
        ("directive", here.clone(), 1280, 820, "dark"),
        ("directives", "/directives".to_owned(), 1280, 420, "light"),
        ("territory", format!("/territories/{territory}"), 1280, 440, "light"),
        ("approval", format!("/approvals/{approval}"), 1280, 700, "light"),
        ("audit", "/audit?verify=1".to_owned(), 1280, 720, "dark"),
        ("policy", "/policies/explain?q=net+mirror.test%3A443".to_owned(), 1280, 620, "dark"),
        ("phone", here, 360, 780, "light"),
    ];
    for (name, path, width, height, theme) in pages {
        tab.resize(width, height);
        tab.scheme(theme);
        tab.go(&fleet.at(&path));
        if path.contains(&id) {
            tab.until("document.querySelector('#log').textContent.includes('FAILED')");
        }
        // Paths of this test stand in sources of policies.
        let texts = format!(
            "(w => {{ while (w.nextNode()) w.currentNode.data = w.currentNode.data.replace({:?}, '/etc/nexus'); }})(document.createTreeWalker(document.body, 4))",
            fleet.scene.path("config")
        );
        tab.eval(&texts);
        std::thread::sleep(Duration::from_millis(300));
        let file = target.join(format!("console-{name}.png"));
        tab.picture(&file);
        assert!(std::fs::metadata(&file).unwrap().len() > 5_000, "{name}");
    }
    no_faults(&mut tab);
}

/// Texts of the five things on the page of an approval, in their order.
const FIVE: &str = "[...document.querySelectorAll('#five > li')].map(e => [e.querySelector('h2').textContent,
    [...e.querySelectorAll('code')].map(c => c.textContent)])";

#[test]
fn a_person_approves_exactly_what_the_page_shows_and_it_runs_once() {
    let fleet = Fleet::asking();
    let scene = &fleet.scene;
    let agent = scene.make_key("agent");
    let mut chromium = fleet.browser();
    for (width, theme) in LOOKS {
        let facility = fleet.facility();
        let words =
            ["--allow", "packages.test:443", "--env", "WORD=one", "--discard", "--", "echo it ran; echo x > out"];
        let (id, approval) = scene.asked(&agent, &facility, &words);
        let mut tab = chromium.tab(width);
        tab.scheme(theme);
        fleet.sign_in(&mut tab, &scene.key);
        // What needs a person comes first.
        tab.go(&fleet.at("/"));
        assert_eq!(tab.eval("document.querySelector('h2').textContent"), json!("Needs you 1"));
        assert_eq!(problems(&mut tab), json!([]), "home at {width} px, {theme}");
        tab.go(&fleet.at("/approvals"));
        assert_eq!(problems(&mut tab), json!([]), "list at {width} px, {theme}");
        tab.press_to(&format!("a[href=\"/approvals/{approval}\"]"));
        assert_eq!(problems(&mut tab), json!([]), "approval at {width} px, {theme}");
        // The five things are those of the API.
        let (_, seen) = scene.call(&scene.key, "GET", &format!("/approvals/{approval}"), "");
        let spec = &seen["asks"]["spec"];
        let expected = json!([
            ["Command", [spec["command"], "/bin/sh -c"]],
            ["Directory", ["/workspace"]],
            ["Paths", [spec["capabilities"]["fs"]["read"][0], spec["capabilities"]["fs"]["write"][0]]],
            ["Network", spec["capabilities"]["net"]["allow"]],
            ["Secrets", ["none"]],
        ]);
        assert_eq!(tab.eval(FIVE), expected);
        let text = tab.eval("document.querySelector('main').textContent");
        let text = text.as_str().unwrap();
        for part in ["WORD=one", "Changes are thrown away.", seen["subject"].as_str().unwrap(), "a policy asks for it"]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
        // No key answers.
        for key in "abcefijklmnoqrstuvwxyz1 ".chars() {
            tab.key(&key.to_string());
        }
        assert_eq!(tab.eval("document.activeElement.id"), json!("five"), "a leads to what is asked for");
        tab.key("Enter");
        let (_, still) = scene.call(&scene.key, "GET", &format!("/approvals/{approval}"), "");
        assert_eq!(still["state"], "pending");
        // Two presses are one answer, and one answer is one start.
        tab.eval("window.__old = true; window.__sent = 0; addEventListener('submit', e => { window.__sent += e.defaultPrevented ? 0 : 1; })");
        tab.eval("(() => { const button = document.querySelector('#approve'); button.click(); button.click(); })()");
        tab.until("!window.__old && document.readyState === 'complete'");
        assert_eq!(tab.eval("location.pathname"), json!(format!("/approvals/{approval}")));
        let over = scene.until(&id, |one| one["state"] == "succeeded" || one["state"] == "rejected");
        assert_eq!((&over["state"], &over["attempt"]), (&json!("succeeded"), &json!(1)), "{over}");
        assert_eq!(scene.ok(&["directive", "logs", &id]), "it ran\n");
        tab.go(&fleet.at(&format!("/approvals/{approval}")));
        assert_eq!(tab.eval("document.querySelector('.state').textContent"), json!("Used"));
        assert_eq!(tab.eval("document.querySelectorAll('main form').length"), json!(0), "nothing is left to answer");
        no_faults(&mut tab);
    }
    // Without script, and by keyboard alone.
    let facility = fleet.facility();
    let (id, approval) = scene.asked(&agent, &facility, &["--", "echo plain"]);
    let mut tab = chromium.tab(1280);
    tab.call("Emulation.setScriptExecutionDisabled", json!({ "value": true }));
    fleet.sign_in(&mut tab, &scene.key);
    tab.go(&fleet.at(&format!("/approvals/{approval}")));
    for _ in 0..60 {
        if tab.eval("document.activeElement.id") == json!("approve") {
            break;
        }
        tab.key("Tab");
    }
    assert_eq!(tab.eval("document.activeElement.id"), json!("approve"));
    tab.key("Enter");
    scene.until(&id, |one| one["state"] == "succeeded");
}

#[test]
fn an_own_request_has_no_button_and_an_answer_to_something_else_is_refused() {
    let fleet = Fleet::asking();
    let scene = &fleet.scene;
    let (agent, operator) = (scene.make_key("agent"), scene.make_key("operator"));
    let facility = fleet.facility();
    let (_, own) = scene.asked(&operator, &facility, &["--", "echo own"]);
    let (first, approval) = scene.asked(&agent, &facility, &["--", "echo one"]);
    let (_, other) = scene.asked(&agent, &facility, &["--", "echo two"]);
    let mut chromium = fleet.browser();
    let mut tab = chromium.tab(1280);
    fleet.sign_in(&mut tab, &operator);
    tab.go(&fleet.at(&format!("/approvals/{own}")));
    assert_eq!(
        tab.eval("[!!document.querySelector('#own'), !!document.querySelector('#approve')]"),
        json!([true, false])
    );
    // A form of its own making is refused as well.
    tab.eval("document.querySelector('details.confirm form').action = location.pathname + '/approve'");
    tab.press("#deny");
    tab.press_to("details.confirm button.danger");
    assert!(tab.eval("document.querySelector('main').textContent").as_str().unwrap().contains("self_approval"));
    // What was shown is what is approved.
    tab.go(&fleet.at(&format!("/approvals/{other}")));
    let hash = tab.eval("document.querySelector('[name=subject]').value");
    tab.go(&fleet.at(&format!("/approvals/{approval}")));
    tab.eval(&format!("document.querySelectorAll('[name=subject]').forEach(e => {{ e.value = {hash}; }})"));
    tab.press_to("#approve");
    assert!(tab.eval("document.querySelector('main').textContent").as_str().unwrap().contains("other_subject"));
    let (_, still) = scene.call(&scene.key, "GET", &format!("/approvals/{approval}"), "");
    assert_eq!(still["state"], "pending");
    // A refusal, confirmed in its place.
    tab.go(&fleet.at(&format!("/directives/{first}")));
    tab.press_to("#asked");
    tab.press("#deny");
    tab.press_to("details.confirm button.danger");
    assert_eq!(tab.eval("document.querySelector('.state').textContent"), json!("Refused"));
    assert_eq!(scene.json(&["directive", "show", "--json", &first])["reason"], json!("approval_rejected"));
}

#[test]
fn what_a_directive_asks_with_draws_nothing_on_the_page_of_its_approval() {
    let fleet = Fleet::asking();
    let scene = &fleet.scene;
    let agent = scene.make_key("agent");
    let facility = fleet.facility();
    let act = "<img src=x onerror=window.pwned=1>\u{1b}]0;forged\u{7}\u{202e}</code><form id=forged action=/approvals><button id=approve>x</button></form>";
    let (_, plain) = scene.asked(&agent, &facility, &["--env", "A=b", "--cwd", "c", "--", "d"]);
    let (_, hostile) = scene.asked(&agent, &facility, &["--env", &format!("A={act}"), "--cwd", act, "--", act]);
    let mut chromium = fleet.browser();
    let mut tab = chromium.tab(360);
    fleet.sign_in(&mut tab, &scene.key);
    let mut shapes = Vec::new();
    for approval in [&plain, &hostile] {
        tab.go(&fleet.at(&format!("/approvals/{approval}")));
        shapes.push(tab.eval(
            "[...document.querySelectorAll('*')].filter(e => !e.matches('dl, dl *')).map(e => e.tagName + '#' + e.id)",
        ));
        assert_eq!(
            tab.eval("[typeof window.pwned, document.querySelectorAll('#approve').length]"),
            json!(["undefined", 1])
        );
        assert_eq!(tab.eval("document.documentElement.scrollWidth <= innerWidth"), json!(true));
    }
    assert_eq!(shapes[0], shapes[1]);
    let shown = tab.eval("document.querySelector('#five code').textContent");
    let shown = shown.as_str().unwrap();
    assert!(shown.contains("<U+202E>") && shown.contains("<U+001B>") && !shown.contains('\u{202e}'), "{shown:?}");
    tab.go(&fleet.at("/approvals"));
    assert_eq!(tab.eval("document.querySelectorAll('#forged, main img').length"), json!(0));
    no_faults(&mut tab);
}
