//! A connection that waits, answered in the console.

use super::{FIVE, Fleet, LOOKS, no_faults, problems};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Answers every request with one word, and counts the connections.
fn server() -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (port, count) = (listener.local_addr().unwrap().port(), Arc::new(AtomicUsize::new(0)));
    let accepted = Arc::clone(&count);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            accepted.fetch_add(1, Ordering::SeqCst);
            // The head of the request, to its empty line.
            BufReader::new(&stream).lines().map_while(Result::ok).find(String::is_empty);
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\nhello\n").ok();
        }
    });
    (port, count)
}

/// Waits for the request of a directive.
fn pending(fleet: &Fleet, directive: &str) -> Value {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let (_, list) = fleet.scene.call(&fleet.scene.key, "GET", "/approvals", "");
        let is_it = |one: &&Value| one["directive_id"] == directive && one["state"] == "pending";
        if let Some(found) = list["approvals"].as_array().unwrap().iter().find(is_it) {
            return found.clone();
        }
        assert!(Instant::now() < deadline, "{list}: {}", fleet.scene.said("up"));
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn create(fleet: &Fleet, key: &str, facility: &str, script: &str) -> String {
    let words = ["directive", "create", "--facility", facility, "--ask", "2m", "--discard", "--", script];
    let made = fleet.scene.nexus_as(key, &words);
    assert!(made.status.success(), "{made:?}");
    String::from_utf8(made.stdout).unwrap().trim().to_owned()
}

#[test]
fn a_person_approves_a_connection_in_the_console_and_it_is_made() {
    let fleet = Fleet::named();
    let scene = &fleet.scene;
    let agent = scene.make_key("agent");
    let (port, accepted) = server();
    let target = format!("web.test:{port}");
    let mut chromium = fleet.browser();
    for (round, (width, theme)) in LOOKS.into_iter().enumerate() {
        let facility = fleet.facility();
        let script = format!("curl -sSf {target} # <b>\u{202e}");
        let directive = create(&fleet, &agent, &facility, &script);
        let asked = pending(&fleet, &directive);
        let approval = asked["approval_id"].as_str().unwrap();
        assert_eq!(accepted.load(Ordering::SeqCst), round, "it waits");
        let mut tab = chromium.tab(width);
        tab.scheme(theme);
        fleet.sign_in(&mut tab, &scene.key);
        tab.go(&fleet.at(&format!("/directives/{directive}")));
        assert_eq!(tab.eval("document.querySelector('#asked').pathname"), json!(format!("/approvals/{approval}")));
        tab.go(&fleet.at("/"));
        assert_eq!(tab.eval("document.querySelector('h2').textContent"), json!("Needs you 1"));
        let row = tab.eval("document.querySelector('td.cmd').textContent");
        assert!(row.as_str().unwrap().starts_with(&format!("connect {target}: curl")), "{row}");
        tab.press_to(&format!("a[href=\"/approvals/{approval}\"]"));
        assert_eq!(problems(&mut tab), json!([]), "approval at {width} px, {theme}");
        // The five things are those of the API, with the destination among the network.
        let spec = &asked["asks"]["spec"];
        let shown = script.replace('\u{202e}', "<U+202E>");
        let expected = json!([
            ["Command", [shown, "/bin/sh -c"]],
            ["Directory", ["/workspace"]],
            ["Paths", [spec["capabilities"]["fs"]["read"][0], spec["capabilities"]["fs"]["write"][0]]],
            ["Network", [target]],
            ["Secrets", ["none"]],
        ]);
        assert_eq!(tab.eval(FIVE), expected);
        let text = tab.eval("document.querySelector('main').textContent");
        assert!(text.as_str().unwrap().contains(asked["subject"].as_str().unwrap()), "{text}");
        // Two presses are one answer, and one answer is one connection.
        tab.eval("window.__old = true");
        tab.eval("(() => { const button = document.querySelector('#approve'); button.click(); button.click(); })()");
        tab.until("!window.__old && document.readyState === 'complete'");
        let over = scene.ended(&directive);
        assert_eq!(over["state"], "succeeded", "{over}");
        assert_eq!(scene.ok(&["directive", "logs", &directive]), "hello\n");
        assert_eq!(accepted.load(Ordering::SeqCst), round + 1);
        tab.go(&fleet.at(&format!("/approvals/{approval}")));
        assert_eq!(tab.eval("document.querySelector('.state').textContent"), json!("Used"));
        no_faults(&mut tab);
    }
    // A refusal, and an approval for the whole directive, without script.
    let facility = fleet.facility();
    let refused = create(&fleet, &agent, &facility, &format!("curl -sf {target} || echo no"));
    let one = pending(&fleet, &refused);
    let mut tab = chromium.tab(1280);
    fleet.sign_in(&mut tab, &scene.key);
    tab.go(&fleet.at(&format!("/approvals/{}", one["approval_id"].as_str().unwrap())));
    tab.press("#deny");
    tab.press_to("details.confirm button.danger");
    scene.ended(&refused);
    assert_eq!(scene.ok(&["directive", "logs", &refused]), "no\n");
    let whole = create(&fleet, &agent, &facility, &format!("curl -sf {target}; curl -sf {target}"));
    let one = pending(&fleet, &whole);
    tab.call("Emulation.setScriptExecutionDisabled", json!({ "value": true }));
    tab.go(&fleet.at(&format!("/approvals/{}", one["approval_id"].as_str().unwrap())));
    tab.press("[name=scope][value=directive]");
    tab.press_to("#approve");
    scene.ended(&whole);
    assert_eq!(scene.ok(&["directive", "logs", &whole]), "hello\nhello\n");
    assert_eq!(accepted.load(Ordering::SeqCst), LOOKS.len() + 2);
}
