//! What a driver finds on this machine.

use nexus_model::Guarantee;
use serde::Serialize;

/// One guarantee, and whether it can be given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Which.
    pub guarantee: Guarantee,
    /// Whether.
    pub given: bool,
    /// How it is held, or why it is not.
    pub reason: String,
    /// What somebody can do about it: a command or a setting.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

/// All findings of one driver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProbeReport {
    /// Which driver.
    pub driver: &'static str,
    /// What must be there for anything to run: empty when all is.
    pub missing: Vec<Missing>,
    /// Each guarantee.
    pub findings: Vec<Finding>,
}

/// Something without which the driver refuses to run at all.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Missing {
    /// What.
    pub what: String,
    /// How it shows.
    pub reason: String,
    /// What somebody can do about it.
    pub fix: String,
}

impl ProbeReport {
    /// Whether the driver can give this guarantee, and if not, why.
    pub fn gives(&self, guarantee: Guarantee) -> Result<(), String> {
        match self.findings.iter().find(|finding| finding.guarantee == guarantee) {
            Some(finding) if finding.given => Ok(()),
            Some(finding) => Err(finding.reason.clone()),
            None => Err(format!("the {} driver does not know it", self.driver)),
        }
    }
}
