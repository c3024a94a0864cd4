//! Defaults that are built into clients, read from the text of the file in which a client keeps its own. Pure: no client is run
//! for its default, since a program that `PATH` names may be one that an earlier run left.

/// Returns the index and the host of the files from pip's `models/index.py`, one per line.
///
/// ```text
/// PyPI = PackageIndex("https://…/", file_storage_domain="…")
/// ```
pub fn pip_default(text: &str) -> Option<String> {
    let begin = text.lines().scan(0, |at, line| {
        let begin = *at;
        *at += line.len() + 1;
        Some((begin, line))
    });
    let (begin, _) = begin.into_iter().find(|(_, line)| line.starts_with("PyPI = PackageIndex("))?;
    let call = text.get(begin..)?;
    let call = &call[..call.find(')')?];
    let (url, rest) = quoted(call)?;
    let (files, _) = quoted(rest.split_once("file_storage_domain")?.1)?;
    Some(format!("{}/simple\n{files}\n", url.trim_end_matches('/')))
}

/// Returns the registry from the file in which npm defines its settings.
///
/// ```text
/// registry: new Definition('registry', {
///   default: 'https://…/',
/// ```
pub fn npm_default(text: &str) -> Option<String> {
    // Versions before 7 have a table of defaults: `registry: 'https://…/',`.
    let rest = match text.split_once("'registry', {") {
        Some((_, rest)) => rest.split_once("default:")?.1,
        None => text.lines().find_map(|line| line.trim_start().strip_prefix("registry:"))?,
    };
    let (url, _) = quoted(rest.trim_start())?;
    url.contains("://").then(|| url.to_owned())
}

/// Returns the first quoted string and what comes after it. A string with an escape is none that names a host.
fn quoted(text: &str) -> Option<(&str, &str)> {
    let begin = text.find(['"', '\''])?;
    let quote = char::from(*text.as_bytes().get(begin)?);
    let rest = &text[begin + 1..];
    let end = rest.find(quote)?;
    let value = &rest[..end];
    (!value.contains(['\\', '\n'])).then(|| (value, &rest[end + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_read_from_the_clients_own_files() {
        let pip = "class PackageIndex:\n    pass\n\n\nPyPI = PackageIndex(\"https://index.test/\", file_storage_domain=\"files.test\")\n\
                   TestPyPI = PackageIndex(\n    \"https://other.test/\", file_storage_domain=\"no.test\"\n)\n";
        assert_eq!(pip_default(pip).unwrap(), "https://index.test/simple\nfiles.test\n");
        let lines = "PyPI = PackageIndex(\n    'https://index.test/',\n    file_storage_domain='files.test',\n)\n";
        assert_eq!(pip_default(lines).unwrap(), "https://index.test/simple\nfiles.test\n");
        let new = "  proxy: new Definition('proxy', {\n    default: null,\n  }),\n  registry: new Definition('registry', {\n    \
                   default: 'https://r.test/',\n    type: url,\n";
        let old = "define('registry', {\n  default: 'https://r.test/',\n";
        let oldest = "    proxy: null,\n    registry: 'https://r.test/',\n";
        for text in [new, old, oldest] {
            assert_eq!(npm_default(text).unwrap(), "https://r.test/", "{text}");
        }
    }

    #[test]
    fn a_file_of_another_form_gives_no_default() {
        for text in [
            "",
            "PyPI = f()\n",
            "PyPI = PackageIndex(URL, file_storage_domain=X)\n",
            "# PyPI = PackageIndex(\"https://a.test/\")",
        ] {
            assert_eq!(pip_default(text), None, "{text}");
        }
        for text in
            ["", "registry: null,", "'registry', {\n  default: null,\n type: 'url'", "'registry', { type: 'x' }"]
        {
            assert_eq!(npm_default(text), None, "{text}");
        }
    }
}
