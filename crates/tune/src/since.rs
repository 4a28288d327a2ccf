//! Since which kernel something is so.

use std::fmt;

/// A kernel version, major and minor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Since(pub u32, pub u32);

impl Since {
    /// The version at the beginning of a release, `6.12.74+deb13-amd64`.
    pub fn of_release(release: &str) -> Option<Since> {
        let mut numbers =
            release.split(|sign: char| !sign.is_ascii_digit()).map(|number| number.parse().ok());
        Some(Since(numbers.next()??, numbers.next()??))
    }
}

impl fmt::Display for Since {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_compared_by_number() {
        assert_eq!(Since::of_release("6.12.74+deb13-amd64"), Some(Since(6, 12)));
        assert_eq!(Since::of_release("5.15-rc1"), Some(Since(5, 15)));
        assert_eq!(Since::of_release("next"), None);
        assert!(Since(6, 6) < Since(6, 12) && Since(5, 15) < Since(6, 1));
    }
}
