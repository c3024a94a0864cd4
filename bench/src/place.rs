//! Directory of one benchmark: copies of the programs, and the identities that run them.

use crate::failure::Failure;
use crate::options::Options;
use crate::runner::Runner;
use crate::{announce, failed};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The programs that are measured, where they were built.
pub struct Programs {
    /// The program `nexus`.
    pub nexus: PathBuf,
    /// Directory of the examples.
    pub examples: PathBuf,
}

/// Everything a measure needs.
pub struct Place {
    base: PathBuf,
    /// `nexus`, release build, where every identity can execute it.
    pub nexus: String,
    /// The example of the driver crate that times launches.
    pub launch_bench: PathBuf,
    /// The example of the egress crate that is client and server.
    pub egress_bench: PathBuf,
    /// The example of the control plane that is client, daemon and server.
    pub fleet_bench: PathBuf,
    /// The caller first; for root then an ordinary user.
    pub runners: Vec<Runner>,
}

impl Place {
    /// Makes the directory. It does not lie below /tmp, which is private inside a sandbox, nor below the build
    /// directory, which may be closed to the ordinary user.
    pub fn make(programs: &Programs, options: &Options) -> Result<Self, Failure> {
        let base = PathBuf::from(format!("/var/tmp/nexus-bench-{}", std::process::id()));
        let made = std::fs::create_dir(&base)
            .and_then(|()| std::fs::set_permissions(&base, std::fs::Permissions::from_mode(0o755)));
        made.map_err(|error| failed(&format!("{}: {error}", base.display())))?;
        let nexus = copy(&programs.nexus, &base)?;
        let timer = copy(
            &std::env::current_exe().map_err(|error| failed(&format!("the path of this program: {error}")))?,
            &base,
        )?;
        // The rows that were not asked for have no example, and use none.
        for (_, example) in options.examples() {
            copy(&programs.examples.join(example), &base)?;
        }
        let example = |name: &str| base.join(name);
        let (launch_bench, egress_bench) = (example("launch_bench"), example("egress_bench"));
        let fleet_bench = example("fleet_bench");
        let is_root = rustix::process::geteuid().is_root();
        let mut runners = vec![Runner::start(if is_root { "root" } else { "caller" }, None, &base, &timer)?];
        if is_root {
            let user = crate::free_user::ordinary_user().map_err(|error| failed(&error))?;
            runners.push(Runner::start("user", Some(user), &base, &timer)?);
        } else {
            announce("not root: only the caller is measured, and peers that need root are not");
        }
        Ok(Self { base, nexus: nexus.display().to_string(), launch_bench, egress_bench, fleet_bench, runners })
    }

    /// Ends the timers and removes the directory.
    pub fn remove(self) -> Result<(), Failure> {
        let stopped = self.runners.into_iter().map(Runner::stop).fold(Ok(()), Result::and);
        let removed = std::fs::remove_dir_all(&self.base);
        stopped.and(removed.map_err(|error| failed(&format!("{}: {error}", self.base.display()))))
    }
}

fn copy(program: &Path, directory: &Path) -> Result<PathBuf, Failure> {
    let name = program.file_name().ok_or_else(|| failed(&format!("{} has no name", program.display())))?;
    let to = directory.join(name);
    std::fs::copy(program, &to).map_err(|error| failed(&format!("{}: {error}", program.display())))?;
    Ok(to)
}
