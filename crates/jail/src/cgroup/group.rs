//! The control groups of one run: made, limited, entered and removed.

use crate::steps::{AtStep, Faults, Step, StepError};
use nexus_model::Limits;
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The control groups of one run: where they are or will be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Group {
    /// One directory of the unified hierarchy.
    V2 {
        /// Path of the directory.
        path: PathBuf,
    },
    /// A directory for each controller.
    V1 {
        /// The memory controller's.
        memory: Option<PathBuf>,
        /// The cpu controller's.
        cpu: Option<PathBuf>,
    },
}

/// Length of a scheduling period in microseconds.
const PERIOD_US: u64 = 100_000;

impl Group {
    /// Returns its directories.
    pub fn directories(&self) -> Vec<&Path> {
        match self {
            Self::V2 { path } => vec![path],
            Self::V1 { memory, cpu } => memory.iter().chain(cpu).map(PathBuf::as_path).collect(),
        }
    }

    /// Returns its directories with the names that they have below `/sys/fs/cgroup` inside, where programs look for their
    /// limits: the unified hierarchy lies there itself.
    pub fn shown(&self) -> Vec<(&Path, &'static str)> {
        match self {
            Self::V2 { path } => vec![(path, "")],
            Self::V1 { memory, cpu } => {
                let named = [(memory, "memory"), (cpu, "cpu")];
                named.into_iter().filter_map(|(path, name)| Some((path.as_deref()?, name))).collect()
            }
        }
    }

    /// Makes the directories and writes the limits.
    pub fn make(&self, limits: &Limits, faults: Faults) -> Result<(), StepError> {
        faults.check(Step::MakeCgroup)?;
        for directory in self.directories() {
            make_directory(directory).at(Step::MakeCgroup, &directory.display().to_string())?;
        }
        if let Self::V2 { path } = self {
            enable_controllers(path, limits).at(Step::MakeCgroup, "controllers of the unified hierarchy")?;
        }
        for (file, value) in self.settings(limits).at(Step::MakeCgroup, "the files of the control group")? {
            std::fs::write(&file, value.as_bytes()).at(Step::MakeCgroup, &file.display().to_string())?;
        }
        Ok(())
    }

    /// Returns the files to write. A file that may be absent is left out only where it is known to be.
    fn settings(&self, limits: &Limits) -> io::Result<Vec<(PathBuf, String)>> {
        let quota = limits.cpu_millis.map(|millis| u64::from(millis) * PERIOD_US / 1000);
        let mut settings = Vec::new();
        match self {
            Self::V2 { path } => {
                if let Some(bytes) = limits.memory_bytes {
                    settings.push((path.join("memory.max"), bytes.to_string()));
                    settings.push((path.join("memory.oom.group"), "1".to_owned()));
                    // Without swap accounting the file is absent; then there is no swap to bound.
                    let swap = path.join("memory.swap.max");
                    if swap.try_exists()? {
                        settings.push((swap, "0".to_owned()));
                    }
                }
                if let Some(quota) = quota {
                    settings.push((path.join("cpu.max"), format!("{quota} {PERIOD_US}")));
                }
            }
            Self::V1 { memory, cpu } => {
                if let (Some(directory), Some(bytes)) = (memory, limits.memory_bytes) {
                    settings.push((directory.join("memory.limit_in_bytes"), bytes.to_string()));
                    // Buffers of TCP connections, also of those inside, are not in the other limit.
                    let tcp = directory.join("memory.kmem.tcp.limit_in_bytes");
                    if tcp.try_exists()? {
                        settings.push((tcp, bytes.to_string()));
                    }
                    let with_swap = directory.join("memory.memsw.limit_in_bytes");
                    if with_swap.try_exists()? {
                        settings.push((with_swap, bytes.to_string()));
                    } else {
                        // Without swap accounting the limit must not be evaded into swap.
                        settings.push((directory.join("memory.swappiness"), "0".to_owned()));
                    }
                }
                if let (Some(directory), Some(quota)) = (cpu, quota) {
                    settings.push((directory.join("cpu.cfs_period_us"), PERIOD_US.to_string()));
                    settings.push((directory.join("cpu.cfs_quota_us"), quota.to_string()));
                }
            }
        }
        Ok(settings)
    }

    /// Opens the directory for CLONE_INTO_CGROUP; only the unified hierarchy has it.
    pub fn clone_target(&self, faults: Faults) -> Result<Option<OwnedFd>, StepError> {
        let Self::V2 { path } = self else { return Ok(None) };
        faults.check(Step::EnterCgroup)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::open(path, flags, Mode::empty()).map(Some).at(Step::EnterCgroup, &path.display().to_string())
    }

    /// Puts a process in; for v1, where a clone cannot.
    pub fn enter(&self, pid: i32, faults: Faults) -> Result<(), StepError> {
        let Self::V1 { .. } = self else { return Ok(()) };
        faults.check(Step::EnterCgroup)?;
        for directory in self.directories() {
            let file = directory.join("cgroup.procs");
            std::fs::write(&file, pid.to_string()).at(Step::EnterCgroup, &file.display().to_string())?;
        }
        Ok(())
    }

    /// Returns the number of times that the kernel has killed a process of the group for memory.
    pub fn oom_kills(&self) -> io::Result<u64> {
        let file = match self {
            Self::V2 { path } => path.join("memory.events"),
            Self::V1 { memory: Some(directory), .. } => directory.join("memory.oom_control"),
            Self::V1 { memory: None, .. } => return Ok(0),
        };
        let text = std::fs::read_to_string(file)?;
        Ok(text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok()).unwrap_or(0))
    }

    /// Takes the share of the processor away. Many processes that are killed must not die at a tenth of a processor.
    pub fn lift_share(&self) -> io::Result<()> {
        let (file, all) = match self {
            Self::V2 { path } => (path.join("cpu.max"), "max"),
            Self::V1 { cpu: Some(directory), .. } => (directory.join("cpu.cfs_quota_us"), "-1"),
            Self::V1 { cpu: None, .. } => return Ok(()),
        };
        match std::fs::OpenOptions::new().write(true).open(file) {
            Ok(mut file) => io::Write::write_all(&mut file, all.as_bytes()),
            // Without the controller there is no share.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Kills what is left in it and removes it. Fine when it is already gone.
    pub fn remove(&self) -> io::Result<()> {
        for directory in self.directories() {
            remove_directory(directory)?;
        }
        Ok(())
    }
}

/// Makes one directory. Its parents, which runs share, may exist; the run's own directory may not: another process would
/// have made it.
fn make_directory(directory: &Path) -> io::Result<()> {
    if let Some(shared) = directory.parent() {
        match std::fs::create_dir(shared) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            other => other?,
        }
    }
    std::fs::create_dir(directory)
}

/// Enables the controllers in the parents: a directory of the unified hierarchy has the controllers that its parents
/// hand down (cgroups(7)).
fn enable_controllers(directory: &Path, limits: &Limits) -> io::Result<()> {
    let mut parents: Vec<&Path> = directory.ancestors().skip(1).take(2).collect();
    parents.reverse();
    for parent in parents {
        let file = parent.join("cgroup.subtree_control");
        let Ok(now) = std::fs::read_to_string(&file) else { continue };
        for (name, needed) in [("memory", limits.memory_bytes.is_some()), ("cpu", limits.cpu_millis.is_some())] {
            if needed && !now.split_whitespace().any(|on| on == name) {
                std::fs::write(&file, format!("+{name}"))?;
            }
        }
    }
    Ok(())
}

fn remove_directory(directory: &Path) -> io::Result<()> {
    let deadline = Instant::now() + Duration::from_secs(2);
    loop {
        match std::fs::remove_dir(directory) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            // A dying process leaves its group a moment after it can be waited for.
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) && Instant::now() < deadline => {
                kill_members(directory)?;
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(error) => return Err(error),
        }
    }
}

fn kill_members(directory: &Path) -> io::Result<()> {
    // The unified hierarchy kills all at once, whatever they start meanwhile (Linux 5.14).
    match std::fs::OpenOptions::new().write(true).open(directory.join("cgroup.kill")) {
        Ok(mut all) => return io::Write::write_all(&mut all, b"1"),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let members = std::fs::read_to_string(directory.join("cgroup.procs"))?;
    for pid in members.lines().filter_map(|line| rustix::process::Pid::from_raw(line.trim().parse().ok()?)) {
        match rustix::process::kill_process(pid, rustix::process::Signal::KILL) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(memory_bytes: Option<u64>, cpu_millis: Option<u32>) -> Limits {
        Limits { memory_bytes, cpu_millis, ..Limits::defaults(1 << 20) }
    }

    #[test]
    fn a_file_that_cannot_be_looked_at_is_not_left_out() {
        let place = || PathBuf::from("/proc/self/status");
        let groups = [Group::V2 { path: place() }, Group::V1 { memory: Some(place()), cpu: None }];
        assert!(groups.iter().all(|group| group.settings(&limits(Some(1 << 20), None)).is_err()));
    }

    #[test]
    fn v2_writes_memory_with_group_oom_and_the_share_of_a_period() {
        let group = Group::V2 { path: PathBuf::from("/nowhere") };
        let settings = group.settings(&limits(Some(1 << 20), Some(1500))).unwrap();
        let value = |name: &str| settings.iter().find(|(file, _)| file.ends_with(name)).map(|(_, v)| v.as_str());
        assert_eq!(value("memory.max"), Some("1048576"));
        assert_eq!(value("memory.oom.group"), Some("1"));
        assert_eq!(value("cpu.max"), Some("150000 100000"));
    }

    #[test]
    fn v1_writes_each_controller_in_its_own_directory() {
        let group = Group::V1 { memory: Some("/m".into()), cpu: Some("/c".into()) };
        let settings = group.settings(&limits(Some(4096), Some(500))).unwrap();
        assert!(settings.contains(&("/m/memory.limit_in_bytes".into(), "4096".into())));
        assert!(settings.contains(&("/c/cpu.cfs_quota_us".into(), "50000".into())));
    }

    #[test]
    fn v1_bounds_the_buffers_of_connections_where_the_kernel_can() {
        let directory = tempfile::tempdir().unwrap();
        let group = Group::V1 { memory: Some(directory.path().to_owned()), cpu: None };
        let file = directory.path().join("memory.kmem.tcp.limit_in_bytes");
        let has = || group.settings(&limits(Some(4096), None)).unwrap().contains(&(file.clone(), "4096".into()));
        assert!(!has());
        std::fs::write(&file, "").unwrap();
        assert!(has());
    }

    #[test]
    fn v1_bounds_swap_with_memory_or_tells_the_group_not_to_swap() {
        let folder = tempfile::tempdir().unwrap();
        let group = Group::V1 { memory: Some(folder.path().to_owned()), cpu: None };
        let (with_swap, none) = ("memory.memsw.limit_in_bytes", "memory.swappiness");
        let value = |name: &str| {
            let settings = group.settings(&limits(Some(4096), None)).unwrap();
            settings.into_iter().find(|(file, _)| file.ends_with(name)).map(|(_, value)| value)
        };
        assert_eq!((value(with_swap), value(none)), (None, Some("0".to_owned())));
        std::fs::write(folder.path().join(with_swap), "").unwrap();
        assert_eq!((value(with_swap), value(none)), (Some("4096".to_owned()), None));
    }

    #[test]
    fn members_are_killed_at_once_where_the_kernel_can() {
        let folder = tempfile::tempdir().unwrap();
        let all = folder.path().join("cgroup.kill");
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        std::fs::write(folder.path().join("cgroup.procs"), format!("{}\n", child.id())).unwrap();
        std::fs::write(&all, "").unwrap();
        kill_members(folder.path()).unwrap();
        assert_eq!(std::fs::read_to_string(&all).unwrap(), "1");
        assert_eq!(child.try_wait().unwrap(), None, "one by one, too");
        std::fs::remove_file(&all).unwrap();
        kill_members(folder.path()).unwrap();
        assert!(!child.wait().unwrap().success());
    }

    #[test]
    fn the_share_of_the_processor_is_lifted_in_both_versions() {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path().to_owned();
        let (v1, v2) = (Group::V1 { memory: None, cpu: Some(at.clone()) }, Group::V2 { path: at.clone() });
        v1.lift_share().unwrap();
        v2.lift_share().unwrap();
        for (group, name, all) in [(v1, "cpu.cfs_quota_us", "-1"), (v2, "cpu.max", "max")] {
            std::fs::write(at.join(name), "").unwrap();
            group.lift_share().unwrap();
            assert_eq!(std::fs::read_to_string(at.join(name)).unwrap(), all);
        }
    }

    #[test]
    fn a_limit_without_a_request_is_not_written() {
        let group = Group::V1 { memory: Some("/m".into()), cpu: Some("/c".into()) };
        assert!(group.settings(&limits(None, None)).unwrap().is_empty());
    }

    #[test]
    fn removing_what_is_not_there_is_fine() {
        let group = Group::V2 { path: PathBuf::from("/nowhere/at/all") };
        assert!(group.remove().is_ok());
    }
}
