//! The output of directives in the browser: followed, read, found, cut to what a page holds, and named for links.

use crate::Fleet;
use nexus_api::base64;
use nexus_api::client::{ClientConfig, ConduitsClient, Http, MothershipClient, TerritoryIdentity};
use nexus_api::conduits::{EnrollRequest, LogChunkRequest, PollRequest, StartedRequest, Stream};
use nexus_api::mothership::CreateEnrollmentToken;
use serde_json::{Value, json};
use std::time::Duration;

/// Numbers of the lines that a page has, in its order.
const NUMBERS: &str = "[...document.querySelectorAll('#log .l code')].map(e => /^tick (\\d+)$/.exec(e.textContent)).filter(Boolean).map(m => +m[1])";

fn in_order(tab: &mut crate::Tab<'_>) {
    let numbers: Vec<i64> = tab.eval(NUMBERS).as_array().unwrap().iter().filter_map(Value::as_i64).collect();
    let whole = numbers.windows(2).all(|pair| pair[1] == pair[0] + 1);
    assert!(numbers.len() > 5 && whole, "{numbers:?}");
}

/// Streams of events that the server has open.
fn streams(fleet: &Fleet) -> i64 {
    let text = fleet.scene.text("/metrics");
    let line = text.lines().find_map(|line| line.strip_prefix("nexus_event_streams "));
    line.unwrap_or_else(|| panic!("{text}")).parse().unwrap()
}

/// Waits until the log has stopped to scroll, and returns its place.
fn at_rest(tab: &mut crate::Tab<'_>) -> Value {
    let mut place = Value::Null;
    loop {
        let now = tab.eval("document.querySelector('#log').scrollTop");
        if now == place {
            return place;
        }
        place = now;
        std::thread::sleep(Duration::from_millis(300));
    }
}

#[test]
fn output_is_followed_read_found_and_bounded() {
    let fleet = Fleet::up();
    let facility = fleet.facility();
    let script = "i=0; while [ $i -lt 200 ]; do i=$((i+1)); echo \"tick $i\"; done; \
        while [ $i -lt 2000 ]; do i=$((i+1)); echo \"tick $i\"; sleep 0.1; done";
    let id = fleet.create(&facility, script);
    fleet.scene.until(&id, |one| one["state"] == "running");
    // Beside it a long one: 1,000,000 lines, and a few words in them.
    let long = "yes '' | head -n 400000; echo an error; yes '' | head -n 300000; printf 'E\\033[31mrr\\033[0mor\\n' >&2; \
        yes '' | head -n 299998; echo ERROR at last; sleep 300";
    // The daemon sends the end of output beyond half of its bound only when the command is over.
    let body = json!({ "command": long, "limits": { "max_output_bytes": 8_000_000 } });
    let path = format!("/facilities/{}/directives", fleet.facility());
    let (_, made) = fleet.scene.call(&fleet.scene.key, "POST", &path, &body.to_string());
    let long = made["directive_id"].as_str().unwrap_or_else(|| panic!("{made}")).to_owned();
    let mut chromium = fleet.browser();
    let mut tab = chromium.tab(1280);
    fleet.sign_in(&mut tab, &fleet.scene.key);
    tab.go(&fleet.at(&format!("/directives/{id}")));
    tab.until(&format!("document.querySelector('#live').dataset.state === 'live' && {NUMBERS}.length > 30"));
    // A reader scrolls up: the rows stay where they are, and the new ones wait behind a button.
    tab.eval("document.querySelector('#log').focus()");
    tab.key("PageUp");
    tab.until("!document.querySelector('#follow').checked");
    let pressed_early = "new Promise(done => { const button = document.querySelector('#fresh');
        const early = () => { button.click(); done(document.querySelector('#follow').checked); };
        if (!button.hidden) { button.dataset.shown = Date.now(); return early(); }
        new MutationObserver((_, watch) => { watch.disconnect(); early(); }).observe(button, {attributes: true, attributeFilter: ['hidden']}); })";
    assert_eq!(tab.eval(pressed_early), json!(false), "a button that has just come takes no press");
    let place = at_rest(&mut tab);
    let count = tab.eval(&format!("{NUMBERS}.length"));
    tab.until(&format!("{NUMBERS}.length > {count} + 5"));
    assert_eq!(tab.eval("document.querySelector('#log').scrollTop"), place, "nothing moves under the reader");
    tab.press("#fresh");
    let at_end = "(l => l.scrollTop + l.clientHeight > l.scrollHeight - 40)(document.querySelector('#log'))";
    tab.until(&format!("document.querySelector('#follow').checked && {at_end}"));
    assert_eq!(tab.eval("getComputedStyle(document.querySelector('#fresh')).display"), json!("none"));
    // The network goes and comes back: no line is lost, none is there twice.
    let network =
        |offline: bool| json!({ "offline": offline, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1 });
    tab.call("Network.emulateNetworkConditions", network(true));
    // That cuts no connection that is open: the page opens its stream again.
    tab.eval("dispatchEvent(new Event('pagehide')); dispatchEvent(new Event('pageshow'))");
    tab.until("document.querySelector('#live').dataset.state === 'lost'");
    let last = tab.eval(&format!("{NUMBERS}.at(-1)"));
    std::thread::sleep(Duration::from_secs(1));
    tab.call("Network.emulateNetworkConditions", network(false));
    tab.until(&format!("document.querySelector('#live').dataset.state === 'live' && {NUMBERS}.at(-1) > {last} + 15"));
    in_order(&mut tab);
    let offline = tab.faults();
    assert!(offline.iter().all(|fault| fault.contains("ERR_INTERNET_DISCONNECTED")), "{offline:#?}");
    // Eight tabs are more than the connections that a browser has for one server: hidden tabs have no stream.
    assert_eq!(streams(&fleet), 1);
    let others = tab.beside(&fleet.at(&format!("/directives/{id}")), 7);
    for other in &others {
        tab.until_in(other, "document.readyState === 'complete' && document.querySelectorAll('#log .l').length > 30");
    }
    let seen = "document.visibilityState === 'visible'";
    let visible = others.iter().filter(|other| tab.eval_in(other, seen) == json!(true)).count() as i64
        + i64::from(tab.eval(seen) == json!(true));
    assert!(visible < 6, "{visible} of 8 tabs are seen");
    let deadline = std::time::Instant::now() + Duration::from_secs(10);
    while streams(&fleet) > visible {
        assert!(std::time::Instant::now() < deadline, "{} streams for {visible} tabs that are seen", streams(&fleet));
        std::thread::sleep(Duration::from_millis(50));
    }
    tab.call("Page.bringToFront", json!({}));
    tab.until("!document.hidden && document.querySelector('#live').dataset.state === 'live'");
    // A million lines: a page holds some, says how many it does not, and a search finds them all.
    tab.go(&fleet.at(&format!("/directives/{long}")));
    fleet.scene.until(&long, |one| one["state"] == "running");
    tab.until("document.querySelector('#log').textContent.includes('ERROR at last')");
    let elements = tab.eval("document.querySelectorAll('*').length").as_i64().unwrap();
    assert!(elements < 5_000 * 4 + 500, "{elements} elements");
    let heap = tab.call("Runtime.getHeapUsage", json!({}))["usedSize"].as_f64().unwrap() / 1e6;
    println!("1,000,000 lines: {elements} elements, {heap:.1} MB of heap");
    assert!(heap < 150.0, "{heap} MB");
    assert!(fleet.scene.nexus(&["directive", "cancel", &long]).status.success());
    fleet.scene.ended(&long);
    let text = |id: &str| fleet.scene.nexus(&["directive", "logs", id]);
    assert_eq!(text(&long).stdout.split(|byte| *byte == b'\n').count(), 1_000_001);
    for (needle, count) in [("error", 3), ("Error", 1), ("ERROR", 1), ("no such text", 0)] {
        tab.go(&fleet.at(&format!("/directives/{long}?view=log&find={}", needle.replace(' ', "+"))));
        let said = tab.eval("document.querySelector('#found').textContent");
        let expected = format!("{} to {count} of {count} lines", count.min(1));
        assert_eq!(said, json!(expected), "{needle}");
        assert_eq!(tab.eval("document.querySelectorAll('#log .hit').length"), json!(count), "{needle}");
    }
    // The same lines as grep, in pieces of 500, by the form of the page.
    fleet.scene.nexus(&["directive", "cancel", &id]);
    fleet.scene.ended(&id);
    let whole = String::from_utf8(text(&id).stdout).unwrap();
    let expected: Vec<&str> = whole.lines().filter(|line| line.contains("tick 1")).collect();
    tab.go(&fleet.at(&format!("/directives/{id}")));
    tab.key("/");
    tab.until("document.activeElement.id === 'filter'");
    tab.write("tick 1");
    tab.eval("window.__old = true");
    tab.key("Enter");
    tab.until("!window.__old && document.readyState === 'complete' && document.querySelector('#found')");
    let found = tab.eval("[...document.querySelectorAll('#log .hit code')].map(e => e.textContent)");
    assert_eq!(found, json!(expected));
    assert_eq!(
        tab.eval("document.querySelector('#found').textContent"),
        json!(format!("1 to {0} of {0} lines", expected.len()))
    );
    // From one match to the next by letters, and to its place by Enter.
    tab.key("n");
    tab.key("n");
    assert_eq!(tab.eval("document.activeElement.parentElement.querySelector('code').textContent"), json!(expected[1]));
    tab.eval("window.__old = true");
    tab.key("Enter");
    tab.until("!window.__old && document.readyState === 'complete' && document.querySelector('.l:target')");
    assert_eq!(tab.eval("document.querySelector('.l:target code').textContent"), json!(expected[1]));
    assert_eq!(tab.faults().len(), offline.len(), "{:#?}", tab.faults());
}

#[test]
fn a_link_to_a_line_leads_to_it_also_after_a_gap_was_filled() {
    let fleet = Fleet::alone();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let http = Http::new(ClientConfig::new(&fleet.scene.url)).unwrap();
    let owner = MothershipClient::new(&http, &fleet.scene.key).unwrap();
    let facility = fleet.facility();
    let made = fleet.create(&facility, "make");
    let (daemon, id, token) = runtime.block_on(async {
        let token = owner.create_enrollment_token(&CreateEnrollmentToken::default()).await.unwrap().token;
        let anyone = ConduitsClient::new(&http, &TerritoryIdentity::Certificate).unwrap();
        let request = EnrollRequest { enroll_token: token, name: Some("one".to_owned()), ..EnrollRequest::default() };
        let territory = anyone.enroll(&request).await.unwrap().territory_id;
        let daemon = ConduitsClient::new(&http, &TerritoryIdentity::Header(territory)).unwrap();
        let beat = json!({"protocol_version": 1, "capacity": {"max_concurrent": 5}});
        daemon.territory_heartbeat(&serde_json::from_value(beat).unwrap()).await.unwrap();
        let claim = daemon.poll(&PollRequest::default()).await.unwrap().directives.remove(0);
        assert_eq!(claim.directive_id.to_string(), made);
        daemon.started(claim.directive_id, &claim.directive_token, &StartedRequest::default()).await.unwrap();
        (daemon, claim.directive_id, claim.directive_token)
    });
    let chunk = |stream, seq, bytes: &[u8]| {
        let request = LogChunkRequest { stream, seq, bytes: base64::encode(bytes), truncated: false };
        runtime.block_on(daemon.log_chunk(id, &token, &request)).unwrap();
    };
    // The second chunk of the standard output is on its way still.
    chunk(Stream::Stdout, 0, b"one\ntwo\n");
    chunk(Stream::Stdout, 2, b"five\nsix\n");
    chunk(Stream::Stderr, 0, b"warned\n");
    let mut chromium = fleet.browser();
    let mut tab = chromium.tab(1280);
    fleet.sign_in(&mut tab, &fleet.scene.key);
    let page = fleet.at(&format!("/directives/{id}"));
    tab.go(&page);
    let texts = "[...document.querySelectorAll('#log .l')].map(e => [e.id, e.querySelector('code').textContent])";
    assert_eq!(tab.eval(texts), json!([["o0.1", "one"], ["o0.2", "two"], ["e0.1", "warned"]]), "up to the gap");
    let link = tab.eval("document.querySelector('[id=\"o0.2\"] a.ref').href");
    // A person made a link to a line behind the gap, from the place at which it begins.
    let behind = format!("{page}?view=log&from=o2.1-e0.1#o2.2");
    chunk(Stream::Stdout, 1, b"three\nfour\n");
    tab.until("document.querySelector('#log').textContent.includes('six')");
    for (url, name, text) in [(link.as_str().unwrap(), "o0.2", "two"), (behind.as_str(), "o2.2", "six")] {
        tab.go(url);
        let seen = "(e => e && [e.id, e.querySelector('code').textContent])(document.querySelector('.l:target'))";
        assert_eq!(tab.eval(seen), json!([name, text]), "{url}");
    }
    tab.go(&format!("{page}?view=log&from=start"));
    let lines = tab.eval("[...document.querySelectorAll('#log .l:not(.e) code')].map(e => e.textContent)");
    assert_eq!(lines, json!(["one", "two", "three", "four", "five", "six"]));
    // A fragment with a script in it: its rows come, and nothing of it runs.
    tab.go(&page);
    tab.until("document.querySelector('#live').dataset.state === 'live'");
    let before = tab.faults().len();
    tab.call("Fetch.enable", json!({ "patterns": [{ "urlPattern": "*/log?*" }] }));
    chunk(Stream::Stdout, 3, b"seven\n");
    let paused = tab.until_heard("Fetch.requestPaused", |_| true);
    let forged = "<div data-after=\"o4.1-e1.1\" data-more=\"no\" data-over=\"no\"><div class=\"l\" id=\"o3.1\"><code>forged</code>\
        <script>window.pwned=1</script><img src=\"x\" onerror=\"window.pwned=1\"><a href=\"javascript:window.pwned=1\">x</a></div></div>";
    let answer = json!({
        "requestId": paused["requestId"], "responseCode": 200, "body": base64::encode(forged.as_bytes()),
        "responseHeaders": [{ "name": "Content-Type", "value": "text/html; charset=utf-8" }],
    });
    tab.call("Fetch.fulfillRequest", answer);
    tab.call("Fetch.disable", json!({}));
    tab.until("document.querySelector('#log').textContent.includes('forged')");
    tab.press("[id=\"o3.1\"] a:not(.ref)");
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(tab.eval("typeof window.pwned"), json!("undefined"));
    // The policy of the page says what it refused; without the forged fragment it has nothing to say.
    assert!(tab.faults().len() > before);
    tab.go(&page);
    assert!(tab.eval("document.querySelector('#log').textContent").as_str().unwrap().contains("seven"));
}
