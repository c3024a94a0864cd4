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
/// Programs that run the file behind their option `-f`.
pub(super) const WITH_FILE: &[&[u8]] = &[b"awk", b"gawk", b"gmake", b"make", b"mawk", b"nawk", b"sed"];
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
pub(super) const PATHS: &[&[u8]] = &[
    b"BASH_ENV",
    b"CLASSPATH",
    b"DYLD_INSERT_LIBRARIES",
    b"DYLD_LIBRARY_PATH",
    b"ENV",
    b"FPATH",
    b"GIT_EXEC_PATH",
    b"GIT_TEMPLATE_DIR",
    b"LD_AUDIT",
    b"LD_LIBRARY_PATH",
    b"LD_PRELOAD",
    b"NODE_PATH",
    b"PATH",
    b"PERL5LIB",
    b"PERLLIB",
    b"PYTHONHOME",
    b"PYTHONPATH",
    b"PYTHONUSERBASE",
    b"RUBYLIB",
    b"XDG_CONFIG_HOME",
    b"ZDOTDIR",
];
/// Those of them whose modules an interpreter loads only for a program that asks for one.
pub(super) const OF_MODULES: &[&[u8]] =
    &[b"CLASSPATH", b"NODE_PATH", b"PERL5LIB", b"PERLLIB", b"PYTHONPATH", b"RUBYLIB"];
/// Modules that an interpreter loads at its start from such a directory (the documentation of Python's module `site`).
pub(super) const MODULES_OF_START: &[&[u8]] = &[b"sitecustomize.py", b"usercustomize.py"];
/// Variables with the configurations or start files of programs, also by a bare name.
pub(super) const OF_START: &[&[u8]] = &[
    b"AWS_CONFIG_FILE",
    b"AWS_SHARED_CREDENTIALS_FILE",
    b"DOCKER_CONFIG",
    b"GIT_ASKPASS",
    b"GIT_CONFIG",
    b"GIT_CONFIG_GLOBAL",
    b"GIT_CONFIG_SYSTEM",
    b"INPUTRC",
    b"KUBECONFIG",
    b"NPM_CONFIG_GLOBALCONFIG",
    b"NPM_CONFIG_USERCONFIG",
    b"OPENSSL_CONF",
    b"PIP_CONFIG_FILE",
    b"PYTHONSTARTUP",
    b"RUSTC_WRAPPER",
    b"SSH_ASKPASS",
    b"SUDO_ASKPASS",
    b"npm_config_globalconfig",
    b"npm_config_userconfig",
];
/// Variables with a command or with options of programs.
pub(super) const OF_PROGRAMS: &[&[u8]] = &[
    b"BROWSER",
    b"EDITOR",
    b"GIT_CONFIG_PARAMETERS",
    b"GIT_EXTERNAL_DIFF",
    b"GIT_SSH",
    b"JDK_JAVA_OPTIONS",
    b"JAVA_TOOL_OPTIONS",
    b"LESSOPEN",
    b"NODE_OPTIONS",
    b"PAGER",
    b"PERL5OPT",
    b"PERL5DB",
    b"PROMPT_COMMAND",
    b"PYTHONBREAKPOINT",
    b"RUBYOPT",
    b"RUSTC",
    b"SHELL",
    b"VISUAL",
];
/// The ends of the names of further ones.
pub(super) const OF_PROGRAMS_ENDS: &[&[u8]] = &[
    b"_COMMAND",
    b"_CONFIG",
    b"_CONFIG_FILE",
    b"_EDITOR",
    b"_OPTS",
    b"_PAGER",
    b"_PRELOAD",
    b"_RUNNER",
    b"_SHELL",
    b"_WRAPPER",
];
/// Commands that make variables of their words.
pub(super) const SETTERS: &[&[u8]] = &[b"export", b"declare", b"env", b"readonly", b"typeset"];
/// Files and directories that `use NAME` of direnv reads, or a program that prints an environment, by that name.
pub(super) const USED: &[(&[u8], &[&[u8]])] = &[
    (b"devbox", &[b"devbox.json", b"devbox.lock", b".devbox"]),
    (b"devenv", &[b"devenv.nix", b"devenv.yaml", b"devenv.lock", b"devenv.local.nix", b".devenv"]),
    (b"flake", &[b"flake.nix", b"flake.lock"]),
    (b"flox", &[b".flox"]),
    (b"guix", &[b"guix.scm", b"manifest.scm"]),
    (b"lorri", &[b"shell.nix", b"default.nix", b"flake.nix", b"flake.lock"]),
    (b"mise", &[b"mise.lock"]),
    (b"nix", &[b"shell.nix", b"default.nix"]),
    (b"pixi", &[b"pixi.toml", b"pixi.lock", b".pixi"]),
];
/// The directories that `layout NAME` of direnv puts into `PATH`, without a version behind the name, besides `.direnv`.
pub(super) const LAYOUTS: &[(&[u8], &[&[u8]])] = &[
    (b"go", &[b"bin", b".direnv"]),
    (b"hatch", VENV),
    (b"node", &[b"node_modules/.bin"]),
    (b"pdm", VENV),
    (b"perl", &[b".direnv"]),
    (b"php", &[b"vendor/bin"]),
    (b"pipenv", VENV),
    (b"poetry", VENV),
    (b"pyenv", VENV),
    (b"python", VENV),
    (b"ruby", &[b".direnv"]),
    (b"rye", VENV),
    (b"uv", VENV),
];
const VENV: &[&[u8]] = &[b".venv/bin", b".direnv"];

/// Variables and commands for the git directory, whose files have rules of their own.
pub(super) const OF_GIT: &[&[u8]] = &[b"git_dir", b"git_common_dir", b"git-dir", b"git-common-dir", b"git-path"];
