//! A launcher process on its standard input: `launcher NETWORKS REUSE [SANDBOXES [STEP [WALLS]]]`. Tests attack what it
//! starts; with the feature `inject` the step fails, and those parts of the confinement are left out.

use nexus_driver_namespace::Namespace;
use nexus_driver_namespace::launcher::{PoolConfig, serve_stdin};

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
    serve_stdin(&driver, PoolConfig { networks: word(0).parse()?, reuse: word(1).parse()?, sandboxes })?;
    Ok(())
}
