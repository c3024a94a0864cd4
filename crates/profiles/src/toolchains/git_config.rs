//! Selects the settings of a git configuration that are shown inside. Pure.
//!
//! The lists name the settings that may pass, since a list of refused ones is never complete: git runs programs from
//! dozens of keys, reads other files by `include`, and keeps passwords in addresses and headers.

use crate::host::{GitSetting, ReadGitConfig, UnreadableGitConfig};

/// Settings that pass from the user's own configuration, as section and name.
const IDENTITY: &[(&str, &str)] = &[
    ("user", "name"),
    ("user", "email"),
    ("author", "name"),
    ("author", "email"),
    ("committer", "name"),
    ("committer", "email"),
    ("init", "defaultbranch"),
    ("core", "autocrlf"),
    ("core", "eol"),
    ("core", "quotepath"),
    ("core", "safecrlf"),
    ("core", "precomposeunicode"),
    ("pull", "rebase"),
    ("pull", "ff"),
    ("push", "default"),
    ("push", "autosetupremote"),
    ("merge", "conflictstyle"),
    ("merge", "ff"),
    ("rebase", "autostash"),
    ("rebase", "autosquash"),
    ("commit", "cleanup"),
    ("diff", "algorithm"),
    ("diff", "renames"),
    ("diff", "mnemonicprefix"),
    ("log", "date"),
    ("status", "short"),
    ("status", "branch"),
];

/// Settings that pass from the configuration of the repository that a linked worktree belongs to.
const REPOSITORY: &[(&str, &str)] = &[
    ("core", "repositoryformatversion"),
    ("core", "filemode"),
    ("core", "bare"),
    ("core", "symlinks"),
    ("core", "ignorecase"),
    ("core", "logallrefupdates"),
    ("core", "autocrlf"),
    ("core", "eol"),
    ("core", "sparsecheckout"),
    ("core", "sparsecheckoutcone"),
    ("extensions", "objectformat"),
    ("extensions", "refstorage"),
    ("extensions", "worktreeconfig"),
    ("extensions", "noop"),
    ("branch", "remote"),
    ("branch", "merge"),
    ("remote", "url"),
    ("remote", "fetch"),
    ("user", "name"),
    ("user", "email"),
];

/// Returns the user's name, address and harmless habits from these files; a later file wins, as in git.
pub fn identity(read: ReadGitConfig, files: &[Vec<u8>]) -> Result<Vec<u8>, UnreadableGitConfig> {
    render(read, files, IDENTITY)
}

/// Returns the settings of a repository that git needs to read it.
pub fn repository(read: ReadGitConfig, file: &[u8]) -> Result<Vec<u8>, UnreadableGitConfig> {
    render(read, &[file.to_vec()], REPOSITORY)
}

fn render(read: ReadGitConfig, files: &[Vec<u8>], keys: &[(&str, &str)]) -> Result<Vec<u8>, UnreadableGitConfig> {
    let mut out = Vec::new();
    for file in files {
        for setting in read(file)? {
            let known = keys.iter().any(|(section, name)| setting.section == *section && setting.name == *name);
            if known && !setting.value.as_deref().is_some_and(has_password) {
                line(&mut out, &setting);
            }
        }
    }
    Ok(out)
}

/// Reports whether an address has a login: `https://user:password@host/…`, or a token in the place of the user.
/// `git@host:path` has none.
fn has_password(value: &[u8]) -> bool {
    let text = String::from_utf8_lossy(value);
    let Some((_, rest)) = text.split_once("://") else { return false };
    let ssh = text.starts_with("ssh://") || text.starts_with("git+ssh://");
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    match authority.rsplit_once('@') {
        Some((user, _)) => !ssh || user.contains(':'),
        None => false,
    }
}

/// Writes a setting. The value is always quoted, so that no value ends its line or begins another section.
fn line(out: &mut Vec<u8>, setting: &GitSetting) {
    out.extend(format!("[{}", setting.section).bytes());
    if let Some(part) = &setting.subsection {
        out.extend(b" \"");
        out.extend(
            part.iter().flat_map(|byte| if matches!(byte, b'"' | b'\\') { vec![b'\\', *byte] } else { vec![*byte] }),
        );
        out.push(b'"');
    }
    out.extend(format!("]\n\t{}", setting.name).bytes());
    if let Some(value) = &setting.value {
        out.extend(b" = \"");
        for byte in value {
            match byte {
                b'"' | b'\\' => out.extend([b'\\', *byte]),
                b'\n' => out.extend(b"\\n"),
                b'\t' => out.extend(b"\\t"),
                0x08 => out.extend(b"\\b"),
                byte => out.push(*byte),
            }
        }
        out.push(b'"');
    }
    out.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::tests::host;

    #[test]
    fn the_identity_passes_and_helpers_keys_includes_and_hooks_do_not() {
        let file = b"[user]\n name = \"A \\\"B\\\"; C\"\n email = a@b.example\n signingkey = secret\n\
            [include]\n path = ~/secret\n[credential]\n helper = secret\n[core]\n hooksPath = secret\n autocrlf = input\n\
            [url \"https://secret@x/\"]\n insteadOf = x\n[alias]\n x = !secret\n[http]\n extraheader = secret\n\
            [commit]\n gpgsign = true\n";
        let shown = String::from_utf8(identity(host().git, &[file.to_vec()]).unwrap()).unwrap();
        assert_eq!(
            shown,
            "[user]\n\tname = \"A \\\"B\\\"; C\"\n[user]\n\temail = \"a@b.example\"\n[core]\n\tautocrlf = \"input\"\n"
        );
        // What is written reads back as what was read.
        let again = (host().git)(shown.as_bytes()).unwrap();
        assert_eq!(again[0].value.as_deref(), Some(&b"A \"B\"; C"[..]));
    }

    #[test]
    fn a_repository_loses_addresses_with_passwords_and_programs() {
        let file = b"[core]\n repositoryformatversion = 0\n fsmonitor = secret\n sshCommand = secret\n\
            [remote \"o\"]\n url = https://me:secret@x.example/r\n fetch = +refs/heads/*:refs/remotes/o/*\n\
            [remote \"p\"]\n url = git@x.example:r\n[remote \"q\"]\n url = ssh://git@x.example/r\n\
            [filter \"lfs\"]\n smudge = secret\n[branch \"main\"]\n remote = o\n";
        let shown = String::from_utf8(repository(host().git, file).unwrap()).unwrap();
        assert!(!shown.contains("secret"), "{shown}");
        for needed in
            ["repositoryformatversion", "[remote \"o\"]\n\tfetch", "git@x.example:r", "ssh://git@", "[branch \"main\"]"]
        {
            assert!(shown.contains(needed), "{needed}: {shown}");
        }
        assert!(repository(host().git, b"[core\n").is_err());
    }
}
