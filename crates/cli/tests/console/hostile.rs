//! The table of hostile strings in every field of a real fleet: no page gets another shape, another title or another clipboard by them.

use crate::hostile::HOSTILE;
use crate::{Fleet, no_faults};
use serde_json::{Value, json};

/// Elements and attributes of a page without their texts and values.
const SHAPE: &str =
    "[...document.querySelectorAll('body *')].map(e => e.tagName + '.' + e.getAttributeNames().join('.'))";

#[test]
fn no_hostile_string_changes_the_shape_the_title_or_the_clipboard_of_a_page() {
    // Two fleets with the same objects: one with plain texts, one with those of the table.
    let plain: Vec<String> = (0..HOSTILE.len()).map(|number| format!("plain {number}")).collect();
    let hostile: Vec<String> = HOSTILE.iter().map(|text| (*text).to_owned()).collect();
    assert!(hostile.len() >= 60);
    let mut shapes: Vec<Vec<(String, Value, Value)>> = Vec::new();
    for texts in [&plain, &hostile] {
        let fleet = Fleet::up();
        let scene = &fleet.scene;
        let made = |path: &str, body: &Value| {
            let (status, made) = scene.call(&scene.key, "POST", path, &body.to_string());
            assert_eq!(status, 201, "{path} {body}: {made}");
            made
        };
        for text in texts {
            made("/facilities", &json!({ "kind": "empty", "name": text }));
            made("/api_keys", &json!({ "role": "viewer", "name": text }));
        }
        let facility = fleet.facility();
        // The texts are comments of the command, names and content of files, output of both streams.
        let words: String = ["# ", &texts.join("\n# "), "\n"].concat();
        let lines: String = [&texts.join("\n"), "\n"].concat();
        let body = json!({
            "command": format!("printf %s \"$LINES\"; printf %s \"$LINES\" >&2; printf %s \"$LINES\" > out.txt\n{words}"),
            "requested_capabilities": { "env": { "LINES": lines } },
        });
        let id =
            made(&format!("/facilities/{facility}/directives"), &body)["directive_id"].as_str().unwrap().to_owned();
        assert_eq!(scene.ended(&id)["state"], "succeeded", "{}", scene.ok(&["directive", "show", "--json", &id]));
        let mut chromium = fleet.browser();
        let mut tab = chromium.tab(1280);
        fleet.sign_in(&mut tab, &scene.key);
        tab.grant_clipboard();
        let views = ["log", "egress", "changes", "receipt", "spec"].map(|view| format!("/directives/{id}?view={view}"));
        let lists =
            ["/", "/directives", "/facilities", "/settings", "/audit", "/approvals", "/policies"].map(str::to_owned);
        let mut seen = Vec::new();
        for path in views.iter().chain(&lists) {
            tab.go(&fleet.at(path));
            let shape = tab.eval(SHAPE);
            let title = tab.eval("document.title").as_str().unwrap().replace(&id[24..], "ID");
            let hidden = tab.eval("/[\\u202a-\\u202e\\u2066-\\u2069\\u200b\\ufeff]/.test(document.body.innerText)");
            assert_eq!(hidden, json!(false), "{path}");
            assert_eq!(tab.eval("typeof window.pwned + typeof window.forged"), json!("undefinedundefined"), "{path}");
            seen.push((path.replace(&id, "ID"), shape, json!(title)));
        }
        tab.go(&fleet.at(&views[0]));
        tab.call("Page.bringToFront", json!({}));
        tab.press("[data-copy]");
        tab.until("document.querySelector('[data-copy]').textContent === 'Copied'");
        let copied = tab.eval("navigator.clipboard.readText()");
        assert_eq!(copied, json!(format!("nexus directive logs -f {id}")));
        no_faults(&mut tab);
        shapes.push(seen);
    }
    for (one, other) in shapes[0].iter().zip(&shapes[1]) {
        assert_eq!(one.2, other.2, "the title of {}", one.0);
        let (a, b) = (one.1.as_array().unwrap(), other.1.as_array().unwrap());
        let first = a.iter().zip(b).position(|(a, b)| a != b);
        let around = first
            .map(|at| (&a[at.saturating_sub(3)..a.len().min(at + 3)], &b[at.saturating_sub(3)..b.len().min(at + 3)]));
        assert!(a.len() == b.len() && first.is_none(), "{}: {} and {} elements, {around:?}", one.0, a.len(), b.len());
    }
}
