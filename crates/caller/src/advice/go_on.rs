//! Advice for a commit that was interrupted.

use nexus_runner::recover::interrupted::Direction;

/// Returns the advice for a commit that cannot go on now. Pure.
pub fn advice(run: &str, ending: Direction) -> String {
    let (recover, reject) = (format!("nexus changes recover --run {run}"), format!("nexus changes reject --run {run}"));
    let then = match ending {
        Direction::Open => format!("{recover} finishes the commit, and {reject} takes it back"),
        Direction::Back => format!("{recover} and {reject} both go on with taking the commit back"),
        Direction::Forward => {
            format!("{recover} finishes the commit. All of it is applied, and nothing can take it back")
        }
    };
    format!("fix that (is the disk full?), then {then}")
}

#[cfg(test)]
mod tests {
    use super::{Direction, advice};

    #[test]
    fn advice_names_only_commands_that_do_what_it_says() {
        let of = |ending| advice("7", ending);
        assert!(
            of(Direction::Open).contains("recover --run 7 finishes")
                && of(Direction::Open).contains("reject --run 7 takes")
        );
        assert!(!of(Direction::Back).contains("finishes") && of(Direction::Back).contains("reject --run 7 both go on"));
        assert!(
            of(Direction::Forward).contains("recover --run 7 finishes") && !of(Direction::Forward).contains("reject")
        );
    }
}
