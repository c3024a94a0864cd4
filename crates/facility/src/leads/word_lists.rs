//! The words of shells, of programs that start others, and of direnv. Data.

/// Words whose next word is a file that is read as commands or run. A number at their end is a version.
pub(super) const READERS: &[&[u8]] = &[
    b".",
    b"bash",
    b"bun",
    b"dash",
    b"deno",
    b"dotenv",
    b"dotenv_if_exists",
    b"fish",
    b"guile",
    b"ksh",
    b"lua",
    b"node",
    b"nu",
    b"perl",
    b"php",
    b"pwsh",
    b"pypy",
    b"python",
    b"rscript",
    b"ruby",
    b"sh",
    b"source",
    b"source_env",
    b"source_env_if_exists",
    b"tclsh",
    b"tsx",
    b"zsh",
];
/// Words before a command.
pub(super) const BEFORE: &[&[u8]] = &[
    b"!",
    b"{",
    b"[",
    b"[[",
    b"builtin",
    b"command",
    b"coproc",
    b"do",
    b"elif",
    b"else",
    b"eval",
    b"exec",
    b"export",
    b"if",
    b"local",
    b"readonly",
    b"declare",
    b"test",
    b"then",
    b"time",
    b"until",
    b"while",
];
/// Commands with a command among their words.
pub(super) const CARRIERS: &[&[u8]] = &[
    b"busybox",
    b"chronic",
    b"direnv_load",
    b"doas",
    b"env",
    b"find",
    b"fd",
    b"flock",
    b"ionice",
    b"nice",
    b"nohup",
    b"parallel",
    b"run0",
    b"setsid",
    b"stdbuf",
    b"strict_env",
    b"sudo",
    b"time",
    b"timeout",
    b"toybox",
    b"trap",
    b"watch",
    b"xargs",
];
/// Commands of package managers that run the command among their words, behind `run` where they have such a word.
pub(super) const RUNNERS: &[&[u8]] =
    &[b"bunx", b"hatch", b"npx", b"pdm", b"pipenv", b"pnpx", b"poetry", b"rye", b"uv", b"uvx"];
/// The ends that the file of a Python module may have; a package is a directory.
pub(super) const MODULE: &[&[u8]] = &[b"", b".py", b".pyc", b".so", b".abi3.so"];
/// Commands of direnv whose words are directories that come into `PATH`.
pub(super) const INTO_PATH: &[&[u8]] = &[b"path_add", b"PATH_add", b"load_prefix", b"PATH_prepend"];
/// Variables with directories or libraries that every started program uses.
pub(super) const PATHS: &[&[u8]] = &[b"PATH", b"LD_LIBRARY_PATH", b"LD_PRELOAD", b"BASH_ENV", b"ENV"];
/// What `use NAME` of direnv reads.
pub(super) const USED: &[(&[u8], &[&[u8]])] = &[
    (b"flake", &[b"flake.nix", b"flake.lock"]),
    (b"nix", &[b"shell.nix", b"default.nix"]),
    (b"guix", &[b"guix.scm", b"manifest.scm"]),
];

/// Variables and commands for the git directory, whose files have rules of their own.
pub(super) const OF_GIT: &[&[u8]] = &[b"git_dir", b"git_common_dir", b"git-dir", b"git-common-dir", b"git-path"];
