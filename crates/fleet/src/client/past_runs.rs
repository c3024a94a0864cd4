//! Directives that a control plane has, as runs that policy documents can be asked about (`nexus policy replay --fleet`).

use crate::args::ServerArgs;
use crate::client::access::Access;
use crate::failure::Failure;
use nexus_api::client::ListQuery;
use nexus_mothership::past_run;
use nexus_policy::document::PastRun;

/// A directive as a run of the past.
pub struct PastDirective {
    /// Id of the directive.
    pub id: String,
    /// Time of its creation, in milliseconds since 1970.
    pub created_ms: u64,
    /// Command line of the directive.
    pub command: String,
    /// The run, or why it cannot be asked about.
    pub run: Result<PastRun, String>,
}

/// Returns the latest directives, at most `number`, that were created at `from` or later.
pub fn past_runs(access: &ServerArgs, from: Option<u64>, number: usize) -> Result<Vec<PastDirective>, Failure> {
    let access = Access::of(access)?;
    let from = from.map_or(i64::MIN, |from| i64::try_from(from).unwrap_or(i64::MAX));
    let mut found = Vec::new();
    let mut query = ListQuery { limit: Some(200), ..ListQuery::default() };
    loop {
        let page = access.wait(access.client.directives(None, &query))?;
        for one in &page.directives {
            if one.created_at.0 < from || found.len() >= number {
                return Ok(found);
            }
            found.push(PastDirective {
                id: one.directive_id.to_string(),
                created_ms: u64::try_from(one.created_at.0).unwrap_or_default(),
                command: one.command.clone(),
                run: past_run(one),
            });
        }
        let Some(cursor) = page.next_cursor else { return Ok(found) };
        query.cursor = Some(cursor);
    }
}
