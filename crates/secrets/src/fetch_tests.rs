//! Each provider on real files, variables and programs.

use super::*;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

struct Scene {
    directory: tempfile::TempDir,
    variables: BTreeMap<OsString, OsString>,
}

impl Scene {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("workspace")).unwrap();
        let variables = [("PATH", "/usr/bin:/bin"), ("TOKEN", "abc\n\"def\""), ("EMPTY", ""), ("SHORT", " abc\n")];
        let variables = variables.map(|(name, value)| (name.into(), value.into())).into();
        Self { directory, variables }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().canonicalize().unwrap().join(name)
    }

    fn file(&self, name: &str, content: &[u8], mode: u32) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    fn fetch_within(&self, text: &str, within: Duration, goes_on: bool) -> Result<Fetched, FetchError> {
        let source = Source {
            variables: &self.variables,
            home: Some(self.directory.path()),
            current: self.directory.path(),
            workspace: &self.path("workspace"),
            within,
            goes_on: &|| goes_on,
        };
        fetch(&Request::parse(format!("NAME={text}").as_ref()).unwrap(), &source)
    }

    fn fetch(&self, text: &str) -> Result<Fetched, FetchError> {
        self.fetch_within(text, Duration::from_secs(60), true)
    }

    #[track_caller]
    fn value(&self, text: &str) -> Vec<u8> {
        self.fetch(text).unwrap().value.expose().to_vec()
    }

    #[track_caller]
    fn refused(&self, text: &str, code: &str) -> String {
        let error = self.fetch(text).unwrap_err();
        assert_eq!(error.code(), code, "{error}");
        error.to_string()
    }
}

#[test]
fn a_variable_gives_its_value_and_a_missing_one_is_named() {
    let scene = Scene::new();
    assert_eq!(scene.value("env:TOKEN"), b"abc\n\"def\"");
    assert!(scene.refused("env:MISSING", "secret_unset").contains("the variable MISSING, which is not set"));
    scene.refused("env:EMPTY", "secret_unset");
    scene.refused("env:SHORT", "secret_short");
}

#[test]
fn a_file_gives_its_bytes_up_to_the_bound() {
    let scene = Scene::new();
    let odd = [&b"\0\xff'\"\r\n"[..], &vec![b'x'; MAX_BYTES - 6]].concat();
    scene.file("most", &odd, 0o600);
    scene.file("more", &vec![b'x'; MAX_BYTES + 1], 0o600);
    scene.file("empty", b"", 0o600);
    assert!(scene.value("file:most") == odd, "byte for byte");
    assert!(scene.value("file:~/most") == odd, "from the home directory");
    scene.refused("file:more", "secret_long");
    scene.refused("file:empty", "secret_short");
    scene.refused("file:missing", "secret_file");
    scene.refused("file:.", "secret_file");
}

#[test]
fn a_file_that_others_may_read_is_given_with_a_warning() {
    let scene = Scene::new();
    scene.file("open", b"0123456789", 0o640);
    scene.file("closed", b"0123456789", 0o600);
    let warning = scene.fetch("file:open").unwrap().warning.unwrap();
    assert!(warning.to_string().ends_with("can be read by other users of this machine (its mode is 640)"), "{warning}");
    assert_eq!(scene.fetch("file:closed").unwrap().warning, None);
}

#[test]
fn nothing_is_read_or_started_that_a_command_could_have_put_into_the_workspace() {
    let mut scene = Scene::new();
    scene.file("secret", b"0123456789", 0o600);
    scene.file("workspace/secret", b"0123456789", 0o600);
    scene.file("workspace/tool", b"#!/bin/sh\necho 0123456789\n", 0o755);
    std::os::unix::fs::symlink(scene.path("secret"), scene.path("workspace/link")).unwrap();
    std::os::unix::fs::symlink(scene.path("workspace"), scene.path("way")).unwrap();
    for path in ["workspace/secret", "workspace/link", "way/secret", "way/link"] {
        assert!(scene.refused(&format!("file:{path}"), "secret_in_workspace").contains("workspace"), "{path}");
    }
    for path in ["workspace/tool", "way/tool"] {
        scene.refused(&format!("cmd:{}", scene.path(path).display()), "secret_in_workspace");
    }
    let path = std::env::join_paths([scene.path("way"), PathBuf::from("workspace"), "/usr/bin".into()]).unwrap();
    scene.variables.insert("PATH".into(), path);
    scene.refused("cmd:tool", "secret_command");
    // The harmless twin: the same file and the same tool outside.
    scene.file("tool", b"#!/bin/sh\necho 0123456789\n", 0o755);
    scene.variables.insert("PATH".into(), scene.path("").into());
    assert_eq!(scene.value("file:secret"), b"0123456789");
    assert_eq!(scene.value("cmd:tool"), b"0123456789");
}

#[test]
fn a_command_runs_without_a_shell_and_with_the_environment_of_the_caller() {
    let scene = Scene::new();
    assert_eq!(scene.value("cmd:printf '%s\\n' 'a  b;$HOME'"), b"a  b;$HOME");
    assert_eq!(scene.value("cmd:printf '1234\\n\\n'"), b"1234\n", "one line end is taken off");
    assert_eq!(scene.value("cmd:printf '1234\\r\\n'"), b"1234");
    assert_eq!(scene.value("cmd:printenv TOKEN"), b"abc\n\"def\"");
    // In `/`, with an empty standard input.
    assert_eq!(scene.value("cmd:sh -c 'echo \"in $(pwd)\"; cat'"), b"in /");
}

#[test]
fn a_command_that_gives_no_value_is_refused_with_the_reason() {
    let scene = Scene::new();
    assert!(scene.refused("cmd:no-such-program x", "secret_command").contains("no-such-program"));
    assert!(scene.refused("cmd:sh -c 'echo hunter2; exit 3'", "secret_command").ends_with("the exit code 3"));
    assert!(scene.refused("cmd:sh -c 'kill -9 $$'", "secret_command").ends_with("the signal 9"));
    assert!(scene.refused("cmd:head -c 65539 /dev/zero", "secret_command").contains("wrote more than"));
    scene.refused("cmd:true", "secret_short");
}

#[test]
fn a_command_is_not_waited_for_without_a_bound() {
    let scene = Scene::new();
    let began = Instant::now();
    let error = scene.fetch_within("cmd:sleep 600", Duration::from_millis(50), true).unwrap_err();
    assert!(error.to_string().contains("did not end within"), "{error}");
    let error = scene.fetch_within("cmd:sh -c 'echo; exec sleep 600'", Duration::from_secs(600), false).unwrap_err();
    assert!(error.to_string().contains("the run was ended"), "{error}");
    // What it leaves in the background holds the pipe open.
    let left = scene.value("cmd:sh -c 'sleep 20 & echo 0123456789'");
    assert_eq!(left, b"0123456789");
    assert!(began.elapsed() < Duration::from_secs(19), "{:?}", began.elapsed());
}
