//! Tells variables of the environment that look like credentials from ordinary ones, by name and by value.
//!
//! An environment is inherited by every program that a command starts, is printed by crash reports and logs, and can be read
//! in `/proc`. So a credential is passed on only by a flag that says so. A guess errs in both directions: what it misses is
//! passed on as before, and what it takes for a credential by mistake is passed on with the same flag.

/// The end of a word of a name (`GITHUB_TOKEN`, `PGPASSWORD`, `npm_config__authToken`).
const WORDS: &[&str] = &["TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "APIKEY", "CREDENTIAL", "CREDENTIALS"];
/// A whole word at the end of a name.
const LAST_WORDS: &[&str] = &["PASS", "PWD", "PAT", "AUTH", "JWT", "COOKIE", "SECRETS"];
/// A word before `KEY`.
const KEYS: &[&str] = &[
    "API",
    "ACCESS",
    "SECRET",
    "PRIVATE",
    "SIGNING",
    "ENCRYPTION",
    "AUTH",
    "MASTER",
    "ACCOUNT",
    "SSH",
    "DEPLOY",
    "GPG",
];
/// Words at the end of a name that make it name something about a credential and not the credential itself.
const HARMLESS_ENDS: &[&str] =
    &["FILE", "PATH", "DIR", "LIMIT", "TTL", "TYPE", "NAME", "USERNAME", "EXPIRY", "HELPER", "SOCK"];
/// Names that only look like one.
const HARMLESS: &[&str] = &["PWD", "OLDPWD"];
/// Lists the beginnings of tokens of well-known services, each with the smallest length of the whole.
const PREFIXES: &[(&str, usize)] = &[
    ("ghp_", 20),
    ("gho_", 20),
    ("ghu_", 20),
    ("ghs_", 20),
    ("ghr_", 20),
    ("github_pat_", 20),
    ("glpat-", 16),
    ("gldt-", 16),
    ("xoxb-", 16),
    ("xoxp-", 16),
    ("xoxa-", 16),
    ("xoxs-", 16),
    ("xapp-", 16),
    ("sk-", 24),
    ("sk_live_", 16),
    ("rk_live_", 16),
    ("AKIA", 20),
    ("ASIA", 20),
    ("AIza", 35),
    ("ya29.", 20),
    ("npm_", 30),
    ("pypi-", 30),
    ("dckr_pat_", 16),
    ("hf_", 30),
    ("gsk_", 30),
    ("hvs.", 20),
    ("dop_v1_", 20),
    ("SG.", 30),
];

/// Says why a variable looks like a credential, if it does. The text goes after "it looks like a credential: ".
pub fn reason(name: &[u8], value: &[u8]) -> Option<String> {
    let value = String::from_utf8_lossy(value);
    if let Some(why) = by_value(value.trim()) {
        return Some(why.to_owned());
    }
    if is_plain(value.trim()) {
        return None;
    }
    by_name(&String::from_utf8_lossy(name)).map(|word| format!("its name has {word} in it"))
}

/// Recognizes values that cannot be a secret under any name: nothing, a switch, a small number.
fn is_plain(value: &str) -> bool {
    let switches = ["", "true", "false", "yes", "no", "on", "off", "none", "null"];
    switches.contains(&value.to_ascii_lowercase().as_str())
        || (value.len() <= 3 && value.bytes().all(|byte| byte.is_ascii_digit()))
}

fn by_name(name: &str) -> Option<String> {
    let words = words(name);
    let last = words.last()?;
    if HARMLESS.contains(&name) || HARMLESS_ENDS.contains(&last.as_str()) {
        return None;
    }
    if LAST_WORDS.contains(&last.as_str()) {
        return Some(last.clone());
    }
    if let Some(word) = words.iter().find(|word| WORDS.iter().any(|end| word.ends_with(end))) {
        return Some(word.clone());
    }
    let key = words.windows(2).find(|pair| pair[1] == "KEY" && KEYS.contains(&pair[0].as_str()));
    key.map(|pair| pair.join("_"))
}

/// The words of a name in capitals: separated by other characters than letters and digits, and where a capital follows a small letter.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut before = ' ';
    for letter in name.chars() {
        if letter.is_ascii_alphanumeric() {
            if before.is_ascii_lowercase() && letter.is_ascii_uppercase() {
                words.push(String::new());
            }
            if let Some(word) = words.last_mut() {
                word.push(letter.to_ascii_uppercase());
            }
        } else {
            words.push(String::new());
        }
        before = letter;
    }
    words.retain(|word| !word.is_empty());
    words
}

fn by_value(value: &str) -> Option<&'static str> {
    if value.contains("-----BEGIN ") && value.contains("PRIVATE KEY") {
        return Some("its value is a private key");
    }
    if has_login(value) {
        return Some("its value is an address with a password");
    }
    let is_token = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    if is_token(value) && PREFIXES.iter().any(|(begin, min)| value.starts_with(begin) && value.len() >= *min) {
        return Some("its value has the form of a token");
    }
    let parts: Vec<&str> = value.split('.').collect();
    if parts.len() == 3 && value.starts_with("eyJ") && parts.iter().all(|part| part.len() > 8 && is_token(part)) {
        return Some("its value is a JSON web token");
    }
    let scheme = value
        .split_once(' ')
        .filter(|(scheme, rest)| ["bearer", "basic"].contains(&scheme.to_ascii_lowercase().as_str()) && rest.len() > 8);
    scheme.map(|_| "its value is a login of HTTP")
}

/// Reports whether a value is an address with a password: `scheme://user:password@host`.
fn has_login(value: &str) -> bool {
    let Some((scheme, rest)) = value.split_once("://") else { return false };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let login = authority.rsplit_once('@').and_then(|(login, _)| login.split_once(':'));
    let is_scheme =
        !scheme.is_empty() && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    is_scheme && login.is_some_and(|(_, password)| !password.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_credentials_are_known() {
        for name in [
            "GITHUB_TOKEN",
            "GH_TOKEN",
            "NPM_TOKEN",
            "npm_config__authToken",
            "AWS_SECRET_ACCESS_KEY",
            "AWS_SESSION_TOKEN",
            "AWS_ACCESS_KEY_ID",
            "OPENAI_API_KEY",
            "ANTHROPIC_API_KEY",
            "STRIPE_SECRET",
            "PGPASSWORD",
            "MYSQL_PWD",
            "DB_PASS",
            "SSH_PRIVATE_KEY",
            "GITHUB_PAT",
            "NPM_AUTH",
            "apiKey",
            "dbPassword",
            "CI_JOB_JWT",
        ] {
            assert!(reason(name.as_bytes(), b"x7Kq9-whatever").is_some(), "{name}");
        }
    }

    #[test]
    fn ordinary_variables_are_none() {
        for (name, value) in [
            ("PWD", "/home/you"),
            ("OLDPWD", "/tmp"),
            ("LANG", "C.UTF-8"),
            ("MAX_TOKENS", "4096"),
            ("TOKENIZERS_PARALLELISM", "false"),
            ("TOKEN_LIMIT", "100000"),
            ("CACHE_KEY", "linux-3a4b"),
            ("SECRET_SANTA", "1"),
            ("GITHUB_TOKEN", ""),
            ("PASSWORD_STORE_DIR", "/home/you/.password-store"),
            ("SSH_AUTH_SOCK", "/run/agent"),
            ("DATABASE_URL", "postgres://localhost/app"),
            ("DATABASE_URL", "postgres://app@localhost/app"),
            ("PYTEST_ADDOPTS", "-k auth"),
            ("AUTHOR", "you"),
            ("COMPASS", "north"),
            ("skin", "sk-blue"),
            ("NOTE", "a b://c:d"),
        ] {
            assert_eq!(reason(name.as_bytes(), value.as_bytes()), None, "{name}={value}");
        }
    }

    #[test]
    fn values_of_credentials_are_known_under_any_name() {
        for value in [
            "ghp_0123456789abcdefghijklmnopqrstuvwxyz",
            "github_pat_11AAAAAAA0abcdefgh",
            "sk-ant-api03-abcdefghijklmnopqrstuvwxyz",
            "AKIAIOSFODNN7EXAMPLE",
            "xoxb-123456789012-abcdef",
            "postgres://app:hunter2@db.example:5432/app",
            "http://me:secret@proxy.example:3128",
            "-----BEGIN OPENSSH PRIVATE KEY-----\nb3Blbn\n-----END OPENSSH PRIVATE KEY-----",
            "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmNHl0w5N",
            "Bearer 0123456789abcdef",
        ] {
            assert!(reason(b"X", value.as_bytes()).is_some(), "{value}");
        }
        assert_eq!(reason(b"X", b"\xff\xfe"), None);
    }
}
