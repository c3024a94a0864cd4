//! The way of a person through the pages: what comes first, what came meanwhile, what a directive changed, what policies say.

use crate::fleet_support::Scene;
use crate::{Fleet, LOOKS, Tab, no_faults, problems};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::process::{Command, Stdio};

/// Lets deployments start only with an approval, and closes a destination.
pub fn put_policy(scene: &Scene) {
    let directory = scene.path("config/policy");
    std::fs::create_dir_all(&directory).unwrap();
    let text = "policy: nexus.policy/1\nid: careful\nlevel: user\nnet: {deny: [mirror.test]}\n\
        commands: {needs_approval: [\"deploy *\"]}\ntests: {not_match: [\"net mirror.test:443\"]}\n";
    std::fs::write(directory.join("careful.yaml"), text).unwrap();
}

const HEADINGS: &str = "[...document.querySelectorAll('main h2')].map(e => e.textContent.replace(/ \\d.*/, ''))";
/// Places of everything that can be pressed in the content, except what says that something came.
const PLACES: &str = "JSON.stringify([...document.querySelectorAll('a, main button:not(#show-news), main th')].map(e => { const r = e.getBoundingClientRect(); return [r.x, r.y, r.width]; }))";

/// Reloads the page and goes away and back, and returns what an expression says each time.
fn kept(tab: &mut Tab<'_>, fleet: &Fleet, expression: &str) -> [Value; 3] {
    let first = tab.eval(expression);
    let here = tab.eval("location.href");
    tab.eval("window.__old = true");
    tab.call("Page.reload", json!({}));
    tab.until("!window.__old && document.readyState === 'complete'");
    let second = tab.eval(expression);
    tab.go(&fleet.at("/settings"));
    tab.eval("window.__there = true; history.back()");
    // The browser may show the page that it kept.
    tab.until(&format!("!window.__there && document.readyState === 'complete' && location.href === {here}"));
    [first, second, tab.eval(expression)]
}

#[test]
fn a_person_finds_what_needs_an_answer_and_what_went_wrong() {
    let fleet = Fleet::begin(put_policy);
    let scene = &fleet.scene;
    let agent = scene.make_key("agent");
    let facility = fleet.facility();
    let make =
        "mkdir d; for f in a b c; do echo \"$f 1\" > $f; done; printf 'x\\0y' > pic; seq 1 9 > long; chmod 644 a";
    scene.ended(&fleet.create(&facility, make));
    let change = "echo 'a 2' >> a; rm b; chmod 755 c; ln -s a link; printf 'x\\0z' > pic; sed -i 5d long; echo '<b>new</b>' > new";
    let changed = fleet.create(&facility, change);
    assert_eq!(scene.ended(&changed)["state"], "succeeded");
    let lost =
        scene.ok(&["directive", "create", "--facility", &facility, "--cwd", "nowhere", "--", "true"]).trim().to_owned();
    let lost = scene.ended(&lost);
    assert!(lost["state"] == "failed" && lost["reason"] != "exit", "{lost}");
    let failed = fleet.create(&facility, "exit 3");
    scene.ended(&failed);
    let runs = fleet.create(&facility, "echo begun; sleep 300");
    scene.until(&runs, |one| one["state"] == "running");
    let (_, approval) = scene.asked(&agent, &fleet.facility(), &["--", "deploy --to test"]);
    let mut chromium = fleet.browser();
    // The first page and its bytes, then a later one.
    let mut tab = chromium.tab(1280);
    let watch = "window.shift = 0; window.painted = 0; \
        new PerformanceObserver(l => l.getEntries().forEach(e => { window.shift += e.value; })).observe({type: 'layout-shift', buffered: true}); \
        new PerformanceObserver(l => l.getEntries().forEach(e => { window.painted = e.startTime; })).observe({type: 'largest-contentful-paint', buffered: true});";
    tab.call("Page.addScriptToEvaluateOnNewDocument", json!({ "source": watch }));
    fleet.sign_in(&mut tab, &scene.key);
    tab.call("Network.clearBrowserCache", json!({}));
    for (name, most_bytes, most_requests) in [("first", 60_000, 4), ("later", 20_000, 1)] {
        let before = tab.heard("Network.loadingFinished").len();
        tab.go(&fleet.at("/"));
        tab.until("window.painted > 0");
        let loads = tab.heard("Network.loadingFinished").split_off(before);
        let bytes: f64 = loads.iter().filter_map(|load| load["encodedDataLength"].as_f64()).sum();
        let requests = loads.iter().filter(|load| load["encodedDataLength"].as_f64().unwrap_or_default() > 0.0).count();
        let (painted, shift) = (tab.eval("window.painted"), tab.eval("window.shift"));
        println!("{name} visit: {bytes} bytes in {requests} requests, painted after {painted} ms, shift {shift}");
        assert!(
            bytes <= f64::from(most_bytes) && requests <= most_requests,
            "{name}: {bytes} bytes, {requests} requests"
        );
        assert_eq!(shift, json!(0), "{name}");
        // The bound is that of the release build on a machine of its own.
        assert!(painted.as_f64().unwrap() < if cfg!(debug_assertions) { 5_000.0 } else { 500.0 }, "{painted}");
    }
    // What needs an answer, what is wrong, what runs.
    assert_eq!(tab.eval(HEADINGS), json!(["Needs you", "Unhealthy", "Running", "Ended last"]));
    let wrong = tab.eval("document.querySelector('main ul').textContent");
    assert!(wrong.as_str().unwrap().starts_with("1 failed in the last hour: "), "{wrong}");
    assert_eq!(tab.eval("document.querySelector('#asks').textContent"), json!("1"));
    // What comes moves nothing: it waits behind a button, which takes no press at once.
    let shown = "getComputedStyle(document.querySelector('#show-news')).display !== 'none'";
    assert_eq!(tab.eval(shown), json!(false));
    let before = tab.eval(PLACES);
    tab.eval("window.__here = true");
    let early = "new Promise(done => { const b = document.querySelector('#show-news');
        new MutationObserver(() => { b.click(); done(!b.hidden); }).observe(b, {attributes: true, attributeFilter: ['hidden']}); })";
    tab.eval(&format!("window.__early = {early}; 1"));
    let (_, second) = scene.asked(&agent, &fleet.facility(), &["--", "deploy --to here"]);
    assert_eq!(tab.eval("window.__early"), json!(true));
    assert_eq!(
        tab.eval("document.querySelector('#show-news').textContent"),
        json!("1 new directives, 1 new requests: show")
    );
    assert_eq!(tab.eval("document.querySelector('#asks').textContent"), json!("2"));
    assert_eq!(tab.eval(PLACES), before, "nothing moved");
    std::thread::sleep(std::time::Duration::from_millis(700));
    assert_eq!(tab.eval("window.__here"), json!(true), "a press at once does nothing");
    tab.press_to("#show-news");
    tab.until(&format!("document.querySelector('a[href=\"/approvals/{second}\"]')"));
    // The end of an approval is shown, and the page of one is reached by letters alone.
    tab.key("g");
    tab.eval("window.__old = true");
    tab.key("a");
    tab.until("!window.__old && document.readyState === 'complete' && location.pathname === '/approvals'");
    let ends = tab.eval("[...document.querySelectorAll('tbody tr td:last-child')].map(e => e.textContent)");
    assert!(ends.as_array().unwrap().iter().all(|end| end.as_str().unwrap().starts_with("in 2")), "{ends}");
    tab.key("?");
    tab.until("document.querySelector('#help').open");
    tab.key("Escape");
    tab.until("!document.querySelector('#help').open");
    tab.key("j");
    tab.eval("window.__old = true");
    tab.key("Enter");
    tab.until("!window.__old && document.readyState === 'complete' && location.pathname.startsWith('/approvals/')");
    assert_eq!(scene.call(&scene.key, "GET", &format!("/approvals/{approval}"), "").1["state"], "pending");

    the_state_of_a_page_is_in_its_address(&mut tab, &fleet, &failed);
    changes_and_receipt(&mut tab, &fleet, &changed);
    policies(&mut tab, &fleet);
    every_copied_command_runs(&mut tab, &fleet, &changed, &approval);
    no_faults(&mut tab);
    drop(tab);
    for (width, theme) in LOOKS {
        let mut tab = chromium.tab(width);
        tab.scheme(theme);
        fleet.sign_in(&mut tab, &scene.key);
        let views = ["log", "log&find=1", "egress", "changes", "receipt", "spec"];
        let views = views.map(|view| format!("/directives/{changed}?view={view}"));
        let pages =
            ["/", "/directives?q=-state:failed", "/directives?q=nothing-like-it", "/policies", "/policies/replay"];
        let pages =
            pages.map(str::to_owned).into_iter().chain(["/policies/explain?q=net+mirror.test%3A443".to_owned()]);
        for path in pages.chain(views) {
            tab.go(&fleet.at(&path));
            assert_eq!(problems(&mut tab), json!([]), "{path} at {width} px, {theme}");
            if width > 600 {
                tab.zoom(width, 2);
                assert_eq!(
                    tab.eval("document.documentElement.scrollWidth <= innerWidth"),
                    json!(true),
                    "{path} at 200 %"
                );
                tab.resize(width, 800);
            }
        }
        no_faults(&mut tab);
    }
}

fn the_state_of_a_page_is_in_its_address(tab: &mut Tab<'_>, fleet: &Fleet, failed: &str) {
    tab.go(&fleet.at("/directives"));
    tab.key("/");
    tab.until("document.activeElement.id === 'filter'");
    tab.write("state:failed exit since:1h");
    tab.eval("window.__old = true");
    tab.key("Enter");
    tab.until("!window.__old && document.readyState === 'complete' && location.search.includes('q=')");
    let list = "[document.querySelector('#filter').value, ...[...document.querySelectorAll('a.row-link')].map(a => a.pathname)]";
    let seen = kept(tab, fleet, list);
    let expected = json!(["state:failed exit since:1h", format!("/directives/{failed}")]);
    assert!(seen.iter().all(|one| *one == expected), "{seen:?}");
    // The views of a directive by letters, each with its address.
    tab.go(&fleet.at(&format!("/directives/{failed}")));
    for _ in 0..3 {
        tab.eval("window.__old = true");
        tab.key("]");
        tab.until("!window.__old && document.readyState === 'complete'");
    }
    let view = "[location.search, document.querySelector('.tabs [aria-current]').textContent]";
    let seen = kept(tab, fleet, view);
    assert!(seen.iter().all(|one| *one == json!(["?view=receipt", "Receipt"])), "{seen:?}");
    // A mistake is named, and no other list is shown in its place.
    tab.go(&fleet.at("/directives?q=state:brokn"));
    let text = tab.eval("document.querySelector('main').textContent");
    assert!(text.as_str().unwrap().contains("state:brokn is not understood"), "{text}");
    let known = tab.faults();
    assert!(known.iter().all(|fault| fault.contains("400")), "{known:?}");
    tab.forget();
}

fn changes_and_receipt(tab: &mut Tab<'_>, fleet: &Fleet, changed: &str) {
    tab.go(&fleet.at(&format!("/directives/{changed}?view=changes")));
    let rows = "[...document.querySelectorAll('#files tbody tr')].map(e => [...e.cells].map(c => c.textContent))";
    let rows: BTreeSet<String> = tab.eval(rows).as_array().unwrap().iter().map(ToString::to_string).collect();
    let expected = [
        json!(["a", "+1", "−0", ""]),
        json!(["b", "+0", "−1", "deleted"]),
        json!(["c", "+0", "−0", "mode"]),
        json!(["link", "+1", "−0", "new, symlink"]),
        json!(["long", "+0", "−1", ""]),
        json!(["new", "+1", "−0", "new"]),
    ];
    for row in expected.map(|row| row.to_string()) {
        assert!(rows.contains(&row), "{row}: {rows:#?}");
    }
    assert!(rows.iter().any(|row| row.contains("pic") && row.contains("binary")), "{rows:#?}");
    // The pieces of the page are together the diff that the terminal prints.
    let shown = tab.eval("[...document.querySelectorAll('details.file pre')].map(e => e.textContent).join('')");
    assert_eq!(shown.as_str().unwrap(), fleet.scene.ok(&["directive", "diff", changed]));
    // One file is picked, and the others are folded.
    tab.press("#files a[href='#file1']");
    assert_eq!(tab.eval("location.hash"), json!("#file1"));
    tab.go(&fleet.at(&format!("/directives/{changed}?view=receipt")));
    let text = fleet.scene.ok(&["directive", "receipt", changed]);
    let envelope: Value = serde_json::from_str(&text).unwrap();
    let signed = nexus_api::base64::decode(envelope["payload"].as_str().unwrap()).unwrap();
    let signed: Value = serde_json::from_slice(&signed).unwrap();
    assert_eq!(tab.eval("document.querySelector('#key').textContent"), envelope["signatures"][0]["keyid"]);
    let shown =
        tab.eval("[...document.querySelectorAll('#proof tbody tr')].map(e => [...e.cells].map(c => c.textContent))");
    let proof = signed["proof"].as_array().unwrap();
    let expected: Vec<Value> =
        proof.iter().map(|row| json!([row["check"], row["expected"], row["seen"], "+ holds"])).collect();
    assert!(!expected.is_empty());
    assert_eq!(shown, json!(expected));
}

fn policies(tab: &mut Tab<'_>, fleet: &Fleet) {
    let scene = &fleet.scene;
    tab.go(&fleet.at("/policies"));
    let said: Value = serde_json::from_str(&scene.ok(&["policy", "explain", "--json"])).unwrap();
    assert_eq!(tab.eval("document.querySelector('#generation').textContent"), said["generation"]);
    let values = "[...document.querySelectorAll('#values tbody tr')].map(e => e.cells[0].textContent)";
    let expected: Vec<&Value> = said["effective"].as_array().unwrap().iter().map(|row| &row["what"]).collect();
    assert_eq!(tab.eval(values), json!(expected));
    for question in ["net mirror.test:443", "net other.test:443", "run deploy it's here", "write workspace:/src"] {
        tab.go(&fleet.at("/policies"));
        tab.press("#filter");
        tab.write(question);
        tab.eval("window.__old = true");
        tab.key("Enter");
        tab.until("!window.__old && document.readyState === 'complete' && document.querySelector('#verdict')");
        let page = tab.eval(
            "[document.querySelector('#verdict .state').textContent, ...[...document.querySelectorAll('#verdict li')].map(e => e.textContent)]",
        );
        let output = scene.nexus(&["policy", "explain", question]);
        let text = String::from_utf8(output.stdout).unwrap();
        let mut lines = text.lines();
        let word = lines.next().unwrap().split(' ').next().unwrap().to_owned();
        let terminal: Vec<String> = std::iter::once(word).chain(lines.map(|line| line.trim().to_owned())).collect();
        assert_eq!(page, json!(terminal), "{question}");
    }
    // A document on past directives: the same differences as in the terminal.
    let draft = "policy: nexus.policy/1\nid: stricter\nlevel: user\ncommands: {forbidden: [\"exit *\"], needs_approval: [\"sleep *\"]}\n";
    std::fs::write(scene.path("stricter.yaml"), draft).unwrap();
    let file = scene.path("stricter.yaml");
    tab.go(&fleet.at("/policies/replay"));
    tab.press("#document");
    tab.write(draft);
    tab.press_to("main button.primary");
    let page = tab.eval("[...document.querySelectorAll('#differences tbody tr')].map(e => [e.querySelector('a').title, e.cells[2].textContent, e.cells[3].textContent, e.querySelector('code').textContent])");
    let output = scene.nexus(&["policy", "replay", "--fleet", "--json", file.to_str().unwrap()]);
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    let mut expected = Vec::new();
    for run in said["differences"].as_array().unwrap() {
        for one in run["differences"].as_array().unwrap() {
            let [was, becomes] = ["before", "after"].map(|side| one[side]["outcome"].clone());
            expected.push(json!([run["directive_id"], was, becomes, one["question"]]));
        }
    }
    assert!(!expected.is_empty(), "{said}");
    assert_eq!(page, json!(expected));
    let text = String::from_utf8(scene.nexus(&["policy", "replay", "--fleet", file.to_str().unwrap()]).stdout).unwrap();
    assert_eq!(tab.eval("document.querySelector('#outcome').textContent"), json!(text.lines().last().unwrap()));
}

fn every_copied_command_runs(tab: &mut Tab<'_>, fleet: &Fleet, changed: &str, approval: &str) {
    let scene = &fleet.scene;
    let territory =
        scene.json(&["territory", "ls", "--json"])["territories"][0]["territory_id"].as_str().unwrap().to_owned();
    let views =
        ["log", "egress", "changes", "receipt", "spec"].map(|view| format!("/directives/{changed}?view={view}"));
    let pages = [
        "/".to_owned(),
        "/directives".to_owned(),
        "/approvals".to_owned(),
        format!("/approvals/{approval}"),
        "/territories".to_owned(),
        format!("/territories/{territory}"),
        "/facilities".to_owned(),
        "/policies".to_owned(),
        "/policies/explain?q=run+deploy+it%27s".to_owned(),
        "/audit".to_owned(),
    ];
    let mut commands = BTreeSet::new();
    for path in pages.iter().chain(&views) {
        tab.go(&fleet.at(path));
        let found = tab.eval("[...document.querySelectorAll('[data-copy]')].map(e => e.dataset.copy)");
        let found = found.as_array().unwrap();
        assert!(!found.is_empty(), "{path} has no command");
        commands.extend(found.iter().map(|one| one.as_str().unwrap().to_owned()));
    }
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_nexus"));
    let path = format!("{}:/usr/bin:/bin", program.parent().unwrap().display());
    for line in commands {
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", &line]).env_clear().env("PATH", &path).env("HOME", scene.path("home"));
        shell.env("NEXUS_CONFIG_DIR", scene.path("config")).env("NEXUS_STATE_DIR", scene.path("state"));
        shell.env("NEXUS_SERVER", &scene.url).env("NEXUS_API_KEY", &scene.key).stdin(Stdio::null());
        let output = shell.output().unwrap();
        // A question with a negative answer has the exit code 1.
        let may_be_no = line.starts_with("nexus policy explain --fleet '");
        let code = output.status.code();
        assert!(code == Some(0) || (may_be_no && code == Some(1) && output.stderr.is_empty()), "{line}: {output:?}");
    }
}
