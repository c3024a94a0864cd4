//! A launcher process on its standard input: `launcher NETWORKS REUSE [SANDBOXES [STEP [WALLS]]]`, or the one behind the door
//! of a warm launcher: `launcher warm false SANDBOXES`. Tests attack what it starts; with the feature `inject` the step fails,
//! and those parts of the confinement are left out.

use nexus_driver_namespace::Namespace;
use nexus_driver_namespace::launcher::{PoolConfig, serve_stdin};
use nexus_driver_namespace::warm::serve_warm;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let word = |index: usize| arguments.get(index).map_or("", String::as_str);
    #[allow(unused_mut, reason = "changed only with the feature inject")]
    let mut driver = Namespace::with_defaults();
    #[cfg(feature = "inject")]
    if let Some(step) = nexus_driver_namespace::Step::by_name(word(3)) {
        driver.faults = nexus_driver_namespace::Faults::failing(step);
    }
    #[cfg(feature = "inject")]
    nexus_driver_namespace::leave_out(word(4))?;
    let sandboxes = if word(2).is_empty() { 0 } else { word(2).parse()? };
    if word(0) == "warm" {
        serve_warm(&driver.watching_layers(), PoolConfig { networks: 0, reuse: false, sandboxes })?;
        return Ok(());
    }
    serve_stdin(&driver, PoolConfig { networks: word(0).parse()?, reuse: word(1).parse()?, sandboxes })?;
    Ok(())
}
