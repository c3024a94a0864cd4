//! A crate with a dependency, a build script and tests.
include!(concat!(env!("OUT_DIR"), "/made.rs"));

/// ```
/// assert_eq!(shop::answer(), 42);
/// ```
pub fn answer() -> u32 {
    tiny::add(MADE, 2)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_answer_is_known() {
        assert_eq!(super::answer(), 42);
    }

    #[test]
    fn threads_and_children_work() {
        let thread = std::thread::spawn(|| std::process::Command::new("true").status().unwrap().success());
        assert!(thread.join().unwrap());
    }
}
