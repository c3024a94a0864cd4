//! A claim under the policy documents of its territory.

use nexus_api::conduits::ClaimedDirective;
use nexus_policy::document::{Admission, Effective, check_directive};

/// Holds a claim against the documents; the error is for people. Where they ask for an approval, one of the control plane answers, if
/// it is for exactly this specification: the territory has no person to ask, and trusts the control plane to have asked one.
pub fn is_allowed(policies: &Effective, claimed: &ClaimedDirective) -> Result<(), String> {
    match check_directive(policies, &claimed.spec) {
        Err(refused) => Err(format!("{refused} ({})", refused.code())),
        Ok(Admission::Free) => Ok(()),
        Ok(Admission::NeedsApproval { reasons, quorum }) => match &claimed.approval {
            Some(approval) if approval.approvers < quorum => {
                let (has, asks) = (approval.approvers, reasons.join("; "));
                Err(format!("{has} of {quorum} users have approved the directive: {asks} (approval_quorum)"))
            }
            Some(approval) if approval.is_for(&claimed.spec) => Ok(()),
            Some(_) => Err("what was approved is another directive (other_subject)".to_owned()),
            None => Err(format!("the directive was not approved: {} (approval_required)", reasons.join("; "))),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nexus_model::subject::DirectiveSubject;
    use nexus_policy::document::LoadedPolicy;
    use serde_json::json;

    #[test]
    fn a_territory_whose_policy_asks_starts_only_what_was_approved() {
        let text =
            r#"{"policy": "nexus.policy/1", "id": "a", "level": "global", "approval": {"exec": "needs_approval"}}"#;
        let policies = Effective::of(&[LoadedPolicy::read("a.yaml", text).unwrap()]);
        let id = "01890a5d-ac96-774b-bcce-b302099a8057";
        let capabilities = |a: &str| {
            let fs = json!({"read": ["workspace:**"], "write": ["workspace:**"]});
            json!({"net": {"mode": "none"}, "fs": fs, "env": {"A": a}})
        };
        let spec = json!({
            "directive_id": id, "facility": {"id": id}, "command": "make", "capabilities": capabilities("1")
        });
        let subject: DirectiveSubject = serde_json::from_value(json!({"spec": spec, "labels": {"zone": "a"}})).unwrap();
        let claim = |approval: serde_json::Value, change: &dyn Fn(&mut serde_json::Value)| {
            let mut spec = spec.clone();
            change(&mut spec);
            let claim = json!({"directive_id": id, "directive_token": "t", "spec": spec, "approval": approval});
            let claim: ClaimedDirective = serde_json::from_value(claim).unwrap();
            is_allowed(&policies, &claim)
        };
        let approval = json!({"approval_id": id, "subject": subject.digest(), "labels": {"zone": "a"}});
        assert_eq!(claim(approval.clone(), &|_| {}), Ok(()));
        assert!(claim(json!(null), &|_| {}).unwrap_err().contains("a policy asks for it (a.yaml:"));
        for (place, value) in [("command", json!("make x")), ("cwd", json!("b")), ("capabilities", capabilities("2"))] {
            let refused = claim(approval.clone(), &|spec| spec[place] = value.clone()).unwrap_err();
            assert!(refused.ends_with("(other_subject)"), "{refused}");
        }
        let two = r#"{"policy": "nexus.policy/1", "id": "b", "level": "global", "approval": {"quorum": 2}}"#;
        let asks = [LoadedPolicy::read("a.yaml", text).unwrap(), LoadedPolicy::read("b.yaml", two).unwrap()];
        let by = |approvers: serde_json::Value| {
            let mut approval = approval.clone();
            approval["approvers"] = approvers;
            let claim = json!({"directive_id": id, "directive_token": "t", "spec": spec, "approval": approval});
            is_allowed(&Effective::of(&asks), &serde_json::from_value(claim).unwrap())
        };
        assert_eq!(by(json!(2)), Ok(()));
        for few in [json!(1), json!(null)] {
            assert!(by(few).unwrap_err().ends_with("(approval_quorum)"), "a server that knows one alone says nothing");
        }
        let mut elsewhere = approval.clone();
        elsewhere["labels"] = json!({});
        assert!(claim(elsewhere, &|_| {}).is_err());
        let forbidden = claim(json!(null), &|spec| spec["command"] = json!("rm -rf /")).unwrap_err();
        assert!(forbidden.ends_with("(policy)"), "{forbidden}");
    }
}
