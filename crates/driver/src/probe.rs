//! Report of a driver about this machine.

use nexus_model::Guarantee;
use serde::Serialize;

/// One guarantee, and whether it can be given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Guarantee that was examined.
    pub guarantee: Guarantee,
    /// True when the driver can give it here.
    pub given: bool,
    /// Reason for the finding: the means that hold the guarantee, or those that are missing.
    pub reason: String,
    /// Command or setting with which a person can make the guarantee available.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
    /// The commands that do so on this machine, for root; empty where no command does.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<String>,
}

/// All findings of one driver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProbeReport {
    /// Name of the driver.
    pub driver: &'static str,
    /// Requirements for running anything at all that this machine does not meet; empty when it meets all.
    pub missing: Vec<Missing>,
    /// One finding for each guarantee.
    pub findings: Vec<Finding>,
}

/// Something without which the driver refuses to run at all.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Missing {
    /// Requirement that is not met.
    pub what: String,
    /// Observation that shows it.
    pub reason: String,
    /// Command or setting with which a person can meet it.
    pub fix: String,
    /// The commands that do so on this machine, for root; empty where no command does.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<String>,
}

impl ProbeReport {
    /// Checks that the driver can give this guarantee; the error is the reason for which it cannot.
    pub fn gives(&self, guarantee: Guarantee) -> Result<(), String> {
        match self.findings.iter().find(|finding| finding.guarantee == guarantee) {
            Some(finding) if finding.given => Ok(()),
            Some(finding) => Err(finding.reason.clone()),
            None => Err(format!("the {} driver does not know it", self.driver)),
        }
    }
}
