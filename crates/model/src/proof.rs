//! The enforcement proof: what a confined process tried just before the command started, and what it saw.

use crate::bytes::ByteText;
use crate::network::Network;
use serde::{Deserialize, Serialize};

/// One attempt and its answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProofItem {
    /// Name of the attempt, e.g. `write_outside`. `write_outside`.
    pub check: String,
    /// The answers that the plan allows, e.g. `EROFS|EACCES`.
    pub expected: String,
    /// Answer that was seen.
    pub seen: String,
}

impl ProofItem {
    /// Returns whether the answer is one of those expected.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.expected.split('|').any(|allowed| allowed == self.seen)
    }
}

/// Facts that the host knows about a sandbox, for the proof to compare with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct ProofPlan {
    /// A host path that must not be there.
    pub marker: ByteText,
    /// `/proc/self/uid_map` as it must read, single spaces.
    pub uid_map: String,
    /// Inode numbers of the host's namespaces, by name; the command's must differ.
    pub host_namespaces: Vec<(String, u64)>,
    /// The workspace inside.
    pub workspace: ByteText,
    /// Network of the sandbox.
    pub network: Network,
}

impl ProofPlan {
    /// Returns every check of a proof with the answers that this plan allows, in the order in which they are made.
    #[must_use]
    pub fn expected(&self) -> Vec<(String, String)> {
        // With an egress every address is local: what is sent stays on the sandbox's own loopback.
        let network = match self.network {
            Network::None => "ENETUNREACH",
            Network::Egress | Network::EgressByProgram => "loopback",
        };
        let fixed = [
            ("write_root", "EROFS|EACCES"),
            ("write_system", "EROFS|EACCES"),
            ("open_host_marker", "ENOENT"),
            ("write_proc_sys", "EROFS|EACCES"),
            ("socket_packet", "EAFNOSUPPORT"),
            ("reach_network", network),
            ("new_user_namespace", "EPERM"),
            ("mount", "EPERM"),
            ("read_keyring", "EPERM|ENOSYS"),
            ("capabilities", "none"),
            ("no_new_privs", "true"),
            ("seccomp", "filter"),
            ("core_limit", "1"),
            ("uid_map", &self.uid_map),
            ("root_flags", "ro,nosuid,nodev"),
            ("workspace_flags", "rw,nosuid,nodev"),
        ];
        let namespaces = self.host_namespaces.iter().map(|(kind, _)| (format!("namespace_{kind}"), "own".to_owned()));
        fixed.into_iter().map(|(check, allowed)| (check.to_owned(), allowed.to_owned())).chain(namespaces).collect()
    }

    /// Reports whether a proof holds every check of this plan, and each with an answer that the plan allows. The plan's
    /// own list counts, whatever the proof says that it expected.
    #[must_use]
    pub fn is_proved_by(&self, proof: &[ProofItem]) -> bool {
        let expected = self.expected();
        let matches = |(item, (check, allowed)): (&ProofItem, &(String, String))| {
            item.check == *check && item.expected == *allowed && item.holds()
        };
        proof.len() == expected.len() && proof.iter().zip(&expected).all(matches)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_proof_of_the_plans_own_checks_counts() {
        let plan = ProofPlan { uid_map: "1000 7 1".into(), ..ProofPlan::default() };
        let whole: Vec<ProofItem> = plan
            .expected()
            .into_iter()
            .map(|(check, expected)| {
                let seen = expected.split('|').next_back().unwrap().to_owned();
                ProofItem { check, expected, seen }
            })
            .collect();
        assert!(plan.is_proved_by(&whole));
        for missing in 0..whole.len() {
            let mut part = whole.clone();
            part.remove(missing);
            assert!(!plan.is_proved_by(&part), "{}", whole[missing].check);
            // A guest that says it expected what it saw.
            let mut lies = whole.clone();
            (lies[missing].expected, lies[missing].seen) = ("ok".to_owned(), "ok".to_owned());
            assert!(!plan.is_proved_by(&lies), "{}", whole[missing].check);
        }
        assert!(!plan.is_proved_by(&[]));
        assert!(!plan.is_proved_by(&[whole.clone(), whole[..1].to_vec()].concat()));
    }

    #[test]
    fn an_answer_holds_only_when_it_is_named() {
        let item = |seen: &str| ProofItem { check: "x".into(), expected: "EROFS|EACCES".into(), seen: seen.into() };
        assert!(item("EROFS").holds());
        assert!(item("EACCES").holds());
        assert!(!item("ok").holds());
        assert!(!item("").holds());
        assert!(!item("EROFS|EACCES").holds());
    }
}
