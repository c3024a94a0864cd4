//! Writes the reports of claims whose daemon cannot say how they ended.

use crate::claims::Ended;
use crate::decide::outcome::{End, Verdict, verdict};
use crate::report::now;
use crate::run::engine::read_receipt;
use nexus_api::conduits::FinishedRequest;
use nexus_runner::recover::signed::SignedEnd;
use serde_json::json;

/// The end of a directive whose changes are committed, all of them or some. Its receipt, its diff and the rest of its output died with the daemon.
pub fn of_commit(ended: Option<Ended>, unsettled: bool) -> FinishedRequest {
    let verdict = match ended {
        Some(Ended { exit, reason }) => {
            // As a run that is not cut off says it.
            let exit = if exit == 0 && unsettled { nexus_model::exit::REFUSED } else { exit };
            verdict(&End::Ran { exit, reason, unsettled }, false, false)
        }
        None if unsettled => verdict(&End::Broke, false, false),
        None => verdict(&End::CommittedAtRecovery, false, false),
    };
    FinishedRequest { diff_truncated: true, ..of_verdict(&verdict) }
}

/// The end as the receipt states it. The rest of the output and the diff were in the memory of the daemon that died.
pub fn of_signed(end: &SignedEnd) -> FinishedRequest {
    let ran = End::Ran { exit: end.exit, reason: end.reason, unsettled: end.unsettled };
    FinishedRequest {
        diff_truncated: true,
        receipt: read_receipt(&end.path),
        timing: Some(json!({ "duration_ms": end.duration_ms })),
        ..of_verdict(&verdict(&ran, false, false))
    }
}

pub fn of_lost() -> FinishedRequest {
    of_verdict(&verdict(&End::LeaseLost, false, false))
}

/// The report of a claim whose commit was announced in vain.
pub fn of_not_committed() -> FinishedRequest {
    of_verdict(&verdict(&End::NotCommitted, false, false))
}

fn of_verdict(verdict: &Verdict) -> FinishedRequest {
    FinishedRequest {
        status: verdict.status,
        exit_code: verdict.exit_code,
        stdout_truncated: true,
        stderr_truncated: true,
        stdout_chunks: None,
        stderr_chunks: None,
        diff_truncated: false,
        diff_base64: None,
        snapshot_before: None,
        snapshot_after: None,
        artifacts_manifest: None,
        finished_at: Some(now()),
        reason: Some(verdict.reason.to_owned()),
        receipt: None,
        timing: None,
    }
}
