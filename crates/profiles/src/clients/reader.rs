//! Reads the files and variables of one client, and collects what the client needs inside.

use super::ask;
use crate::toolchains::{Found, FoundBind, FoundSource, ToolHost};
use nexus_policy::net::packages::{Client, DefaultIndex, Needs, PackagesError};
use nexus_policy::profile::{Origin, Sourced};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Maximum size of a file of certificates.
const MAX_CA_BYTES: u64 = 4 << 20;

/// Settings of one client on this host, and the collection that receives its needs.
pub(super) struct Reader<'a> {
    pub(super) client: Client,
    pub(super) host: &'a ToolHost,
    pub(super) found: &'a mut Found,
    pub(super) from: &'a Origin,
}

/// Result of reading a client. The error is the reason; it never contains a value, which may be a secret.
pub(super) type Read<T> = Result<T, String>;

pub(super) fn told(path: &Path, error: &PackagesError) -> String {
    format!("{}: {error}", path.display())
}

impl Reader<'_> {
    /// Returns the caller's variables whose names begin with `prefix`, in any case.
    pub(super) fn variables(&self, prefix: &str) -> BTreeMap<String, String> {
        let begins = |name: &str| name.get(..prefix.len()).is_some_and(|head| head.eq_ignore_ascii_case(prefix));
        let text =
            |(name, value): (&OsString, &OsString)| Some((name.to_str()?.to_owned(), value.to_str()?.to_owned()));
        self.host.caller.variables.iter().filter_map(text).filter(|(name, _)| begins(name)).collect()
    }

    /// Returns the text of a file, or `None` if there is no such file.
    pub(super) fn text(&self, path: &Path) -> Read<Option<String>> {
        let Some(real) = self.host.own_file(path) else { return Ok(None) };
        std::fs::read_to_string(&real).map(Some).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Returns the texts of those files that exist.
    pub(super) fn texts(&self, paths: &[PathBuf]) -> Read<Vec<String>> {
        paths.iter().filter_map(|path| self.text(path).transpose()).collect()
    }

    /// Returns the directory of the user's settings.
    pub(super) fn config(&self) -> Option<PathBuf> {
        self.host.directory_of("XDG_CONFIG_HOME").or_else(|| self.host.in_home(".config"))
    }

    /// Asks the client for its built-in default where no setting replaces it.
    pub(super) fn add_default(&self, needs: &mut Needs) -> Read<()> {
        let nexus_policy::net::packages::Ask::Command(command) = self.client.ask() else { return Ok(()) };
        if needs.default_index == DefaultIndex::Settled {
            return Ok(());
        }
        let Some((name, arguments)) = command.split_first() else { return Ok(()) };
        let answer = ask::answer(self.host, name, arguments)?;
        needs.add_default(&answer).map_err(|error| format!("the answer of {name}: {error}"))
    }

    /// Sets a variable inside.
    pub(super) fn set(&mut self, name: &str, value: &str) {
        self.found.env.insert(name.to_owned(), Sourced::new(value.into(), self.from.clone()));
    }

    /// Shows a path of the host at its own place.
    pub(super) fn show(&mut self, path: &Path, why: &'static str) {
        if let Some(real) = self.host.file(path).or_else(|| self.host.directory(path)) {
            self.bind(FoundSource::Path(real), path, why);
        }
    }

    /// Shows a file that Nexus makes, unless a toolchain made it already.
    pub(super) fn show_made(&mut self, content: String, target: &str, why: &'static str) {
        self.bind(FoundSource::Made(content.into_bytes()), Path::new(target), why);
    }

    pub(super) fn bind(&mut self, source: FoundSource, target: &Path, why: &'static str) {
        if !self.found.binds.iter().any(|known| known.target == target) {
            self.found.binds.push(FoundBind { source, target: target.to_owned(), why, from: self.from.clone() });
        }
    }

    /// Shows the certificates that the client trusts, where the system's view does not have them. The path comes from a file of
    /// settings, so that of what lies there only certificates are shown.
    pub(super) fn show_ca_files(&mut self, needs: &Needs) {
        for file in needs.ca_files.iter().map(Path::new) {
            let in_view = ["/usr", "/etc/ssl/certs", "/etc/ca-certificates", "/etc/pki/tls/certs"];
            if !in_view.iter().any(|shown| file.starts_with(shown)) {
                let certificates = self.host.content(file, MAX_CA_BYTES).map(|content| certificates_of(&content));
                match certificates.filter(|certificates| !certificates.is_empty()) {
                    Some(certificates) => {
                        self.bind(FoundSource::Made(certificates), file, "certificates that your client trusts");
                    }
                    None => self.found.notes.push(format!(
                        "{}: {} is not a file of certificates (PEM, at most 4 MiB) in a place of your own, so it is not shown",
                        self.client.group(),
                        file.display()
                    )),
                }
            }
        }
    }
}

/// Returns the certificates in a PEM file, without keys and text beside them. Pure.
fn certificates_of(content: &[u8]) -> Vec<u8> {
    const LABELS: &[&[u8]] = &[b"CERTIFICATE-----", b"TRUSTED CERTIFICATE-----", b"X509 CERTIFICATE-----"];
    let is_border = |line: &[u8], border: &[u8]| {
        line.strip_prefix(border).is_some_and(|label| LABELS.contains(&label.trim_ascii_end()))
    };
    let (mut all, mut block, mut is_inside) = (Vec::new(), Vec::new(), false);
    for line in content.split_inclusive(|byte| *byte == b'\n') {
        if is_border(line, b"-----BEGIN ") {
            (is_inside, block) = (true, Vec::new());
        }
        let is_encoded = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/= \r\n\t-".contains(byte);
        is_inside &= line.iter().all(is_encoded);
        if is_inside {
            block.extend_from_slice(line);
        }
        if is_border(line, b"-----END ") && is_inside {
            all.append(&mut block);
            if !all.ends_with(b"\n") {
                all.push(b'\n');
            }
            is_inside = false;
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_file_of_certificates_nothing_else_is_shown() {
        let one = "-----BEGIN CERTIFICATE-----\nMIIB+/=\n-----END CERTIFICATE-----\n";
        let key = "-----BEGIN PRIVATE KEY-----\nSECRET\n-----END PRIVATE KEY-----\n";
        let of = |text: &str| String::from_utf8(certificates_of(text.as_bytes())).unwrap();
        assert_eq!(of(&format!("# mine\n{one}diary\n{key}{one}")), format!("{one}{one}"));
        assert_eq!(of(one.trim_end()), one);
        for none in
            [key, "diary\n", "-----BEGIN CERTIFICATE-----\nno end\n", &format!("-----BEGIN CERTIFICATE-----\n{key}")]
        {
            assert_eq!(of(none), "", "{none}");
        }
        assert_eq!(of(&format!("-----BEGIN CERTIFICATE-----\ndear diary: hello!\n{one}")), one);
    }
}
