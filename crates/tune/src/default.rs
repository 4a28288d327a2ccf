//! The defaults of knobs.

use std::fmt;

use crate::Since;

/// Values that kernels have by themselves, each with the first kernel that has it, oldest first. The first of a list
/// holds from the oldest supported kernel at least.
pub type Values = &'static [(Since, &'static str)];

/// What a knob is by default, or why that is no value that a table could hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ByDefault {
    /// The same on every machine.
    Kernel(Values),
    /// Equal on every machine with enough memory; the last number is lower where memory is short, as the text
    /// explains.
    Capped(Values, &'static str),
    /// By the machine's memory: the formula in words.
    Memory(&'static str),
    /// It depends on the kernel's build or on the boot loader: on which, in words.
    Build(&'static str),
    /// What the card's driver chooses, in words.
    Driver(&'static str),
    /// No value: what holds as long as none is set, in words.
    Unset(&'static str),
    /// None any more: the knob is gone.
    Gone,
}

impl ByDefault {
    /// The values of kernels, oldest first; none where kernels do not decide it.
    pub fn values(self) -> Values {
        match self {
            ByDefault::Kernel(values) | ByDefault::Capped(values, _) => values,
            _ => &[],
        }
    }

    /// The value on a kernel, where kernels decide it.
    pub fn on(self, kernel: Since) -> Option<&'static str> {
        self.values().iter().rev().find(|(since, _)| kernel >= *since).map(|(_, value)| *value)
    }
}

impl fmt::Display for ByDefault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ByDefault::Kernel(values) => list(values, f),
            ByDefault::Capped(values, words) => {
                list(values, f)?;
                write!(f, "; {words}")
            }
            ByDefault::Memory(words) => write!(f, "by memory: {words}"),
            ByDefault::Build(words) => write!(f, "by the kernel's build: {words}"),
            ByDefault::Driver(words) => write!(f, "by the driver: {words}"),
            ByDefault::Unset(words) => write!(f, "not set: {words}"),
            ByDefault::Gone => f.write_str("gone"),
        }
    }
}

/// The newest first, as most readers have it: `4194304 from Linux 6.18, before 212992`.
fn list(values: &[(Since, &str)], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for (at, (since, value)) in values.iter().enumerate().rev() {
        if at + 1 < values.len() {
            f.write_str(", before ")?;
        }
        f.write_str(value)?;
        if at > 0 {
            write!(f, " from Linux {since}")?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_has_the_newest_value_that_is_not_younger_than_itself() {
        const VALUES: Values = &[(Since(4, 0), "6"), (Since(6, 16), "32")];
        let row = ByDefault::Kernel(VALUES);
        let on = |major, minor| row.on(Since(major, minor));
        assert_eq!((on(3, 9), on(4, 0), on(6, 15)), (None, Some("6"), Some("6")));
        assert_eq!((on(6, 16), on(7, 0)), (Some("32"), Some("32")));
        assert_eq!(row.to_string(), "32 from Linux 6.16, before 6");
        assert_eq!(ByDefault::Capped(VALUES, "less").on(Since(6, 0)), Some("6"));
        assert_eq!(ByDefault::Capped(VALUES, "less").to_string(), "32 from Linux 6.16, before 6; less");
        assert_eq!(ByDefault::Driver("a queue for each CPU").on(Since(6, 0)), None);
    }
}
