//! Guarantees that this driver holds for the sandbox of a plan.

use nexus_model::network::Network;
use nexus_model::plan::Access;
use nexus_model::{Guarantee, Plan};
use std::collections::BTreeSet;

/// Returns the guarantees of a sandbox of this plan, once its proof has held.
pub fn of(plan: &Plan) -> BTreeSet<Guarantee> {
    let network = match plan.network {
        Network::None => Guarantee::NetNone,
        Network::Egress | Network::EgressByProgram => Guarantee::NetDestinationChecked,
    };
    // Paths and devices that the caller opened for writing are not the workspace.
    let is_workspace_only = plan.binds.iter().all(|bind| bind.access == Access::ReadOnly);
    let conditions = [
        (is_workspace_only, Guarantee::FsWorkspaceOnly),
        (true, Guarantee::FsReadOnlySystem),
        (true, network),
        (plan.limits.memory_bytes.is_some(), Guarantee::LimitsMemory),
        (true, Guarantee::LimitsPids),
        (plan.limits.cpu_millis.is_some(), Guarantee::LimitsCpu),
        (plan.limits.disk_bytes.is_some(), Guarantee::LimitsDisk),
        (true, Guarantee::KillComplete),
        (true, Guarantee::SeccompFiltered),
        (true, Guarantee::IpcIsolated),
        (true, Guarantee::KeyringIsolated),
    ];
    conditions.into_iter().filter(|(holds, _)| *holds).map(|(_, guarantee)| guarantee).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use nexus_model::plan::{Bind, PlanDraft};
    use std::path::Path;

    fn with(change: impl FnOnce(&mut PlanDraft)) -> BTreeSet<Guarantee> {
        let mut draft = PlanDraft::direct(Path::new("/srv/w"), ["true"], Path::new("/nowhere"));
        change(&mut draft);
        of(&Plan::new(draft).unwrap())
    }

    #[test]
    fn a_plan_without_limits_has_the_guarantees_of_every_sandbox() {
        let named: Vec<_> = with(|_| {}).into_iter().map(Guarantee::name).collect();
        let expected = [
            "fs.workspace_only",
            "fs.read_only_system",
            "net.none",
            "limits.pids",
            "kill.complete",
            "seccomp.filtered",
            "ipc.isolated",
            "keyring.isolated",
        ];
        assert_eq!(named, expected);
    }

    #[test]
    fn a_guarantee_is_given_for_what_the_plan_bounds() {
        let all = with(|draft| {
            draft.network = Network::Egress;
            draft.limits.memory_bytes = Some(1 << 30);
            draft.limits.cpu_millis = Some(500);
            draft.limits.disk_bytes = Some(1 << 20);
        });
        let missing: Vec<_> = Guarantee::ALL.iter().filter(|guarantee| !all.contains(guarantee)).collect();
        assert_eq!(missing, [&Guarantee::NetNone, &Guarantee::KernelSeparate]);
    }

    #[test]
    fn a_writable_bind_takes_the_guarantee_of_the_workspace() {
        for (path, access, holds) in [("/srv/data", Access::ReadOnly, true), ("/srv/data", Access::ReadWrite, false)] {
            let bind = Bind { source: path.into(), target: path.into(), access };
            let stated = with(|draft| draft.binds = vec![bind]);
            assert_eq!(stated.contains(&Guarantee::FsWorkspaceOnly), holds, "{access:?}");
        }
    }
}
