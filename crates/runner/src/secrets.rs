//! The secrets of a run: gets the values right before the sandbox is made, and holds them as long as the run lives.

use crate::host::Host;
use crate::plan::resolve::ResolvedRun;
use nexus_secrets::{Source, fetch};
use std::path::Path;
use std::time::Duration;

pub use nexus_secrets::{FetchError, MAX_SECRETS, ParseError, Redaction, Redactor, Request, SecretValue, Warning};

/// Time that a program has to print a value. Some ask a person for a password.
const WITHIN: Duration = Duration::from_secs(60);

/// The values of the secrets of one run, and what keeps them out of its output.
#[derive(Default)]
pub struct Secrets {
    values: Vec<SecretValue>,
    redaction: Option<Redaction>,
}

impl Secrets {
    /// Gets all values from their providers. `current` is the directory that relative paths begin at.
    pub fn fetch(
        run: &ResolvedRun,
        host: &Host,
        current: &Path,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<(Self, Vec<Warning>), FetchError> {
        if run.secrets.is_empty() {
            return Ok((Self::default(), Vec::new()));
        }
        let workspace = run.site.workspace.as_path();
        let home = host.home.as_deref();
        let source = Source { variables: &host.variables, home, current, workspace, within: WITHIN, goes_on };
        let (mut values, mut warnings) = (Vec::new(), Vec::new());
        for request in &run.secrets {
            let fetched = fetch(request, &source)?;
            values.push(fetched.value);
            warnings.extend(fetched.warning);
        }
        let named = run.secrets.iter().map(|request| request.name.as_str()).zip(&values);
        let redaction = Some(Redaction::new(named));
        Ok((Self { values, redaction }, warnings))
    }

    /// Returns the values in the order of the plan.
    pub(crate) fn values(&self) -> Vec<&[u8]> {
        self.values.iter().map(SecretValue::expose).collect()
    }

    /// Returns what keeps the values out of output, if there are any.
    pub(crate) fn redaction(&self) -> Option<&Redaction> {
        self.redaction.as_ref()
    }
}
