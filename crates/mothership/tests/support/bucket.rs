//! A server of S3 for the tests: moto, which checks signatures, from the index of this machine's pip. It ends with the process of the
//! tests, however that ends: its standard input ends then.

#![allow(dead_code, reason = "each test uses a part")]

#[path = "../../../../tests/support/skip.rs"]
pub mod skip;

use nexus_mothership::{BucketKey, BucketSettings};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, OnceLock};
use tempfile::TempDir;

const PACKAGES: &[&str] = &["moto[s3]==5.2.5", "flask==3.1.3", "flask-cors==6.0.5"];
pub const BUCKET: &str = "kept";

/// The server. Its first four calls, which make a user, its rights, its key and the bucket, need no signature; every later one does.
/// It takes lines that look at objects and change them from outside.
const SERVER: &str = r#"
import datetime, os, sys
os.environ["INITIAL_NO_AUTH_ACTION_COUNT"] = "4"
import boto3
from moto.s3.models import s3_backends
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
port = server.get_host_and_port()[1]
def client(name):
    return boto3.client(name, endpoint_url=f"http://127.0.0.1:{port}", region_name="us-east-1",
                        aws_access_key_id="none", aws_secret_access_key="none")
iam = client("iam")
iam.create_user(UserName="nexus")
allow = '{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"s3:*","Resource":"*"}]}'
iam.put_user_policy(UserName="nexus", PolicyName="all", PolicyDocument=allow)
key = iam.create_access_key(UserName="nexus")["AccessKey"]
client("s3").create_bucket(Bucket="kept")
print(port, key["AccessKeyId"], key["SecretAccessKey"], flush=True)
backend = s3_backends["123456789012"]["aws"]
for line in sys.stdin:
    word, name, *rest = line.split()
    if word == "list":
        print(*sorted(key for key in backend.buckets["kept"].keys.keys() if key.startswith(name)), flush=True)
    elif word == "put":
        backend.put_object("kept", name, b"x" * int(rest[0])).last_modified -= datetime.timedelta(hours=int(rest[1]))
        print(flush=True)
os._exit(0)
"#;

pub struct S3 {
    pub port: u16,
    pub user: String,
    pub secret: String,
    lines: Mutex<(ChildStdin, BufReader<ChildStdout>)>,
    _programs: TempDir,
    _process: Child,
}

/// The server of this process; `None` where the packages cannot be had, which the test then says.
pub fn shared() -> Option<&'static S3> {
    static SHARED: OnceLock<Result<S3, String>> = OnceLock::new();
    match SHARED.get_or_init(S3::start) {
        Ok(server) => Some(server),
        Err(why) => {
            skip::partial(&format!("kept files lie in a directory, since moto cannot be had: {why}"));
            None
        }
    }
}

fn install(place: &Path) -> Result<(), String> {
    let run = |program: &Path, arguments: &[&str]| -> Result<(), String> {
        let output =
            Command::new(program).args(arguments).current_dir(place).output().map_err(|error| error.to_string())?;
        if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
    };
    // Debian's Python has no pip of its own; an environment has.
    run(Path::new("/usr/bin/python3"), &["-m", "venv", "tools"])?;
    let flags = ["install", "--quiet", "--disable-pip-version-check", "--no-input", "--retries", "1"];
    run(&place.join("tools/bin/pip"), &[&flags[..], PACKAGES].concat())
}

impl S3 {
    fn start() -> Result<Self, String> {
        let programs = tempfile::tempdir_in("/var/tmp").unwrap();
        install(programs.path())?;
        let mut command = Command::new(programs.path().join("tools/bin/python"));
        command.args(["-c", SERVER]).current_dir(programs.path()).env_clear().env("HOME", programs.path());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = command.spawn().unwrap();
        let (input, mut output) = (process.stdin.take().unwrap(), BufReader::new(process.stdout.take().unwrap()));
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let [port, user, secret] = line.split_whitespace().collect::<Vec<_>>().try_into().unwrap();
        Ok(Self {
            port: port.parse().unwrap(),
            user: user.to_owned(),
            secret: secret.to_owned(),
            lines: Mutex::new((input, output)),
            _programs: programs,
            _process: process,
        })
    }

    fn ask(&self, question: &str) -> String {
        let mut lines = self.lines.lock().unwrap();
        writeln!(lines.0, "{question}").unwrap();
        let mut answer = String::new();
        lines.1.read_line(&mut answer).unwrap();
        assert!(!answer.is_empty(), "the server of S3 has ended");
        answer
    }

    /// The keys of the objects whose key begins so.
    pub fn objects(&self, prefix: &str) -> Vec<String> {
        self.ask(&format!("list {prefix}")).split_whitespace().map(str::to_owned).collect()
    }

    /// Makes an object of so many bytes that was written so many hours ago.
    pub fn put(&self, key: &str, bytes: usize, hours: u32) {
        self.ask(&format!("put {key} {bytes} {hours}"));
    }

    pub fn settings(&self, prefix: &str) -> BucketSettings {
        settings(self.port, prefix, &self.user, &self.secret)
    }
}

/// The settings of a bucket at a port of this machine.
pub fn settings(port: u16, prefix: &str, user: &str, secret: &str) -> BucketSettings {
    let url = format!("s3://{BUCKET}/{prefix}?endpoint=http://127.0.0.1:{port}");
    let key = BucketKey::new(user.to_owned(), secret.to_owned(), None).unwrap();
    BucketSettings::read(&url, key, super::provider()).unwrap()
}
