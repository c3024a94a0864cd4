//! Takes the certificates out of a file that a client trusts. Pure.

/// Returns the certificates of a PEM file and nothing else of it. The error is the reason to show none of it.
///
/// A setting that names such a file decides what is shown inside, so that the content is looked at: a directory, a file without
/// a certificate and a file with a private key are none of these.
pub(super) fn only(bytes: &[u8]) -> Result<String, &'static str> {
    let text = String::from_utf8_lossy(bytes);
    if text.contains("PRIVATE KEY-----") {
        return Err("it holds a private key");
    }
    let (mut found, mut block) = (String::new(), None::<(String, String)>);
    for line in text.lines().map(str::trim) {
        let label = |begin: &str| line.strip_prefix(begin)?.strip_suffix("-----");
        if let Some(label) = label("-----BEGIN ") {
            let is_wanted = matches!(label, "CERTIFICATE" | "TRUSTED CERTIFICATE" | "X509 CERTIFICATE");
            block = is_wanted.then(|| (label.to_owned(), format!("{line}\n")));
        } else if let Some(end) = label("-----END ") {
            if let Some((_, text)) = block.take().filter(|(begin, _)| begin == end) {
                found.push_str(&text);
                found.push_str(line);
                found.push('\n');
            }
        } else if let Some((_, text)) = &mut block {
            let is_base64 = line.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte));
            if is_base64 {
                text.push_str(line);
                text.push('\n');
            } else {
                block = None;
            }
        }
    }
    if found.is_empty() { Err("it holds no certificate") } else { Ok(found) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "-----BEGIN CERTIFICATE-----\nMIIB+/A=\n-----END CERTIFICATE-----\n";

    #[test]
    fn only_the_certificates_of_a_file_are_taken() {
        let two = format!("# Authority\n{ONE}note: secret\n{ONE}-----BEGIN X-----\nAAAA\n-----END X-----\n");
        assert_eq!(only(two.as_bytes()).unwrap(), format!("{ONE}{ONE}"));
        let odd = format!("-----BEGIN CERTIFICATE-----\nmy diary\n-----END CERTIFICATE-----\n{ONE}");
        assert_eq!(only(odd.as_bytes()).unwrap(), ONE);
    }

    #[test]
    fn a_file_without_a_certificate_or_with_a_key_gives_nothing() {
        let cut = "-----BEGIN CERTIFICATE-----\nMIIB\n";
        let other = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END X-----\n";
        for text in ["", "DIARY\n", cut, other] {
            assert_eq!(only(text.as_bytes()), Err("it holds no certificate"), "{text}");
        }
        for kind in ["", "RSA ", "EC ", "ENCRYPTED ", "OPENSSH "] {
            let text = format!("{ONE}-----BEGIN {kind}PRIVATE KEY-----\nAAAA\n-----END {kind}PRIVATE KEY-----\n");
            assert_eq!(only(text.as_bytes()), Err("it holds a private key"), "{kind}");
        }
    }
}
