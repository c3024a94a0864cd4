//! Many directives on a control plane and three territories with the real program, of which one is killed in the middle. Everything
//! is checked against what this test itself asked for and was answered, never against the database.
//!
//! ```text
//!  directives (ends, exit codes, time limits, cancels, bounds of output, kept files, clones, repeated calls) ─▶ mothership serve
//!      ─▶ three daemons, one killed with SIGKILL and started again ─▶ each answer: noted
//!  rules: a terminal state never changes · the log is the one that the receipt signs · one directive of a facility at a time ·
//!         work is committed exactly once, or reported as lost and committed at most once · a directive in a clone finds the commit
//!         of the repository or the one that the directive before it left
//! ```
//! `NEXUS_SOAK_DIRECTIVES` sets their number.

#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod directives;

use directives::checks::check_heads;
use directives::{DAEMONS, Repository, Scene, check_all, check_marks, check_one_at_a_time, count, create_all, watch};
use nexus_api::client::{ClientConfig, Http, MothershipClient};

#[test]
fn a_crowd_of_directives_ends_as_asked_when_a_daemon_dies() {
    let count = count();
    let mut scene = Scene::new();
    let repository = Repository::serve(&scene.path("repository"));
    if let Some(repository) = &repository {
        std::fs::create_dir_all(scene.path("config")).unwrap();
        std::fs::write(scene.path("config/config.toml"), &repository.settings).unwrap();
        scene.authority = Some(repository.certificate.clone());
    }
    let data = scene.path("mothership");
    let ready = scene.serve(0, &["mothership", "serve", "--listen", "127.0.0.1:0", "--json"], &data);
    let (url, key) = (ready["api_url"].as_str().unwrap().to_owned(), ready["api_key"].as_str().unwrap().to_owned());
    let territories: Vec<String> = (0..DAEMONS)
        .map(|number| {
            scene.join(number, &url, &key);
            scene.daemon(number)
        })
        .collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let client = MothershipClient::new(&Http::new(ClientConfig::new(&url)).unwrap(), &key).unwrap();
    let mut asked = runtime.block_on(create_all(&client, count, &[], repository.as_ref()));
    let killed = runtime.block_on(watch(&client, &mut asked, &mut scene, count, |_| {}));
    println!("    {} directives ended; the killed daemon had {} of them", asked.len(), killed.len());
    assert!(!killed.is_empty(), "the killed daemon had no work: the test tried nothing");
    runtime.block_on(check_all(&client, &asked, &killed));
    if let Some(Repository { head, .. }) = &repository {
        let found = runtime.block_on(check_heads(&client, &asked, &killed, head));
        assert!(found > 0, "no directive ended in a clone: the test tried nothing");
    }
    check_one_at_a_time(&asked, &killed);
    check_marks(&scene, &asked, &killed, &territories);
}
