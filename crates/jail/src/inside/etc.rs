//! The synthesised `/etc`: files that programs need to find, and of the host's own directory tables alone.

use nexus_model::plan::{HOME, INNER_ID};

/// Files with fixed content: name and text.
#[must_use]
pub fn files(hostname: &str) -> Vec<(&'static str, String)> {
    let id = INNER_ID;
    vec![
        (
            "passwd",
            format!(
                "root:x:0:0:root:/nonexistent:/usr/sbin/nologin\nnexus:x:{id}:{id}:nexus:{HOME}:/bin/sh\n\
                 nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
            ),
        ),
        ("group", format!("root:x:0:\ntty:x:5:\nnexus:x:{id}:\nnogroup:x:65534:\n")),
        ("hosts", format!("127.0.0.1 localhost {hostname}\n::1 localhost ip6-localhost ip6-loopback\n")),
        ("hostname", format!("{hostname}\n")),
        ("nsswitch.conf", "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nservices: files\n".to_owned()),
        // Without an egress no process listens there, and looking a name up is refused at once.
        ("resolv.conf", "nameserver 127.0.0.1\n".to_owned()),
    ]
}

/// Tables and trust stores of the host that are shown read-only where they exist. Never a directory that may hold
/// private keys (`/etc/ssl/private`).
pub const FROM_HOST: &[&str] = &[
    "alternatives",
    "ca-certificates",
    "ca-certificates.conf",
    "crypto-policies",
    "fonts",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "mime.types",
    "os-release",
    "pki/ca-trust/extracted",
    "pki/tls/certs",
    "protocols",
    "services",
    "ssl/certs",
    "ssl/openssl.cnf",
    "timezone",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_inside_has_a_name_and_root_has_no_shell() {
        let passwd = &files("h").into_iter().find(|(name, _)| *name == "passwd").unwrap().1;
        assert!(passwd.contains("nexus:x:1000:1000:"));
        assert!(passwd.contains("root:x:0:0:root:/nonexistent:/usr/sbin/nologin"));
    }

    #[test]
    fn nothing_private_of_the_host_is_shown() {
        for name in FROM_HOST {
            for private in ["shadow", "gshadow", "sudoers", "private", "ssh", "machine-id", "passwd"] {
                assert!(!name.contains(private), "{name}");
            }
            assert!(!["ssl", "pki"].contains(name), "{name} holds private keys");
        }
    }
}
