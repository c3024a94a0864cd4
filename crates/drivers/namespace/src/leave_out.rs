//! Leaves single parts of the confinement out of sandboxes, for tests (feature `inject`).

use nexus_jail::Wall;

/// Only test builds hold this text: `cargo xtask` looks for it in release builds.
const TEST_BUILD: &str = "nexus-test-build-that-leaves-walls-out";

/// Leaves parts of the confinement out of every sandbox that this process launches from now on, by their names with
/// commas between.
///
/// # Errors
/// Returns a sentence with the name that no wall has; nothing is left out then.
pub fn leave_out(names: &str) -> Result<(), String> {
    let names = names.split(',').filter(|name| !name.is_empty());
    let left_out: Vec<Wall> = names
        .map(|name| Wall::by_name(name).ok_or_else(|| format!("{TEST_BUILD}: no wall has the name {name}")))
        .collect::<Result<_, _>>()?;
    nexus_jail::leave_out::leave_out(&left_out);
    nexus_guest::leave_out::set(nexus_guest::leave_out::Confinement {
        proof: !left_out.contains(&Wall::Proof),
        descriptors: !left_out.contains(&Wall::CommandDescriptors),
    });
    Ok(())
}
