//! Chromium inside, without its own sandbox, which no command can make there.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use support::{benches, stderr, stdout};

const PAGE: &str = "<p id=x></p><script>x.textContent = 'it is ' + 6 * 7</script>";

#[test]
fn chromium_shows_a_page_of_the_workspace() {
    for bench in benches() {
        let page = format!("file://{}", bench.write("page.html", PAGE).display());
        let flags = ["run", "--profile", "browser", "--timeout", "60s", "--", "chromium", "--headless"];
        let shown = bench.nexus(flags).args(["--no-sandbox", "--dump-dom", &page]).output().unwrap();
        assert_eq!(shown.status.code(), Some(0), "{}: {}", bench.who(), stderr(&shown));
        assert!(stdout(&shown).contains("<p id=\"x\">it is 42</p>"), "{}: {}", bench.who(), stdout(&shown));
        // Its own sandbox cannot be had, and the line says what to do.
        let refused = bench.nexus(flags).args(["--dump-dom", &page]).output().unwrap();
        assert_ne!(refused.status.code(), Some(0), "{}", bench.who());
        let advice = stderr(&refused);
        let line = advice.lines().find(|line| line.starts_with("nexus: perhaps: ")).unwrap_or_default();
        assert!(line.contains("namespaces") && line.contains("--no-sandbox"), "{}: {advice}", bench.who());
    }
}
