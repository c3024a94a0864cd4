//! A repository that git itself serves over HTTPS, behind a proxy that the operator of the territories names: the way of a clone.
//!
//! ```text
//!  sandbox: git clone ─▶ network of the directive ─▶ proxy of this test: CONNECT ─▶ TLS ─▶ git http-backend ─▶ repository
//! ```
//! The certificate takes the place of the machine's authorities in a mount namespace of each daemon, which root alone can make.

use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

/// Name of the server. No resolver knows it.
const HOST: &str = "code.example.test";
/// Authorities that git trusts.
const AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";

pub struct Repository {
    pub url: String,
    /// Destination that a directive has to list.
    pub destination: String,
    /// Commit that a clone has at first.
    pub head: String,
    /// Certificate of the server.
    pub certificate: PathBuf,
    /// Settings of an operator whose network has no other way out.
    pub settings: String,
}

impl Repository {
    /// Makes a repository with one commit below this directory, and serves it; `None` for a user who is not root.
    pub fn serve(base: &Path) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            return None;
        }
        let project = base.join("project");
        std::fs::create_dir_all(&project).unwrap();
        let git = |words: &[&str]| {
            let mut git = Command::new("git");
            git.current_dir(&project).env("HOME", base).env("GIT_CONFIG_NOSYSTEM", "1");
            git.args(["-c", "user.name=n", "-c", "user.email=n@example.test", "-c", "init.defaultBranch=main"]);
            let output = git.args(words).output().unwrap();
            assert!(output.status.success(), "{words:?}: {output:?}");
            String::from_utf8(output.stdout).unwrap().trim().to_owned()
        };
        git(&["init", "-q"]);
        std::fs::write(project.join("file"), "one\n").unwrap();
        git(&["add", "file"]);
        git(&["commit", "-q", "-m", "one"]);
        let head = git(&["rev-parse", "HEAD"]);
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec![HOST.to_owned()]).unwrap().self_signed(&key).unwrap();
        let path = base.join("authorities.pem");
        std::fs::write(&path, certificate.pem()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let tls = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let tls = tls.with_no_client_auth().with_single_cert(vec![certificate.der().clone()], key).unwrap();
        let (tls, listener) = (Arc::new(tls), TcpListener::bind("127.0.0.1:0").unwrap());
        let port = listener.local_addr().unwrap().port();
        let base = base.to_owned();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let (tls, base) = (Arc::clone(&tls), base.clone());
                // A client that leaves ends its own thread alone.
                std::thread::spawn(move || tunnel(client, tls, &base));
            }
        });
        Some(Self {
            url: format!("https://{HOST}/project"),
            destination: format!("{HOST}:443"),
            head,
            certificate: path,
            settings: format!("[egress]\nupstream_proxy = \"http://127.0.0.1:{port}\"\n"),
        })
    }

    /// Returns the command as one of a machine that trusts this server and no other one. The process is the same.
    pub fn trusted_by(certificate: &Path, command: &Command) -> Command {
        let mut inside = Command::new("unshare");
        inside.args(["--mount", "sh", "-c", &format!("mount --bind \"$0\" {AUTHORITIES} && exec \"$@\"")]);
        inside.arg(certificate).arg(command.get_program()).args(command.get_args());
        inside.env_clear().envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        inside
    }
}

/// Reads a head with its empty line; `None` at the end of the connection.
fn head(from: &mut impl Read) -> Option<String> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        from.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    String::from_utf8(head).ok()
}

fn field<'a>(head: &'a str, wanted: &str) -> Option<&'a str> {
    let mut fields = head.lines().filter_map(|line| line.split_once(':'));
    fields.find(|(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, value)| value.trim())
}

fn tunnel(mut client: TcpStream, tls: Arc<ServerConfig>, base: &Path) -> Option<()> {
    let asked = head(&mut client)?;
    if !asked.starts_with(&format!("CONNECT {HOST}:443 ")) {
        return client.write_all(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n").ok();
    }
    client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").ok()?;
    let mut stream = StreamOwned::new(ServerConnection::new(tls).ok()?, client);
    loop {
        let asked = head(&mut stream)?;
        let body = body(&mut stream, &asked)?;
        stream.write_all(&answer(base, &asked, &body)).ok()?;
        stream.flush().ok()?;
    }
}

fn body(stream: &mut impl Read, head: &str) -> Option<Vec<u8>> {
    assert!(field(head, "transfer-encoding").is_none(), "a request of a clone is short: {head}");
    let length = field(head, "content-length").map_or(0, |text| text.parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body).ok()?;
    Some(body)
}

/// Lets git answer.
fn answer(base: &Path, head: &str, body: &[u8]) -> Vec<u8> {
    let mut words = head.split(' ');
    let (method, target) = (words.next().unwrap(), words.next().unwrap());
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let mut git = Command::new("git");
    git.arg("http-backend").env_clear().env("PATH", "/usr/bin:/bin").env("HOME", base);
    git.env("GIT_PROJECT_ROOT", base).env("GIT_HTTP_EXPORT_ALL", "1").env("PATH_INFO", path).env("QUERY_STRING", query);
    git.env("REQUEST_METHOD", method).env("CONTENT_LENGTH", body.len().to_string());
    for (variable, name) in [
        ("CONTENT_TYPE", "content-type"),
        ("HTTP_CONTENT_ENCODING", "content-encoding"),
        ("HTTP_GIT_PROTOCOL", "git-protocol"),
    ] {
        git.envs(field(head, name).map(|value| (variable, value)));
    }
    let mut git = git.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    git.stdin.take().unwrap().write_all(body).unwrap();
    let said = git.wait_with_output().unwrap().stdout;
    let end = said.windows(4).position(|part| part == b"\r\n\r\n").unwrap() + 4;
    let (fields, body) = (String::from_utf8_lossy(&said[..end - 2]), &said[end..]);
    let status = field(&fields, "status").unwrap_or("200 OK");
    [format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n{fields}\r\n", body.len()).as_bytes(), body].concat()
}
