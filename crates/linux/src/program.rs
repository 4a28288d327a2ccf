//! Programs of others that steps start, where they are installed.

use std::path::PathBuf;

/// Where they are looked for beside `PATH`. Debian has `ovs-vswitchd` as an alternative in `/usr/sbin`, and the one
/// with DPDK in a directory of its own.
const PLACES: [&str; 3] = ["/usr/sbin", "/usr/bin", "/usr/lib/openvswitch-switch-dpdk"];

/// The program of a name; else what has it: the name of the package in Debian.
pub(crate) fn find(name: &str, package: &str) -> Result<PathBuf, String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).chain(PLACES.map(PathBuf::from));
    places.map(|place| place.join(name)).find(|program| program.is_file()).ok_or_else(|| {
        format!("the program {name} is not installed: Debian and Ubuntu have it in the package {package}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_says_which_package_has_it() {
        let why = find("no-such-program", "its-package").unwrap_err();
        assert!(why.contains("no-such-program") && why.contains("its-package"), "{why}");
    }
}
