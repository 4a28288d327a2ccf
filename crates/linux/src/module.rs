//! Numbers that parts of the kernel keep as parameters of their modules; a part that is built in has them too.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::{Result, number};

/// A number there. A closed list: other parameters decide which code runs, or read their text as something else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModuleParameter {
    /// 0 or 1: cubic leaves slow start before the first loss (net/ipv4/tcp_cubic.c).
    CubicHystart,
    /// What it leaves it by: 1 trains of acknowledgements, 2 delay, 3 either.
    CubicHystartDetect,
}

/// The modules: the kernel's, or a tree that a test wrote.
#[derive(Debug, Clone)]
pub struct Modules {
    root: PathBuf,
}

impl Modules {
    /// The modules of the running kernel.
    pub fn kernel() -> Modules {
        Modules::at("/sys/module")
    }

    /// A tree of files in another directory.
    pub fn at(root: impl Into<PathBuf>) -> Modules {
        Modules { root: root.into() }
    }

    /// The number. `ENOENT` if the module is not loaded.
    pub fn read(&self, parameter: ModuleParameter) -> Result<u64> {
        number::read(&self.root.join(parameter.to_string()))
    }

    /// Sets the number. `EACCES` without root.
    pub fn write(&self, parameter: ModuleParameter, value: u64) -> Result<()> {
        number::write(&self.root.join(parameter.to_string()), value)
    }
}

impl ModuleParameter {
    /// As it is called on the kernel's command line: the module, a dot, the parameter.
    pub const fn name(self) -> &'static str {
        match self {
            ModuleParameter::CubicHystart => "tcp_cubic.hystart",
            ModuleParameter::CubicHystartDetect => "tcp_cubic.hystart_detect",
        }
    }
}

impl fmt::Display for ModuleParameter {
    /// The path below `/sys/module`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (module, parameter) = self.name().split_once('.').expect("a name has a module before its dot");
        write!(f, "{module}/parameters/{parameter}")
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_number_is_read_and_written_and_that_of_no_module_is_not_made() {
        let directory = tempfile::tempdir().unwrap();
        let modules = Modules::at(directory.path());
        let parameter = ModuleParameter::CubicHystartDetect;
        assert!(modules.write(parameter, 2).unwrap_err().is(libc::ENOENT));
        fs::create_dir_all(directory.path().join("tcp_cubic/parameters")).unwrap();
        fs::write(directory.path().join("tcp_cubic/parameters/hystart_detect"), "3\n").unwrap();
        assert_eq!(modules.read(parameter).unwrap(), 3);
        modules.write(parameter, 2).unwrap();
        assert_eq!(modules.read(parameter).unwrap(), 2);
    }
}
