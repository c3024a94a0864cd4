//! A browser that a test drives: Chromium without a window, over the pipe of its DevTools protocol.

#![allow(dead_code, reason = "each test uses a part")]

use serde_json::{Value, json};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Time that anything on a page may take on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// Chromium, with a profile of its own.
pub struct Chromium {
    process: Child,
    input: File,
    answers: Receiver<Value>,
    next: u64,
    /// Events that no call has looked at.
    events: VecDeque<Value>,
}

impl Drop for Chromium {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

impl Chromium {
    /// Starts it with its files in a directory.
    pub fn start(base: &Path) -> Self {
        let (input, output) = (base.join("to-chromium"), base.join("from-chromium"));
        for path in [&input, &output] {
            let mode = rustix::fs::Mode::from_raw_mode(0o600);
            rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        }
        // The descriptors 3 and 4 of the pipe are the shell's to open.
        let script = "exec chromium --headless=new --no-sandbox --disable-gpu --no-first-run --disable-features=LocalNetworkAccessChecks --disable-dev-shm-usage \
            --disable-background-networking --disable-component-update --hide-scrollbars --force-color-profile=srgb \
            --user-data-dir=\"$1\" --remote-debugging-pipe about:blank 3<\"$2\" 4>\"$3\"";
        let process = Command::new("/bin/sh")
            .args(["-c", script, "sh"])
            .arg(base.join("chromium"))
            .args([&input, &output])
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", base)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(base.join("chromium.log")).unwrap())
            .spawn()
            .unwrap();
        let to = File::options().write(true).open(input).unwrap();
        let mut from = File::open(output).unwrap();
        let (send, answers) = channel();
        std::thread::spawn(move || {
            let (mut rest, mut piece) = (Vec::new(), vec![0; 65_536]);
            while let Ok(count) = from.read(&mut piece) {
                if count == 0 {
                    return;
                }
                rest.extend_from_slice(&piece[..count]);
                while let Some(end) = rest.iter().position(|byte| *byte == 0) {
                    let message: Vec<u8> = rest.drain(..=end).collect();
                    let value = serde_json::from_slice(&message[..end]).unwrap();
                    if send.send(value).is_err() {
                        return;
                    }
                }
            }
        });
        Self { process, input: to, answers, next: 0, events: VecDeque::new() }
    }

    #[allow(clippy::needless_pass_by_value, reason = "each call makes its own parameters")]
    fn call(&mut self, session: Option<&str>, method: &str, params: Value) -> Value {
        self.ask(session, method, &params).unwrap_or_else(|error| panic!("{method}: {error}"))
    }

    /// Makes a call that the browser may refuse.
    fn ask(&mut self, session: Option<&str>, method: &str, params: &Value) -> Result<Value, Value> {
        self.next += 1;
        let mut message = json!({ "id": self.next, "method": method, "params": params });
        if let Some(session) = session {
            message["sessionId"] = json!(session);
        }
        self.input.write_all(format!("{message}\0").as_bytes()).unwrap();
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let answer = match self.answers.recv_timeout(left) {
                Ok(answer) => answer,
                Err(RecvTimeoutError::Timeout) => panic!("{method} was not answered"),
                Err(RecvTimeoutError::Disconnected) => panic!("Chromium has ended before {method}"),
            };
            if answer["id"] == json!(self.next) {
                return if answer["error"].is_null() {
                    Ok(answer["result"].clone())
                } else {
                    Err(answer["error"].clone())
                };
            }
            self.events.push_back(answer);
        }
    }

    /// Opens a tab in a context of its own, with no cookie of another.
    pub fn tab(&mut self, width: u32) -> Tab<'_> {
        let context = self.call(None, "Target.createBrowserContext", json!({}))["browserContextId"].clone();
        let target = json!({ "url": "about:blank", "browserContextId": context });
        let target = self.call(None, "Target.createTarget", target)["targetId"].clone();
        let attached = self.call(None, "Target.attachToTarget", json!({ "targetId": target, "flatten": true }));
        let session = attached["sessionId"].as_str().unwrap().to_owned();
        let mut tab = Tab { chromium: self, session, context, faults: Vec::new() };
        for domain in ["Page", "Runtime", "Log", "Network", "Audits"] {
            tab.call(&format!("{domain}.enable"), json!({}));
        }
        tab.resize(width, 800);
        // Reports of the policy are kept by the page itself too.
        let source = "addEventListener('securitypolicyviolation', e => console.error('CSP ' + e.violatedDirective + ' ' + e.blockedURI))";
        tab.call("Page.addScriptToEvaluateOnNewDocument", json!({ "source": source }));
        tab
    }
}

/// A tab of the browser, with what it reported.
pub struct Tab<'a> {
    chromium: &'a mut Chromium,
    session: String,
    context: Value,
    faults: Vec<String>,
}

impl Tab<'_> {
    pub fn call(&mut self, method: &str, params: Value) -> Value {
        let session = self.session.clone();
        self.chromium.call(Some(&session), method, params)
    }

    /// Opens more tabs with the same cookies, and returns their sessions.
    pub fn beside(&mut self, url: &str, count: usize) -> Vec<String> {
        let target = json!({ "url": url, "browserContextId": self.context });
        let mut open = || {
            let target = self.chromium.call(None, "Target.createTarget", target.clone())["targetId"].clone();
            let attached = json!({ "targetId": target, "flatten": true });
            let attached = self.chromium.call(None, "Target.attachToTarget", attached);
            attached["sessionId"].as_str().unwrap().to_owned()
        };
        (0..count).map(|_| open()).collect()
    }

    /// Lets pages of the context read and write the clipboard, as a person does who is asked.
    pub fn grant_clipboard(&mut self) {
        let permissions = ["clipboardReadWrite", "clipboardSanitizedWrite"];
        let grant = json!({ "browserContextId": self.context, "permissions": permissions });
        self.chromium.call(None, "Browser.grantPermissions", grant);
    }

    /// Runs an expression in another tab.
    pub fn eval_in(&mut self, session: &str, expression: &str) -> Value {
        let params = json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        // A page that is being made answers nothing.
        self.chromium.ask(Some(session), "Runtime.evaluate", &params).unwrap_or_default()["result"]["value"].clone()
    }

    /// Waits until an expression is true in another tab.
    pub fn until_in(&mut self, session: &str, expression: &str) {
        let begun = Instant::now();
        while self.eval_in(session, &format!("!!({expression})")) != json!(true) {
            let text = "document.body && document.body.innerText";
            assert!(begun.elapsed() < PATIENCE, "{expression}: {}", self.eval_in(session, text));
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Calls a method for another tab.
    pub fn call_in(&mut self, session: &str, method: &str, params: Value) -> Value {
        self.chromium.call(Some(session), method, params)
    }

    /// Colours, width and zoom as a person may have set them: a page at 200 % has half the pixels of its window.
    pub fn zoom(&mut self, width: u32, factor: u32) {
        let metrics = json!({ "width": width / factor, "height": 400, "deviceScaleFactor": factor, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", metrics);
    }

    pub fn resize(&mut self, width: u32, height: u32) {
        let mobile = width < 600;
        let metrics = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile });
        self.call("Emulation.setDeviceMetricsOverride", metrics);
    }

    /// Colours that the browser asks for.
    pub fn scheme(&mut self, name: &str) {
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": name }] });
        self.call("Emulation.setEmulatedMedia", features);
    }

    /// Runs an expression in the page, outside its policy of scripts, as the tools of the browser do.
    pub fn eval(&mut self, expression: &str) -> Value {
        let params = json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let answer = self.call("Runtime.evaluate", params);
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {answer}");
        answer["result"]["value"].clone()
    }

    /// Waits until an expression is true, and returns how long that took.
    pub fn until(&mut self, expression: &str) -> Duration {
        let begun = Instant::now();
        loop {
            // A page that is being replaced answers nothing.
            let params = json!({ "expression": format!("!!({expression})"), "returnByValue": true });
            let session = self.session.clone();
            let answer = self.chromium.ask(Some(&session), "Runtime.evaluate", &params).unwrap_or_default();
            if answer["result"]["value"] == json!(true) {
                return begun.elapsed();
            }
            if begun.elapsed() < PATIENCE {
                std::thread::sleep(Duration::from_millis(20));
                continue;
            }
            let page = self.call(
                "Runtime.evaluate",
                json!({ "expression": "document.body && document.body.innerText", "returnByValue": true }),
            );
            panic!("{expression} did not become true: {page}");
        }
    }

    /// Goes to an address and waits for the page.
    pub fn go(&mut self, url: &str) {
        self.eval("window.__old = true");
        let answer = self.call("Page.navigate", json!({ "url": url }));
        assert!(answer["errorText"].is_null(), "{url}: {answer}");
        self.until("!window.__old && document.readyState === 'complete'");
    }

    /// Presses what a selector finds, and waits for the page to which that leads.
    pub fn press_to(&mut self, selector: &str) {
        self.eval("window.__old = true");
        self.press(selector);
        self.until("!window.__old && document.readyState === 'complete'");
    }

    /// Presses with the pointer what a selector finds.
    pub fn press(&mut self, selector: &str) {
        self.hold(selector, Duration::ZERO);
    }

    /// As [`Self::press`], with this time between the press and the release.
    pub fn hold(&mut self, selector: &str, time: Duration) {
        self.until(&format!("document.querySelector({selector:?})"));
        let script = format!(
            "(() => {{ const e = document.querySelector({selector:?}); e.scrollIntoView({{block: 'center'}}); const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; }})()"
        );
        let at = self.eval(&script);
        for kind in ["mousePressed", "mouseReleased"] {
            let event = json!({ "type": kind, "x": at[0], "y": at[1], "button": "left", "clickCount": 1 });
            self.call("Input.dispatchMouseEvent", event);
            if kind == "mousePressed" {
                std::thread::sleep(time);
            }
        }
    }

    /// Types text where the focus is.
    pub fn write(&mut self, text: &str) {
        self.call("Input.insertText", json!({ "text": text }));
    }

    /// Presses a key.
    pub fn key(&mut self, key: &str) {
        let (code, text) = match key {
            "Enter" => (13, "\r"),
            "Tab" => (9, ""),
            "PageUp" => (33, ""),
            "Escape" => (27, ""),
            " " => (32, " "),
            one => (one.to_ascii_uppercase().as_bytes()[0], one),
        };
        let down = json!({ "type": "keyDown", "key": key, "text": text, "windowsVirtualKeyCode": code });
        self.call("Input.dispatchKeyEvent", down);
        self.call("Input.dispatchKeyEvent", json!({ "type": "keyUp", "key": key, "windowsVirtualKeyCode": code }));
    }

    /// Saves the picture of the page as a PNG.
    pub fn picture(&mut self, path: &Path) {
        let shot = self.call("Page.captureScreenshot", json!({ "format": "png" }));
        let bytes = nexus_api::base64::decode(shot["data"].as_str().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }

    /// Waits for an event of the browser.
    pub fn until_heard(&mut self, method: &str, is_it: impl Fn(&Value) -> bool) -> Value {
        let begun = Instant::now();
        let wanted = |event: &Value| event["method"] == method && is_it(&event["params"]);
        loop {
            if let Some(at) = self.chromium.events.iter().position(wanted) {
                return self.chromium.events.remove(at).unwrap()["params"].take();
            }
            assert!(begun.elapsed() < PATIENCE, "{method} was not heard: {:#?}", self.chromium.events);
            self.eval("1");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Returns the events of a kind that were heard since the last look at them.
    pub fn heard(&mut self, method: &str) -> Vec<Value> {
        self.eval("1");
        let session = json!(self.session);
        let is_one = |event: &&Value| event["method"] == method && event["sessionId"] == session;
        self.chromium.events.iter().filter(is_one).map(|event| event["params"].clone()).collect()
    }

    /// Takes the faults so far for looked at.
    pub fn forget(&mut self) {
        self.faults();
        self.faults.clear();
    }

    /// Returns what the console of the browser holds against the pages so far: reports of the policy, errors of scripts.
    pub fn faults(&mut self) -> Vec<String> {
        self.eval("1");
        let session = json!(self.session);
        for event in std::mem::take(&mut self.chromium.events) {
            if event["sessionId"] != session {
                continue;
            }
            let params = &event["params"];
            match event["method"].as_str().unwrap_or_default() {
                "Log.entryAdded" if params["entry"]["level"] == "error" => {
                    self.faults.push(params["entry"].to_string());
                }
                "Runtime.exceptionThrown" => self.faults.push(params.to_string()),
                "Runtime.consoleAPICalled" if params["type"] == "error" => self.faults.push(params["args"].to_string()),
                "Audits.issueAdded" => {
                    let issue = &params["issue"];
                    if issue["code"] == "ContentSecurityPolicyIssue" {
                        self.faults.push(issue.to_string());
                    }
                }
                _ => {}
            }
        }
        self.faults.clone()
    }
}
