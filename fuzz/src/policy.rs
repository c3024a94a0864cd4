//! Policy documents: no text makes the reader or the cases panic, a refusal names a place in the text, and a document
//! that is read never allows with another one what it forbids alone.

use nexus_policy::document::{Effective, LoadedPolicy, PolicySet, Question};

const QUESTIONS: &[&str] = &[
    "net a.test:443",
    "net *.a.test:80",
    "net 10.0.0.1:443",
    "mode unrestricted",
    "read workspace:/**",
    "read host:/opt/a",
    "write workspace:/src/a",
    "limit memory=1G",
    "budget connections=5",
];
const OTHER: &str = "policy: nexus.policy/1\nid: other\nlevel: global\nnet: {mode: unrestricted}\n\
                     fs: {read: [\"workspace:**\", \"host:/**\"]}\nlimits: {memory: 1T}\n";

/// A document.
pub fn policy(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let loaded = match LoadedPolicy::read("p.yaml", text) {
        Ok(loaded) => loaded,
        Err(error) => {
            let lines = 2 + text.split(['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}']).count();
            assert!(usize::try_from(error.place.line).is_ok_and(|line| line <= lines), "{error}");
            assert!(!error.message.is_empty());
            return;
        }
    };
    let alone = Effective::of(std::slice::from_ref(&loaded));
    let Ok(other) = LoadedPolicy::read("o.yaml", OTHER) else { panic!("the other document is sound") };
    let together = Effective::of(&[other.clone(), loaded.clone()]);
    assert_eq!(Effective::of(&[loaded.clone(), other]), together);
    for text in QUESTIONS {
        let Ok(question) = Question::parse(text) else { panic!("{text} is a question") };
        if !alone.ask(&question).is_allowed() {
            assert!(!together.ask(&question).is_allowed(), "{text}");
        }
    }
    // Whether its cases hold is its author's matter; they end.
    drop(PolicySet::build(vec![loaded]));
}
